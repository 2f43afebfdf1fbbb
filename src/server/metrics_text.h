// ServerMetrics as Prometheus reads them.
//
// A metric that vLLM also has, with the same meaning, has vLLM's name (`vllm:…`), so that its dashboards work; all
// others begin with `shale_`. Every sample carries `model_name`.
#pragma once

#include <string>
#include <string_view>

#include "server/metrics.h"

namespace shale {

inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

// Pure.
std::string metrics_text(const ServerMetrics& metrics, std::string_view model_name);

}  // namespace shale
