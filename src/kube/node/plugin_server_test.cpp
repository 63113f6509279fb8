// Over the wire: the test is the kubelet.
#include "kube/node/plugin_server.hpp"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <mutex>

#include "kube/node/fake_kubelet.hpp"
#include "kube/proto/device_plugin.grpc.pb.h"
#include "kube/proto/pod_resources.grpc.pb.h"

namespace aliquot::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class Registrations final : public v1beta1::Registration::Service {
 public:
  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    const std::lock_guard lock(mutex_);
    if (refuse) return {grpc::StatusCode::INTERNAL, "not now"};
    requests.push_back(*request);
    return grpc::Status::OK;
  }
  std::vector<v1beta1::RegisterRequest> requests;
  bool refuse = false;

 private:
  std::mutex mutex_;
};

class Listing final : public v1::PodResourcesLister::Service {
 public:
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* response) override {
    *response = answer;
    return grpc::Status::OK;
  }
  v1::ListPodResourcesResponse answer;
};

std::unique_ptr<grpc::Server> serve(const std::filesystem::path& socket, grpc::Service& service) {
  ::unlink(socket.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix://" + socket.string(), grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  return builder.BuildAndStart();
}

class PluginServerTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<v1beta1::DevicePlugin::Stub> connect(
      const std::string& resource = "aliquot.dev_gpu-mem.sock") const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1beta1::DevicePlugin::NewStub(
        grpc::CreateCustomChannel("unix://" + (folder_.path() / resource).string(),
                                  grpc::InsecureChannelCredentials(), arguments));
  }
  static std::size_t healthy(const v1beta1::ListAndWatchResponse& devices) {
    return static_cast<std::size_t>(std::ranges::count_if(
        devices.devices(), [](const auto& device) { return device.health() == "Healthy"; }));
  }

  test::Folder folder_;
  FakeNode node_;
  Registrations registrations_;
};

TEST_F(PluginServerTest, RegistersAgainWithEachKubelet) {
  PluginServers servers(node_.plugin(), folder_.path());
  EXPECT_FALSE(servers.look());
  EXPECT_FALSE(servers.registered());
  auto kubelet = serve(folder_.path() / "kubelet.sock", registrations_);
  registrations_.refuse = true;
  const auto refused = servers.look();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("not now"));
  registrations_.refuse = false;
  ASSERT_TRUE(servers.look());
  std::vector<std::string> names;
  for (const auto& request : registrations_.requests) {
    names.push_back(request.resource_name());
    EXPECT_EQ(request.version(), "v1beta1");
    EXPECT_TRUE(request.options().pre_start_required());
    EXPECT_TRUE(request.options().get_preferred_allocation_available());
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / request.endpoint()));
  }
  EXPECT_THAT(names, ElementsAre("aliquot.dev/gpu-mem", "aliquot.dev/gpu", "nvidia.com/gpu",
                                 "aliyun.com/gpu-mem", "aliyun.com/gpu-count"));
  ASSERT_TRUE(servers.look());
  EXPECT_EQ(registrations_.requests.size(), 5U);
  // A new one, which removes the sockets of all plugins.
  kubelet->Shutdown();
  std::filesystem::remove(folder_.path() / "aliquot.dev_gpu.sock");
  kubelet = serve(folder_.path() / "kubelet.sock", registrations_);
  ASSERT_TRUE(servers.look());
  EXPECT_EQ(registrations_.requests.size(), 10U);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "aliquot.dev_gpu.sock"));
  grpc::ClientContext context;
  v1beta1::DevicePluginOptions options;
  EXPECT_TRUE(connect("aliquot.dev_gpu.sock")->GetDevicePluginOptions(&context, {}, &options).ok());
  EXPECT_TRUE(options.pre_start_required());
}

TEST_F(PluginServerTest, TellsOfEveryChange) {
  const auto kubelet = serve(folder_.path() / "kubelet.sock", registrations_);
  PluginServers servers(node_.plugin(), folder_.path());
  ASSERT_TRUE(servers.look());
  const auto stub = connect();
  grpc::ClientContext context;
  const auto reader = stub->ListAndWatch(&context, {});
  v1beta1::ListAndWatchResponse devices;
  ASSERT_TRUE(reader->Read(&devices));
  EXPECT_EQ(devices.devices_size(), 24);
  EXPECT_EQ(healthy(devices), 24U);
  EXPECT_EQ(devices.devices(0).id(), fake_uuid(0) + "/0");
  node_.plugin().set_health({{GpuId(fake_uuid(1)), core::Health::lost}});
  ASSERT_TRUE(reader->Read(&devices));
  EXPECT_EQ(healthy(devices), 16U);
  (void)node_.plugin().allocate({"nvidia.com/gpu", Kind::whole}, {fake_uuid(2)});
  ASSERT_TRUE(reader->Read(&devices));
  EXPECT_EQ(healthy(devices), 8U);
  context.TryCancel();
}

