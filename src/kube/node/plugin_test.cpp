#include "kube/node/plugin.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "enforce/abi.h"
#include "kube/node/fake_kubelet.hpp"
#include "node/grant_folder.hpp"

namespace aliquot::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const std::string kMem = "aliquot.dev/gpu-mem";

std::size_t healthy(FakeNode& node, const std::string& resource, Kind kind) {
  const auto devices = node.plugin().devices({resource, kind});
  return static_cast<std::size_t>(std::ranges::count(devices, true, &PluginDevice::healthy));
}

class PluginTest : public testing::Test {
 protected:
  FakeNode node_;
};

TEST_F(PluginTest, UnitsAreOfTheGpuThatTheGrantSays) {
  const auto pod = node_.add_pod("a", {{"c", 3}}, {{"c", {2}}});
  ASSERT_TRUE(node_.admit(pod));
  EXPECT_EQ(node_.gpu(pod, "c"), GpuId(fake_uuid(2)));
  ASSERT_TRUE(node_.start_container(pod, "c"));
  EXPECT_THAT(node_.holders(), ElementsAre("pod:" + pod->pod.id.uid + "/c"));
  node_.plugin().look();
  EXPECT_EQ(node_.correct(), 0U);
}

TEST_F(PluginTest, WhatIsHeldLiesBehindTheLinksOfTheAllocation) {
  const auto pod = node_.add_pod("a", {{"c", 3}}, {{"c", {1}}});
  ASSERT_TRUE(node_.admit(pod));
  const auto view = node_.plugin().allocate({kMem, Kind::memory}, node_.ids(pod, "c"));
  ASSERT_TRUE(node_.start_container(pod, "c"));
  std::map<std::string, MountPoint> mounts;
  for (const MountPoint& mount : view.mounts) mounts[mount.container] = mount;
  const auto limits = mounts.at("/run/aliquot/grant").host + "/" ALIQUOT_LIMITS_FILE;
  const auto usage = mounts.at("/run/aliquot/grant/usage").host;
  struct stat info {};
  ASSERT_EQ(::stat(limits.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(sizeof(aliquot_limits)));
  EXPECT_TRUE(mounts.at("/run/aliquot/grant").read_only);
  ASSERT_EQ(::stat(usage.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0666U);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_FALSE(mounts.at("/run/aliquot/grant/usage").read_only);
  // Nobody else gets to it.
  ASSERT_EQ(::stat((node_.run() / "grants").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  EXPECT_TRUE(std::filesystem::exists(mounts.at("/run/aliquot/lib").host + "/libaliquot.so"));
  EXPECT_TRUE(std::filesystem::is_directory(mounts.at("/run/aliquot/mps").host));
  EXPECT_EQ(view.environment.at("ALIQUOT_GRANT"), "/run/aliquot/grant");
  EXPECT_EQ(view.environment.at("CUDA_VISIBLE_DEVICES"), fake_uuid(1));
  const auto folder =
      node::GrantFolder::open(node_.run() / "grants", HolderId("pod:" + pod->pod.id.uid + "/c"));
  ASSERT_TRUE(folder) << folder.error().message;
  ASSERT_EQ(folder->gpus().size(), 1U);
  EXPECT_EQ(folder->gpus().front().portion.memory, gib(3));
  // Where the library is told to look for the board, the container has it.
  ASSERT_TRUE(folder->gpus().front().lease);
  EXPECT_EQ(folder->gpus().front().lease->board.parent_path(),
            mounts.at((node_.run() / "boards").string()).host);
}

TEST_F(PluginTest, OfEqualPodsTheOldestIsMeantAndTheOthersArePutRight) {
  const auto first = node_.add_pod("a", {{"c", 3}}, {{"c", {0}}});
  const auto second = node_.add_pod("b", {{"c", 3}}, {{"c", {1}}});
  ASSERT_TRUE(node_.admit(second));  // it gets what was meant for the first
  EXPECT_EQ(node_.gpu(second, "c"), GpuId(fake_uuid(0)));
  ASSERT_TRUE(node_.start_container(second, "c"));
  node_.plugin().look();
  EXPECT_EQ(node_.correct(), 2U);
  EXPECT_THAT(node_.says(second).at("c"), ElementsAre(GpuId(fake_uuid(0))));
  EXPECT_THAT(node_.says(first).at("c"), ElementsAre(GpuId(fake_uuid(1))));
  ASSERT_TRUE(node_.admit(first));
  EXPECT_EQ(node_.gpu(first, "c"), GpuId(fake_uuid(1)));
  node_.plugin().look();
  EXPECT_EQ(node_.correct(), 0U);
}

TEST_F(PluginTest, APodWithoutAGrantHasAllOfOneGpuAndIsWrittenDown) {
  const auto known = node_.add_pod("a", {{"c", 6}}, {{"c", {0}}});
  ASSERT_TRUE(node_.admit(known));
  const auto pod = node_.add_pod("b", {{"init", 1, 0, Role::init}, {"c", 2}}, {});
  ASSERT_TRUE(node_.admit(pod));
  EXPECT_EQ(node_.gpu(pod, "c"), GpuId(fake_uuid(0)));  // best fit
  node_.plugin().look();
  EXPECT_EQ(node_.correct(), 1U);
  EXPECT_THAT(node_.says(pod).at("c"), ElementsAre(GpuId(fake_uuid(0))));
  EXPECT_THAT(node_.says(pod).at("init"), ElementsAre(GpuId(fake_uuid(0))));
  EXPECT_TRUE(covers(node_.pods().find("default", "b")->grant->containers, pod->request));
}

TEST_F(PluginTest, AMixtureIsRefusedWithASentence) {
  const auto pod = node_.add_pod("a", {{"c", 2}}, {});
  const DeviceIds mixed = {fake_uuid(0) + "/0", fake_uuid(1) + "/0"};
  node_.kubelet().listed.push_back({"default", "a", "c", {{kMem, mixed}}});
  EXPECT_THAT(node_.plugin().allocate({kMem, Kind::memory}, mixed).mounts, testing::Not(IsEmpty()));
  const auto started = node_.plugin().pre_start({kMem, Kind::memory}, mixed);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().message,
            "container c of pod default/a got 2 units of 2 GPUs: a share is of one GPU; delete the "
            "pod, so that it is placed anew");
}

TEST_F(PluginTest, WholeAndSharedExcludeEachOther) {
  const auto share = node_.add_pod("a", {{"c", 2}}, {{"c", {0}}});
  const auto whole = node_.add_pod("b", {{"c", 0, 1}}, {{"c", {1}}});
  EXPECT_EQ(healthy(node_, kMem, Kind::memory), 24U);
  ASSERT_TRUE(node_.admit(share));
  ASSERT_TRUE(node_.admit(whole));
  EXPECT_EQ(node_.gpu(whole, "c"), GpuId(fake_uuid(1)));
  for (int i = 0; i < 2; ++i) {
    // What is held stays healthy by its own name; by others it is gone.
    EXPECT_EQ(healthy(node_, kMem, Kind::memory), 16U);
    EXPECT_EQ(healthy(node_, "aliquot.dev/gpu", Kind::whole), 2U);
    EXPECT_EQ(healthy(node_, "nvidia.com/gpu", Kind::whole), 1U);
    EXPECT_EQ(healthy(node_, "aliyun.com/gpu-mem", Kind::memory), 14U);
    node_.plugin().look();
  }
  // The kubelet's mistake is waited out.
  node_.kubelet().listed.push_back({"default", "b", "c", {{"nvidia.com/gpu", {fake_uuid(0)}}}});
  ASSERT_TRUE(node_.start_container(share, "c"));
  const auto started = node_.plugin().pre_start({"nvidia.com/gpu", Kind::whole}, {fake_uuid(0)});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Error::Code::unavailable);
  EXPECT_THAT(started.error().message, HasSubstr("shared by container c of pod default/a"));
}

TEST_F(PluginTest, ASickGpuTakesNothingNew) {
  const auto pod = node_.add_pod("a", {{"c", 2}}, {{"c", {0}}});
  ASSERT_TRUE(node_.admit(pod));
  const auto before = node_.plugin().version();
  node_.plugin().set_health({{GpuId(fake_uuid(0)), core::Health::draining}});
  EXPECT_NE(node_.plugin().version(), before);
  EXPECT_EQ(healthy(node_, kMem, Kind::memory), 18U);
  node_.plugin().set_health({{GpuId(fake_uuid(0)), core::Health::lost}});
  EXPECT_EQ(healthy(node_, kMem, Kind::memory), 16U);
  node_.plugin().set_health({});
  EXPECT_EQ(healthy(node_, kMem, Kind::memory), 24U);
}

TEST_F(PluginTest, InitContainersHandTheirDevicesOn) {
  const auto pod =
      node_.add_pod("a", {{"one", 2, 0, Role::init}, {"two", 2, 0, Role::init}, {"c", 2}, {"d", 1}},
                    {{"one", {1}}, {"two", {1}}, {"c", {1}}, {"d", {1}}});
  ASSERT_TRUE(node_.admit(pod));
  EXPECT_EQ(node_.ids(pod, "one"), node_.ids(pod, "c"));
  const auto holder = [&](const char* name) { return "pod:" + pod->pod.id.uid + "/" + name; };
  ASSERT_TRUE(node_.start_container(pod, "one"));
  EXPECT_THAT(node_.holders(), ElementsAre(holder("one")));
  ASSERT_TRUE(node_.start_container(pod, "two"));
  EXPECT_THAT(node_.holders(), ElementsAre(holder("two")));
  // The API server does not know yet that both are over.
  ASSERT_TRUE(node_.start_container(pod, "c"));
  ASSERT_TRUE(node_.start_container(pod, "d"));
  EXPECT_THAT(node_.holders(), UnorderedElementsAre(holder("c"), holder("d")));
  node_.change(pod, [](NodePod& changed) {
    changed.containers["one"].finished = changed.containers["two"].finished = true;
  });
  node_.kill();
  ASSERT_TRUE(node_.start_container(pod, "c"));
  node_.plugin().look();
  EXPECT_THAT(node_.holders(), UnorderedElementsAre(holder("c"), holder("d")));
  // One that comes later is not taken for an init container that has had its turn.
  const auto other = node_.add_pod("b", {{"c", 2}}, {{"c", {2}}});
  ASSERT_TRUE(node_.admit(other));
  EXPECT_EQ(node_.gpu(other, "c"), GpuId(fake_uuid(2)));
}

TEST_F(PluginTest, AnInitContainerThatAloneAsksIsFoundByItsGrant) {
  const auto pod = node_.add_pod("a", {{"one", 2, 0, Role::init}}, {{"one", {1}}});
  ASSERT_TRUE(node_.admit(pod));
  ASSERT_TRUE(node_.start_container(pod, "one"));
  ASSERT_TRUE(node_.start_container(pod, "one"));
  EXPECT_THAT(node_.holders(), ElementsAre("pod:" + pod->pod.id.uid + "/one"));
  node_.pods().set_synced();
  node_.change(pod, [](NodePod& changed) { changed.containers["one"].finished = true; });
  node_.plugin().look();
  EXPECT_THAT(node_.holders(), IsEmpty());
}

TEST_F(PluginTest, ReleasedWhenBothSayThatItIsGone) {
  const auto pod = node_.add_pod("a", {{"c", 2}}, {{"c", {0}}});
  ASSERT_TRUE(node_.admit(pod));
  ASSERT_TRUE(node_.start_container(pod, "c"));
  // A kubelet that has just started lists nobody; an agent that has knows no pods.
  node_.pods().set_synced();
  const auto listed = std::exchange(node_.kubelet().listed, {});
  node_.plugin().look();
  EXPECT_EQ(node_.holders().size(), 1U);
  node_.kubelet().listed = listed;
  node_.pods().remove(pod->pod.id);
  node_.plugin().look();
  EXPECT_EQ(node_.holders().size(), 1U);
  node_.kubelet().away = true;
  node_.plugin().look();
  EXPECT_EQ(node_.holders().size(), 1U);
  node_.kubelet().away = false;
  node_.forget(pod);
  node_.plugin().look();
  EXPECT_THAT(node_.holders(), IsEmpty());
  EXPECT_EQ(node_.folders("grants"), 0U);
  EXPECT_EQ(node_.folders("pods"), 0U);
  EXPECT_EQ(healthy(node_, kMem, Kind::memory), 24U);
}

TEST_F(PluginTest, APodThatHasEndedIsReleasedAlthoughTheKubeletGoesOnToListIt) {
  const auto pod = node_.add_pod("a", {{"c", 2}}, {{"c", {0}}});
  ASSERT_TRUE(node_.admit(pod));
  ASSERT_TRUE(node_.start_container(pod, "c"));
  node_.pods().set_synced();
  node_.change(pod, [](NodePod& changed) { changed.pod.phase = "Succeeded"; });
  node_.plugin().look();
  EXPECT_EQ(node_.holders().size(), 1U);
  node_.clock().advance(seconds(31));
  node_.plugin().look();
  EXPECT_THAT(node_.holders(), IsEmpty());
}

TEST_F(PluginTest, ARestartedContainerKeepsWhatItHas) {
  const auto pod = node_.add_pod("a", {{"c", 2}}, {{"c", {0}}});
  ASSERT_TRUE(node_.admit(pod));
  ASSERT_TRUE(node_.start_container(pod, "c"));
  const auto usage = node_.run() / "grants" / ("pod:" + pod->pod.id.uid + "=c") / "usage";
  struct stat before {};
  struct stat after {};
  ASSERT_EQ(::stat(usage.c_str(), &before), 0);
  ASSERT_TRUE(node_.start_container(pod, "c"));
  node_.kill();
  ASSERT_TRUE(node_.start_container(pod, "c"));
  ASSERT_EQ(::stat(usage.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  // After a reboot nothing is left of it but the kubelet's memory.
  std::filesystem::remove_all(node_.run() / "grants");
  std::filesystem::remove_all(node_.run() / "pods");
  node_.kill();
  ASSERT_TRUE(node_.start_container(pod, "c"));
  EXPECT_EQ(::stat(usage.c_str(), &after), 0);
}

TEST_F(PluginTest, WhoIsNotKnownYetIsWaitedFor) {
  const DeviceIds ids = {fake_uuid(0) + "/0"};
  EXPECT_EQ(node_.plugin().pre_start({kMem, Kind::memory}, ids).error().code,
            Error::Code::unavailable);
  node_.kubelet().listed.push_back({"default", "a", "c", {{kMem, ids}}});
  EXPECT_EQ(node_.plugin().pre_start({kMem, Kind::memory}, ids).error().message,
            "pod default/a is not known here yet");
  node_.kubelet().away = true;
  EXPECT_EQ(node_.plugin().pre_start({kMem, Kind::memory}, ids).error().code,
            Error::Code::unavailable);
  EXPECT_FALSE(node_.plugin().pre_start({kMem, Kind::memory}, {"nonsense"}));
}

TEST(PluginMpsTest, ThePipesAreThoseOfTheTenant) {
  FakeNode node(1, 8, true);
  const auto one = node.add_pod("a", {{"c", 2, 0, Role::app, Uid(1001)}}, {{"c", {0}}});
  const auto two = node.add_pod("b", {{"c", 1, 0, Role::app, Uid(1001)}}, {{"c", {0}}});
  const auto own = node.add_pod("c", {{"c", 3}}, {{"c", {0}}});
  for (const auto& pod : {one, two, own}) {
    ASSERT_TRUE(node.admit(pod));
    ASSERT_TRUE(node.start_container(pod, "c"));
  }
  const auto pipes = [&](const NodePodPtr& pod) {
    return std::filesystem::read_symlink(links_of(node.run(), node.ids(pod, "c")) / "mps");
  };
  EXPECT_EQ(pipes(one), pipes(two));
  EXPECT_NE(pipes(one), pipes(own));
  EXPECT_EQ(node.mps()->daemons.size(), 2U);
  const auto before = pipes(own);
  node.kill();
  ASSERT_TRUE(node.start_container(own, "c"));
  EXPECT_EQ(pipes(own), before);
  EXPECT_EQ(node.mps()->starts, 0);
}

}  // namespace
}  // namespace aliquot::kube
