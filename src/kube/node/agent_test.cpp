// The agent with all its parts: the test is the kubelet and the API server.
#include "kube/node/agent.hpp"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/json.hpp>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "gpu/fake_devices.hpp"
#include "kube/api/fake_api.hpp"
#include "kube/proto/device_plugin.grpc.pb.h"
#include "kube/proto/pod_resources.grpc.pb.h"
#include "node/testing.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::kube {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
namespace json = boost::json;
using ::testing::HasSubstr;

constexpr const char* kMem = "aliquot.dev/gpu-mem";

std::string uuid(int gpu) { return fmt::format("GPU-00000000-0000-0000-0000-00000000000{}", gpu); }

// As much of a kubelet as a plugin sees.
class TestKubelet final : public v1beta1::Registration::Service,
                          public v1::PodResourcesLister::Service {
 public:
  explicit TestKubelet(fs::path folder) : folder_(std::move(folder)) {
    fs::create_directories(folder_ / "device-plugins");
    fs::create_directories(folder_ / "pod-resources");
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix://" + (folder_ / "device-plugins/kubelet.sock").string(),
                             grpc::InsecureServerCredentials());
    builder.AddListeningPort("unix://" + (folder_ / "pod-resources/kubelet.sock").string(),
                             grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1beta1::Registration::Service*>(this));
    builder.RegisterService(static_cast<v1::PodResourcesLister::Service*>(this));
    server_ = builder.BuildAndStart();
  }

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    const std::lock_guard lock(mutex_);
    registered_.insert(request->resource_name());
    return grpc::Status::OK;
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* response) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [pod, ids] : held_) {
      auto* one = response->add_pod_resources();
      one->set_name(pod);
      one->set_namespace_("default");
      auto* container = one->add_containers();
      container->set_name("c");
      auto* devices = container->add_devices();
      devices->set_resource_name(ids.first);
      for (const std::string& id : ids.second) devices->add_device_ids(id);
    }
    return grpc::Status::OK;
  }
  bool knows(const std::string& resource) {
    const std::lock_guard lock(mutex_);
    return registered_.contains(resource);
  }
  // Gives these to the pod's container, and has it started.
  grpc::Status start(const std::string& resource, const std::string& pod, const DeviceIds& ids) {
    {
      const std::lock_guard lock(mutex_);
      held_[pod] = {resource, ids};
    }
    std::string socket = resource + ".sock";
    std::ranges::replace(socket, '/', '_');
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1beta1::DevicePlugin::NewStub(
        grpc::CreateCustomChannel("unix://" + (folder_ / "device-plugins" / socket).string(),
                                  grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    v1beta1::PreStartContainerRequest request;
    for (const std::string& id : ids) request.add_device_ids(id);
    v1beta1::PreStartContainerResponse nothing;
    return stub->PreStartContainer(&context, request, &nothing);
  }
  void end(const std::string& pod) {
    const std::lock_guard lock(mutex_);
    held_.erase(pod);
  }

 private:
  fs::path folder_;
  std::mutex mutex_;
  std::set<std::string> registered_;
  std::map<std::string, std::pair<std::string, DeviceIds>> held_;
  std::unique_ptr<grpc::Server> server_;
};

class AgentTest : public testing::Test {
 protected:
  AgentTest() : devices_(gpus()), kubelet_(folder_.path() / "kubelet") {
    fs::create_directories(run());
    fs::create_directories(library());
    std::ofstream(library() / "libaliquot.so") << "";
    api_.put("/api/v1/nodes/n1", {{"metadata", {{"name", "n1"}}}});
    start();
  }
  ~AgentTest() override { stop(); }

  static std::vector<gpu::Device> gpus() {
    auto all = gpu::fake_gpus(2, "a100", gib(8));
    for (int i = 0; i < 2; ++i) all[static_cast<std::size_t>(i)].gpu.id = GpuId(uuid(i));
    return all;
  }
  [[nodiscard]] fs::path run() const { return folder_.path() / "run"; }
  [[nodiscard]] fs::path library() const { return folder_.path() / "lib"; }

  void start() {
    auto enforcer =
        node::Enforcer::create({.run = run(),
                                .library = library() / "libaliquot.so",
                                .facts = {.driver_version = "550", .no_mps = "none here"},
                                .mps = nullptr,
                                .walled = true});
    ASSERT_TRUE(enforcer) << enforcer.error().message;
    enforcer_ = std::move(*enforcer);
    auto agent = Agent::create({.context = context_,
                                .api = api_,
                                .devices = devices_,
                                .gpus = gpus_,
                                .enforcer = *enforcer_,
                                .clock = clock_},
                               {.reader = reader_,
                                .gpushare = true,
                                .run = run(),
                                .kubelet = folder_.path() / "kubelet",
                                .library = library()});
    ASSERT_TRUE(agent) << agent.error().message;
    agent_ = std::move(*agent);
    agent_->start();
    context_.restart();
    loop_ = std::thread([this] {
      const auto work = asio::make_work_guard(context_);
      context_.run();
    });
    ASSERT_TRUE(test::eventually([&] { return agent_->ready(); }));
  }
  void stop() {
    context_.stop();
    if (loop_.joinable()) loop_.join();
    agent_.reset();
    enforcer_.reset();
  }
  // FakeApi is the loop's.
  template <class F>
  auto on_loop(F&& what) {
    std::packaged_task<decltype(what())()> task(std::forward<F>(what));
    auto done = task.get_future();
    asio::post(context_, [&task] { task(); });
    return done.get();
  }
  static std::string path(const std::string& pod) {
    return "/api/v1/namespaces/default/pods/" + pod;
  }
  // Bound here, granted units of this GPU; none: without a grant.
  void add_pod(const std::string& name, const std::string& resource, int units,
               std::optional<int> gpu) {
    on_loop([&] {
      json::object annotations;
      const PodName id{"default", name, "uid-" + name};
      if (gpu) {
        const PodGrant grant{
            "n1",
            clock_.wall(),
            {{"c", {{GpuId(uuid(*gpu)), {gib(units), Compute(1'250 * units)}, false}}}}};
        const std::string text = write_grant(grant);
        annotations = {{"aliquot.dev/grant", text},
                       {"aliquot.dev/grant-seal", reader_.key.seal(id, text)}};
        if (resource.starts_with("aliyun")) annotations[std::string(kGpushareAssigned)] = "false";
      }
      api_.put(path(name),
               {{"metadata",
                 {{"name", name},
                  {"namespace", "default"},
                  {"uid", id.uid},
                  {"annotations", annotations}}},
                {"spec",
                 {{"nodeName", "n1"},
                  {"containers",
                   {{{"name", "c"},
                     {"resources", {{"limits", {{resource, std::to_string(units)}}}}}}}}}},
                {"status", {{"phase", "Pending"}}}});
    });
  }
  std::string annotation(const std::string& at, const std::string& name) {
    return on_loop([&] {
      const auto* object = api_.find(at);
      const auto* meta = object == nullptr ? nullptr : find_object(*object, "metadata");
      const auto* all = meta == nullptr ? nullptr : find_object(*meta, "annotations");
      return all == nullptr ? std::string() : std::string(find_text(*all, name));
    });
  }
  std::optional<GpuId> says(const std::string& pod) {
    return on_loop([&]() -> std::optional<GpuId> {
      const auto* object = api_.find(path(pod));
      const auto read = object == nullptr ? Result<NodePod>() : reader_.read(*object);
      if (!read || !read->grant || !read->grant->containers.contains("c")) return std::nullopt;
      return read->grant->containers.at("c").front().gpu;
    });
  }

  test::Folder folder_;
  sys::SystemClock clock_;
  const PodReader reader_{.names = {},
                          .node = "n1",
                          .unit = gib(1),
                          .nvidia = false,
                          .key = *SealKey::parse("0123456789abcdef0123456789abcdef")};
  const std::vector<gpu::Device> gpus_ = gpus();
  gpu::FakeDevices devices_;
  asio::io_context context_;
  FakeApi api_{context_};
  TestKubelet kubelet_;
  std::unique_ptr<node::Enforcer> enforcer_;
  std::unique_ptr<Agent> agent_;
  std::thread loop_;
};

TEST_F(AgentTest, SaysWhatTheNodeHas) {
  EXPECT_TRUE(test::eventually([&] {
    const auto gpus = read_node_gpus(annotation("/api/v1/nodes/n1", "aliquot.dev/gpus"));
    return gpus && gpus->gpus.size() == 2 && gpus->gpus[1].uuid == GpuId(uuid(1)) &&
           gpus->unit == gib(1);
  }));
  EXPECT_TRUE(kubelet_.knows(kMem));
  EXPECT_TRUE(kubelet_.knows("aliyun.com/gpu-mem"));
  // Somebody takes it away.
  on_loop([&] {
    api_.patch("/api/v1/nodes/n1",
               {{"metadata", {{"annotations", {{"aliquot.dev/gpus", nullptr}}}}}});
  });
  EXPECT_TRUE(test::eventually(
      [&] { return !annotation("/api/v1/nodes/n1", "aliquot.dev/gpus").empty(); }));
  EXPECT_TRUE(agent_->alive());
}

TEST_F(AgentTest, SwappedPodsArePutRight) {
  add_pod("a", kMem, 2, 0);
  add_pod("b", kMem, 2, 1);
  const DeviceIds first = {uuid(0) + "/0", uuid(0) + "/1"};
  const DeviceIds second = {uuid(1) + "/0", uuid(1) + "/1"};
  ASSERT_TRUE(test::eventually([&] { return kubelet_.start(kMem, "b", first).ok(); }));
  EXPECT_TRUE(test::eventually([&] { return says("b") == GpuId(uuid(0)); }));
  EXPECT_TRUE(test::eventually([&] { return says("a") == GpuId(uuid(1)); }));
  ASSERT_TRUE(test::eventually([&] { return kubelet_.start(kMem, "a", second).ok(); }));
  EXPECT_TRUE(fs::exists(run() / "grants" / "pod:uid-a=c"));
  std::promise<std::string> promise;
  agent_->metrics([&](std::string text) { promise.set_value(std::move(text)); });
  const std::string text = promise.get_future().get();
  EXPECT_THAT(text,
              HasSubstr(fmt::format("uuid=\"{}\",job=\"default/a\",user=\"default\",namespace="
                                    "\"default\",pod=\"a\",container=\"c\"}} 2147483648\n",
                                    uuid(1))));
  EXPECT_EQ(says("b"), GpuId(uuid(0)));
}

TEST_F(AgentTest, APodOfGpushareIsWrittenDownAsItsUsersExpect) {
  add_pod("a", "aliyun.com/gpu-mem", 2, 0);
  ASSERT_TRUE(test::eventually([&] {
    return kubelet_.start("aliyun.com/gpu-mem", "a", {uuid(0) + "/0", uuid(0) + "/1"}).ok();
  }));
  EXPECT_TRUE(test::eventually(
      [&] { return annotation(path("a"), std::string(kGpushareAssigned)) == "true"; }));
}

TEST_F(AgentTest, IsKilledAndTakesUpAndReleases) {
  add_pod("a", kMem, 2, std::nullopt);
  ASSERT_TRUE(test::eventually([&] {
    return kubelet_.start(kMem, "a", {uuid(1) + "/0", uuid(1) + "/1"}).ok();
  }));
  EXPECT_TRUE(test::eventually([&] { return says("a") == GpuId(uuid(1)); }));
  stop();
  ASSERT_TRUE(fs::exists(run() / "grants" / "pod:uid-a=c"));
  start();
  EXPECT_TRUE(fs::exists(run() / "grants" / "pod:uid-a=c"));
  on_loop([&] { api_.remove(path("a")); });
  kubelet_.end("a");
  EXPECT_TRUE(test::eventually([&] { return !fs::exists(run() / "grants" / "pod:uid-a=c"); }));
}

TEST_F(AgentTest, TheApiServerMayBeAway) {
  add_pod("a", kMem, 2, 0);
  ASSERT_TRUE(test::eventually([&] {
    return kubelet_.start(kMem, "a", {uuid(0) + "/0", uuid(0) + "/1"}).ok();
  }));
  on_loop([&] {
    api_.plan({.fault = FakeApi::Fault::cut, .times = 1'000'000});
    api_.cut_watches();
  });
  // Started again meanwhile.
  EXPECT_TRUE(kubelet_.start(kMem, "a", {uuid(0) + "/0", uuid(0) + "/1"}).ok());
  on_loop([&] { api_.clear_plans(); });
  on_loop([&] { api_.remove(path("a")); });
  kubelet_.end("a");
  EXPECT_TRUE(test::eventually([&] { return !fs::exists(run() / "grants" / "pod:uid-a=c"); }));
}

}  // namespace
}  // namespace aliquot::kube
