#include "lab/hardware_option.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/text_file.h"
#include "report/output.h"
#include "tier/tier.h"

namespace shale {
namespace {

constexpr double kBytesMax = 1e18, kSecondsMax = 1e6, kBytesPerSMax = 1e15;

// Members of objects in one file; errors name it.
class HardwareFile {
 public:
  explicit HardwareFile(std::string path) : path_(std::move(path)) {}

  Status check_names(const Json& object, std::initializer_list<std::string_view> names) const {
    for (const auto& [name, value] : object.items()) {
      if (std::ranges::find(names, name) == names.end()) {
        return fail(ErrorCode::kInvalidArgument, "{}: '{}' is unknown: there are {}", path_, name,
                    fmt::join(names, ", "));
      }
    }
    return {};
  }
  Result<double> number(const Json& object, const char* name, bool above_zero, double most) const {
    const auto found = object.find(name);
    const double number = found != object.end() && found->is_number() ? found->get<double>() : NAN;
    if (number >= 0 && number <= most && (number > 0 || !above_zero)) return number;
    return fail(ErrorCode::kInvalidArgument, "{}: {} must be a number {} 0 and at most {:g}", path_, name,
                above_zero ? "above" : "of at least", most);
  }
  Result<SimulatedTier> tier(const Json& object) const;
  Result<Hardware> hardware(const Json& object) const;

 private:
  std::string path_;
};

Result<SimulatedTier> HardwareFile::tier(const Json& object) const {
  if (!object.is_object() || !object.contains("name") || !object["name"].is_string()) {
    return fail(ErrorCode::kInvalidArgument, "{}: a tier must be an object with a name", path_);
  }
  SHALE_TRY(check_names(object, {"name", "bytes", "latency_s", "read_bytes_per_s"}));
  SimulatedTier tier{.name = object["name"].get<std::string>(), .capacity_bytes = kUnlimited, .source = path_};
  if (object.contains("bytes")) {
    SHALE_ASSIGN(const double bytes, number(object, "bytes", true, kBytesMax));
    tier.capacity_bytes = static_cast<std::uint64_t>(bytes);
  }
  SHALE_ASSIGN(tier.latency_s, number(object, "latency_s", false, kSecondsMax));
  SHALE_ASSIGN(tier.read_bytes_per_s, number(object, "read_bytes_per_s", true, kBytesPerSMax));
  return tier;
}

Result<Hardware> HardwareFile::hardware(const Json& object) const {
  if (!object.is_object()) return fail(ErrorCode::kInvalidArgument, "{}: hardware must be a JSON object", path_);
  SHALE_TRY(check_names(object, {"kv_bytes_per_token", "prefill_s_per_token", "prefill_s_per_pair", "step_s",
                                 "decode_s_per_sequence", "tiers"}));
  Hardware hardware{.name = std::filesystem::path(path_).stem().string(), .source = path_};
  SHALE_ASSIGN(const double bytes, number(object, "kv_bytes_per_token", true, kBytesMax));
  hardware.kv_bytes_per_token = static_cast<std::uint64_t>(std::ceil(bytes));
  SHALE_ASSIGN(hardware.prefill_s_per_token, number(object, "prefill_s_per_token", true, kSecondsMax));
  SHALE_ASSIGN(hardware.prefill_s_per_pair, number(object, "prefill_s_per_pair", false, kSecondsMax));
  for (const auto& [name, field] :
       {std::pair("step_s", &Hardware::step_s), std::pair("decode_s_per_sequence", &Hardware::decode_s_per_sequence)}) {
    if (!object.contains(name)) continue;
    SHALE_ASSIGN(hardware.*field, number(object, name, false, kSecondsMax));
  }
  const auto tiers = object.find("tiers");
  if (tiers == object.end() || !tiers->is_array() || tiers->empty()) {
    return fail(ErrorCode::kInvalidArgument, "{}: tiers must be a list, fast to slow, with at least one", path_);
  }
  for (const Json& each : *tiers) {
    SHALE_ASSIGN(SimulatedTier added, tier(each));
    if (std::ranges::find(hardware.tiers, added.name, &SimulatedTier::name) != hardware.tiers.end()) {
      return fail(ErrorCode::kInvalidArgument, "{}: two tiers are called '{}'", path_, added.name);
    }
    hardware.tiers.push_back(std::move(added));
  }
  return hardware;
}

}  // namespace

Result<Hardware> emulated_hardware(const std::string& name_or_path) {
  if (!std::filesystem::is_regular_file(name_or_path)) return hardware_preset(name_or_path);
  SHALE_ASSIGN(const std::string text, read_text(name_or_path));
  return HardwareFile(name_or_path).hardware(Json::parse(text, nullptr, false));
}

void add_hardware_option(Command command, std::string& name_or_path) {
  command
      .add_option("--emulate", name_or_path,
                  fmt::format("Hardware of an engine: {}, or a file (docs/formats/hardware.md)",
                              fmt::join(hardware_names(), ", ")))
      .type_name("NAME|FILE")
      .capture_default_str();
}

void add_move_cost(Command command, double& ns_per_byte) {
  command
      .add_option("--move-cost", ns_per_byte,
                  "Nanoseconds that requests lose by a byte that rises to a faster tier, which has to save more; as "
                  "a server, whose cores move it; 0: nobody's time")
      .type_name("NS")
      .capture_default_str();
}

}  // namespace shale
