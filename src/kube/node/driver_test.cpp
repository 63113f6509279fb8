#include "kube/node/driver.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kube/node/cdi.hpp"
#include "kube/node/fake_kubelet.hpp"
#include "kube/node/process_holder.hpp"
#include "kube/node/slices.hpp"
#include "sys/file.hpp"

namespace aliquot::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DriverTest : public testing::Test {
 protected:
  DriverTest() { start(); }

  void start() {
    driver_ = std::make_unique<Driver>(Driver::Parts{
        .node = "n1",
        .cdi = node_.run() / "cdi",
        .view = {.run = node_.run(), .gpus = node_.gpus(), .unit = gib(1), .device_nodes = {}},
        .kubelet = node_.kubelet(),
        .pods = node_.pods(),
        .allocations = node_.allocations(),
        .clock = node_.clock(),
        .fetch = [this](const ClaimName& name) -> Result<Claim> {
          const auto found = claims_.find(name.name);
          if (found == claims_.end()) return fail(Error::Code::not_found, "there is no such claim");
          return found->second;
        },
        .fetch_pod = [this](const std::string& space, const std::string& name) -> Result<NodePod> {
          const auto pod = node_.pods().find(space, name);
          if (pod == nullptr) return fail(Error::Code::not_found, "there is no such pod");
          return *pod;
        }});
  }
  void kill() {
    driver_.reset();
    node_.kill();
    start();
  }
  // A pod whose containers name these claims, by container.
  PodName add_pod(const std::string& name,
                  const std::map<std::string, std::vector<ClaimUse>>& uses) {
    NodePod pod;
    pod.pod.id = {"default", name, "uid-" + name};
    pod.pod.node = "n1";
    pod.pod.phase = "Pending";
    for (const auto& [container, claims] : uses) pod.containers[container].claims = claims;
    node_.pods().put(pod);
    return pod.pod.id;
  }
  [[nodiscard]] ClaimedDevice share(int gpu, Bytes memory, std::int64_t compute = 0,
                                    const std::string& request = "gpu") const {
    return {.request = request,
            .pool = "n1",
            .device = device_name(node_.gpus()[static_cast<std::size_t>(gpu)].gpu.id, false),
            .share_id = "s",
            .memory = memory,
            .compute = compute};
  }
  [[nodiscard]] ClaimedDevice whole(int gpu, const std::string& request = "gpu") const {
    return {.request = request,
            .pool = "n1",
            .device = device_name(node_.gpus()[static_cast<std::size_t>(gpu)].gpu.id, true)};
  }
  ClaimName add_claim(const std::string& name, const std::vector<PodName>& pods,
                      const std::vector<ClaimedDevice>& devices) {
    const ClaimName id{"default", name, "claim-" + name};
    claims_[name] = {.id = id, .pods = pods, .devices = devices};
    return id;
  }
  // One pod with one container and one claim, which is prepared.
  Result<std::vector<PreparedDevice>> run(const std::string& name, const ClaimedDevice& device) {
    const PodName pod = add_pod(name, {{"c", {{name, ""}}}});
    return driver_->prepare(add_claim(name, {pod}, {device}));
  }
  [[nodiscard]] std::string cdi(const std::string& claim) const {
    return sys::read_whole(cdi_file(node_.run() / "cdi", "aliquot.dev", "claim-" + claim))
        .value_or("");
  }
  [[nodiscard]] std::vector<core::GrantedGpu> held(const std::string& claim,
                                                   const std::string& request = "gpu") {
    const auto found = node_.allocations().find(
        holder_of(ClaimPart{{"default", claim, "claim-" + claim}, request}));
    return found ? found->grant.gpus : std::vector<core::GrantedGpu>();
  }

  FakeNode node_{3, 80};
  std::map<std::string, Claim> claims_;
  std::unique_ptr<Driver> driver_;
};

