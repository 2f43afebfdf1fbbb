#include "lab/trace_options.h"

#include "core/interrupt.h"
#include "model/model.h"
#include "runtime/model_registry.h"

namespace shale {
namespace {

constexpr std::uint64_t kRequestsBetweenLooks = 1000;

// A reader that stops for Ctrl-C and says how far it is.
class WatchedReader final : public TraceReader {
 public:
  WatchedReader(TraceReader& reader, const OutputOptions& output) : reader_(reader), progress_(output, "reading") {}

  std::string_view format() const override { return reader_.format(); }
  std::uint32_t block_tokens() const override { return reader_.block_tokens(); }
  Result<bool> next(RawRequest& request) override {
    if (++requests_ % kRequestsBetweenLooks == 0) {
      SHALE_TRY(check_interrupt());
      progress_(requests_, 0);
    }
    return reader_.next(request);
  }

 private:
  TraceReader& reader_;
  Progress progress_;
  std::uint64_t requests_ = 0;
};

}  // namespace

void add_tokenizer_option(Command command, std::string& model) {
  command.add_option("--model", model, "Whose tokenizer cuts text: a name of `shale model ls`, or a GGUF file's path")
      .type_name("NAME|PATH");
}

void add_trace_options(Command command, TraceChoice& choice) {
  const char* group = "Trace";
  command.add_option("--block-tokens", choice.block_tokens, "Tokens of a block; 0: as the trace says, or else 512")
      .range(0, 1 << 20)
      .type_name("N")
      .capture_default_str()
      .group(group);
  command.add_option("--timestamps", choice.timestamps, "Unit of timestamps in JSON; auto: as the format has them")
      .one_of({"auto", "s", "ms"})
      .type_name("auto|s|ms")
      .capture_default_str()
      .group(group);
  command.add_flag("--sort", choice.sort, "Sort requests by arrival, instead of refusing times that go back")
      .group(group);
  Option rate = command
                    .add_option("--session-rate", choice.session_rate,
                                "Sessions that start a second, at random; 0: all start together")
                    .type_name("N")
                    .capture_default_str()
                    .group(group);
  command.add_option("--session-arrivals", choice.session_arrivals, "Trace at whose arrivals sessions start")
      .type_name("FILE")
      .excludes(rate)
      .group(group);
  command.add_option("--session-seed", choice.session_seed, "Of the random starts")
      .type_name("N")
      .capture_default_str()
      .group(group);
  command
      .add_option("--share-prefixes", choice.share_prefixes,
                  "Sessions whose tools and system prompt are the same text: none, those of the same size, or all")
      .one_of({"none", "same-size", "all"})
      .type_name("none|same-size|all")
      .capture_default_str()
      .group(group);
  add_tokenizer_option(command, choice.model);
}

Result<Tokenize> tokenizer_of(const std::string& model) {
  if (model.empty()) return Tokenize();
  SHALE_ASSIGN(const auto path, resolve_model(model));
  SHALE_ASSIGN(auto loaded, Tokenizer::load(path));
  return [tokenizer = std::shared_ptr<const Tokenizer>(std::move(loaded))](std::string_view text) {
    return Result<std::vector<std::int32_t>>(tokenizer->tokenize(text, false));
  };
}

Result<TraceOptions> to_options(const TraceChoice& choice) {
  TraceOptions options;
  options.block_tokens = choice.block_tokens;
  options.sort = choice.sort;
  if (choice.timestamps == "s") options.timestamps = TimestampUnit::kSeconds;
  if (choice.timestamps == "ms") options.timestamps = TimestampUnit::kMilliseconds;
  SessionOptions& sessions = options.sessions;
  sessions.seed = choice.session_seed;
  if (choice.session_rate > 0) {
    sessions.starts = SessionStarts::kPoisson;
    sessions.sessions_per_s = choice.session_rate;
  } else if (!choice.session_arrivals.empty()) {
    sessions.starts = SessionStarts::kArrivals;
    sessions.arrivals = choice.session_arrivals;
  }
  if (choice.share_prefixes == "same-size") sessions.sharing = PrefixSharing::kSameSize;
  if (choice.share_prefixes == "all") sessions.sharing = PrefixSharing::kAll;
  SHALE_ASSIGN(options.tokenize, tokenizer_of(choice.model));
  return options;
}

Result<NamedTrace> load_trace_watched(const std::string& path, const TraceOptions& options,
                                      const OutputOptions& output) {
  SHALE_ASSIGN(const auto reader, open_trace(path, options));
  WatchedReader watched(*reader, output);
  const std::string name = path == "-" ? "standard input" : std::filesystem::path(path).filename().string();
  SHALE_ASSIGN(Trace trace, load_trace(watched, name, options));
  return NamedTrace{std::move(trace), std::string(reader->format())};
}

}  // namespace shale
