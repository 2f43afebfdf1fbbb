#include <fmt/format.h>

#include "cli/option_types.h"
#include "core/interrupt.h"
#include "lab/command_trace.h"
#include "lab/trace_options.h"
#include "trace/questions.h"
#include "trace/synthetic.h"
#include "trace/trace_writer.h"

namespace shale {
namespace {

struct WriteOptions {
  std::string out;
  std::string form = "plain";
  OutputOptions output;
};

struct ArrivalChoice {
  ArrivalOptions options;
  std::string kind = "poisson";
};

struct DocumentOptions {
  DocumentLoad load;
  ArrivalChoice arrivals;
  WriteOptions write;
};

struct SessionLoadOptions {
  SessionLoad load;
  ArrivalChoice arrivals;
  WriteOptions write;
};

struct QuestionCommandOptions {
  std::vector<std::filesystem::path> files;
  QuestionOptions questions;
  std::string model;
  WriteOptions write;
};

Status write_trace(TraceReader& reader, std::uint64_t requests, const WriteOptions& options) {
  if (options.out == "-" && options.output.json) {
    return fail(ErrorCode::kInvalidArgument,
                "--json reports on standard output, where the trace goes; name a file with --out");
  }
  const TraceForm form = options.form == "plain" ? TraceForm::kPlain : TraceForm::kJsonLines;
  SHALE_ASSIGN(TraceWriter writer, TraceWriter::create(options.out, form, reader.block_tokens()));
  Progress progress(options.output, "writing");
  RawRequest request;
  std::uint64_t written = 0, blocks = 0;
  for (;;) {
    SHALE_ASSIGN(const bool more, reader.next(request));
    if (!more) break;
    SHALE_TRY(writer.write(request));
    blocks += request.blocks.size();
    progress(++written, requests);
    SHALE_TRY(check_interrupt());
  }
  SHALE_TRY(writer.finish());
  if (options.output.json) {
    print_json({{"file", options.out}, {"requests", written}, {"blocks", blocks}, {"seconds", request.arrival_s}});
  } else {
    print_note(fmt::format("{} requests, {} blocks", written, blocks));
  }
  return {};
}

ArrivalOptions arrival_options(const ArrivalChoice& choice) {
  ArrivalOptions options = choice.options;
  if (choice.kind == "bursty") options.kind = ArrivalKind::kBursty;
  if (choice.kind == "diurnal") options.kind = ArrivalKind::kDiurnal;
  return options;
}

// DocumentOptions or SessionLoadOptions.
template <class Options>
Status make(const Options& options) {
  auto load = options.load;
  load.load.arrivals = arrival_options(options.arrivals);
  SHALE_ASSIGN(const auto reader, generate(load));
  return write_trace(*reader, load.load.requests, options.write);
}

Status make_questions(const QuestionCommandOptions& options) {
  QuestionOptions questions = options.questions;
  SHALE_ASSIGN(questions.tokenize, tokenizer_of(options.model));
  SHALE_ASSIGN(const auto reader, ask_questions(options.files, questions));
  return write_trace(*reader, 0, options.write);
}

template <class Value>
Option add_value(Command command, const char* name, Value& value, const char* description, const char* type) {
  return command.add_option(name, value, description).type_name(type).capture_default_str();
}

void add_length(Command command, const std::string& name, LengthOptions& length, const std::string& what) {
  add_value(command, (name + "-tokens").c_str(), length.median, ("Median length of " + what).c_str(), "N")
      .group("Lengths");
  add_value(command, (name + "-sigma").c_str(), length.sigma, "Spread of its logarithm; 0: all alike", "N")
      .group("Lengths");
}

void add_write_options(Command command, WriteOptions& options) {
  command.add_option("--out", options.out, "File to write, compressed if its name ends in .gz; '-' is standard output")
      .type_name("FILE")
      .required()
      .group("Output");
  command.add_option("--form", options.form, "The plain form, or JSON Lines as Mooncake's")
      .one_of({"plain", "jsonl"})
      .type_name("plain|jsonl")
      .capture_default_str()
      .group("Output");
  add_output_options(command, options.output);
}

void add_load_options(Command command, LoadOptions& load, ArrivalChoice& arrivals) {
  add_value(command, "--requests", load.requests, "How many", "N");
  add_value(command, "--block-tokens", load.block_tokens, "Tokens of a block", "N");
  add_value(command, "--seed", load.seed, "Of every draw", "N");
  const char* group = "Arrivals";
  ArrivalOptions& o = arrivals.options;
  add_value(command, "--rate", o.per_s, "Requests a second, in the mean", "N").group(group);
  add_value(command, "--arrivals", arrivals.kind, "How they come", "poisson|bursty|diurnal")
      .one_of({"poisson", "bursty", "diurnal"})
      .group(group);
  add_value(command, "--burst-factor", o.burst_factor, "bursty: the rate in bursts, over the mean", "N").group(group);
  add_value(command, "--burst-share", o.burst_share, "bursty: share of time in bursts", "SHARE").group(group);
  add_value(command, "--burst-length", o.burst_s, "bursty: mean length of a burst", "SECONDS").group(group);
  add_value(command, "--swing", o.swing, "diurnal: the rate is the mean, more or less this share", "SHARE")
      .group(group);
  add_value(command, "--period", o.period_s, "diurnal: from peak to peak", "SECONDS").group(group);
}

void add_documents(Command parent, Action& chosen) {
  auto [command, o] = add_command<DocumentOptions>(
      parent, chosen, "documents", "Questions about documents, some of which are asked about far more than others",
      make);
  add_load_options(command, o->load.load, o->arrivals);
  add_value(command, "--documents", o->load.documents, "How many there are", "N");
  add_value(command, "--zipf", o->load.zipf, "Exponent of their popularity; 0: all alike", "N");
  add_length(command, "--document", o->load.document, "a document");
  add_length(command, "--question", o->load.question, "a question");
  add_length(command, "--answer", o->load.answer, "an answer");
  add_write_options(command, o->write);
}

void add_sessions(Command parent, Action& chosen, const char* name, const char* description, const SessionLoad& load) {
  auto [command, o] = add_command<SessionLoadOptions>(parent, chosen, name, description, make);
  o->load = load;
  add_load_options(command, o->load.load, o->arrivals);
  add_value(command, "--turns", o->load.turns_mean, "Turns of a session, in the mean", "N");
  add_value(command, "--pause", o->load.pause_s, "From an answer to the next turn, in the mean", "SECONDS");
  add_value(command, "--answer-token-time", o->load.answer_token_s, "Time that an answer takes, a token", "SECONDS");
  add_value(command, "--prefixes", o->load.prefixes, "Different texts that sessions begin with", "N");
  add_value(command, "--zipf", o->load.zipf, "Exponent of their popularity; 0: all alike", "N");
  add_value(command, "--context-max", o->load.context_max, "Tokens at which a session is summarised", "N");
  add_value(command, "--summary-tokens", o->load.summary_tokens, "Tokens of the summary", "N");
  add_value(command, "--subagents", o->load.subagents_per_turn, "Share of turns that start a subagent", "SHARE");
  add_length(command, "--prefix", o->load.prefix, "a prefix");
  add_length(command, "--input", o->load.input, "a turn's input");
  add_length(command, "--answer", o->load.answer, "an answer");
  add_write_options(command, o->write);
}

void add_questions(Command parent, Action& chosen) {
  auto [command, o] =
      add_command(parent, chosen, "questions", "Questions about given documents, shuffled, in batches", make_questions);
  QuestionOptions& q = o->questions;
  command.add_option("FILE", o->files, "JSON Lines with `context` and `questions`, and `answers` if known")
      .required()
      .configurable(false);
  add_tokenizer_option(command, o->model);
  add_value(command, "--block-tokens", q.block_tokens, "Tokens of a block", "N");
  add_value(command, "--seed", q.seed, "Of the shuffle", "N");
  add_value(command, "--batch", q.batch, "Requests that arrive together", "N");
  add_value(command, "--batch-gap", q.batch_gap_s, "Between batches", "SECONDS");
  add_value(command, "--repeats", q.repeats, "Times that each question is asked", "N").range(1, 10'000);
  add_write_options(command, o->write);
}

}  // namespace

void add_trace_make(Command parent, Action& chosen) {
  Command group = parent.add_group("make", "Make a trace: synthetic load, or questions about documents");
  group.footer(
      "Examples:\n"
      "  shale trace make documents --documents 5000 --zipf 0.9 --requests 100000 --rate 5 --out documents.trace\n"
      "  shale trace make chats --arrivals bursty --out chats.trace.gz\n"
      "  shale trace make agents --block-tokens 64 --requests 20000 --out - | shale trace info -\n"
      "  shale trace make questions documents.jsonl --model smollm2-135m --out questions.trace");
  add_documents(group, chosen);
  add_sessions(group, chosen, "chats", "People who talk with an assistant", chat_load());
  add_sessions(group, chosen, "agents", "Coding agents: long tools and rules, many quick turns, subagents",
               agent_load());
  add_questions(group, chosen);
}

}  // namespace shale
