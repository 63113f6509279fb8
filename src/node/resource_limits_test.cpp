#include "node/resource_limits.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace aliquot::node {
namespace {

ResourceLimit find(const std::vector<ResourceLimit>& limits, int resource) {
  return *std::ranges::find(limits, resource, &ResourceLimit::resource);
}

TEST(ResourceLimits, AreTheKernelsWordOfAProcess) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const auto limits = limits_of(Pid(getpid()), Uid(getuid()));
  const auto found = std::ranges::find(limits, int{RLIMIT_NOFILE}, &api::LimitInfo::resource);
  ASSERT_NE(found, limits.end());
  EXPECT_EQ(found->soft, static_cast<std::int64_t>(files.rlim_cur));
  EXPECT_TRUE(limits_of(Pid(getpid()), Uid(getuid() + 1)).empty()) << "another's";
  EXPECT_TRUE(limits_of(Pid(0x3fffffff), Uid(getuid())).empty()) << "nobody";
}

TEST(ResourceLimits, OfAJobAreItsSubmittersWhereTheyArePropagated) {
  const std::vector<ResourceLimit> usual = {
      {RLIMIT_NOFILE, 1024, 1'000'000}, {RLIMIT_CORE, 0, RLIM_INFINITY}, {RLIMIT_NICE, 5, 5}};
  const std::vector<api::LimitInfo> submitters = {
      {RLIMIT_NOFILE, 500, 2000}, {RLIMIT_CORE, {}, {}}, {RLIMIT_NICE, 0, 0}};
  auto limits = job_limits(usual, submitters, {"NOFILE", "CORE"});
  EXPECT_EQ(find(limits, RLIMIT_NOFILE), (ResourceLimit{RLIMIT_NOFILE, 500, 2000}));
  EXPECT_EQ(find(limits, RLIMIT_CORE).soft, RLIM_INFINITY);
  EXPECT_EQ(find(limits, RLIMIT_NICE), (ResourceLimit{RLIMIT_NICE, 0, 0}));
  limits = job_limits(usual, submitters, {});
  EXPECT_EQ(find(limits, RLIMIT_NOFILE), (ResourceLimit{RLIMIT_NOFILE, 1024, 2000}));
  EXPECT_EQ(find(limits, RLIMIT_CORE).soft, 0U);
  // Never over what the submitter could have.
  limits = job_limits(usual, {{RLIMIT_NOFILE, 100, 200}}, {});
  EXPECT_EQ(find(limits, RLIMIT_NOFILE), (ResourceLimit{RLIMIT_NOFILE, 200, 200}));
  EXPECT_EQ(job_limits(usual, {}, {"NOFILE"}), usual) << "nothing is known of the submitter";
}

}  // namespace
}  // namespace aliquot::node
