#include "sim/hardware.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace shale {
namespace {

constexpr std::uint64_t kGiga = 1'000'000'000;
constexpr double kHalfOfPeak = 0.5;  // what large matrix products reach of a datasheet's rate, roughly

struct ModelShape {
  double parameters;
  std::uint64_t layers, kv_heads, head_dim, width;
};
constexpr ModelShape kLlama8B = {8.03e9, 32, 8, 128, 4096};
constexpr ModelShape kLlama1B = {1.24e9, 16, 8, 64, 2048};

// 2 FLOP a parameter and token; 4 FLOP a layer, model dimension and pair of tokens. KV in 16 bits.
Hardware running(const ModelShape& model, double flops, Hardware hardware) {
  const double reached = kHalfOfPeak * flops;
  hardware.kv_bytes_per_token = model.layers * model.kv_heads * model.head_dim * 2 * 2;
  hardware.prefill_s_per_token = 2 * model.parameters / reached;
  hardware.prefill_s_per_pair = 4 * static_cast<double>(model.layers * model.width) / reached;
  return hardware;
}

std::vector<Hardware> presets() {
  return {running(kLlama8B, 989e12,
                  {.name = "h100-nvme",
                   .source = "Llama-3.1-8B in BF16 (32 layers, 8 KV heads of 128) at half of an H100 SXM's 989 TFLOP/s "
                             "(datasheet, dense)",
                   .tiers = {{"memory", 80 * kGiga, 20e-6, 63e9, "80 GB of DRAM as in EvicPress; PCIe 5.0 x16"},
                             {"disk", 800 * kGiga, 100e-6, 7e9, "800 GB of SSD as in EvicPress; NVMe on PCIe 4.0 x4"},
                             {"remote", ~std::uint64_t{0}, 10e-3, 3.1e9, "25 Gb/s Ethernet; latency assumed"}}}),
          running(kLlama1B, 1e12,
                  {.name = "laptop",
                   .source = "Llama-3.2-1B in BF16 (16 layers, 8 KV heads of 64) at half of 1 TFLOP/s: eight cores of "
                             "two 256-bit FMA units at 4 GHz",
                   .tiers = {{"memory", 4 * kGiga, 1e-6, 40e9, "two channels of DDR5-5600, half of 89.6 GB/s"},
                             {"disk", 64 * kGiga, 100e-6, 3.5e9, "NVMe on PCIe 3.0 x4"},
                             {"remote", ~std::uint64_t{0}, 2e-3, 0.118e9, "1 Gb/s Ethernet; latency assumed"}}})};
}

}  // namespace

Status Hardware::set_capacity(std::string_view tier, std::uint64_t bytes) {
  const auto found = std::ranges::find(tiers, tier, &SimulatedTier::name);
  if (found == tiers.end()) {
    if (bytes == 0) return {};
    std::vector<std::string_view> names;
    for (const SimulatedTier& each : tiers) names.push_back(each.name);
    return fail(ErrorCode::kInvalidArgument, "{} has no tier '{}' to size: there are {}", name, tier,
                fmt::join(names, ", "));
  }
  if (bytes == 0) {
    tiers.erase(found);
  } else {
    found->capacity_bytes = bytes;
  }
  return {};
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const Hardware& each : presets()) names.push_back(each.name);
  return names;
}

Result<Hardware> hardware_preset(std::string_view name) {
  for (Hardware& each : presets()) {
    if (each.name == name) return std::move(each);
  }
  return fail(ErrorCode::kInvalidArgument, "'{}' is not hardware to emulate: there are {}, or give a file", name,
              fmt::join(hardware_names(), ", "));
}

}  // namespace shale
