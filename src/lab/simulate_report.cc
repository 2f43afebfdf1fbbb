#include "lab/simulate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/units.h"
#include "report/html_page.h"
#include "trace/reuse_distance.h"

namespace shale {
namespace {

constexpr double kDistanceStep = 1.5;  // between the points of a curve of reuse distances

using Group = std::pair<const Trace*, std::string>;  // trace, scheduler

// In order of first appearance.
template <class Key, class KeyOf>
std::vector<Key> distinct(const std::vector<SimulatedRow>& rows, const KeyOf& key_of) {
  std::vector<Key> found;
  for (const SimulatedRow& row : rows) {
    const Key key = key_of(row);
    if (std::ranges::find(found, key) == found.end()) found.push_back(key);
  }
  return found;
}

Group group_of(const SimulatedRow& row) { return {row.trace, row.options.scheduler}; }

std::vector<SimulatedRow> of_group(const std::vector<SimulatedRow>& rows, const Group& group) {
  std::vector<SimulatedRow> found;
  std::ranges::copy_if(rows, std::back_inserter(found), [&](const auto& row) { return group_of(row) == group; });
  return found;
}

std::vector<std::string> policies_of(const std::vector<SimulatedRow>& rows) {
  return distinct<std::string>(rows, [](const SimulatedRow& row) { return row.options.policy; });
}

std::vector<std::uint64_t> sizes_of(const std::vector<SimulatedRow>& rows) {
  auto sizes = distinct<std::uint64_t>(rows, [](const SimulatedRow& row) { return row.options.blocks; });
  std::ranges::sort(sizes);
  return sizes;
}

const SimulatedRow* find(const std::vector<SimulatedRow>& rows, std::string_view policy, std::uint64_t blocks) {
  const auto found = std::ranges::find_if(
      rows, [&](const auto& row) { return row.options.policy == policy && row.options.blocks == blocks; });
  return found == rows.end() ? nullptr : &*found;
}

std::string with_thousands(std::uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::uint64_t prompt_blocks(const Trace& trace) {
  std::uint64_t blocks = 0;
  for (const TraceRequest& request : trace.requests) blocks += request.prompt_blocks;
  return blocks;
}

std::string heading(const Group& group) {
  const Trace& trace = *group.first;
  return fmt::format("{}, {}: {} requests, {} blocks of {} tokens, {} of them different", trace.name, group.second,
                     with_thousands(trace.requests.size()), with_thousands(prompt_blocks(trace)), trace.block_tokens,
                     with_thousands(trace.unique_blocks()));
}

std::string column_table(const std::vector<SimulatedRow>& rows) {
  const auto policies = policies_of(rows);
  std::string out = fmt::format("{:>12}", "BLOCKS");
  const auto width = [](const std::string& policy) { return std::max<std::size_t>(policy.size(), 7) + 2; };
  for (const std::string& policy : policies) out += fmt::format("{:>{}}", policy, width(policy));
  for (const std::uint64_t blocks : sizes_of(rows)) {
    out += fmt::format("\n{:>12}", with_thousands(blocks));
    for (const std::string& policy : policies) {
      const SimulatedRow* row = find(rows, policy, blocks);
      const std::string cell =
          row == nullptr ? "-" : fmt::format("{:.2f}{}", 100 * row->result.hit_ratio(), row->complete() ? "" : "*");
      out += fmt::format("{:>{}}", cell, width(policy));
    }
  }
  return out + "\n";
}

std::string online_table(const std::vector<SimulatedRow>& rows) {
  std::string out = fmt::format("{:>12}  {:<18} {:>7} {:>29}  {:>28} {:>6}\n", "BLOCKS", "POLICY", "HIT %",
                                "WAITING p50 / p90 / p99", "FIRST TOKEN p50 / p90 / p99", "BUSY");
  for (const SimulatedRow& row : rows) {
    const WaitingTimes& times = *row.result.times;
    const auto three = [](const Percentiles& each) {
      return fmt::format("{} / {} / {}", format_duration(each.p50), format_duration(each.p90),
                         format_duration(each.p99));
    };
    out += fmt::format("{:>12}  {:<18} {:>7.2f} {:>29}  {:>28} {:>4.0f} %\n", with_thousands(row.options.blocks),
                       row.options.policy, 100 * row.result.hit_ratio(), three(times.waiting), three(times.ttft),
                       100 * times.busy);
  }
  return out;
}

Chart size_chart(const Group& group, const std::vector<SimulatedRow>& rows) {
  Chart chart{fmt::format("Hit ratio against size: {}, {}", group.first->name, group.second),
              fmt::format("cache, blocks of {} tokens", group.first->block_tokens),
              "blocks found, % of those asked for",
              true,
              {}};
  for (const std::string& policy : policies_of(rows)) {
    ChartLine line{policy, {}, policy == kOptimum};
    for (const std::uint64_t blocks : sizes_of(rows)) {
      const SimulatedRow* row = find(rows, policy, blocks);
      if (row != nullptr) line.points.emplace_back(static_cast<double>(blocks), 100 * row->result.hit_ratio());
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

Chart time_chart(const Group& group, const std::vector<SimulatedRow>& rows) {
  const auto sizes = sizes_of(rows);
  const std::uint64_t blocks = sizes[sizes.size() / 2];
  Chart chart{
      fmt::format("Hit ratio over time, {} blocks: {}, {}", with_thousands(blocks), group.first->name, group.second),
      "seconds from the trace's start",
      "blocks found since the last point, %",
      false,
      {}};
  for (const std::string& policy : policies_of(rows)) {
    const SimulatedRow* row = find(rows, policy, blocks);
    if (row == nullptr) continue;
    ChartLine line{policy, {}, policy == kOptimum};
    TimelinePoint before;
    for (const TimelinePoint& point : row->result.timeline) {
      const auto requested = static_cast<double>(point.blocks_requested - before.blocks_requested);
      const auto reused = static_cast<double>(point.blocks_reused - before.blocks_reused);
      if (requested > 0) line.points.emplace_back(point.time_s, 100 * reused / requested);
      before = point;
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

// At each distance, the share of blocks that were asked for before with fewer others in between: what an LRU cache of
// single blocks of that size would find.
Chart distance_chart(const Trace& trace) {
  Chart chart{fmt::format("Reuse distance: {}", trace.name),
              "other blocks asked for in between, at most",
              "blocks asked for again, % of all",
              true,
              {{trace.name, {}, false}}};
  const auto requested = static_cast<double>(prompt_blocks(trace));
  double accesses = 0, next = 1;
  for (const ReuseDistance& each : reuse_distances(trace)) {
    for (; static_cast<double>(each.distance) > next; next *= kDistanceStep) {
      chart.lines[0].points.emplace_back(next, 100 * accesses / requested);
    }
    accesses += static_cast<double>(each.accesses);
  }
  chart.lines[0].points.emplace_back(next, 100 * accesses / requested);
  return chart;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace

Json to_json(const SimulatedRow& row, bool with_timeline) {
  const SimulationResult& result = row.result;
  Json json = {{"trace", row.trace->name},
               {"policy", row.options.policy},
               {"scheduler", row.options.scheduler},
               {"blocks", row.options.blocks},
               {"requests", result.requests},
               {"blocks_requested", result.blocks_requested},
               {"blocks_reused", result.blocks_reused},
               {"hit_ratio", result.hit_ratio()},
               {"seconds", result.seconds}};
  if (result.times) {
    const auto three = [](const Percentiles& each) {
      return Json{{"p50", each.p50}, {"p90", each.p90}, {"p99", each.p99}};
    };
    json["waiting_seconds"] = three(result.times->waiting);
    json["ttft_seconds"] = three(result.times->ttft);
    json["busy"] = result.times->busy;
  }
  if (with_timeline) {
    Json points = Json::array();
    for (const TimelinePoint& point : result.timeline) {
      points.push_back({{"time_seconds", point.time_s},
                        {"requests", point.requests},
                        {"blocks_requested", point.blocks_requested},
                        {"blocks_reused", point.blocks_reused},
                        {"resident_blocks", point.resident_blocks}});
    }
    json["timeline"] = std::move(points);
  }
  if (!row.complete()) json["interrupted"] = true;
  return json;
}

std::string csv_header(bool online) {
  return std::string("trace,policy,scheduler,blocks,requests,blocks_requested,blocks_reused,hit_ratio,seconds") +
         (online ? ",waiting_p50,waiting_p90,waiting_p99,ttft_p50,ttft_p90,ttft_p99,busy" : "");
}

std::string csv_line(const SimulatedRow& row) {
  const SimulationResult& result = row.result;
  std::string line = fmt::format("{},{},{},{},{},{},{},{},{}", quoted(row.trace->name), row.options.policy,
                                 row.options.scheduler, row.options.blocks, result.requests, result.blocks_requested,
                                 result.blocks_reused, result.hit_ratio(), result.seconds);
  if (result.times) {
    const auto& [waiting, ttft, busy] = *result.times;
    line +=
        fmt::format(",{},{},{},{},{},{},{}", waiting.p50, waiting.p90, waiting.p99, ttft.p50, ttft.p90, ttft.p99, busy);
  }
  return line;
}

std::string text_tables(const std::vector<SimulatedRow>& rows) {
  std::string out;
  for (const Group& group : distinct<Group>(rows, group_of)) {
    const auto members = of_group(rows, group);
    const bool online = members.front().result.times.has_value();
    out += fmt::format("{}{}\n{}{}", out.empty() ? "" : "\n", heading(group),
                       online ? "" : "blocks found, per cent of those asked for\n",
                       online ? online_table(members) : column_table(members));
  }
  return out;
}

std::vector<Chart> charts_of(const std::vector<SimulatedRow>& rows) {
  std::vector<Chart> charts;
  for (const Group& group : distinct<Group>(rows, group_of)) {
    const auto members = of_group(rows, group);
    charts.push_back(size_chart(group, members));
    if (!members.front().result.timeline.empty()) charts.push_back(time_chart(group, members));
  }
  for (const Trace* trace : distinct<const Trace*>(rows, [](const SimulatedRow& row) { return row.trace; })) {
    charts.push_back(distance_chart(*trace));
  }
  return charts;
}

std::string simulate_page(const std::vector<SimulatedRow>& rows, const std::vector<Chart>& charts) {
  return html_page("shale simulate", "Prefix cache simulation",
                   inline_charts(charts) + preformatted(text_tables(rows)));
}

}  // namespace shale
