#pragma once

#include <cstddef>
#include <list>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace shale {

// A map that knows which of its keys was touched longest ago, for keeping a bounded number of them.
template <class Key, class Value>
class LruMap {
 public:
  using Item = std::pair<const Key, Value>;

  LruMap() = default;
  LruMap(LruMap&&) = default;
  LruMap& operator=(LruMap&&) = default;

  // Null where it is not there. Touches nothing.
  const Value* find(const Key& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &found->second->second;
  }

  // The key's value, made of `arguments` where there is none. Stays in place until it is erased.
  template <class... Arguments>
  Value& touch(const Key& key, Arguments&&... arguments) {
    if (const auto found = places_.find(key); found != places_.end()) {
      items_.splice(items_.begin(), items_, found->second);
    } else {
      items_.emplace_front(std::piecewise_construct, std::forward_as_tuple(key),
                           std::forward_as_tuple(std::forward<Arguments>(arguments)...));
      places_.emplace(key, items_.begin());
    }
    return items_.front().second;
  }

  void erase(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return;
    items_.erase(found->second);
    places_.erase(found);
  }

  // Touched longest ago of all; there is one.
  const Item& oldest() const { return items_.back(); }
  void erase_oldest() {
    places_.erase(items_.back().first);
    items_.pop_back();
  }

  std::size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }  // touched last
  auto end() const { return items_.end(); }

 private:
  std::list<Item> items_;
  std::unordered_map<Key, typename std::list<Item>::iterator> places_;
};

}  // namespace shale
