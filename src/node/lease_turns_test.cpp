#include "node/lease_turns.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "enforce/abi.h"
#include "node/mapped_usage_fixture.hpp"
#include "sys/testing.hpp"

namespace aliquot::node {
namespace {

constexpr std::int64_t kMs = 1'000'000;
const HolderId kSmall("7");
const HolderId kLarge("8");

// Two jobs on one GPU, one with a tenth of it, each with one process; and the time.
class LeaseTurnsTest : public ::testing::Test {
 protected:
  LeaseTurnsTest() {
    usage_.emplace(kSmall, hold(kSmall, Compute(1'000), 0));
    usage_.emplace(kLarge, hold(kLarge, Compute(9'000), 1));
  }
  std::unique_ptr<test::MappedUsage> hold(const HolderId& job, Compute share, std::uint32_t slot) {
    const core::Grant grant{.holder = job,
                            .owner = Uid(::geteuid()),
                            .group = Gid(::getegid()),
                            .gpus = {{gpu_, {gib(10), share}}}};
    EXPECT_TRUE(GrantFolder::create(folder_.path(), grant, {LeasePlace{board_, slot}}, {}));
    auto usage = std::make_unique<test::MappedUsage>(folder_.path() / job.value());
    (*usage)->high_water = 1;
    usage->take(0);
    return usage;
  }
  void add_both() {
    turns_.add(kSmall, 0);
    turns_.add(kLarge, 0);
  }
  // It goes on launching, and so much is left in flight.
  void launch(const HolderId& job, std::uint64_t in_flight = 5) {
    aliquot_use& use = (*usage_.at(job))->slots[0].gpus[0];
    use.completed += 5;
    use.launched = use.completed + in_flight;
    use.last_launch_ns = static_cast<std::uint64_t>(now_);
    use.looked_ns = use.last_launch_ns;
  }
  std::optional<std::int64_t> look() {
    const auto pause = turns_.look(now_);
    now_ += pause.value_or(kMs);
    return pause;
  }
  // As the library in the jobs sees it.
  aliquot_board read_board() const {
    const std::string text = test::read_text(board_);
    aliquot_board board{};
    EXPECT_EQ(text.size(), sizeof board);
    std::memcpy(&board, text.data(), std::min(text.size(), sizeof board));
    return board;
  }

  const GpuId gpu_{"GPU-8178b55f-6126-8f32-0102-030405060708"};
  const test::Folder folder_;
  const std::filesystem::path board_ = folder_.path() / "board";
  std::map<HolderId, std::unique_ptr<test::MappedUsage>> usage_;
  LeaseTurns turns_{folder_.path()};
  std::int64_t now_ = 1'000 * kMs;
};

TEST_F(LeaseTurnsTest, AloneAJobHasNothingToWaitFor) {
  EXPECT_EQ(look(), std::nullopt);
  turns_.add(kSmall, 0);
  launch(kSmall);
  EXPECT_EQ(look(), std::nullopt);
  turns_.add(HolderId("9"), 0);  // it has ended already: there is no folder
  EXPECT_EQ(look(), std::nullopt);
}

TEST_F(LeaseTurnsTest, LooksMoreOftenTheMoreJobsWantTheGpu) {
  add_both();
  EXPECT_EQ(look(), 100 * kMs) << "nobody launches";
  EXPECT_EQ(read_board().contended, 0U);
  EXPECT_EQ(read_board().heartbeat_ns, static_cast<std::uint64_t>(1'000 * kMs));
  launch(kSmall);
  EXPECT_EQ(look(), 100 * kMs) << "one does";
  launch(kSmall, 0);
  launch(kLarge, 0);
  EXPECT_EQ(look(), 5 * kMs) << "both do, and neither is short";
  EXPECT_EQ(read_board().contended, static_cast<std::uint32_t>(ALIQUOT_CONTENDED_WATCHED));
}

TEST_F(LeaseTurnsTest, WhoIsAheadWaitsForWhoIsShort) {
  add_both();
  int small_waits = 0;
  int large_waits = 0;
  for (int i = 0; i < 3'000; ++i) {
    const aliquot_board before = read_board();
    if (before.gates[0].word == 0) launch(kSmall);
    if (before.gates[1].word == 0) launch(kLarge);
    look();
    small_waits += read_board().gates[0].word != 0 ? 1 : 0;
    large_waits += read_board().gates[1].word != 0 ? 1 : 0;
  }
  EXPECT_EQ(read_board().contended, static_cast<std::uint32_t>(ALIQUOT_CONTENDED_TURNS));
  EXPECT_GT(small_waits, 1'000) << "its share is a tenth";
  EXPECT_LT(large_waits, small_waits / 2);
  // With the other gone, or frozen, nobody waits.
  turns_.suspend(kLarge, true);
  for (int i = 0; i < 100; ++i) {
    launch(kSmall);
    look();
  }
  EXPECT_EQ(read_board().gates[0].word, 0U);
  turns_.remove(kLarge);
  EXPECT_EQ(look(), std::nullopt);
  EXPECT_EQ(read_board().contended, 0U);
}

// What the counters of a dead process say is of the past.
TEST_F(LeaseTurnsTest, TheDeadWantNothing) {
  add_both();
  launch(kSmall);
  launch(kLarge);
  EXPECT_EQ(look(), 5 * kMs);
  usage_.erase(kLarge);  // ends its process
  now_ += 2'500 * kMs;
  launch(kSmall);
  EXPECT_EQ(look(), 100 * kMs);
}

}  // namespace
}  // namespace aliquot::node
