#include "profile/metrics/code_tree.h"

#include <tree_sitter/api.h>

#include <algorithm>
#include <array>
#include <memory>

extern "C" {
const TSLanguage* tree_sitter_go();
const TSLanguage* tree_sitter_java();
const TSLanguage* tree_sitter_javascript();
const TSLanguage* tree_sitter_python();
}

namespace shale {
namespace {

constexpr auto kPythonBindings = std::to_array<Binding>({{"assignment", "left", "right"},
                                                         {"augmented_assignment", "left", "right", true},
                                                         {"named_expression", "name", "value"},
                                                         {"default_parameter", "name", "value"},
                                                         {"typed_default_parameter", "name", "value"},
                                                         {"for_statement", "left", "right"},
                                                         {"for_in_clause", "left", "right", false, true}});
constexpr auto kPythonLoops = std::to_array<std::string_view>({"for_statement", "while_statement"});

constexpr auto kJavaScriptBindings = std::to_array<Binding>({{"assignment_expression", "left", "right"},
                                                             {"augmented_assignment_expression", "left", "right", true},
                                                             {"variable_declarator", "name", "value"},
                                                             {"assignment_pattern", "left", "right"},
                                                             {"update_expression", "argument", "", true},
                                                             {"for_in_statement", "left", "right"}});
constexpr auto kJavaScriptLoops =
    std::to_array<std::string_view>({"for_statement", "for_in_statement", "while_statement", "do_statement"});

constexpr auto kJavaBindings = std::to_array<Binding>({{"assignment_expression", "left", "right"},
                                                       {"variable_declarator", "name", "value"},
                                                       {"update_expression", "", "", true},
                                                       {"enhanced_for_statement", "name", "value"}});
constexpr auto kJavaLoops =
    std::to_array<std::string_view>({"for_statement", "enhanced_for_statement", "while_statement", "do_statement"});

constexpr auto kGoBindings = std::to_array<Binding>({{"assignment_statement", "left", "right"},
                                                     {"short_var_declaration", "left", "right"},
                                                     {"var_spec", "name", "value"},
                                                     {"const_spec", "name", "value"},
                                                     {"inc_statement", "", "", true},
                                                     {"dec_statement", "", "", true},
                                                     {"range_clause", "left", "right"}});
constexpr auto kGoLoops = std::to_array<std::string_view>({"for_statement"});

// The first of two that explain a text alike is taken.
constexpr auto kLanguages =
    std::to_array<CodeLanguage>({{"python", tree_sitter_python, kPythonBindings, kPythonLoops},
                                 {"java", tree_sitter_java, kJavaBindings, kJavaLoops},
                                 {"javascript", tree_sitter_javascript, kJavaScriptBindings, kJavaScriptLoops},
                                 {"go", tree_sitter_go, kGoBindings, kGoLoops}});

constexpr std::size_t kBytesMax = std::size_t{256} << 10;  // a longer text is taken for no code
constexpr double kWrongMax = 0.1;                          // of the tokens of code, missing ones among them

template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};

}  // namespace

const Binding* CodeLanguage::binding(std::string_view kind) const {
  const auto found = std::ranges::find(bindings, kind, &Binding::kind);
  return found == bindings.end() ? nullptr : &*found;
}

bool CodeLanguage::is_loop(std::string_view kind) const { return std::ranges::find(loops, kind) != loops.end(); }

std::span<const CodeLanguage> code_languages() { return kLanguages; }

CodeTree CodeTree::parse(std::string_view text, const CodeLanguage& language) {
  CodeTree result;
  result.language_ = &language;
  const std::unique_ptr<TSParser, Release<ts_parser_delete>> parser(ts_parser_new());
  if (!ts_parser_set_language(parser.get(), language.grammar())) return result;
  const std::unique_ptr<TSTree, Release<ts_tree_delete>> tree(
      ts_parser_parse_string(parser.get(), nullptr, text.data(), static_cast<std::uint32_t>(text.size())));
  if (!tree) return result;
  TSTreeCursor cursor = ts_tree_cursor_new(ts_tree_root_node(tree.get()));
  std::vector<std::uint32_t> open;  // the ancestors of the next node
  for (bool more = true; more;) {
    const TSNode node = ts_tree_cursor_current_node(&cursor);
    const bool comment = ts_node_is_extra(node) && !ts_node_is_error(node);  // which is extra, too
    if (!comment) {
      const char* field = ts_tree_cursor_current_field_name(&cursor);
      const std::uint32_t begin = ts_node_start_byte(node);
      open.push_back(static_cast<std::uint32_t>(result.nodes_.size()));
      result.nodes_.push_back({.kind = ts_node_type(node),
                               .field = field ? field : "",
                               .text = text.substr(begin, ts_node_end_byte(node) - begin),
                               .named = ts_node_is_named(node),
                               .wrong = ts_node_is_error(node) || ts_node_is_missing(node),
                               .depth = static_cast<std::uint32_t>(open.size() - 1)});
    }
    const auto close = [&] {
      result.nodes_[open.back()].end = static_cast<std::uint32_t>(result.nodes_.size());
      open.pop_back();
    };
    if (!comment && ts_tree_cursor_goto_first_child(&cursor)) continue;
    if (!comment) close();
    while (!ts_tree_cursor_goto_next_sibling(&cursor)) {
      more = ts_tree_cursor_goto_parent(&cursor);
      if (!more) break;
      close();
    }
  }
  ts_tree_cursor_delete(&cursor);
  result.count_wrong();
  return result;
}

CodeTree CodeTree::read(std::string_view text, const CodeLanguage& language) {
  CodeTree whole = parse(text, language);
  const std::size_t last_line = text.rfind('\n');
  if (whole.wrong_share_ == 0 || last_line == std::string_view::npos) return whole;
  CodeTree without = parse(text.substr(0, last_line + 1), language);
  return without.wrong_share_ < whole.wrong_share_ ? without : whole;
}

std::optional<CodeTree> CodeTree::of_code(std::string_view text) {
  if (text.size() > kBytesMax) return std::nullopt;
  std::optional<CodeTree> best;
  for (const CodeLanguage& language : kLanguages) {
    CodeTree tree = read(text, language);
    if (!best || tree.wrong_share_ < best->wrong_share_) best = std::move(tree);
  }
  if (best->wrong_share_ > kWrongMax || !best->states_anything()) return std::nullopt;
  return best;
}

void CodeTree::count_wrong() {
  std::uint32_t tokens = 0, wrong = 0, wrong_until = 0;
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].wrong) wrong_until = std::max(wrong_until, nodes_[i].end);
    tokens += nodes_[i].leaf(i);
    wrong += nodes_[i].leaf(i) && i < wrong_until;
  }
  if (tokens > 0) wrong_share_ = static_cast<double>(wrong) / tokens;
}

bool CodeTree::states_anything() const {
  return std::ranges::any_of(nodes_, [this](const CodeNode& node) {
    const bool statement = node.kind.ends_with("_statement") && node.kind != "expression_statement";
    return statement || node.kind.ends_with("_definition") || node.kind.ends_with("_declaration") ||
           language_->binding(node.kind);
  });
}

}  // namespace shale
