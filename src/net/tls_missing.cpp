#include "net/tls.hpp"

namespace aliquot::net {

Result<std::unique_ptr<Tls>> Tls::create(TlsMaterial) {
  return fail(Error::Code::unsupported,
              "this build has no TLS: install libssl-dev and build it again");
}

}  // namespace aliquot::net