TEST_F(DriverTest, AShareIsHeldAndSeen) {
  const auto prepared = run("a", share(1, gib(8), 25));
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_THAT(*prepared, ElementsAre(PreparedDevice{"gpu", "n1", share(1, gib(8)).device, "s",
                                                    "aliquot.dev/claim=claim-a-gpu"}));
  EXPECT_THAT(held("a"),
              ElementsAre(core::GrantedGpu{GpuId(fake_uuid(1)), {gib(8), Compute(2500)}}));
  EXPECT_EQ(node_.folders("grants"), 1U);
  EXPECT_THAT(cdi("a"), HasSubstr("\"CUDA_VISIBLE_DEVICES=" + fake_uuid(1) + "\""));
  EXPECT_THAT(cdi("a"), HasSubstr("\"containerPath\":\"/run/aliquot/grant\",\"options\":[\"ro\""));
  // Again, and after a restart: as it was, and written anew.
  std::filesystem::remove(cdi_file(node_.run() / "cdi", "aliquot.dev", "claim-a"));
  kill();
  EXPECT_EQ(held("a").size(), 1U);
  EXPECT_TRUE(driver_->prepare({"default", "a", "claim-a"}));
  EXPECT_NE(cdi("a"), "");
  EXPECT_TRUE(driver_->unprepare("claim-a"));
  EXPECT_TRUE(driver_->unprepare("claim-a"));
  EXPECT_EQ(cdi("a"), "");
  EXPECT_EQ(node_.folders("grants") + node_.folders("pods"), 0U);
}

TEST_F(DriverTest, AWholeGpuIsAlone) {
  ASSERT_TRUE(run("a", share(0, gib(8))));
  EXPECT_FALSE(run("b", whole(0)));
  ASSERT_TRUE(run("c", whole(1)));
  EXPECT_TRUE(held("c").front().whole);
  EXPECT_THAT(cdi("c"), HasSubstr(fake_uuid(1)));
  EXPECT_THAT(cdi("c"), testing::Not(HasSubstr("/run/aliquot/grant")));
  const auto refused = run("d", share(1, gib(1)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::Code::unavailable);
  EXPECT_TRUE(driver_->unprepare("claim-c"));
  EXPECT_TRUE(driver_->prepare({"default", "d", "claim-d"}));
}

TEST_F(DriverTest, NoMoreThanTheGpuHasWhateverTheClaimSays) {
  ASSERT_TRUE(run("a", share(0, gib(60))));
  const auto more = run("b", share(0, gib(30)));
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("has 20780 MiB left, not 30720"));
  EXPECT_FALSE(run("c", share(1, gib(90))));
  EXPECT_FALSE(run("d", share(1, Bytes(0))));
  EXPECT_EQ(node_.folders("grants"), 1U);
}

TEST_F(DriverTest, WhatItDoesNotUnderstandIsRefusedInOneSentence) {
  const PodName pod = add_pod("p", {{"c", {{"x", ""}}}});
  const auto said = [&](const ClaimName& name) {
    const auto prepared = driver_->prepare(name);
    return prepared ? "nothing" : prepared.error().message;
  };
  ClaimName name = add_claim("x", {pod}, {share(0, gib(1))});
  claims_["x"].configured = true;
  EXPECT_THAT(said(name), HasSubstr("claim 'default/x': it has a config for driver aliquot.dev"));
  name = add_claim("x", {pod}, {{.request = "gpu", .pool = "n1", .device = "gpu-0"}});
  EXPECT_THAT(said(name), HasSubstr("this node has no GPU 'gpu-0'"));
  ClaimedDevice elsewhere = share(0, gib(1));
  elsewhere.pool = "n2";
  EXPECT_THAT(said(add_claim("x", {pod}, {elsewhere})), HasSubstr("this node has no GPU"));
  ClaimedDevice admin = share(0, gib(1));
  admin.admin = true;
  EXPECT_THAT(said(add_claim("x", {pod}, {admin})), HasSubstr("adminAccess"));
  ClaimedDevice plain = share(0, gib(1));
  plain.memory.reset();
  EXPECT_THAT(said(add_claim("x", {pod}, {plain})), HasSubstr("DRAConsumableCapacity"));
  EXPECT_THAT(said(add_claim("x", {pod}, {share(0, gib(1)), share(0, gib(2))})),
              HasSubstr("two parts of GPU"));
  EXPECT_THAT(said(add_claim("x", {pod}, {share(0, gib(1)), whole(1)})),
              HasSubstr("a whole GPU and a part of another"));
  EXPECT_THAT(said(add_claim("x", {}, {share(0, gib(1))})), HasSubstr("reserved for no pod"));
  add_claim("x", {pod}, {share(0, gib(1))});
  EXPECT_THAT(said({"default", "x", "another"}), HasSubstr("is another one by now"));
  EXPECT_THAT(said({"default", "y", "y"}), HasSubstr("no such claim"));
  EXPECT_FALSE(driver_->unprepare("../../etc"));
  EXPECT_TRUE(node_.allocations().list().empty());
}

