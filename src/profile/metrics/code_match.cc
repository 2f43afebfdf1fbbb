#include "profile/metrics/code_match.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "core/hash.h"

namespace shale {
namespace {

constexpr std::uint32_t kDepthMax = 200;  // what is nested deeper is passed over

// The share of what the reference has that the answer has, too; nothing where the reference has nothing.
template <class Counts>
std::optional<double> share(const Counts& answer, const Counts& reference) {
  std::uint32_t matched = 0, all = 0;
  for (const auto& [key, count] : reference) {
    const auto found = answer.find(key);
    matched += found == answer.end() ? 0 : std::min(count, found->second);
    all += count;
  }
  if (all == 0) return std::nullopt;
  return static_cast<double>(matched) / all;
}

// How often each subtree is there, by what it is made of.
std::unordered_map<std::uint64_t, std::uint32_t> subtrees_of(const CodeTree& tree) {
  const auto nodes = tree.nodes();
  std::vector<std::uint64_t> signatures(nodes.size());
  std::unordered_map<std::uint64_t, std::uint32_t> counts;
  for (auto i = static_cast<std::uint32_t>(nodes.size()); i-- > 0;) {  // children before their parents
    Hasher hasher;
    hasher.add(nodes[i].kind).add(nodes[i].field);
    bool has_children = false;
    for (std::uint32_t child = i + 1; child < nodes[i].end; child = nodes[child].end) {
      has_children = true;
      if (nodes[child].named) hasher.add(signatures[child]);
    }
    signatures[i] = hasher.finish().low;
    if (has_children) ++counts[signatures[i]];
  }
  return counts;
}

bool is_string(const CodeNode& node) {
  return node.kind == "template_string" || node.kind.starts_with("string") || node.kind.ends_with("string_literal");
}
bool is_variable(const CodeNode& node) { return node.kind == "identifier"; }
// Several values, one for each of several variables.
bool is_list(const CodeNode& node) {
  static constexpr std::string_view kLists[] = {"pattern_list",    "tuple_pattern", "list_pattern", "array_pattern",
                                                "expression_list", "tuple",         "list",         "array"};
  return std::ranges::find(kLists, node.kind) != std::end(kLists);
}

class DataFlow {
 public:
  explicit DataFlow(const CodeTree& tree) : nodes_(tree.nodes()), language_(tree.language()) {
    if (!nodes_.empty()) visit(0);
  }

  // How often each edge is there: what it goes to, whether that is computed, and what it comes from. Variables and
  // values are numbered as they appear.
  std::map<std::vector<std::size_t>, std::uint32_t> edges() const {
    std::map<std::string_view, std::size_t> numbers;
    const auto number = [&](std::string_view name) { return numbers.try_emplace(name, numbers.size()).first->second; };
    std::set<std::string_view> used;
    for (const auto& [place, sources] : edges_) used.insert(sources.begin(), sources.end());
    std::map<std::vector<std::size_t>, std::uint32_t> counts;
    for (const auto& [place, sources] : edges_) {
      const bool goes_on =
          is_variable(nodes_[place.node]) ? used.contains(nodes_[place.node].text) : given_.contains(place.node);
      if (sources.empty() && !goes_on) continue;
      std::set<std::size_t> from;
      for (const std::string_view source : sources) from.insert(number(source));
      std::vector<std::size_t> edge = {number(nodes_[place.node].text), place.computed};
      edge.insert(edge.end(), from.begin(), from.end());
      ++counts[edge];
    }
    return counts;
  }

 private:
  struct Place {
    std::uint32_t node;
    bool computed;
    auto operator<=>(const Place&) const = default;
  };

  template <class Use>
  void for_each_child(std::uint32_t parent, Use use) const {
    for (std::uint32_t child = parent + 1; child < nodes_[parent].end; child = nodes_[child].end) use(child);
  }

  bool is_value(std::uint32_t node) const {
    return nodes_[node].named && (is_string(nodes_[node]) || nodes_[node].leaf(node));
  }

