#include "trial/chaos_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>

#include "core/interrupt.h"
#include "core/text_file.h"
#include "core/units.h"
#include "loadtest/loopback_http.h"

namespace shale {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 5ms;
constexpr auto kStopMax = 15s;           // between being asked to end and having ended
constexpr auto kIndexMax = 3s;           // until what is stored is known again
constexpr std::size_t kMemoryEvery = 2;  // of starts; what is stored by servers without the memory tier outlives them
constexpr std::uint64_t kResidentSlack = 96 << 20;
constexpr std::uint64_t kResidentOfShared = 128 << 20;  // of each such tier: connections, and buffers kept for reuse

std::chrono::duration<double> seconds(double s) { return std::chrono::duration<double>(s); }

struct Usage {
  std::string text;
  std::uint32_t prompt_tokens = 0, cached_tokens = 0;
};

Result<Usage> ask_whole(std::uint16_t port, const std::string& body) {
  SHALE_ASSIGN(const std::string text, loopback_request(port, "POST", "/v1/chat/completions", body));
  const Json answer = Json::parse(text, nullptr, false);
  if (answer.is_discarded()) return fail(ErrorCode::kInternal, "an answer that is no JSON: {}", text);
  const Json& usage = answer.at("usage");
  return Usage{answer.at("choices")[0].at("message").at("content"), usage.at("prompt_tokens"),
               usage.at("prompt_tokens_details").at("cached_tokens")};
}

bool has_run(const Json& rows, const Json& run) {
  return std::ranges::any_of(rows, [&](const Json& row) { return row["run"] == run; });
}

bool has_made_room(const Metrics& metrics) {
  double given_up = value_of(metrics, "shale_cache_dropped_extents_total");
  for (const char* tier : {"disk", "remote"})
    given_up += value_of(metrics, fmt::format("shale_cache_moves_total{{tier=\"{}\",move=\"removed\"}}", tier));
  return given_up > 0;
}

// How many tokens from the first on the rows hold exactly on the disk, without a gap.
std::uint32_t exact_tokens(const Json& rows) {
  std::uint32_t end = 0;
  for (bool further = true; further;) {
    further = false;
    for (const Json& row : rows) {
      const std::uint32_t first = row["first_position"], past = first + row["tokens"].get<std::uint32_t>();
      if (row["method"] != "full" || row["tier"] != "disk" || first > end || past <= end) continue;
      end = past;
      further = true;
    }
  }
  return end;
}

}  // namespace

// What was asked once, and what of it was stored when the server was killed.
struct ChaosRun::Probe {
  std::string body, answer;
  std::uint32_t tokens = 0;
  Json rows;
};

ChaosRun::ChaosRun(const TrialOptions& options, const TrialFolders& folders, SharedTiers& shared,
                   std::span<const MixPrompt> prompts)
    : options_(options),
      folders_(folders),
      shared_(shared),
      trouble_(folders, shared),
      clients_(prompts, options.clients, options.seed,
               {.on_failure = [this](const std::string& what) { note_failure(what); }}) {}

ChaosCounts ChaosRun::counts() const {
  ChaosCounts counts = counts_;
  counts.clients = clients_.counts();
  return counts;
}

std::vector<std::string> ChaosRun::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

void ChaosRun::note_failure(const std::string& what) {
  const std::lock_guard lock(mutex_);
  failures_.push_back(fmt::format("{} (after fault {}; wrong then: {})", what, number_, wrong_now_));
  print_note("shale: " + failures_.back());
}

Status ChaosRun::start() {
  const bool memory = ++starts_ % kMemoryEvery == 0;
  std::vector<std::string> words = trial_words(options_, folders_, memory, shared_.urls());
  words.push_back("--faults=" + folders_.faults.string());
  words.push_back("--load-always");
  words.push_back(starts_ % 3 ? "--planner=shale" : "--planner=lru");
  SHALE_ASSIGN(server_, ServeChild::start(words, folders_.scratch));
  if (counts_.resident_first == 0) counts_.resident_first = resident_bytes(server_->pid());
  return {};
}

Status ChaosRun::run(std::span<const Fault> plan) {
  SHALE_TRY(start());
  clients_.open(server_->port());
  Progress progress(options_.output, "faults");
  for (const Fault& fault : plan) {
    SHALE_TRY(step(fault));
    progress(++number_, plan.size());
  }
  SHALE_TRY(end_what_is_due(Time::time_point::max()));
  if (!clients_.pause()) note_failure("a request has no answer after a minute");
  SHALE_TRY(rest());
  SHALE_TRY(stop_and_start());
  SHALE_TRY(rest());
  count_shared();
  server_->stop();
  return {};
}