TEST_F(DriverTest, SeveralRequestsAndClaimsOfAPodGetEachTheirs) {
  const PodName pod =
      add_pod("p", {{"c", {{"x", "one"}}}, {"d", {{"x", "two"}}}, {"e", {{"y", ""}}}});
  ASSERT_TRUE(driver_->prepare(
      add_claim("x", {pod}, {share(0, gib(1), 0, "one"), share(1, gib(2), 0, "two")})));
  ASSERT_TRUE(driver_->prepare(add_claim("y", {pod}, {share(0, gib(3)), share(1, gib(3))})));
  EXPECT_EQ(held("x", "one").front().portion.memory, gib(1));
  EXPECT_EQ(held("x", "two").front().portion.memory, gib(2));
  EXPECT_EQ(held("y").size(), 2U);  // of one request: one grant
  const auto grants = driver_->grants();
  ASSERT_EQ(grants.size(), 1U);
  EXPECT_EQ(grants.front().grant.containers.size(), 3U);
  EXPECT_EQ(grants.front().grant.containers.at("d"), held("x", "two"));
  const auto written = cdi("x");
  EXPECT_THAT(written, HasSubstr("\"claim-x-one\""));
  EXPECT_THAT(written, HasSubstr("\"claim-x-two\""));
}

TEST_F(DriverTest, AContainerHasOneRequest) {
  const PodName pod = add_pod("p", {{"c", {{"x", ""}}}});
  const auto both =
      driver_->prepare(add_claim("x", {pod}, {share(0, gib(1), 0, "a"), share(1, gib(1), 0, "b")}));
  ASSERT_FALSE(both);
  EXPECT_THAT(both.error().message, HasSubstr("container c of pod default/p names 2 requests"));
  const PodName other = add_pod("q", {{"c", {{"y", ""}, {"z", ""}}}});
  EXPECT_TRUE(driver_->prepare(add_claim("y", {other}, {share(0, gib(1))})));
  EXPECT_FALSE(driver_->prepare(add_claim("z", {other}, {share(0, gib(1))})));
}