TEST_F(PluginServerTest, AContainersWholeWay) {
  const auto kubelet = serve(folder_.path() / "kubelet.sock", registrations_);
  PluginServers servers(node_.plugin(), folder_.path());
  ASSERT_TRUE(servers.look());
  const auto stub = connect();
  const auto pod = node_.add_pod("a", {{"c", 2}}, {{"c", {1}}});
  v1beta1::PreferredAllocationRequest wanted;
  auto* of = wanted.add_container_requests();
  for (const PluginDevice& device : node_.plugin().devices({"aliquot.dev/gpu-mem", Kind::memory})) {
    of->add_available(device.id);
  }
  of->set_allocation_size(2);
  v1beta1::PreferredAllocationResponse preferred;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->GetPreferredAllocation(&context, wanted, &preferred).ok());
  }
  ASSERT_EQ(preferred.container_responses_size(), 1);
  EXPECT_THAT(preferred.container_responses(0).device_ids(),
              UnorderedElementsAre(fake_uuid(1) + "/0", fake_uuid(1) + "/1"));
  v1beta1::AllocateRequest request;
  v1beta1::PreStartContainerRequest starting;
  auto* container = request.add_container_requests();
  for (const std::string& id : preferred.container_responses(0).device_ids()) {
    container->add_device_ids(id);
    starting.add_device_ids(id);
  }
  v1beta1::AllocateResponse allocated;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->Allocate(&context, request, &allocated).ok());
  }
  ASSERT_EQ(allocated.container_responses_size(), 1);
  const auto& view = allocated.container_responses(0);
  EXPECT_EQ(view.envs().at("NVIDIA_VISIBLE_DEVICES"), fake_uuid(1));
  EXPECT_TRUE(std::ranges::any_of(view.mounts(), [](const auto& mount) {
    return mount.container_path() == "/etc/ld.so.preload" && mount.read_only();
  }));
  ASSERT_EQ(view.devices_size(), 1);
  EXPECT_EQ(view.devices(0).host_path(), "/dev/nvidia1");
  v1beta1::PreStartContainerResponse nothing;
  {
    grpc::ClientContext context;
    const auto status = stub->PreStartContainer(&context, starting, &nothing);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("does not say yet whose"));
  }
  node_.kubelet().listed.push_back(
      {"default", "a", "c", {{"aliquot.dev/gpu-mem", {fake_uuid(1) + "/0", fake_uuid(1) + "/1"}}}});
  {
    grpc::ClientContext context;
    EXPECT_TRUE(stub->PreStartContainer(&context, starting, &nothing).ok());
  }
  EXPECT_EQ(node_.holders().size(), 1U);
}

TEST_F(PluginServerTest, WhoHoldsWhatIsReadFromTheKubelet) {
  const auto socket = folder_.path() / "resources.sock";
  const auto resources = open_pod_resources(socket, seconds(30));
  Listing listing;
  auto* pod = listing.answer.add_pod_resources();
  pod->set_name("a");
  pod->set_namespace_("default");
  auto* container = pod->add_containers();
  container->set_name("c");
  for (const char* id : {"GPU-b/1", "GPU-b/0"}) {  // by NUMA node, each on its own
    auto* devices = container->add_devices();
    devices->set_resource_name("aliquot.dev/gpu-mem");
    devices->add_device_ids(id);
  }
  pod->add_containers()->set_name("plain");
  EXPECT_EQ(open_pod_resources(folder_.path() / "nobody.sock", seconds(1))->list().error().code,
            Error::Code::unavailable);
  const auto kubelet = serve(socket, listing);
  const auto listed = resources->list();
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_THAT(*listed,
              ElementsAre(ContainerDevices{
                  "default", "a", "c", {{"aliquot.dev/gpu-mem", {"GPU-b/0", "GPU-b/1"}}}}));
}

}  // namespace
}  // namespace aliquot::kube
