// Help for tests of TLS: a CA of one's own, and certificates of it, made when they are needed.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace aliquot::test {

struct Certificate {
  std::string certificate;  // PEM
  std::string key;
};

class TestCa {
 public:
  explicit TestCa(const std::string& name = "test CA") : key_(make_key(), &EVP_PKEY_free) {
    certificate_ = sign(name, key_.get(), nullptr, "");
  }

  // `names` is `DNS:localhost,IP:127.0.0.1`.
  [[nodiscard]] Certificate issue(const std::string& name, const std::string& names) const {
    const Key key(make_key(), &EVP_PKEY_free);
    const X509Pointer made = sign(name, key.get(), certificate_.get(), names);
    return {text_of([&](BIO* out) { return PEM_write_bio_X509(out, made.get()); }),
            text_of([&](BIO* out) {
              return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr,
                                              nullptr);
            })};
  }
  [[nodiscard]] std::string pem() const {
    return text_of([&](BIO* out) { return PEM_write_bio_X509(out, certificate_.get()); });
  }

 private:
  using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
  using X509Pointer = std::unique_ptr<X509, decltype(&X509_free)>;

  static void must(bool fine) {
    if (!fine) std::abort();
  }
  static EVP_PKEY* make_key() { return EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"); }

  template <class Write>
  static std::string text_of(const Write& write) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), &BIO_free);
    must(write(out.get()) == 1);
    std::string text(BIO_ctrl_pending(out.get()), '\0');
    must(BIO_read(out.get(), text.data(), static_cast<int>(text.size())) ==
         static_cast<int>(text.size()));
    return text;
  }

  static void extend(X509* made, X509* issuer, int what, const std::string& value) {
    X509V3_CTX context{};
    X509V3_set_ctx(&context, issuer, made, nullptr, nullptr, 0);
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
    must(extension != nullptr && X509_add_ext(made, extension, -1) == 1);
    X509_EXTENSION_free(extension);
  }

  // issuer null: by itself, as a CA.
  [[nodiscard]] X509Pointer sign(const std::string& name, EVP_PKEY* key, X509* issuer,
                                 const std::string& names) const {
    X509Pointer made(X509_new(), &X509_free);
    X509* const raw = made.get();
    X509_set_version(raw, 2);
    static long serial = 1;
    ASN1_INTEGER_set(X509_get_serialNumber(raw), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(raw), -3600);
    X509_gmtime_adj(X509_getm_notAfter(raw), 24L * 3600);
    X509_set_pubkey(raw, key);
    X509_NAME* const subject = X509_get_subject_name(raw);
    must(X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                    0) == 1);
    X509* const by = issuer != nullptr ? issuer : raw;
    X509_set_issuer_name(raw, X509_get_subject_name(by));
    extend(raw, by, NID_basic_constraints, issuer != nullptr ? "CA:FALSE" : "critical,CA:TRUE");
    if (!names.empty()) extend(raw, by, NID_subject_alt_name, names);
    must(X509_sign(raw, key_.get(), EVP_sha256()) > 0);
    return made;
  }

  Key key_;
  X509Pointer certificate_{nullptr, &X509_free};
};

}  // namespace aliquot::test
