#include "report/quality_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "profile/bootstrap.h"
#include "report/html_page.h"
#include "report/prediction_report.h"

namespace shale {
namespace {

using Rows = std::vector<const QualityRow*>;

template <class KeyOf>
auto grouped(const Rows& rows, const KeyOf& key_of) {
  std::map<std::decay_t<decltype(key_of(*rows.front()))>, Rows> groups;
  for (const QualityRow* row : rows) groups[key_of(*row)].push_back(row);
  return groups;
}

Rows where(const Rows& rows, const std::function<bool(const QualityRow&)>& wanted) {
  Rows found;
  std::ranges::copy_if(rows, std::back_inserter(found), [&](const QualityRow* row) { return wanted(*row); });
  return found;
}

std::string context_of(const QualityRow& row) { return row.dataset + " " + row.context; }

// A mean over contexts; questions of one context are one group.
Interval interval_of(const Rows& rows, const std::function<double(const QualityRow&)>& value) {
  std::vector<std::vector<double>> groups;
  for (const auto& [context, group] : grouped(rows, context_of)) {
    auto& values = groups.emplace_back();
    for (const QualityRow* row : group) values.push_back(value(*row));
  }
  return bootstrap_mean(groups);
}

// The same mean alone.
double mean_of(const Rows& rows, const std::function<double(const QualityRow&)>& value) {
  double sum = 0;
  for (const QualityRow* row : rows) sum += value(*row);
  return sum / static_cast<double>(rows.size());
}

double agreement(const QualityRow& row) { return row.agreement; }

std::size_t contexts_in(const Rows& rows) { return grouped(rows, context_of).size(); }

// How many contexts a mean is over, where the table has others.
std::string of_contexts(const Rows& rows, std::size_t all) {
  const std::size_t count = contexts_in(rows);
  return count == all ? "" : fmt::format(", {} of {} contexts", count, all);
}

std::string cell(const Rows& rows, std::size_t contexts_all) {
  if (rows.empty()) return "–";
  const Interval interval = interval_of(rows, agreement);
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]{}", interval.mean, interval.low, interval.high,
                     of_contexts(rows, contexts_all));
}

std::string short_cell(const Rows& rows, std::size_t contexts_all) {
  return rows.empty() ? "–" : fmt::format("{:.3f}{}", mean_of(rows, agreement), of_contexts(rows, contexts_all));
}

// Keeps as columns, best first: the largest keep at the left.
std::vector<double> keeps_of(const Rows& rows) {
  std::set<double, std::greater<>> keeps;
  for (const QualityRow* row : rows) keeps.insert(row->keep);
  return {keeps.begin(), keeps.end()};
}

std::set<std::string> datasets_of(const Rows& rows) {
  std::set<std::string> names;
  for (const QualityRow* row : rows) names.insert(row->dataset);
  return names;
}

std::string keep_name(double keep) { return fmt::format("keep {}", keep); }

// Methods, the best mean agreement first.
std::vector<std::pair<std::string, Rows>> methods_best_first(const Rows& rows) {
  std::vector<std::pair<std::string, Rows>> methods;
  std::map<std::string, double> means;
  for (auto& [name, group] : grouped(rows, [](const QualityRow& row) { return row.method; })) {
    means[name] = mean_of(group, agreement);
    methods.emplace_back(name, group);
  }
  std::ranges::stable_sort(methods, [&](const auto& a, const auto& b) { return means[a.first] > means[b.first]; });
  return methods;
}

ReportTable by_keep(const Rows& rows) {
  const Rows ranked = where(rows, [](const QualityRow& row) { return row.keep < 1 && row.bits == 16; });
  ReportTable table{
      "Agreement by tokens kept", "16 bits; mean [95 % bootstrap interval over contexts]", {"method"}, {}};
  const auto keeps = keeps_of(ranked);
  for (const double keep : keeps) table.columns.push_back(keep_name(keep));
  const std::size_t contexts = contexts_in(rows);
  for (const auto& [method, group] : methods_best_first(ranked)) {
    auto& line = table.rows.emplace_back(1, method);
    for (const double keep : keeps)
      line.push_back(cell(where(group, [&](const auto& row) { return row.keep == keep; }), contexts));
  }
  return table;
}