Status ChaosRun::step(const Fault& fault) {
  SHALE_TRY(wait_until(Time::now() + std::chrono::duration_cast<Time::duration>(seconds(fault.wait_s))));
  ++kind(fault.kind).faults;
  const auto names = shared_.names();
  if (is_of_tier(fault.kind) && std::ranges::find(names, fault.tier) != names.end()) {
    ++counts_.shared[fault.tier].faults[static_cast<std::size_t>(fault.kind)];
  }
  const MixCounts before = clients_.counts();
  if (fault.kind == FaultKind::kKill || fault.kind == FaultKind::kTorn) {
    SHALE_TRY(kill_and_start(fault));
  } else if (fault.kind == FaultKind::kStop) {
    SHALE_TRY(stop_and_start());
  } else {
    trouble_.begin(fault, number_, server_->pid());
    endings_.push_back({Time::now() + std::chrono::duration_cast<Time::duration>(seconds(fault.hold_s)), number_,
                        fault.kind, before.begun - before.in_flight});
    const std::lock_guard lock(mutex_);
    wrong_now_ = trouble_.now();
    return {};
  }
  kind(fault.kind).requests += before.in_flight;
  return {};
}

// Undoes faults whose time has come by `until`, and goes on at once with those that are due.
Status ChaosRun::end_what_is_due(Time::time_point until) {
  std::erase_if(endings_, [&](const Ending& ending) {
    if (ending.at > until) return false;
    trouble_.end(ending.number);
    kind(ending.kind).requests += clients_.counts().begun - ending.begun_before;
    return true;
  });
  if (!server_->running()) {
    const auto why = server_->metrics();
    return fail(ErrorCode::kInternal, "nobody ended the server: {}", why ? "it answers" : why.error().message);
  }
  const std::lock_guard lock(mutex_);
  wrong_now_ = trouble_.now();
  return {};
}

Status ChaosRun::wait_until(Time::time_point time) {
  do {
    SHALE_TRY(check_interrupt());
    SHALE_TRY(end_what_is_due(Time::now()));
    std::this_thread::sleep_until(std::min(Time::now() + kLook, time));
  } while (Time::now() < time);
  return {};
}

Status ChaosRun::kill_and_start(const Fault& fault) {
  std::optional<Probe> probe;
  if (fault.probe) {
    SHALE_TRY(end_what_is_due(Time::time_point::max()));
    if (!clients_.pause()) note_failure("a request has no answer after a minute");
    SHALE_TRY(rest());
    SHALE_ASSIGN(probe, store_probe(fault.draw));
  }
  trouble_.before_kill();
  const std::uint64_t again = clients_.counts().sent_again;
  clients_.close();
  count_shared();
  server_->kill();
  server_.reset();
  if (fault.kind == FaultKind::kTorn && !probe) trouble_.tear(fault.draw);
  SHALE_TRY(start());
  if (probe) SHALE_TRY(find_probe(*probe));
  clients_.open(server_->port());
  clients_.resume();
  kind(fault.kind).sent_again += clients_.counts().sent_again - again;
  return {};
}

Status ChaosRun::stop_and_start() {
  SHALE_TRY(end_what_is_due(Time::time_point::max()));
  const std::uint64_t again = clients_.counts().sent_again;
  clients_.close();
  count_shared();
  const auto begin = Time::now();
  server_->stop();
  if (Time::now() - begin > kStopMax) note_failure("a server that was asked to end did not within 15 seconds");
  server_.reset();
  SHALE_TRY(verify());
  SHALE_TRY(start());
  clients_.open(server_->port());
  kind(FaultKind::kStop).sent_again += clients_.counts().sent_again - again;
  return {};
}

// Requires that clients are paused and nothing is wrong.
Status ChaosRun::rest() {
  ++counts_.at_rest;
  if (const Status sums = check_at_rest(*server_, clients_.counts()); !sums) {
    if (sums.error().code != ErrorCode::kInternal) return sums;
    note_failure("at rest: " + sums.error().message);
  }
  const std::uint64_t resident = resident_bytes(server_->pid());
  const std::uint64_t most = counts_.resident_first + options_.pool_bytes + options_.memory_bytes + kResidentSlack +
                             shared_.names().size() * kResidentOfShared;
  counts_.resident_max = std::max(counts_.resident_max, resident);
  if (resident > most)
    note_failure(fmt::format("at rest {} are resident, more than {}", format_bytes(resident), format_bytes(most)));
  return {};
}

// Counts a server that is about to end.
void ChaosRun::count_shared() {
  const auto names = shared_.names();
  const Result<Metrics> metrics = names.empty() ? Metrics() : server_->metrics();
  if (!metrics) return;
  for (const std::string& name : names) {
    ChaosCounts::Shared& sum = counts_.shared[name];
    const auto add = [&](double& to, std::string_view sample) {
      to += value_of(*metrics, fmt::format("shale_tier_{}_total{{tier=\"{}\"}}", sample, name));
    };
    add(sum.read_bytes, "read_bytes");
    add(sum.written_bytes, "written_bytes");
    add(sum.read_errors, "read_errors");
    add(sum.write_errors, "write_errors");
    add(sum.misses, "misses");
    add(sum.breaker_opened, "breaker_opened");
    add(sum.breaker_refused, "breaker_refused");
  }
}