TEST_F(DriverTest, WhoHasNotSaidHisComputeHasWhatOthersLeave) {
  ASSERT_TRUE(run("a", share(0, gib(60))));
  const Compute alone = held("a").front().portion.compute;
  EXPECT_GT(alone, Compute(7'000));
  ASSERT_TRUE(run("b", share(0, gib(2), 90)));
  EXPECT_EQ(held("b").front().portion.compute, Compute(9'000));
  EXPECT_EQ(held("a").front().portion.compute, Compute(1'000));
  kill();
  EXPECT_EQ(held("a").front().portion.compute, Compute(1'000));
  EXPECT_TRUE(driver_->unprepare("claim-b"));
  EXPECT_EQ(held("a").front().portion.compute, alone);
}

TEST_F(DriverTest, OfWhatNobodyKnowsNothingIsLeft) {
  ASSERT_TRUE(run("a", share(0, gib(1))));
  ASSERT_TRUE(run("b", share(0, gib(1))));
  const auto pod = node_.pods().find("default", "a");
  node_.pods().remove(pod->pod.id);
  node_.pods().set_synced();
  driver_->look();
  node_.clock().advance(seconds(61));
  // The kubelet lists it still.
  node_.kubelet().listed.push_back({"default", "a", "c", {}, {"a"}});
  driver_->look();
  EXPECT_EQ(held("a").size(), 1U);
  node_.kubelet().listed.clear();
  driver_->look();
  node_.clock().advance(seconds(61));
  driver_->look();
  EXPECT_TRUE(held("a").empty());
  EXPECT_EQ(cdi("a"), "");
  EXPECT_EQ(held("b").size(), 1U);
}

TEST_F(DriverTest, FilesOfClaimsThatAreNotHeldGo) {
  ASSERT_TRUE(run("a", share(0, gib(1))));
  const auto folder = node_.run() / "cdi";
  const auto ours = cdi_file(folder, "aliquot.dev", "old");
  std::ofstream(ours) << "{}";
  std::ofstream(folder / "nvidia.json") << "{}";
  kill();
  EXPECT_FALSE(std::filesystem::exists(ours));
  EXPECT_TRUE(std::filesystem::exists(folder / "nvidia.json"));
  EXPECT_NE(cdi("a"), "");
}

TEST_F(DriverTest, ProcessesOfAllItsContainersAreTheClaims) {
  const PodName one = add_pod("p", {{"c", {{"x", ""}}}, {"d", {{"x", "gpu"}}}, {"e", {}}});
  const PodName two = add_pod("q", {{"c", {{"x", ""}}}});
  ASSERT_TRUE(driver_->prepare(add_claim("x", {one, two}, {share(0, gib(1))})));
  for (const auto& [name, id] : {std::pair{"p", "1"}, std::pair{"q", "2"}}) {
    NodePod pod = *node_.pods().find("default", name);
    for (auto& [container, facts] : pod.containers) facts.id = container + id;
    node_.pods().put(pod);
  }
  const ProcessHolders holders(node_.allocations().list(), node_.pods().all());
  const HolderId claim("claim:claim-x/gpu");
  EXPECT_EQ(holders.find("0::/kubepods/poduid-p/c1\n"), claim);
  EXPECT_EQ(holders.find("0::/kubepods/poduid-p/d1\n"), claim);
  EXPECT_EQ(holders.find("0::/kubepods/poduid-q/c2\n"), claim);
  EXPECT_EQ(holders.find("0::/kubepods/poduid-p/e1\n"), std::nullopt);
}

TEST_F(DriverTest, ADevicePluginsGpusAreNotThose) {
  ASSERT_TRUE(run("a", share(0, gib(1))));
  node_.plugin().look();
  for (const PluginDevice& device : node_.plugin().devices({"aliquot.dev/gpu-mem", Kind::memory})) {
    EXPECT_EQ(device.healthy, !device.id.starts_with(fake_uuid(0))) << device.id;
  }
}

// Whatever comes and goes, and however often the agent is killed: no GPU has more than its memory,
// none is whole and shared, and in the end nothing is left.
RC_GTEST_FIXTURE_PROP(DriverTest, HoldsWhatIsThereAndNoMore, ()) {
  std::set<std::string> prepared;
  for (int i = 0; i < *rc::gen::inRange(1, 25); ++i) {
    const int action = *rc::gen::inRange(0, 8);
    if (action == 0) {
      kill();
    } else if (action <= 2 && !prepared.empty()) {
      const std::string name = *prepared.begin();
      RC_ASSERT(driver_->unprepare("claim-" + name).has_value());
      prepared.erase(name);
    } else {
      const std::string name = fmt::format("c{}", i);
      const int gpu = *rc::gen::inRange(0, 3);
      const ClaimedDevice device = *rc::gen::inRange(0, 4) == 0
                                       ? whole(gpu)
                                       : share(gpu, gib(*rc::gen::inRange<std::int64_t>(1, 81)),
                                               *rc::gen::inRange<std::int64_t>(0, 101));
      if (run(name, device)) prepared.insert(name);
    }
    std::map<GpuId, Bytes> memory;
    std::map<GpuId, std::set<bool>> kinds;
    std::map<GpuId, int> wholes;
    std::size_t count = 0;
    for (const Allocation& one : node_.allocations().list()) {
      ++count;
      for (const core::GrantedGpu& gpu : one.grant.gpus) {
        memory[gpu.gpu] += gpu.portion.memory;
        kinds[gpu.gpu].insert(gpu.whole);
        wholes[gpu.gpu] += gpu.whole ? 1 : 0;
        RC_ASSERT(gpu.portion.compute > Compute(0));
      }
    }
    RC_ASSERT(count == prepared.size());
    for (const auto& [gpu, sum] : memory) RC_ASSERT(sum <= gib(80) + mib(300));
    for (const auto& [gpu, seen] : kinds) RC_ASSERT(seen.size() == 1U && wholes[gpu] <= 1);
    for (const std::string& name : prepared) RC_ASSERT(!cdi(name).empty());
  }
  for (const std::string& name : prepared)
    RC_ASSERT(driver_->unprepare("claim-" + name).has_value());
  RC_ASSERT(node_.folders("grants") + node_.folders("pods") + node_.folders("cdi") == 0U);
}

}  // namespace
}  // namespace aliquot::kube