ReportTable by_dataset(const Rows& rows) {
  const Rows ranked = where(rows, [](const QualityRow& row) { return row.keep < 1 && row.bits == 16; });
  const auto keeps = keeps_of(ranked);
  ReportTable table{"Agreement by data set", "", {"method"}, {}};
  if (keeps.empty()) return table;
  const double keep = keeps[keeps.size() / 2];
  table.note = fmt::format("keep {}, 16 bits", keep);
  const Rows at_keep = where(ranked, [&](const QualityRow& row) { return row.keep == keep; });
  const auto datasets = datasets_of(at_keep);
  table.columns.insert(table.columns.end(), datasets.begin(), datasets.end());
  const auto of = [](const Rows& some, const std::string& name) {
    return where(some, [&](const QualityRow& row) { return row.dataset == name; });
  };
  std::map<std::string, std::size_t> contexts;
  for (const auto& name : datasets) contexts[name] = contexts_in(of(rows, name));
  for (const auto& [method, group] : methods_best_first(at_keep)) {
    auto& line = table.rows.emplace_back(1, method);
    for (const auto& name : datasets) line.push_back(short_cell(of(group, name), contexts.at(name)));
  }
  return table;
}

ReportTable by_configuration(const Rows& rows) {
  const Rows lossy = where(rows, [](const QualityRow& row) { return row.keep < 1 || row.bits < 16; });
  ReportTable table{"Bytes, agreement and KL",
                    "bytes as a share of the KV as computed; mean [95 % bootstrap interval over contexts]",
                    {"method", "keep", "bits", "bytes", "agreement", "KL"},
                    {}};
  const std::size_t contexts = contexts_in(rows);
  for (const auto& [key, group] :
       grouped(lossy, [](const QualityRow& row) { return std::tuple(-row.keep, -row.bits, row.method); })) {
    const auto share = mean_of(group, [](const QualityRow& row) {
      return static_cast<double>(row.bytes) / static_cast<double>(row.full_bytes);
    });
    table.rows.push_back({std::get<2>(key), fmt::format("{}", -std::get<0>(key)),
                          fmt::format("{:.3g}", -std::get<1>(key)), fmt::format("{:.1f} %", 100 * share),
                          cell(group, contexts),
                          fmt::format("{:.4f}", mean_of(group, [](const QualityRow& row) { return row.kl; }))});
  }
  return table;
}

ReportTable by_answer(const Rows& rows) {
  const Rows answered = where(rows, [](const QualityRow& row) { return !row.answer.empty(); });
  std::set<std::string> names;
  for (const QualityRow* row : answered) {
    for (const auto& [name, value] : row->answer) names.insert(name);
  }
  ReportTable table{
      "Generated answers",
      "against the full cache's answer, and (gold) against the accepted ones; means over those that have it",
      {"method", "keep", "bits", "answers"},
      {}};
  table.columns.insert(table.columns.end(), names.begin(), names.end());
  for (const auto& [key, group] :
       grouped(answered, [](const QualityRow& row) { return std::tuple(row.method, -row.keep); })) {
    auto& line = table.rows.emplace_back();
    line = {std::get<0>(key), fmt::format("{}", -std::get<1>(key)), fmt::format("{:.3g}", group.front()->bits),
            fmt::format("{}", group.size())};
    for (const auto& name : names) {
      const Rows having = where(group, [&](const QualityRow& row) { return row.answer.contains(name); });
      line.push_back(having.empty() ? "–" : fmt::format("{:.3f}", mean_of(having, [&](const QualityRow& row) {
                                                          return row.answer.at(name);
                                                        })));
    }
  }
  return table;
}

// Every context's mean agreement under every method, at one keep.
std::map<std::string, std::map<std::string, double>> by_context(const Rows& rows) {
  std::map<std::string, std::map<std::string, double>> contexts;
  for (const auto& [context, group] : grouped(rows, context_of)) {
    for (const auto& [method, same] : grouped(group, [](const QualityRow& row) { return row.method; })) {
      contexts[context][method] = mean_of(same, agreement);
    }
  }
  return contexts;
}