Status ChaosRun::verify() {
  const Json result = Json::parse(ask_cache({"verify", "--keep-broken"}).value_or(""), nullptr, false);
  if (!result.is_object()) {
    note_failure("`shale cache verify` says nothing that can be read");
    return {};
  }
  ++counts_.verified;
  counts_.damaged = trouble_.damaged_blobs();
  std::set<std::string> extents;  // what is copied to another tier is damaged there, too
  for (const Json& fault : result["faults"]) extents.insert(fault["extent"].get<std::string>());
  counts_.found = std::max<std::uint64_t>(counts_.found, extents.size());
  if (extents.size() > trouble_.damaged_blobs())
    note_failure(fmt::format("{} extents are damaged where {} blobs were: {}", extents.size(), trouble_.damaged_blobs(),
                             result["faults"].dump()));
  return {};
}

// What `shale cache WORDS --json` says, whatever it exits with.
Result<std::string> ChaosRun::ask_cache(std::vector<std::string> words) const {
  SHALE_ASSIGN(const std::filesystem::path program, own_program());
  words.insert(words.begin(), {program, "cache"});
  for (std::string& word : trial_tiers(options_, folders_, false)) words.push_back(std::move(word));
  words.push_back("--json");
  const auto out = folders_.scratch / "answer";
  SHALE_ASSIGN(const ChildProcess child, ChildProcess::start(words, out));
  while (child.running()) std::this_thread::sleep_for(kLook);
  return read_file(out);
}

Result<Json> ChaosRun::list_stored_runs() const {
  SHALE_ASSIGN(const std::string listed, ask_cache({"ls"}));
  Json rows = Json::array();
  for (std::size_t begin = 0; begin < listed.size();) {
    const std::size_t end = std::min(listed.find('\n', begin), listed.size());
    rows.push_back(Json::parse(listed.substr(begin, end - begin)));
    begin = end + 1;
  }
  return rows;
}

Result<Json> ChaosRun::list_stored_runs(const Json& among) const {
  SHALE_ASSIGN(const Json rows, list_stored_runs());
  Json found = Json::array();
  std::ranges::copy_if(rows, std::back_inserter(found), [&](const Json& row) { return has_run(among, row["run"]); });
  return found;
}

// Asks what nobody has asked before, and waits until it is stored; nothing where the server kept none of it, or in
// memory alone. What lies on the remote is known to the next server only some time after it was first asked for.
Result<std::optional<ChaosRun::Probe>> ChaosRun::store_probe(std::uint64_t draw) {
  Probe probe;
  const MixPrompt prompt = make_mix(draw, 1).front();
  probe.body = Json{{"messages", prompt.messages}, {"temperature", 0}, {"max_tokens", 2}, {"exact", true}}.dump();
  SHALE_ASSIGN(const Json before, list_stored_runs());
  SHALE_ASSIGN(const Usage usage, ask_whole(server_->port(), probe.body));
  probe.answer = usage.text;
  MixCounts counts = clients_.counts();
  ++counts.finished;
  if (const Status sums = check_at_rest(*server_, counts); !sums) note_failure("at rest: " + sums.error().message);
  SHALE_ASSIGN(const Json after, list_stored_runs());
  probe.rows = Json::array();
  for (const Json& row : after) {
    if (!has_run(before, row["run"])) probe.rows.push_back(row);
  }
  probe.tokens = std::min(exact_tokens(probe.rows), usage.prompt_tokens - 1) / options_.model.block_size *
                 options_.model.block_size;
  if (probe.rows.empty()) return std::nullopt;
  return probe;
}

Status ChaosRun::find_probe(const Probe& probe) {
  SHALE_ASSIGN(const Json rows, list_stored_runs(probe.rows));
  SHALE_ASSIGN(const Metrics so_far, server_->metrics());
  const bool made_room = has_made_room(so_far);  // given up is not lost
  for (const Json& row : probe.rows) {
    if (has_run(rows, row["run"]) || made_room) continue;
    note_failure("a run that was stored before a kill is gone after it: " + row.dump());
  }
  if (made_room && exact_tokens(rows) < probe.tokens) return {};
  const auto start = Time::now();
  for (double known = 0; known == 0 && Time::now() - start < kIndexMax; std::this_thread::sleep_for(kLook)) {
    SHALE_ASSIGN(const Metrics metrics, server_->metrics());
    known = value_of(metrics, "shale_cache_extents");
  }
  SHALE_ASSIGN(const Usage usage, ask_whole(server_->port(), probe.body));
  ++counts_.probes;
  counts_.probe_tokens += probe.tokens;
  if (usage.text != probe.answer)
    note_failure(fmt::format("after a kill the answer is '{}', before it '{}'", usage.text, probe.answer));
  if (usage.cached_tokens >= probe.tokens) return {};
  SHALE_ASSIGN(const Json left, list_stored_runs(probe.rows));
  if (exact_tokens(left) < probe.tokens) return {};  // given up, or moved, while it was asked for
  note_failure(fmt::format("{} tokens were stored before a kill, and {} found after it; stored were {}", probe.tokens,
                           usage.cached_tokens, probe.rows.dump()));
  return {};
}

}  // namespace shale
