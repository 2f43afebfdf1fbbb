#include "sim/hardware.h"

#include <fmt/ranges.h>

#include <array>
#include <cmath>

namespace shale {
namespace {

constexpr std::uint64_t kGiga = 1'000'000'000;
constexpr double kHalfOfPeak = 0.5;  // what large matrix products reach of a datasheet's rate, roughly

// 2 FLOP a parameter and token; 4 FLOP a layer, model dimension and pair of tokens.
void set_prefill(Hardware& hardware, double flops, double parameters, double layers, double width) {
  hardware.prefill_s_per_token = 2 * parameters / (kHalfOfPeak * flops);
  hardware.prefill_s_per_pair = 4 * layers * width / (kHalfOfPeak * flops);
}

Hardware h100_nvme() {
  Hardware hardware{.name = "h100-nvme",
                    .kv_bytes_per_token = 32 * 8 * 128 * 2 * 2,
                    .source =
                        "Llama-3.1-8B in BF16 (32 layers, 8 KV heads of 128) at half of an H100 SXM's 989 TFLOP/s "
                        "(datasheet, dense)",
                    .tiers = {{"memory", 80 * kGiga, 20e-6, 63e9, "80 GB of DRAM as in EvicPress; PCIe 5.0 x16"},
                              {"disk", 800 * kGiga, 100e-6, 7e9, "800 GB of SSD as in EvicPress; NVMe on PCIe 4.0 x4"},
                              {"remote", ~std::uint64_t{0}, 10e-3, 3.1e9, "25 Gb/s Ethernet; latency assumed"}}};
  set_prefill(hardware, 989e12, 8.03e9, 32, 4096);
  return hardware;
}

Hardware laptop() {
  Hardware hardware{.name = "laptop",
                    .kv_bytes_per_token = 16 * 8 * 64 * 2 * 2,
                    .source =
                        "Llama-3.2-1B in BF16 (16 layers, 8 KV heads of 64) at half of 1 TFLOP/s: eight cores of "
                        "two 256-bit FMA units at 4 GHz",
                    .tiers = {{"memory", 4 * kGiga, 1e-6, 40e9, "two channels of DDR5-5600, half of 89.6 GB/s"},
                              {"disk", 64 * kGiga, 100e-6, 3.5e9, "NVMe on PCIe 3.0 x4"},
                              {"remote", ~std::uint64_t{0}, 2e-3, 0.118e9, "1 Gb/s Ethernet; latency assumed"}}};
  set_prefill(hardware, 1e12, 1.24e9, 16, 2048);
  return hardware;
}

struct Preset {
  std::string_view name;
  Hardware (*make)();
};
constexpr std::array kPresets = {Preset{"h100-nvme", h100_nvme}, Preset{"laptop", laptop}};

}  // namespace

std::vector<std::string_view> hardware_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

Result<Hardware> hardware_preset(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset.make();
  }
  return fail(ErrorCode::kInvalidArgument, "'{}' is not hardware to emulate: there are {}", name,
              fmt::join(hardware_names(), ", "));
}

}  // namespace shale
