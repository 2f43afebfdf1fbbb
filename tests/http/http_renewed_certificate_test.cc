// Certificates that are renewed while a server runs.
#include <gmock/gmock.h>
#include <httplib.h>
#include <openssl/ssl.h>

#include <fstream>

#include "http/http_server.h"
#include "http/self_signed.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

class WellService final : public HttpService {
 public:
  std::optional<HttpResponse> answer_head(const HttpRequest&) override { return HttpResponse{.body = "well"}; }
  HttpAnswer answer(const HttpRequest&, HttpWake) override { return HttpResponse(); }
  HttpResponse refusal(const HttpFailure& failure) override { return {.status = failure.status}; }
};

// Whose peer's certificate has this number; 0 where there is none.
long serial_at(std::uint16_t port) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> connection(BIO_new_ssl_connect(context.get()), BIO_free_all);
  BIO_set_conn_hostname(connection.get(), ("127.0.0.1:" + std::to_string(port)).c_str());
  if (BIO_do_handshake(connection.get()) != 1) return 0;
  SSL* ssl = nullptr;
  BIO_get_ssl(connection.get(), &ssl);
  return ASN1_INTEGER_get(X509_get0_serialNumber(SSL_get0_peer_certificate(ssl)));
}

TEST(RenewedCertificate, IsNotUsedBesideAKeyOfAnotherType) {
  const TemporaryFolder folder;
  const auto certificate = folder.path() / "cert.pem", key = folder.path() / "key.pem", other = folder.path() / "other";
  testing::write_self_signed(certificate, key);
  testing::write_self_signed(folder.path() / "next", other, 2, true);
  const auto server = HttpServer::listen({.port = 0, .tls_certificate = certificate, .tls_key = other});
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, HasSubstr("is not that of certificate"));
}

TEST(RenewedCertificate, IsUsedAsSoonAsItIsWhole) {
  const TemporaryFolder folder;
  const auto certificate = folder.path() / "cert.pem", key = folder.path() / "key.pem", next = folder.path() / "next";
  testing::write_self_signed(certificate, key, 1);
  std::vector<std::string> notes;
  WellService service;
  auto server = HttpServer::listen({.port = 0,
                                    .tls_certificate = certificate,
                                    .tls_key = key,
                                    .on_note = [&](const std::string& line) { notes.push_back(line); }})
                    .value();
  server->serve(service);
  httplib::SSLClient former("localhost", server->port());
  former.set_ca_cert_path(certificate.c_str());
  former.set_keep_alive(true);
  EXPECT_TRUE(former.Get("/health"));
  EXPECT_EQ(serial_at(server->port()), 1);

  testing::write_self_signed(next, key, 2);  // the key first
  for (int i = 0; i < 2; ++i) EXPECT_EQ(serial_at(server->port()), 1) << "not its key";
  std::ofstream(certificate) << "-----BEGIN CERTIFICATE-----\nMII";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(serial_at(server->port()), 1) << "half of it";
  std::filesystem::rename(next, certificate);
  EXPECT_EQ(serial_at(server->port()), 2);
  EXPECT_TRUE(former.Get("/health")) << "over the connection that it has";
  server.reset();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_THAT(notes[0], AllOf(HasSubstr("TLS key"), HasSubstr("the one before stays in use")));
  EXPECT_THAT(notes[1], HasSubstr("TLS certificate"));
}

}  // namespace
}  // namespace shale