// Of the contexts that have every method, so that none is compared over others.
void add_winners(const Rows& rows, double keep, ReportTable& table) {
  auto contexts = by_context(rows);
  const std::size_t all = contexts.size(), methods_all = methods_best_first(rows).size();
  std::erase_if(contexts, [&](const auto& entry) { return entry.second.size() < methods_all; });
  if (contexts.size() < all) {
    table.note +=
        fmt::format("; {}: the {} of {} contexts that have every method", keep_name(keep), contexts.size(), all);
  }
  if (contexts.empty()) return;
  std::map<std::string, double> wins, lengths, sums, squares;
  std::map<std::string, std::uint64_t> tokens;
  for (const QualityRow* row : rows) tokens[context_of(*row)] = row->tokens;
  double oracle = 0;
  for (const auto& [context, methods] : contexts) {
    const double best = std::ranges::max_element(methods, {}, [](const auto& entry) { return entry.second; })->second;
    oracle += best;
    const auto ties =
        static_cast<double>(std::ranges::count_if(methods, [&](const auto& entry) { return entry.second == best; }));
    for (const auto& [method, value] : methods) {
      sums[method] += value;
      squares[method] += value * value;
      if (value < best) continue;
      wins[method] += 1 / ties;
      lengths[method] += static_cast<double>(tokens[context]) / ties;
    }
  }
  const auto count = static_cast<double>(contexts.size());
  const auto best_fixed = std::ranges::max_element(sums, {}, [](const auto& entry) { return entry.second; });
  for (const auto& [method, won] : wins) {
    const double mean = sums[method] / count;
    table.rows.push_back({keep_name(keep), method, fmt::format("{:.1f} %", 100 * won / count),
                          fmt::format("{:.0f}", lengths[method] / won), fmt::format("{:.3f}", mean),
                          fmt::format("{:.3f}", std::sqrt(std::max(0.0, squares[method] / count - mean * mean)))});
  }
  table.rows.push_back(
      {keep_name(keep), "the best of each context", "100 %", "", fmt::format("{:.3f}", oracle / count), ""});
  table.rows.push_back({keep_name(keep), fmt::format("gained over {}", best_fixed->first), "", "",
                        fmt::format("{:+.3f}", (oracle - best_fixed->second) / count), ""});
}

ReportTable winners(const Rows& rows) {
  const Rows ranked = where(rows, [](const QualityRow& row) { return row.keep < 1 && row.bits == 16; });
  ReportTable table{"Which method wins, context by context",
                    "ties share a win; tokens: mean length of the contexts won; spread: standard deviation of "
                    "agreement over contexts",
                    {"at", "method", "wins", "tokens", "agreement", "spread"},
                    {}};
  for (const double keep : keeps_of(ranked))
    add_winners(where(ranked, [&](const auto& row) { return row.keep == keep; }), keep, table);
  return table;
}

ReportTable predictions(const Rows& rows) {
  ReportTable table{
      "Agreement predicted",
      "rank correlation with measured agreement over a context's configurations, and seconds for all of "
      "them, means over contexts; each includes ranking the tokens, none computing the context; \"between\": over "
      "contexts at one configuration, mean over configurations",
      {"by", "contexts", "rank correlation", "between", "seconds", "of measuring"},
      {}};
  const std::vector<PredictionSkill> skills = prediction_skills(rows);
  for (const PredictionSkill& skill : skills) {
    if (skill.contexts == 0) continue;
    table.rows.push_back(
        {skill.predictor, fmt::format("{}", skill.contexts), fmt::format("{:.3f}", skill.rank_correlation),
         skill.between ? fmt::format("{:.3f}", *skill.between) : "", fmt::format("{:.2f}", skill.seconds),
         fmt::format("{:.0f} %", 100 * skill.seconds / skills.front().seconds)});
  }
  return table;
}

