#include "kube/node/allocations.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kube/node/node_pods.hpp"

namespace aliquot::kube {
namespace {

TEST(Tenant, IsANamespacesUserOrAContainer) {
  const PodName one{"lab", "a", "u1"};
  const PodName two{"lab", "b", "u2"};
  const PodName other{"course", "c", "u3"};
  EXPECT_EQ(tenant_of(one, "c", Uid(1001)), tenant_of(two, "d", Uid(1001)));
  EXPECT_NE(tenant_of(one, "c", Uid(1001)), tenant_of(other, "c", Uid(1001)));
  EXPECT_NE(tenant_of(one, "c", Uid(1001)), tenant_of(one, "c", Uid(1002)));
  EXPECT_NE(tenant_of(one, "c", std::nullopt), tenant_of(two, "c", std::nullopt));
  EXPECT_NE(tenant_of(one, "c", std::nullopt), tenant_of(one, "d", std::nullopt));
  EXPECT_GE(tenant_of(one, "c", Uid(0)).value(), 0x8000'0000U);
}

RC_GTEST_PROP(AllocationRecord, ComesBackAsItWas, ()) {
  Allocation allocation;
  allocation.pod = {"default", "pod-0", "uid" + std::to_string(*rc::gen::inRange(0, 99))};
  allocation.container = "c";
  allocation.role = *rc::gen::element(Role::init, Role::sidecar, Role::app);
  const bool whole = *rc::gen::arbitrary<bool>();
  allocation.resource = {"aliquot.dev/gpu", whole ? Kind::whole : Kind::memory};
  allocation.ids = sorted({"GPU-a/1", "GPU-a/0"});
  if (*rc::gen::arbitrary<bool>()) {
    allocation.claim =
        ClaimPart{{"default", "claim", "claim-uid"}, "gpu", *rc::gen::arbitrary<bool>()};
  }
  allocation.grant.holder =
      allocation.claim ? holder_of(*allocation.claim) : holder_of(allocation.pod, "c");
  allocation.grant.owner = Uid(*rc::gen::arbitrary<std::uint32_t>());
  allocation.grant.group = Gid(65'534);
  allocation.grant.any_user = true;
  allocation.grant.gpus = {
      {GpuId("GPU-a"), {Bytes(*rc::gen::inRange<std::int64_t>(0, INT64_MAX)), Compute(17)}, whole}};
  const auto read = parse_allocation(format_allocation(allocation));
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == allocation);
}

RC_GTEST_PROP(AllocationRecord, OfAnyTextIsReadOrRefused, (const std::string& text)) {
  (void)parse_allocation(text);
}

}  // namespace
}  // namespace aliquot::kube
