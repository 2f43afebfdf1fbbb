#include "model/weights/weight_record.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "model/weights/packed_matrix.h"
#include "model/weights/weight_timing.h"

namespace shale {
namespace {

constexpr std::size_t kTextMax = 256;
constexpr double kSpeedMax = 1000;

bool read_winner(std::istream& stream, std::string_view phase, std::span<const RunType> candidates,
                 WeightRecord::Winner& winner) {
  std::string word, type;
  if (!(stream >> word >> type >> winner.speed) || word != phase) return false;
  const auto found = std::ranges::find(candidates, type, [](RunType each) { return to_string(each); });
  if (found == candidates.end() || !(winner.speed > 0 && winner.speed < kSpeedMax)) return false;
  winner.type = *found;
  return true;
}

// Everything about machine and library that the timings depend on.
void add_machine(Hasher& hasher) {
  hasher.add(std::string_view(ggml_version())).add(std::string_view(ggml_commit()));
  hasher.add(PackedMatrix::instruction_sets());
  ggml_backend_reg_t cpu = ggml_backend_cpu_reg();
  hasher.add(std::string_view(ggml_backend_dev_description(ggml_backend_reg_dev_get(cpu, 0))));
  auto* features = reinterpret_cast<ggml_backend_get_features_t>(
      ggml_backend_reg_get_proc_address(cpu, "ggml_backend_get_features"));
  for (auto* feature = features ? features(cpu) : nullptr; feature && feature->name; ++feature) {
    hasher.add(std::string_view(feature->name)).add(std::string_view(feature->value));
  }
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string WeightRecord::text() const {
  return fmt::format("prefill {} {:.2f}\ndecode {} {:.2f}\nfrom {}\n", to_string(prefill.type), prefill.speed,
                     to_string(decode.type), decode.speed, prefill_from);
}

std::optional<WeightRecord> WeightRecord::parse(std::string_view text, std::span<const RunType> candidates) {
  std::istringstream stream{std::string(text)};
  WeightRecord record;
  std::string word, rest;
  if (!read_winner(stream, "prefill", candidates, record.prefill) ||
      !read_winner(stream, "decode", candidates, record.decode) || !(stream >> word >> record.prefill_from) ||
      word != "from" || stream >> rest) {
    return std::nullopt;
  }
  const bool timed = record.prefill_from > kTimedTokens.front() &&
                     std::ranges::find(kTimedTokens, record.prefill_from) != kTimedTokens.end();
  const bool possible = record.prefill.type == record.decode.type ? record.prefill_from == 0 : timed;
  return possible ? std::optional(record) : std::nullopt;
}

Hash128 weight_matter(const Hash128& model, std::size_t threads) {
  Hasher hasher;
  hasher.add(std::string_view("shale weight record 3")).add(model).add(std::uint64_t{threads});
  add_machine(hasher);
  return hasher.finish();
}

WeightRecordFile::WeightRecordFile(const std::filesystem::path& folder, const Hash128& model, std::size_t threads)
    : path_(folder / weight_matter(model, threads).hex()) {}

std::optional<WeightRecord> WeightRecordFile::read(std::span<const RunType> candidates) const {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error)) return std::nullopt;
  std::ifstream stream(path_, std::ios::binary);
  std::array<char, kTextMax + 1> text{};
  stream.read(text.data(), text.size());
  const auto size = static_cast<std::size_t>(stream.gcount());
  return size > kTextMax ? std::nullopt : WeightRecord::parse({text.data(), size}, candidates);
}

void WeightRecordFile::write(const WeightRecord& record) const {
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  std::string temporary = path_.string() + ".XXXXXX";
  const int file = ::mkstemp(temporary.data());  // mode 0600
  if (file < 0) return;
  const bool written = write_all(file, record.text());
  if (::close(file) == 0 && written) std::filesystem::rename(temporary, path_, error);
  if (!written || error) ::unlink(temporary.c_str());
}

}  // namespace shale
