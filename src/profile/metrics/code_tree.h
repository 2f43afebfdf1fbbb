// Source code as a tree of its syntax, by tree-sitter. Code that is cut off or wrong gives what can be made out of it.
// Adding a language adds its grammar to tools/tree_sitter.requirements.txt and its row in code_tree.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

struct TSLanguage;

namespace shale {

// A node that gives variables a value. What it gives has the grammar's names.
struct Binding {
  std::string_view kind;
  std::string_view target, source;  // fields; `source` may be absent
  bool updates = false;             // the target's own value goes in, too
  bool first = false;               // it is evaluated before its siblings
};

struct CodeLanguage {
  std::string_view name;
  const TSLanguage* (*grammar)();
  std::span<const Binding> bindings;
  std::span<const std::string_view> loops;

  const Binding* binding(std::string_view kind) const;  // null where a node of this kind is none
  bool is_loop(std::string_view kind) const;
};

// python, java, javascript, go.
std::span<const CodeLanguage> code_languages();

struct CodeNode {
  std::string_view kind, field;  // as the grammar names it, and what it is to its parent
  std::string_view text;
  bool named = false;       // and not a sign or keyword alone
  bool wrong = false;       // no syntax, or syntax that is missing
  std::uint32_t depth = 0;  // of the root 0
  std::uint32_t end = 0;    // of its descendants, which follow it

  bool leaf(std::uint32_t index) const { return end == index + 1; }
};

// Nodes in the order of the text, parents before their children, comments left out. Texts point into what was parsed,
// which must outlive it.
class CodeTree {
 public:
  static CodeTree parse(std::string_view text, const CodeLanguage& language);
  // Reads without its last line where that is cut off.
  static CodeTree read(std::string_view text, const CodeLanguage& language);
  // The same in the language that explains most of it; nothing where that is less than nine tenths, or where there is
  // no more to it than words and values, as in prose of a few words.
  static std::optional<CodeTree> of_code(std::string_view text);

  const CodeLanguage& language() const { return *language_; }
  std::span<const CodeNode> nodes() const { return nodes_; }

 private:
  void count_wrong();
  bool states_anything() const;

  const CodeLanguage* language_ = nullptr;
  std::vector<CodeNode> nodes_;
  double wrong_share_ = 1;  // of the tokens; of no tokens all
};

}  // namespace shale
