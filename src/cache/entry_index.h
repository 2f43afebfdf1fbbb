// What the cache knows: entries by key and by prefix, and where their bytes are. No I/O, no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codec/object.h"
#include "placement/placement.h"
#include "tier/tier.h"

namespace shale {

// One stored copy of an entry: the strata of one object that lie on one tier, at all of its bits or at fewer.
struct StoredObject {
  std::uint32_t tier = 0;  // index, fast to slow
  std::shared_ptr<const Manifest> manifest;
  std::uint32_t strata = 0;  // present: [0, strata) of the manifest's
  Bits bits = Bits::kAll;    // present of each

  // What the copy amounts to: snapkv+layered2 where snapkv+layered lies without its refinement.
  Method method() const { return manifest->method_at(bits); }
  // At which bits the copy can be read, or pressed to, as `method` at `keep`; nothing where it cannot.
  std::optional<Bits> serves(const Method& method, double keep) const;
  // The keep of the grid that the present strata answer for; 1 for objects of a single stratum.
  double keep() const;
  std::uint64_t bytes() const;  // of the chunks present
  Hash128 name() const { return manifest->name(); }
};

// The segment of a prompt that ends at a branch or at a turn: an unbranched piece of the prefix tree.
struct Entry {
  EntryKey key;
  EntryKey parent;  // all zero for a root
  std::uint32_t first_position = 0;
  std::vector<std::int32_t> tokens;
  std::vector<StoredObject> objects;
  Frequency frequency;                         // of accesses, by earlier processes too
  Frequency accesses_here;                     // by this process alone: what it adds to the others'
  double recompute_s = 0;                      // what computing it last cost; 0: not measured
  std::uint32_t children = 0;                  // entries that continue this one
  std::uint32_t pins = 0;                      // reads, encodings and moves under way
  std::string label;                           // for people
  std::vector<std::weak_ptr<TierRead>> reads;  // of its objects, that requests started
  std::vector<EntryKey>* changes = nullptr;    // of the index
  bool noted = false;                          // among them

  // What a planner may choose for the entry has changed: its pins, its copies, what continues it, or its use.
  void note_change() {
    if (changes && !std::exchange(noted, true)) changes->push_back(key);
  }
  std::uint32_t end_position() const { return first_position + static_cast<std::uint32_t>(tokens.size()); }
  StoredObject* find(const Method& method, std::uint32_t tier);
  // The fastest uncompressed copy: every other configuration can be made from it. Null when there is none.
  const StoredObject* full_copy() const;
  void forget(const Hash128& object, std::uint32_t tier);
  void access(double now_s);
  // Whether a read of its objects is under way. Ends without anybody's doing: a read is over once its bytes are here.
  bool being_read();
};

// Keeps an entry in the index while something reads or moves its bytes.
class EntryPin {
 public:
  EntryPin() = default;
  explicit EntryPin(Entry& entry) : entry_(&entry) {
    ++entry.pins;
    entry.note_change();
  }
  ~EntryPin() { release(); }
  EntryPin(EntryPin&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  EntryPin& operator=(EntryPin&& other) noexcept {
    if (this != &other) {
      release();
      entry_ = std::exchange(other.entry_, nullptr);
    }
    return *this;
  }
  Entry* entry() const { return entry_; }

 private:
  void release() {
    if (!entry_) return;
    --entry_->pins;
    entry_->note_change();
    entry_ = nullptr;
  }
  Entry* entry_ = nullptr;
};

class EntryIndex {
 public:
  Entry* find(const EntryKey& key);
  const Entry* find(const EntryKey& key) const;
  // The new or the known entry.
  Entry& add(const EntryKey& key, const EntryKey& parent, std::uint32_t first_position,
             std::span<const std::int32_t> tokens);
  // Requires an entry without pins. Entries that continue it stay, out of reach until it is added again.
  void remove(const EntryKey& key);

  // The chain of entries that covers most of `tokens`, root first: all but the last are matched wholly, `matched`
  // tokens of the last.
  struct Link {
    Entry* entry = nullptr;
    std::uint32_t matched = 0;
  };
  std::vector<Link> match(std::span<const std::int32_t> tokens);

  // Entries that changed since this was last asked, each once; of those removed since, only the key is left.
  std::vector<EntryKey> take_changes();

  std::size_t size() const { return entries_.size(); }
  // In no particular order.
  std::vector<Entry*> all();
  std::vector<const Entry*> all() const;
  Status check_integrity() const;

 private:
  // By tokens in lexicographic order: the longest common prefix lies next to where the searched tokens would be.
  struct TokensLess {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
  };
  using Children = std::map<std::vector<std::int32_t>, Entry*, TokensLess>;

  // Those entries below `parent` that begin as `tokens` do and of which one may cover most, each with how far.
  std::vector<Link> match_children(const EntryKey& parent, std::span<const std::int32_t> tokens) const;

  std::unordered_map<EntryKey, std::unique_ptr<Entry>> entries_;
  std::unordered_map<EntryKey, Children> children_;                                             // by parent
  std::unique_ptr<std::vector<EntryKey>> changes_ = std::make_unique<std::vector<EntryKey>>();  // stays where it is
};

}  // namespace shale
