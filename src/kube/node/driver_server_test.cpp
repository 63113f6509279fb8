// The DRA driver on the wire: the test is the kubelet.
#include "kube/node/driver_server.hpp"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "kube/node/fake_kubelet.hpp"
#include "kube/node/slices.hpp"
#include "kube/proto/dra_plugin.grpc.pb.h"
#include "kube/proto/plugin_registration.grpc.pb.h"

namespace aliquot::kube {
namespace {

namespace dra = ::k8s::io::kubelet::pkg::apis::dra::v1;
namespace registration = ::pluginregistration;

std::shared_ptr<grpc::Channel> channel_to(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(),
                                   arguments);
}

class DriverServerTest : public testing::Test {
 protected:
  DriverServerTest() {
    std::filesystem::create_directories(kubelet() / "plugins_registry");
    server_ = std::make_unique<DriverServer>(driver_, "aliquot.dev", kubelet());
  }
  [[nodiscard]] std::filesystem::path kubelet() const { return node_.run() / "kubelet"; }

  // As the kubelet does with a socket that it finds.
  std::string find_driver() {
    const auto stub = registration::Registration::NewStub(
        channel_to((kubelet() / "plugins_registry/aliquot.dev-reg.sock").string()));
    registration::PluginInfo info;
    {
      grpc::ClientContext context;
      if (!stub->GetInfo(&context, {}, &info).ok()) return {};
    }
    EXPECT_EQ(info.type(), "DRAPlugin");
    EXPECT_EQ(info.name(), "aliquot.dev");
    EXPECT_EQ(info.supported_versions(0), "v1.DRAPlugin");
    grpc::ClientContext context;
    registration::RegistrationStatus status;
    status.set_plugin_registered(true);
    registration::RegistrationStatusResponse nothing;
    EXPECT_TRUE(stub->NotifyRegistrationStatus(&context, status, &nothing).ok());
    return info.endpoint();
  }
  Result<Claim> fetch(const ClaimName& name) {
    if (name.name != "c") return fail(Error::Code::not_found, "there is no such claim");
    return Claim{.id = {"default", "c", "u"},
                 .pods = {{"default", "p", "pu"}},
                 .devices = {{.request = "gpu",
                              .pool = "n1",
                              .device = device_name(GpuId(fake_uuid(1)), false),
                              .share_id = "s",
                              .memory = gib(2),
                              .compute = 0}}};
  }

  FakeNode node_{2, 8};
  Driver driver_{{.node = "n1",
                  .cdi = node_.run() / "cdi",
                  .view = {.run = node_.run(), .gpus = node_.gpus(), .device_nodes = {}},
                  .kubelet = node_.kubelet(),
                  .pods = node_.pods(),
                  .allocations = node_.allocations(),
                  .clock = node_.clock(),
                  .fetch = [this](const ClaimName& name) { return fetch(name); },
                  .fetch_pod = [](const std::string&, const std::string&) -> Result<NodePod> {
                    return fail(Error::Code::unavailable, "not now");
                  }}};
  std::unique_ptr<DriverServer> server_;
};

TEST_F(DriverServerTest, IsFoundAndPreparesClaims) {
  EXPECT_FALSE(server_->look());  // not registered yet
  EXPECT_FALSE(server_->registered());
  const std::string endpoint = find_driver();
  EXPECT_EQ(endpoint, (kubelet() / "plugins/aliquot.dev/dra.sock").string());
  EXPECT_TRUE(server_->look());
  EXPECT_TRUE(server_->registered());

  const auto stub = dra::DRAPlugin::NewStub(channel_to(endpoint));
  dra::NodePrepareResourcesRequest request;
  for (const char* name : {"c", "none"}) {
    auto* claim = request.add_claims();
    claim->set_namespace_("default");
    claim->set_name(name);
    claim->set_uid(name == std::string("c") ? "u" : "v");
  }
  dra::NodePrepareResourcesResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->NodePrepareResources(&context, request, &response).ok());
  }
  const auto& answer = response.claims().at("u");
  ASSERT_EQ(answer.devices_size(), 1) << answer.error();
  EXPECT_EQ(answer.devices(0).request_names(0), "gpu");
  EXPECT_EQ(answer.devices(0).pool_name(), "n1");
  EXPECT_EQ(answer.devices(0).share_id(), "s");
  EXPECT_EQ(answer.devices(0).cdi_device_ids(0), "aliquot.dev/claim=u-gpu");
  // One that fails does not take the other along.
  EXPECT_EQ(response.claims().at("v").error(), "there is no such claim");
  EXPECT_EQ(node_.folders("grants"), 1U);

  dra::NodeUnprepareResourcesRequest over;
  over.add_claims()->set_uid("u");
  dra::NodeUnprepareResourcesResponse done;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->NodeUnprepareResources(&context, over, &done).ok());
  EXPECT_EQ(done.claims().at("u").error(), "");
  EXPECT_EQ(node_.folders("grants"), 0U);
}

TEST_F(DriverServerTest, SocketsThatAreGoneComeBack) {
  (void)server_->look();
  (void)find_driver();
  for (const char* socket :
       {"plugins_registry/aliquot.dev-reg.sock", "plugins/aliquot.dev/dra.sock"}) {
    std::filesystem::remove(kubelet() / socket);
  }
  EXPECT_TRUE(server_->look());
  EXPECT_NE(find_driver(), "");
  std::filesystem::remove_all(kubelet());
  EXPECT_FALSE(server_->look());
}

}  // namespace
}  // namespace aliquot::kube
