#include "kube/model/claim.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/json.hpp>

namespace aliquot::kube {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kDriver = "aliquot.dev";

json::object claim(const std::string& allocation, const std::string& reserved = "[]") {
  return json::
      parse(R"({"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "status": {"allocation": )" +
            allocation + R"(, "reservedFor": )" + reserved + "}}")
          .get_object();
}

TEST(Claim, IsWhatWasAllocated) {
  const auto read = read_claim(
      claim(
          R"({"devices": {"results": [
        {"request": "gpu/first", "driver": "aliquot.dev", "pool": "n1", "device": "gpu-1", "shareID": "s",
         "consumedCapacity": {"memory": "8Gi", "compute": "25"}},
        {"request": "net", "driver": "nic.example", "pool": "n1", "device": "eth0"},
        {"request": "all", "driver": "aliquot.dev", "pool": "n1", "device": "gpu-2-whole"}]}})",
          R"([{"resource": "pods", "name": "p", "uid": "pu"}, {"apiGroup": "x", "resource": "others", "name": "o", "uid": "ou"}])"),
      kDriver);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->id, (ClaimName{"ns", "c", "u"}));
  EXPECT_THAT(read->pods, ElementsAre(PodName{"ns", "p", "pu"}));
  EXPECT_FALSE(read->configured);
  EXPECT_THAT(read->devices,
              ElementsAre(ClaimedDevice{.request = "gpu",
                                        .pool = "n1",
                                        .device = "gpu-1",
                                        .share_id = "s",
                                        .memory = gib(8),
                                        .compute = 25},
                          ClaimedDevice{.request = "all", .pool = "n1", .device = "gpu-2-whole"}));
}

TEST(Claim, ParametersForUsAreSeen) {
  const auto with = [](const std::string& driver) {
    return read_claim(claim(R"({"devices": {"results": [], "config": [{"opaque": {"driver": ")" +
                            driver + R"(", "parameters": {"memory": "80Gi"}}}]}})"),
                      kDriver);
  };
  EXPECT_TRUE(with("aliquot.dev")->configured);
  EXPECT_FALSE(with("other.example")->configured);
}

TEST(Claim, ThatIsNotAllocatedIsRefused) {
  const auto read = read_claim(claim("null"), kDriver);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Error::Code::not_found);
  EXPECT_THAT(read.error().message, HasSubstr("claim 'ns/c': it is not allocated"));
}

TEST(Claim, AmountsThatCannotBeAreRefused) {
  EXPECT_FALSE(read_claim(
      claim(R"({"devices": {"results": [{"request": "gpu", "driver": "aliquot.dev", "pool": "n",
    "device": "d", "consumedCapacity": {"memory": "-8Gi"}}]}})"),
      kDriver));
  EXPECT_FALSE(read_claim(
      claim(R"({"devices": {"results": [{"driver": "aliquot.dev", "pool": "n", "device": "d"}]}})"),
      kDriver));
}

TEST(ClaimsOfAPod, ByContainer) {
  const auto pod = json::parse(R"({"spec": {
      "resourceClaims": [{"name": "own", "resourceClaimName": "shared"}, {"name": "made", "resourceClaimTemplateName": "t"},
                         {"name": "late", "resourceClaimTemplateName": "t"}],
      "initContainers": [{"name": "i", "resources": {"claims": [{"name": "made"}]}}],
      "containers": [{"name": "c", "resources": {"claims": [{"name": "own"}, {"name": "made", "request": "gpu"}]}},
                     {"name": "d", "resources": {"claims": [{"name": "late"}, {"name": "never"}]}}, {"name": "e"}]},
    "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x7"}, {"name": "late"}]}})")
                       .get_object();
  const std::map<std::string, std::vector<ClaimUse>> wanted = {
      {"i", {{"p-made-x7", ""}}}, {"c", {{"shared", ""}, {"p-made-x7", "gpu"}}}};
  EXPECT_EQ(claims_of(pod), wanted);
}

TEST(ClaimUse, NamesARequestOrAll) {
  EXPECT_TRUE(uses({"c", ""}, "c", "gpu"));
  EXPECT_TRUE(uses({"c", "gpu"}, "c", "gpu"));
  EXPECT_FALSE(uses({"c", "other"}, "c", "gpu"));
  EXPECT_FALSE(uses({"d", ""}, "c", "gpu"));
}

}  // namespace
}  // namespace aliquot::kube
