#include "bench/peers/llama_peer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace shale {
namespace {

// The number `field` of the first JSON object among the lines of `text`.
Result<double> find_number(std::string_view text, const char* field, const std::string& program) {
  for (std::size_t start = text.find('{'); start != std::string_view::npos; start = text.find('{', start + 1)) {
    const std::string_view line = text.substr(start, text.find('\n', start) - start);
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.contains(field) && object[field].is_number()) return object[field].get<double>();
  }
  return fail(ErrorCode::kIo, "{} reported no {}", program, field);
}

}  // namespace

Result<LlamaPeer> LlamaPeer::open(std::filesystem::path folder) {
  for (const char* program : {"llama-bench", "llama-batched-bench"}) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / program, ignored)) {
      return fail(ErrorCode::kNotFound, "the peer's folder {} has no {}; build llama.cpp's tools and name their folder",
                  folder.string(), program);
    }
  }
  return LlamaPeer(std::move(folder));
}

Result<double> LlamaPeer::measure(const SpeedTest& test, const std::filesystem::path& model, std::uint32_t threads,
                                  bool flash_attention) const {
  const std::string flash = flash_attention ? "on" : "off", cores = std::to_string(threads);
  if (test.kind == SpeedTest::Kind::kBatch) {
    const std::string program = folder_ / "llama-batched-bench";
    const std::uint32_t context = test.sequences * (test.depth + test.tokens) + 256;
    SHALE_ASSIGN(const std::string text, run_child({program,
                                                    "-m",
                                                    model,
                                                    "-t",
                                                    cores,
                                                    "-c",
                                                    std::to_string(context),
                                                    "-b",
                                                    "2048",
                                                    "-ub",
                                                    "512",
                                                    "-npp",
                                                    std::to_string(test.depth),
                                                    "-ntg",
                                                    std::to_string(test.tokens),
                                                    "-npl",
                                                    std::to_string(test.sequences),
                                                    "-fa",
                                                    flash,
                                                    "--output-format",
                                                    "jsonl"}));
    return find_number(text, "speed_tg", program);
  }
  const std::string program = folder_ / "llama-bench";
  const bool prefill = test.kind == SpeedTest::Kind::kPrefill;
  SHALE_ASSIGN(const std::string text,
               run_child({program, "-m", model, "-t", cores, "-p", std::to_string(prefill ? test.tokens : 0), "-n",
                          std::to_string(prefill ? 0 : test.tokens), "-d", std::to_string(test.depth), "-fa", flash,
                          "-r", "1", "-o", "jsonl"}));
  return find_number(text, "avg_ts", program);
}

Result<std::filesystem::path> LlamaPeer::requantize(const std::filesystem::path& model, const std::string& type,
                                                    const std::filesystem::path& folder) const {
  const std::filesystem::path to = folder / fmt::format("{}-{}.gguf", model.stem().string(), type);
  SHALE_TRY(run_child({folder_ / "llama-quantize", "--allow-requantize", model, to, type}));
  return to;
}

}  // namespace shale
