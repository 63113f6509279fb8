// The DRA driver on the wire: a gRPC server on a socket in the kubelet's plugins folder, and one in
// its plugins_registry, by which the kubelet finds it. A kubelet that starts looks there again by
// itself.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "kube/node/driver.hpp"

namespace aliquot::kube {

class DriverServer {
 public:
  // kubelet: its folder, the same path for it and for us.
  DriverServer(Driver& driver, std::string domain, std::filesystem::path kubelet);
  DriverServer(const DriverServer&) = delete;
  DriverServer& operator=(const DriverServer&) = delete;
  ~DriverServer();

  // Often, from one thread: serves where a socket of ours is not there. An error: it is to be tried
  // again.
  Result<void> look();
  // The kubelet has said that it knows us.
  [[nodiscard]] bool registered() const;

 private:
  [[nodiscard]] std::filesystem::path socket() const;
  [[nodiscard]] std::filesystem::path registry_socket() const;

  Driver& driver_;
  const std::string domain_;
  const std::filesystem::path kubelet_;
  struct Servers;
  std::unique_ptr<Servers> servers_;
};

}  // namespace aliquot::kube
