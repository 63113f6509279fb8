#include "kube/api/lease.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/asio/io_context.hpp>
#include <memory>

#include "kube/api/fake_api.hpp"
#include "kube/api/moments.hpp"
#include "kube/api/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

constexpr std::string_view kLeasePath =
    "/apis/coordination.k8s.io/v1/namespaces/system/leases/scheduler";

class LeaseTest : public testing::Test {
 protected:
  struct Replica {
    std::unique_ptr<Lease> lease;
    int led = 0;
    int lost = 0;
  };
  std::unique_ptr<Replica> replica(const std::string& name) {
    auto made = std::make_unique<Replica>();
    Replica* const raw = made.get();
    made->lease = std::make_unique<Lease>(
        context_, api_, clock_,
        LeaseOptions{.name_space = "system", .name = "scheduler", .identity = name},
        [raw] { ++raw->led; }, [raw] { ++raw->lost; });
    return made;
  }
  void step(Replica& replica) {
    replica.lease->step();
    test::run_ready(context_);
    replica.lease->step();
    test::run_ready(context_);
  }
  std::string spec_text(std::string_view key) {
    const auto* const found = api_.find(kLeasePath);
    const auto* const spec = found == nullptr ? nullptr : find_object(*found, "spec");
    return spec == nullptr ? "" : std::string(find_text(*spec, key));
  }

  boost::asio::io_context context_;
  FakeApi api_{context_};
  ManualClock clock_{WallTime(1'700'000'000'123)};
};

TEST_F(LeaseTest, OneLeadsAndTheOtherFollowsOnSilence) {
  const auto a = replica("a");
  const auto b = replica("b");
  step(*a);
  step(*b);
  EXPECT_TRUE(a->lease->leading());
  EXPECT_FALSE(b->lease->leading());
  EXPECT_EQ(b->lease->holder(), "a");
  EXPECT_EQ(a->led, 1);
  EXPECT_EQ(spec_text("renewTime"), "2023-11-14T22:13:20.123000Z");
  for (int i = 0; i < 20; ++i) {
    clock_.advance(seconds(2));
    step(*a);
    step(*b);
  }
  EXPECT_TRUE(a->lease->leading());
  EXPECT_EQ(a->led + a->lost + b->led, 1);
  // a is silent: it knows by itself that its time is up, before b may have it.
  clock_.advance(seconds(11));
  step(*b);
  EXPECT_FALSE(a->lease->leading());
  EXPECT_EQ(a->lost, 0);
  EXPECT_FALSE(b->lease->leading());
  clock_.advance(seconds(4));
  step(*b);
  EXPECT_TRUE(b->lease->leading());
  EXPECT_EQ(spec_text("holderIdentity"), "b");
  step(*a);
  EXPECT_EQ(a->lost, 1);
  EXPECT_FALSE(a->lease->leading());
  EXPECT_EQ(find_number(*find_object(*api_.find(kLeasePath), "spec"), "leaseTransitions"), 1);
}

TEST_F(LeaseTest, IsGivenBack) {
  const auto a = replica("a");
  const auto b = replica("b");
  step(*a);
  step(*b);
  bool done = false;
  // Also while a renewal is on its way.
  a->lease->step();
  a->lease->release([&] { done = true; });
  EXPECT_FALSE(a->lease->leading());
  EXPECT_EQ(a->lost, 1);
  test::run_ready(context_);
  EXPECT_TRUE(done);
  EXPECT_EQ(spec_text("holderIdentity"), "");
  step(*b);
  EXPECT_TRUE(b->lease->leading());
  step(*a);
  EXPECT_FALSE(a->lease->leading());
  bool nothing_held = false;
  replica("c")->lease->release([&] { nothing_held = true; });
  EXPECT_TRUE(nothing_held);
}

TEST_F(LeaseTest, BearsALeaseThatIsNone) {
  for (const json::object& spec :
       {json::object{{"spec", 7}}, json::object{{"spec", json::object{{"holderIdentity", 7}}}},
        json::object{{"spec", json::object{{"holderIdentity", "other"},
                                           {"leaseDurationSeconds", -5},
                                           {"leaseTransitions", 9'000'000'000'000'000'000},
                                           {"renewTime", json::array{}}}}}}) {
    api_.put(kLeasePath, spec);
    const auto a = replica("a");
    step(*a);
    clock_.advance(seconds(15));
    step(*a);
    EXPECT_TRUE(a->lease->leading()) << spec_text("holderIdentity");
    api_.remove(kLeasePath);
    // Somebody has removed it: it is made anew.
    clock_.advance(seconds(2));
    step(*a);
    EXPECT_TRUE(a->lease->leading());
  }
}