  // Once around a loop, and all that are within it, what it gives a value later has one.
  void visit(std::uint32_t node) {
    if (!in_loop_ && language_.is_loop(nodes_[node].kind)) {
      in_loop_ = true;
      visit_once(node);
      visit_once(node);
      in_loop_ = false;
    } else {
      visit_once(node);
    }
  }

  void visit_once(std::uint32_t node) {
    if (nodes_[node].depth > kDepthMax) return;
    if (is_variable(nodes_[node])) {
      const std::string_view name = nodes_[node].text;
      if (known_.insert(name).second) {
        edges_.try_emplace({node, false});
      } else {
        edges_[{node, false}] = {name};
      }
    } else if (is_value(node)) {
      edges_.try_emplace({node, false});
    } else if (const Binding* binding = language_.binding(nodes_[node].kind)) {
      bind(node, *binding);
    } else {
      const auto first = [&](std::uint32_t child) {
        const Binding* of_child = language_.binding(nodes_[child].kind);
        return of_child && of_child->first;
      };
      for_each_child(node, [&](std::uint32_t child) {
        if (first(child)) visit(child);
      });
      for_each_child(node, [&](std::uint32_t child) {
        if (!first(child)) visit(child);
      });
    }
  }

  void bind(std::uint32_t node, const Binding& binding) {
    std::vector<std::uint32_t> targets, sources, others;
    for_each_child(node, [&](std::uint32_t child) {
      const std::string_view field = nodes_[child].field;
      if (binding.target.empty() ? nodes_[child].named : field == binding.target) {
        targets.push_back(child);
      } else {
        (!binding.source.empty() && field == binding.source ? sources : others).push_back(child);
      }
    });
    for (const std::uint32_t source : sources) visit(source);
    give(targets, sources, binding.updates);
    for (const std::uint32_t other : others) visit(other);
  }

  void give(const std::vector<std::uint32_t>& targets, const std::vector<std::uint32_t>& sources, bool updates) {
    if (targets.size() == 1 && sources.size() == 1 && is_list(nodes_[targets[0]]) && is_list(nodes_[sources[0]])) {
      const auto left = parts_of(targets[0]), right = parts_of(sources[0]);
      if (left.size() == right.size()) {
        for (std::size_t i = 0; i < left.size(); ++i) give({left[i]}, {right[i]}, updates);
        return;
      }
    }
    std::vector<std::string_view> values;
    for (const std::uint32_t source : sources) collect_values(source, values);
    for (const std::uint32_t target : targets) {
      if (updates) collect_values(target, values);
      for (std::uint32_t i = target; i < nodes_[target].end; ++i) {
        if (!is_variable(nodes_[i])) continue;
        if (!values.empty()) edges_[{i, true}] = values;
        known_.insert(nodes_[i].text);
      }
    }
  }

  std::vector<std::uint32_t> parts_of(std::uint32_t list) const {
    std::vector<std::uint32_t> parts;
    for_each_child(list, [&](std::uint32_t child) {
      if (nodes_[child].named) parts.push_back(child);
    });
    return parts;
  }

  void collect_values(std::uint32_t node, std::vector<std::string_view>& values) {
    for (std::uint32_t i = node; i < nodes_[node].end;) {
      if (is_value(i)) {
        values.push_back(nodes_[i].text);
        given_.insert(i);
      }
      i = is_string(nodes_[i]) ? nodes_[i].end : i + 1;
    }
  }

  const std::span<const CodeNode> nodes_;
  const CodeLanguage& language_;
  bool in_loop_ = false;
  std::set<std::uint32_t> given_;                         // values that a variable is given
  std::set<std::string_view> known_;                      // that have a value
  std::map<Place, std::vector<std::string_view>> edges_;  // where a value comes from, by where it goes
};

}  // namespace

double syntax_match(const CodeTree& answer, const CodeTree& reference) {
  return share(subtrees_of(answer), subtrees_of(reference)).value_or(0);
}

std::optional<double> data_flow_match(const CodeTree& answer, const CodeTree& reference) {
  return share(DataFlow(answer).edges(), DataFlow(reference).edges());
}

}  // namespace shale
