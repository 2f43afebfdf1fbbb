// Where a long text can be cut so that its parts are tokenized as the whole is: after a special token written in it.
//
// libllama takes the special tokens out of a text, the longest first, and tokenizes what is left between them. That
// takes time quadratic in their number, 18 s for a megabyte of nothing else, so long texts are handed to it in
// parts. An occurrence that no other one overlaps is taken out whatever the order, and what lies before it and behind
// it is apart.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace shale {

// Immutable once filled, and then thread-safe.
class SpecialTexts {
 public:
  // `cuts`: a text may be cut after it, since it takes no blanks beside it away.
  void add(std::string text, bool cuts);

  // The end of the first occurrence at or after `from` where `text` may be cut; npos where there is none.
  std::size_t cut_after(std::string_view text, std::size_t from) const;

 private:
  template <class Use>
  bool any_at(std::string_view text, std::size_t at, Use use) const;
  bool apart(std::string_view text, std::size_t at, std::size_t size) const;

  std::map<std::string, bool, std::less<>> cuts_;  // by text
  std::set<std::size_t> sizes_;                    // that texts have
};

}  // namespace shale
