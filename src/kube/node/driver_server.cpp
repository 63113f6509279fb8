#include "kube/node/driver_server.hpp"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "kube/proto/dra_plugin.grpc.pb.h"
#include "kube/proto/plugin_registration.grpc.pb.h"
#include "sys/folder.hpp"

namespace aliquot::kube {
namespace {

namespace fs = std::filesystem;
namespace dra = ::k8s::io::kubelet::pkg::apis::dra::v1;
namespace registration = ::pluginregistration;

class DraService final : public dra::DRAPlugin::Service {
 public:
  explicit DraService(Driver& driver) : driver_(driver) {}

  grpc::Status NodePrepareResources(grpc::ServerContext*,
                                    const dra::NodePrepareResourcesRequest* request,
                                    dra::NodePrepareResourcesResponse* response) override {
    for (const auto& claim : request->claims()) {
      auto& answer = (*response->mutable_claims())[claim.uid()];
      auto prepared = driver_.prepare({claim.namespace_(), claim.name(), claim.uid()});
      if (!prepared) {
        spdlog::warn("a pod does not start yet: {}", prepared.error().message);
        answer.set_error(prepared.error().message);
        continue;
      }
      for (PreparedDevice& device : *prepared) {
        auto* to = answer.add_devices();
        to->add_request_names(std::move(device.request));
        to->set_pool_name(std::move(device.pool));
        to->set_device_name(std::move(device.device));
        if (!device.cdi.empty()) to->add_cdi_device_ids(std::move(device.cdi));
        if (!device.share_id.empty()) to->set_share_id(std::move(device.share_id));
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status NodeUnprepareResources(grpc::ServerContext*,
                                      const dra::NodeUnprepareResourcesRequest* request,
                                      dra::NodeUnprepareResourcesResponse* response) override {
    for (const auto& claim : request->claims()) {
      auto& answer = (*response->mutable_claims())[claim.uid()];
      if (auto done = driver_.unprepare(claim.uid()); !done) answer.set_error(done.error().message);
    }
    return grpc::Status::OK;
  }

 private:
  Driver& driver_;
};

class RegistrationService final : public registration::Registration::Service {
 public:
  RegistrationService(std::string name, std::string endpoint)
      : name_(std::move(name)), endpoint_(std::move(endpoint)) {}

  grpc::Status GetInfo(grpc::ServerContext*, const registration::InfoRequest*,
                       registration::PluginInfo* info) override {
    info->set_type("DRAPlugin");
    info->set_name(name_);
    info->set_endpoint(endpoint_);
    info->add_supported_versions("v1.DRAPlugin");
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*,
                                        const registration::RegistrationStatus* status,
                                        registration::RegistrationStatusResponse*) override {
    registered_ = status->plugin_registered();
    const std::lock_guard lock(mutex_);
    trouble_ = status->error();
    if (registered_) {
      spdlog::info("driver {} is registered with the kubelet", name_);
    } else {
      spdlog::warn("the kubelet does not take driver {}: {}", name_, trouble_);
    }
    return grpc::Status::OK;
  }

  [[nodiscard]] bool registered() const { return registered_; }
  [[nodiscard]] std::string trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
  }

 private:
  const std::string name_;
  const std::string endpoint_;
  std::atomic<bool> registered_ = false;
  mutable std::mutex mutex_;
  std::string trouble_;
};

Result<std::unique_ptr<grpc::Server>> serve_on(const fs::path& socket, grpc::Service& service) {
  ::unlink(socket.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix://" + socket.string(), grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  if (!server) return fail(Error::Code::unavailable, "cannot listen on {}", socket.string());
  return server;
}

void stop(std::unique_ptr<grpc::Server>& server) {
  if (server) server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server.reset();
}

}  // namespace

struct DriverServer::Servers {
  Servers(Driver& driver, const std::string& domain, const fs::path& socket)
      : service(driver), registry(domain, socket.string()) {}
  ~Servers() {
    stop(registry_server);
    stop(server);
  }
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;

  DraService service;
  RegistrationService registry;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::Server> registry_server;
};

DriverServer::DriverServer(Driver& driver, std::string domain, fs::path kubelet)
    : driver_(driver),
      domain_(std::move(domain)),
      kubelet_(std::move(kubelet)),
      servers_(std::make_unique<Servers>(driver_, domain_, socket())) {}

DriverServer::~DriverServer() = default;

fs::path DriverServer::socket() const { return kubelet_ / "plugins" / domain_ / "dra.sock"; }

fs::path DriverServer::registry_socket() const {
  return kubelet_ / "plugins_registry" / (domain_ + "-reg.sock");
}

bool DriverServer::registered() const { return servers_->registry.registered(); }

Result<void> DriverServer::look() {
  constexpr mode_t kForRoot = 0750;
  std::error_code error;
  if (!fs::is_directory(registry_socket().parent_path(), error)) {
    return fail(Error::Code::unavailable, "there is no kubelet at {}",
                registry_socket().parent_path().string());
  }
  if (!servers_->server || ::access(socket().c_str(), F_OK) != 0) {
    stop(servers_->server);
    TRY(sys::make_own_folder(socket().parent_path(), kForRoot));
    servers_->server = TRY(serve_on(socket(), servers_->service));
  }
  // The kubelet calls as soon as this one is there.
  if (!servers_->registry_server || ::access(registry_socket().c_str(), F_OK) != 0) {
    stop(servers_->registry_server);
    servers_->registry_server = TRY(serve_on(registry_socket(), servers_->registry));
  }
  if (registered()) return {};
  const std::string why = servers_->registry.trouble();
  return fail(Error::Code::unavailable, "driver {} is not registered with the kubelet{}{}", domain_,
              why.empty() ? "" : ": ", why);
}

}  // namespace aliquot::kube
