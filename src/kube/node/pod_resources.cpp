#include "kube/node/pod_resources.hpp"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <limits>

#include "kube/proto/pod_resources.grpc.pb.h"

namespace aliquot::kube {
namespace {

class KubeletResources final : public PodResources {
 public:
  KubeletResources(const std::string& socket, Millis patience) : patience_(patience) {
    grpc::ChannelArguments arguments;
    // 163,840 ids and more: the kubelet's own answers are not what we want to be strict about.
    arguments.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
    // A kubelet that has come back is to be found at once.
    constexpr int kRetryMs = 200;
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kRetryMs);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kRetryMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2 * kRetryMs);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = v1::PodResourcesLister::NewStub(grpc::CreateCustomChannel(
        "unix://" + socket, grpc::InsecureChannelCredentials(), arguments));
  }

  Result<std::vector<ContainerDevices>> list() override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(patience_.value()));
    v1::ListPodResourcesResponse response;
    const auto status = stub_->List(&context, {}, &response);
    if (!status.ok()) {
      return fail(Error::Code::unavailable, "the kubelet does not say who holds what: {}",
                  status.error_message());
    }
    std::vector<ContainerDevices> all;
    for (const auto& pod : response.pod_resources()) {
      for (const auto& container : pod.containers()) {
        ContainerDevices one{pod.namespace_(), pod.name(), container.name(), {}, {}};
        for (const auto& devices : container.devices()) {
          DeviceIds& ids = one.devices[devices.resource_name()];
          ids.insert(ids.end(), devices.device_ids().begin(), devices.device_ids().end());
        }
        for (auto& [resource, ids] : one.devices) ids = sorted(std::move(ids));
        for (const auto& claim : container.dynamic_resources()) {
          one.claims.push_back(claim.claim_name());
        }
        if (!one.devices.empty() || !one.claims.empty()) all.push_back(std::move(one));
      }
    }
    return all;
  }

 private:
  Millis patience_;
  std::unique_ptr<v1::PodResourcesLister::Stub> stub_;
};

}  // namespace

std::unique_ptr<PodResources> open_pod_resources(const std::filesystem::path& socket,
                                                 Millis patience) {
  return std::make_unique<KubeletResources>(socket.string(), patience);
}

}  // namespace aliquot::kube
