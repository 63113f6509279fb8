#include "kube/node/process_holder.hpp"

#include <gtest/gtest.h>

namespace aliquot::kube {
namespace {

constexpr const char* kUid = "0f1e2d3c-0000-4000-8000-000000000001";
constexpr const char* kSystemdUid = "0f1e2d3c_0000_4000_8000_000000000001";

Allocation allocation(const std::string& container) {
  Allocation one;
  one.pod = {"default", "p", kUid};
  one.container = container;
  one.grant.holder = holder_of(one.pod, container);
  return one;
}

NodePodPtr pod(const std::map<std::string, std::string>& ids) {
  auto made = std::make_shared<NodePod>();
  made->pod.id = {"default", "p", kUid};
  for (const auto& [name, id] : ids) made->containers[name].id = id;
  return made;
}

TEST(ProcessHolder, ByEitherDriverAndVersion) {
  const ProcessHolders holders({allocation("a"), allocation("b")},
                               {pod({{"a", "aaa"}, {"b", "bbb"}, {"c", "ccc"}})});
  const HolderId a(fmt::format("pod:{}/a", kUid));
  const HolderId b(fmt::format("pod:{}/b", kUid));
  EXPECT_EQ(holders.find(fmt::format("0::/kubepods/burstable/pod{}/aaa\n", kUid)), a);
  EXPECT_EQ(holders.find(fmt::format("9:cpu:/\n4:memory:/kubepods/pod{}/bbb\n", kUid)), b);
  EXPECT_EQ(holders.find(fmt::format("0::/kubelet.slice/kubepods.slice/kubepods-besteffort.slice/"
                                     "kubepods-besteffort-pod{}.slice/cri-containerd-bbb.scope\n",
                                     kSystemdUid)),
            b);
  // Seen from a control group namespace of our own; and from one that the container made.
  EXPECT_EQ(holders.find(fmt::format("0::/../../pod{}/aaa/inner\n", kUid)), a);
  EXPECT_EQ(holders.find(fmt::format("0::/kubepods/pod{}/ccc\n", kUid)), std::nullopt);
  EXPECT_EQ(holders.find(fmt::format("0::/kubepods/pod{}/ddd\n", kUid)), std::nullopt);
  EXPECT_EQ(holders.find("0::/kubepods/podother/aaa\n"), std::nullopt);
  EXPECT_EQ(holders.find(fmt::format("0::/user.slice/mypod{}/aaa\n", kUid)), std::nullopt);
  EXPECT_EQ(holders.find(""), std::nullopt);
}

TEST(ProcessHolder, BeforeTheIdIsKnown) {
  const ProcessHolders one({allocation("a")}, {pod({{"a", ""}, {"c", "ccc"}})});
  const HolderId a(fmt::format("pod:{}/a", kUid));
  EXPECT_EQ(one.find(fmt::format("0::/kubepods/pod{}/new\n", kUid)), a);
  EXPECT_EQ(one.find(fmt::format("0::/kubepods/pod{}/ccc\n", kUid)), std::nullopt);
  // Started again.
  const ProcessHolders again({allocation("a")}, {pod({{"a", "old"}})});
  EXPECT_EQ(again.find(fmt::format("0::/kubepods/pod{}/new\n", kUid)), a);
  const ProcessHolders two({allocation("a"), allocation("b")}, {});
  EXPECT_EQ(two.find(fmt::format("0::/kubepods/pod{}/new\n", kUid)), std::nullopt);
}

}  // namespace
}  // namespace aliquot::kube
