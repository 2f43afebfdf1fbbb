// A certificate of localhost's own, and its key, as PEM files.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <memory>

namespace shale::testing {

inline void write_self_signed(const std::filesystem::path& certificate, const std::filesystem::path& key,
                              long serial = 1, bool rsa = false) {
  EVP_PKEY* const made = rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> pair(made, EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> signed_(X509_new(), X509_free);
  X509_set_version(signed_.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(signed_.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(signed_.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(signed_.get()), 3600);
  X509_set_pubkey(signed_.get(), pair.get());
  X509_NAME* name = X509_get_subject_name(signed_.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(signed_.get(), name);
  X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  X509_add_ext(signed_.get(), names, -1);
  X509_EXTENSION_free(names);
  X509_sign(signed_.get(), pair.get(), EVP_sha256());

  std::FILE* file = std::fopen(certificate.c_str(), "w");
  PEM_write_X509(file, signed_.get());
  std::fclose(file);
  file = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(file, pair.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
}

}  // namespace shale::testing
