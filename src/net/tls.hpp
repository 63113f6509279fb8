// TLS for both ends: who we are and whom we believe, from PEM in files or in memory. Files are read
// again when they have changed; a change that cannot be used is told once, and what was read before
// stays in use. Streams that are there keep what they were made with. Inside src/net only.
//
// tls.cpp is the real one; where there is no OpenSSL tls_missing.cpp says so.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "net/stream.hpp"

namespace aliquot::net {

struct Pem {
  std::string file = {};
  std::string data = {};  // counts before the file
  [[nodiscard]] bool empty() const { return file.empty() && data.empty(); }
};

struct TlsMaterial {
  bool server = false;
  Pem certificate = {};
  Pem key = {};
  // Whose certificates we believe. A server without one asks for none; a client takes the system's.
  Pem ca = {};
  bool verify = true;  // false: a client believes anybody
  std::function<void(const Error&)> on_trouble = {};
};

class Tls {
 public:
  static Result<std::unique_ptr<Tls>> create(TlsMaterial material);
  Tls() = default;
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  virtual ~Tls() = default;

  // With what is in the files now. `name`: a client's server must have a certificate for it.
  virtual Result<std::shared_ptr<Stream>> wrap(Socket socket, const std::string& name) = 0;
};

}  // namespace aliquot::net
