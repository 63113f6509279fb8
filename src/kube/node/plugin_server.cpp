#include "kube/node/plugin_server.hpp"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "kube/proto/device_plugin.grpc.pb.h"

namespace aliquot::kube {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersion = "v1beta1";
constexpr Millis kRegistration = seconds(5);
// What the kubelet takes in one message.
constexpr std::size_t kMostBytes = 4UL << 20U;

void describe(v1beta1::DevicePluginOptions& options) {
  options.set_pre_start_required(true);
  options.set_get_preferred_allocation_available(true);
}

template <class Repeated>
DeviceIds ids_of(const Repeated& repeated) {
  return {repeated.begin(), repeated.end()};
}

grpc::Status status_of(const Error& error) {
  const bool again = error.code == Error::Code::unavailable;
  return {again ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::FAILED_PRECONDITION,
          error.message};
}

class Service final : public v1beta1::DevicePlugin::Service {
 public:
  Service(Plugin& plugin, Resource resource) : plugin_(plugin), resource_(std::move(resource)) {}

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* options) override {
    describe(*options);
    return grpc::Status::OK;
  }

  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    std::optional<std::vector<PluginDevice>> said;
    std::unique_lock lock(mutex_);
    while (!stopped_ && !context->IsCancelled()) {
      const std::uint64_t seen = changes_;
      lock.unlock();
      auto devices = plugin_.devices(resource_);
      if (said != devices) {
        if (!writer->Write(message_of(devices))) return grpc::Status::OK;
        said = std::move(devices);
      }
      lock.lock();
      // Who has gone is not told of otherwise.
      wake_.wait_for(lock, std::chrono::seconds(1), [&] { return stopped_ || changes_ != seen; });
    }
    return grpc::Status::OK;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* response) override {
    for (const auto& container : request->container_requests()) {
      const Wanted wanted{ids_of(container.available()), ids_of(container.must_include()),
                          static_cast<std::size_t>(std::max(0, container.allocation_size()))};
      auto* answer = response->add_container_responses();
      for (std::string& id : plugin_.preferred(resource_, wanted)) {
        answer->add_device_ids(std::move(id));
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override {
    for (const auto& container : request->container_requests()) {
      const ContainerView view = plugin_.allocate(resource_, ids_of(container.device_ids()));
      auto* answer = response->add_container_responses();
      for (const auto& [name, value] : view.environment) (*answer->mutable_envs())[name] = value;
      for (const MountPoint& mount : view.mounts) {
        auto* to = answer->add_mounts();
        to->set_container_path(mount.container);
        to->set_host_path(mount.host);
        to->set_read_only(mount.read_only);
      }
      for (const std::string& node : view.device_nodes) {
        auto* to = answer->add_devices();
        to->set_container_path(node);
        to->set_host_path(node);
        to->set_permissions("rw");
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status PreStartContainer(grpc::ServerContext*,
                                 const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse*) override {
    const auto started = plugin_.pre_start(resource_, ids_of(request->device_ids()));
    if (started) return grpc::Status::OK;
    spdlog::warn("{}: a container does not start yet: {}", resource_.name, started.error().message);
    return status_of(started.error());
  }

  void changed() {
    const std::lock_guard lock(mutex_);
    ++changes_;
    wake_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    wake_.notify_all();
  }

 private:
  [[nodiscard]] v1beta1::ListAndWatchResponse message_of(
      const std::vector<PluginDevice>& devices) const {
    v1beta1::ListAndWatchResponse message;
    for (const PluginDevice& device : devices) {
      auto* to = message.add_devices();
      to->set_id(device.id);
      to->set_health(device.healthy ? "Healthy" : "Unhealthy");
    }
    if (message.ByteSizeLong() > kMostBytes) {
      spdlog::error("{}: {} devices are more than the kubelet takes: give a larger --unit",
                    resource_.name, devices.size());
    }
    return message;
  }

  Plugin& plugin_;
  const Resource resource_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t changes_ = 0;
  bool stopped_ = false;
};

class GrpcResourceServer final : public ResourceServer {
 public:
  GrpcResourceServer(Plugin& plugin, const Resource& resource) : service_(plugin, resource) {}
  ~GrpcResourceServer() override {
    service_.stop();
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  Result<void> start(const fs::path& socket) {
    ::unlink(socket.c_str());
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix://" + socket.string(), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    // A request names all devices that are free.
    builder.SetMaxReceiveMessageSize(static_cast<int>(16 * kMostBytes));
    server_ = builder.BuildAndStart();
    if (!server_) return fail(Error::Code::unavailable, "cannot listen on {}", socket.string());
    return {};
  }

  void changed() override { service_.changed(); }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<ResourceServer>> ResourceServer::listen(Plugin& plugin,
                                                               const Resource& resource,
                                                               const fs::path& socket) {
  auto server = std::make_unique<GrpcResourceServer>(plugin, resource);
  TRY(server->start(socket));
  return std::unique_ptr<ResourceServer>(std::move(server));
}

Result<void> register_resource(const fs::path& kubelet, const Resource& resource, Millis patience) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Else it is the connection to the kubelet before this one, which was at the same place.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1beta1::Registration::NewStub(grpc::CreateCustomChannel(
      "unix://" + kubelet.string(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(patience.value()));
  v1beta1::RegisterRequest request;
  request.set_version(kVersion);
  request.set_endpoint(resource.socket());
  request.set_resource_name(resource.name);
  describe(*request.mutable_options());
  v1beta1::Empty nothing;
  const auto status = stub->Register(&context, request, &nothing);
  if (status.ok()) return {};
  return fail(Error::Code::unavailable, "the kubelet does not take {}: {}", resource.name,
              status.error_message());
}

struct PluginServers::Servers {
  std::mutex mutex;
  std::vector<std::unique_ptr<ResourceServer>> all;

  void changed() {
    const std::lock_guard lock(mutex);
    for (const auto& server : all) server->changed();
  }
};

PluginServers::PluginServers(Plugin& plugin, fs::path folder)
    : plugin_(plugin), folder_(std::move(folder)), servers_(std::make_shared<Servers>()) {
  plugin_.on_change([servers = servers_] { servers->changed(); });
}

PluginServers::~PluginServers() { plugin_.on_change({}); }

std::optional<PluginServers::Identity> PluginServers::identity() const {
  struct stat info {};
  if (::stat((folder_ / "kubelet.sock").c_str(), &info) != 0) return std::nullopt;
  return Identity(info.st_dev, info.st_ino,
                  info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec);
}

bool PluginServers::served() const {
  return std::ranges::all_of(plugin_.resources(), [&](const Resource& resource) {
    return ::access((folder_ / resource.socket()).c_str(), F_OK) == 0;
  });
}

Result<void> PluginServers::look() {
  const auto now = identity();
  if (!now) {
    known_.reset();
    return fail(Error::Code::unavailable, "there is no kubelet at {}", folder_.string());
  }
  if (now == known_ && served()) return {};
  known_.reset();
  std::vector<std::unique_ptr<ResourceServer>> fresh;
  {
    const std::lock_guard lock(servers_->mutex);
    fresh.swap(servers_->all);
  }
  fresh.clear();  // those that were there end before others take their place
  for (const Resource& resource : plugin_.resources()) {
    fresh.push_back(TRY(ResourceServer::listen(plugin_, resource, folder_ / resource.socket())));
  }
  {
    const std::lock_guard lock(servers_->mutex);
    servers_->all = std::move(fresh);
  }
  for (const Resource& resource : plugin_.resources()) {
    TRY(register_resource(folder_ / "kubelet.sock", resource, kRegistration));
    spdlog::info("{} is registered with the kubelet", resource.name);
  }
  known_ = now;
  return {};
}

}  // namespace aliquot::kube
