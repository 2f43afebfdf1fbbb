// Tiers behind a network that a server on trial has below its own, each by way of a proxy that errs on demand.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/net_proxy.h"
#include "trial/chaos_plan.h"

namespace shale {

class SharedTiers {
 public:
  // Takes `redis:` and `s3:` with an endpoint of http://, each once, without TLS, whose servers are there.
  // kInvalidArgument, kIo.
  static Result<SharedTiers> open(const std::vector<std::string>& urls);

  // As --tiers has them: by way of the proxies.
  std::vector<std::string> urls() const;
  std::vector<std::string> names() const;
  // Whether faults of the kind are the proxy's, or the server's, and not those of the tier in the program.
  bool makes(const Fault& fault) const;
  // All of that tier's that are to hold now; none: it is as it should be.
  void set(std::string_view tier, const std::vector<Fault>& faults);
  // A server that comes back empty: what `gone` may mean.
  void forget(const Fault& gone) const;

 private:
  struct Shared {
    std::string name, url;  // by way of the proxy
    std::string host;
    std::uint16_t port = 0;
    std::unique_ptr<NetProxy> proxy;
  };
  static Result<Shared> open_one(const std::string& url);
  const Shared* find(std::string_view name) const;

  std::list<Shared> shared_;
};

}  // namespace shale
