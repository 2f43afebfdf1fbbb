#include "http/tls_certificate.h"

#include <sys/stat.h>

#include <asio/ssl/context.hpp>
#include <utility>

namespace shale {

Result<TlsCertificate> TlsCertificate::load(std::string certificate, std::string key) {
  TlsCertificate loaded(std::move(certificate), std::move(key));
  SHALE_TRY(loaded.refresh());
  return loaded;
}

TlsCertificate::Files TlsCertificate::look() const {
  Files files{};
  for (std::size_t i = 0; i < files.size(); ++i) {
    struct stat found{};
    if (stat((i == 0 ? certificate_ : key_).c_str(), &found) != 0) continue;
    files[i] = {found.st_dev, found.st_ino, static_cast<std::uint64_t>(found.st_size),
                static_cast<std::uint64_t>(found.st_mtim.tv_sec), static_cast<std::uint64_t>(found.st_mtim.tv_nsec)};
  }
  return files;
}

Status TlsCertificate::refresh() {
  const Files files = look();  // first: what is written while it is read is read again
  if (context_ && files == seen_) return {};
  seen_ = files;
  return read();
}

Status TlsCertificate::read() {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);
  std::error_code error;
  context->use_certificate_chain_file(certificate_, error);
  if (error) return fail(ErrorCode::kInvalidArgument, "TLS certificate {}: {}", certificate_, error.message());
  context->use_private_key_file(key_, asio::ssl::context::pem, error);
  if (error) return fail(ErrorCode::kInvalidArgument, "TLS key {}: {}", key_, error.message());
  // The calls above compare keys of one type alone.
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return fail(ErrorCode::kInvalidArgument, "TLS key {}: it is not that of certificate {}", key_, certificate_);
  }
  context_ = std::move(context);
  return {};
}

}  // namespace shale