TEST_F(LeaseTest, RunsByItself) {
  std::unique_ptr<Lease> lease;
  bool leads = false;
  lease = std::make_unique<Lease>(
      context_, api_, clock_,
      LeaseOptions{
          .name_space = "system", .name = "scheduler", .identity = "a", .retry = Millis(1)},
      [&] { leads = true; }, std::function<void()>());
  api_.plan({.fault = FakeApi::Fault::cut, .times = 3});
  lease->start();
  EXPECT_TRUE(test::run_until(context_, [&] { return leads; }));
}

// Whatever is lost or late: never two, and one again as soon as the API server answers.
RC_GTEST_PROP(LeasePropertyTest, NeverTwoLead,
              (const std::vector<std::pair<std::uint8_t, std::uint8_t>>& steps)) {
  boost::asio::io_context context;
  FakeApi api(context);
  ManualClock clock(WallTime(1'700'000'000'000));
  std::vector<std::unique_ptr<Lease>> replicas;
  int told = 0;  // how many think so by what they were told
  for (int i = 0; i < 3; ++i) {
    replicas.push_back(std::make_unique<Lease>(
        context, api, clock,
        LeaseOptions{.name_space = "system", .name = "s", .identity = std::to_string(i)},
        [&] { ++told; }, [&] { --told; }));
  }
  const auto leaders = [&] {
    int count = 0;
    for (const auto& one : replicas) count += one->leading() ? 1 : 0;
    return count;
  };
  using Fault = FakeApi::Fault;
  for (const auto& [what, detail] : steps) {
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        replicas[detail % 3]->step();
        break;
      case 3:
        clock.advance(Millis(1'000) * (detail % 8));
        break;
      case 4:
        clock.set_wall(WallTime(1'700'000'000'000 + detail * 100'000));
        break;
      case 5: {
        constexpr Fault kFaults[] = {Fault::cut,  Fault::lost_answer, Fault::slow,
                                     Fault::late, Fault::garbage,     Fault::status};
        api.plan({.fault = kFaults[detail % 6], .status = 409});
        break;
      }
      case 6:
        api.release();
        break;
      default:
        context.restart();
        for (int i = 0; i <= detail % 4; ++i) context.poll_one();
    }
    RC_ASSERT(leaders() <= 1);
  }
  api.clear_plans();
  for (int i = 0; i < 20; ++i) {
    clock.advance(seconds(2));
    for (const auto& one : replicas) one->step();
    api.release();
    test::run_ready(context);
    RC_ASSERT(leaders() <= 1);
  }
  RC_ASSERT(leaders() == 1);
  RC_ASSERT(told == 1);
}

TEST(MomentsTest, AsKubernetesWritesThem) {
  EXPECT_EQ(format_moment(WallTime(1'700'000'000'007)), "2023-11-14T22:13:20.007000Z");
  EXPECT_EQ(format_second(WallTime(1'700'000'000'999)), "2023-11-14T22:13:20Z");
  EXPECT_EQ(parse_moment("2023-11-14T22:13:20Z"), WallTime(1'700'000'000'000));
  EXPECT_EQ(parse_moment("2023-11-14T22:13:20.007000Z"), WallTime(1'700'000'000'007));
  EXPECT_EQ(parse_moment("2023-11-14T22:13:20.5Z"), WallTime(1'700'000'000'500));
  EXPECT_EQ(parse_moment("2023-11-14T23:43:20+01:30"), WallTime(1'700'000'000'000));
  EXPECT_EQ(parse_moment("2023-11-14T21:13:20-01:00"), WallTime(1'700'000'000'000));
  EXPECT_EQ(parse_moment("0001-01-01T00:00:00Z"), WallTime(-62'135'596'800'000));
  for (const std::string_view text :
       {"", "2023", "2023-11-14", "2023-02-30T00:00:00Z", "2023-11-14T24:00:00Z",
        "2023-11-14T22:13:20", "2023-11-14T22:13:20.Z", "2023-11-14T22:13:20ZZ",
        "2023-11-14T22:13:20+1", "2023-11-14T22:13:20.1234567890123456789Z",
        "xxxx-11-14T22:13:20Z"}) {
    EXPECT_FALSE(parse_moment(text)) << text;
  }
}

RC_GTEST_PROP(MomentsPropertyTest, BackAndForth, ()) {
  const auto ms = *rc::gen::inRange<std::int64_t>(0, 4'000'000'000'000);
  RC_ASSERT(parse_moment(format_moment(WallTime(ms))) == WallTime(ms));
  RC_ASSERT(parse_moment(format_second(WallTime(ms))) == WallTime(ms / 1000 * 1000));
}

}  // namespace
}  // namespace aliquot::kube
