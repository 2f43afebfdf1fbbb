// A server's certificate, which is renewed in place while the server runs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"

namespace asio::ssl {
class context;
}

namespace shale {

class TlsCertificate {
 public:
  // For TLS 1.2 or later, with a key, from PEM files. kInvalidArgument where they cannot be used.
  static Result<TlsCertificate> load(std::string certificate, std::string key);

  // For connections that begin now; those that have begun keep theirs.
  asio::ssl::context& context() { return *context_; }
  // Reads the files again where others lie there now. Where these cannot be used, those before stay in use, and the
  // error is returned once.
  Status refresh();

 private:
  using Files = std::array<std::array<std::uint64_t, 5>, 2>;  // device, inode, size and time of change; 0: none

  TlsCertificate(std::string certificate, std::string key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}
  Files look() const;
  Status read();

  std::string certificate_, key_;
  std::shared_ptr<asio::ssl::context> context_;
  Files seen_ = {};
};

}  // namespace shale
