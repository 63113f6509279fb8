#include "core/policy/used_first.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/placement.hpp"
#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using namespace test;

class OneMachine {
 public:
  OneMachine() : policy_(used_first(make_policy("aliquot", generic_profile()).value())) {}

  bool start(const Request& request) {
    const Shape shape = ledger_.cluster().shape(request).value();
    const auto place = place_by_scan(ledger_.cluster(), shape, *policy_);
    if (!place) return false;
    EXPECT_TRUE(ledger_.grant(JobId(++last_), *place));
    return true;
  }
  void end(std::int64_t job) { (void)ledger_.release(JobId(job)); }
  [[nodiscard]] std::vector<std::uint32_t> jobs() const {
    std::vector<std::uint32_t> all;
    for (const GpuState& gpu : ledger_.cluster().gpus(0)) all.push_back(gpu.jobs);
    std::ranges::sort(all, std::greater());
    return all;
  }
  [[nodiscard]] const Cluster& cluster() { return ledger_.cluster(); }
  [[nodiscard]] std::int64_t last() const { return last_; }

 private:
  Ledger ledger_{cluster_of({node("n0", gpus(4))})};
  std::unique_ptr<Policy> policy_;
  std::int64_t last_ = 0;
};

Request percent_of(std::int64_t percent, std::int64_t count = 1) {
  return share(std::nullopt, Compute(percent * 100), count);
}

TEST(UsedFirst, SharesOfAFreshMachineGoTogether) {
  OneMachine four;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(four.start(percent_of(20)));
  EXPECT_THAT(four.jobs(), ::testing::ElementsAre(4, 0, 0, 0));
  OneMachine six;
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(six.start(percent_of(5)));
  EXPECT_THAT(six.jobs(), ::testing::ElementsAre(6, 0, 0, 0));
}

TEST(UsedFirst, SeveralSharesAreEachOnAGpuOfItsOwn) {
  OneMachine machine;
  EXPECT_TRUE(machine.start(percent_of(10)));
  EXPECT_TRUE(machine.start(percent_of(10, 4)));
  EXPECT_THAT(machine.jobs(), ::testing::ElementsAre(2, 1, 1, 1));
}

RC_GTEST_PROP(UsedFirstProperty, AShareOpensAGpuOnlyWhereNoOneInUseHasRoom, ()) {
  OneMachine machine;
  for (const Step& step : *histories(60)) {
    Dice dice(step);
    if (machine.last() > 0 && dice(3) == 0) {
      machine.end(1 + dice(static_cast<std::size_t>(machine.last())));
      continue;
    }
    const Request request = percent_of(1 + dice(100));
    const Compute wanted(std::get<Amounts>(request.gpus->what).compute->value());
    bool room = false;
    std::size_t in_use = 0;
    for (const GpuState& gpu : machine.cluster().gpus(0)) {
      if (gpu.free()) continue;
      ++in_use;
      room = room || gpu.compute_free >= wanted;
    }
    if (!machine.start(request)) continue;
    std::size_t now = 0;
    for (const GpuState& gpu : machine.cluster().gpus(0)) now += gpu.free() ? 0U : 1U;
    RC_ASSERT(now == in_use + (room ? 0 : 1));
  }
}

}  // namespace
}  // namespace aliquot::core