// Tokens at 16 bits by how many are kept, and all tokens at fewer bits.
Chart chart_of(const Rows& rows, std::string title) {
  Chart chart{
      .title = std::move(title), .x_name = "bytes, share of the KV as computed", .y_name = "agreement", .lines = {}};
  for (const auto& [method, group] :
       methods_best_first(where(rows, [](const QualityRow& row) { return (row.bits == 16) != (row.keep == 1); }))) {
    ChartLine line{method, {}};
    for (const auto& [keep, same] : grouped(group, [](const QualityRow& row) { return row.keep; })) {
      line.points.emplace_back(mean_of(same,
                                       [](const QualityRow& row) {
                                         return static_cast<double>(row.bytes) / static_cast<double>(row.full_bytes);
                                       }),
                               mean_of(same, agreement));
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

// What may stand in one table.
struct Block {
  std::string model;
  bool question_seen;
  std::uint32_t answer_tokens, window, context_tokens_max;
  auto operator<=>(const Block&) const = default;
};

auto blocks_of(std::span<const QualityRow> rows) {
  Rows all;
  for (const QualityRow& row : rows) all.push_back(&row);
  return grouped(all, [](const QualityRow& row) {
    return Block{row.model, row.question_seen, row.answer_tokens, row.window, row.context_tokens_max};
  });
}

// With the setting where there are several.
std::string heading(const Block& block, const std::map<Block, Rows>& blocks) {
  const std::string text =
      fmt::format("{}, question {} when compressing", block.model, block.question_seen ? "seen" : "not seen");
  const auto alike = std::ranges::count_if(blocks, [&](const auto& other) {
    return other.first.model == block.model && other.first.question_seen == block.question_seen;
  });
  if (alike == 1) return text;
  if (block.answer_tokens == 0) return text + ", setting not known";
  return fmt::format("{}, answers of {} tokens, window {}, contexts of {}", text, block.answer_tokens, block.window,
                     block.context_tokens_max == 0 ? "any length" : fmt::format("{} tokens", block.context_tokens_max));
}

}  // namespace

std::vector<ReportTable> quality_tables(std::span<const QualityRow> rows) {
  std::vector<ReportTable> tables;
  if (rows.empty()) return tables;
  const auto blocks = blocks_of(rows);
  for (const auto& [block, group] : blocks) {
    // The shipped texts are there to predict others.
    Rows asked = where(group, [](const QualityRow& row) { return row.dataset != kPriorDataset; });
    if (asked.empty()) asked = group;
    std::size_t questions = 0;
    const auto contexts = grouped(asked, context_of);
    for (const auto& [context, same] : contexts)
      questions += grouped(same, [](const QualityRow& row) { return row.question; }).size();
    const std::string about =
        fmt::format("{} contexts, {} questions, {} data sets", contexts.size(), questions, datasets_of(asked).size());
    for (ReportTable table : {by_keep(asked), by_dataset(asked), by_configuration(asked), by_answer(asked),
                              winners(asked), predictions(group)}) {
      if (table.rows.empty()) continue;
      table.title = fmt::format("{}: {}", heading(block, blocks), table.title);
      table.note = table.note.empty() ? about : about + "; " + table.note;
      tables.push_back(std::move(table));
    }
  }
  return tables;
}

std::vector<Chart> quality_charts(std::span<const QualityRow> rows) {
  std::vector<Chart> charts;
  if (rows.empty()) return charts;
  const auto blocks = blocks_of(rows);
  for (const auto& [block, group] : blocks)
    charts.push_back(chart_of(group, heading(block, blocks) + ", all contexts"));
  for (const auto& [block, group] : blocks) {
    for (const auto& [context, same] : grouped(group, context_of))
      charts.push_back(chart_of(same, heading(block, blocks) + ", " + context));
  }
  std::erase_if(charts, [](const Chart& chart) { return chart.lines.empty(); });
  return charts;
}

std::string to_markdown(std::span<const ReportTable> tables) {
  std::string out;
  for (const ReportTable& table : tables) {
    out += fmt::format("### {}\n\n{}.\n\n|", table.title, table.note);
    for (const std::string& column : table.columns) out += " " + column + " |";
    out += "\n|";
    for (std::size_t i = 0; i < table.columns.size(); ++i) out += i == 0 ? " --- |" : " ---: |";
    for (const auto& row : table.rows) {
      out += "\n|";
      for (const std::string& value : row) out += " " + value + " |";
    }
    out += "\n\n";
  }
  return out;
}

std::string to_html(std::span<const ReportTable> tables, std::span<const Chart> charts) {
  std::string body = inline_charts(charts);
  for (const ReportTable& table : tables) {
    body += "<h2>" + escaped(table.title) + "</h2>\n<p>" + escaped(table.note) + "</p>\n<table>\n<tr>";
    for (const std::string& column : table.columns) body += "<th>" + escaped(column) + "</th>";
    body += "</tr>\n";
    for (const auto& row : table.rows) {
      body += "<tr>";
      for (const std::string& value : row) body += "<td>" + escaped(value) + "</td>";
      body += "</tr>\n";
    }
    body += "</table>\n";
  }
  return html_page("shale quality", "Quality against bytes", body);
}

}  // namespace shale
