#include "node/grant_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

#include "enforce/abi.h"
#include "node/lease_board.hpp"
#include "node/mapped_usage_fixture.hpp"
#include "sys/clock.hpp"
#include "sys/process.hpp"
#include "sys/testing.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

const GpuId kGpu("GPU-8178b55f-6126-8f32-0102-030405060708");

class GrantFolderTest : public ::testing::Test {
 protected:
  core::Grant grant() const {
    return {.holder = HolderId("7"),
            .owner = Uid(::geteuid() == 0 ? 65534 : ::geteuid()),
            .group = Gid(::getegid()),
            .gpus = {{kGpu, {gib(10), Compute(2'500)}}}};
  }
  Result<GrantFolder> create(const core::Grant& wanted) const {
    return GrantFolder::create(root_, wanted, {LeasePlace{root_ / "board", 3}}, how_);
  }
  const test::Folder folder_;
  const fs::path root_ = folder_.path();
  const HeldHow how_{core::FaultDomain::gpu, true, "/run/x/p", 30, gib(11), true};
};

// A slice has a name of its own: taken for a GPU, neither the library nor the watchdog would find
// it.
TEST_F(GrantFolderTest, ASliceIsFoundAgainByItsOwnName) {
  const GpuId slice("MIG-8178b55f-6126-8f32-0102-030405060708");
  core::Grant wanted = grant();
  wanted.gpus.push_back({slice, {gib(5), Compute(1'000)}});
  ASSERT_TRUE(create(wanted));
  const auto again = GrantFolder::open(root_, HolderId("7"));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->gpus().size(), 2U);
  EXPECT_EQ(again->gpus()[0].gpu, kGpu);
  EXPECT_EQ(again->gpus()[1].gpu, slice);
}

TEST_F(GrantFolderTest, LimitsAreOursAndUsageIsTheJobs) {
  const auto folder = create(grant());
  ASSERT_TRUE(folder) << folder.error().message;
  struct stat info {};
  ASSERT_EQ(::lstat((root_ / "7/limits").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0444U);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_EQ(info.st_size, static_cast<off_t>(sizeof(aliquot_limits)));
  ASSERT_EQ(::lstat((root_ / "7/usage").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0600U);
  EXPECT_EQ(info.st_uid, grant().owner.value());
  EXPECT_EQ(info.st_size, static_cast<off_t>(sizeof(aliquot_usage)));
  aliquot_limits limits{};
  std::ifstream(root_ / "7/limits").read(reinterpret_cast<char*>(&limits), sizeof limits);
  EXPECT_EQ(limits.magic, ALIQUOT_LIMITS_MAGIC);
  EXPECT_EQ(limits.gpu_count, 1U);
  EXPECT_EQ(limits.gpus[0].memory_bytes, 10ULL << 30U);
  EXPECT_EQ(limits.gpus[0].uuid[0], 0x81);
  EXPECT_EQ(limits.gpus[0].uuid[15], 0x08);
  EXPECT_EQ(limits.gpus[0].lease_slot, 3U);
}

// A container's processes run as whoever its image says, and its holder has a name with a slash.
TEST_F(GrantFolderTest, OfAContainerUsageIsOursAndOpenToAll) {
  core::Grant wanted = grant();
  wanted.holder = HolderId("pod:0f1e/c");
  wanted.any_user = true;
  ASSERT_TRUE(create(wanted));
  struct stat info {};
  ASSERT_EQ(::lstat((root_ / "pod:0f1e=c/usage").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0666U);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_TRUE(GrantFolder::open(root_, wanted.holder));
  EXPECT_EQ(GrantFolder::list(root_), std::vector{wanted.holder});
  GrantFolder::remove(root_, wanted.holder);
  EXPECT_TRUE(GrantFolder::list(root_).empty());
}

// A process that runs has them mapped.
TEST_F(GrantFolderTest, IsCorrectedInPlace) {
  if (::geteuid() != 0) GTEST_SKIP() << "the limits may not even be written by their owner";
  auto folder = create(grant());
  ASSERT_TRUE(folder) << folder.error().message;
  struct stat before {
  }, after{};
  ASSERT_EQ(::lstat((root_ / "7/limits").c_str(), &before), 0);
  auto other = grant();
  other.gpus[0].portion = {gib(3), Compute(100)};
  const HeldHow how{core::FaultDomain::job, true, "/run/z/p", 9};
  ASSERT_TRUE(folder->correct(other, how));
  ASSERT_EQ(::lstat((root_ / "7/limits").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  const auto again = GrantFolder::open(root_, HolderId("7"));
  EXPECT_EQ(again->gpus()[0].portion, (core::Portion{gib(3), Compute(100)}));
  EXPECT_EQ(again->gpus()[0].lease, folder->gpus()[0].lease);
  EXPECT_EQ(GrantFolder::read_how(root_, HolderId("7"), {}), how);
}

TEST_F(GrantFolderTest, HowItWasHeldIsFoundAgain) {
  const HolderId holder("7");
  EXPECT_EQ(GrantFolder::read_how(root_, holder, how_), how_) << "nothing stands there";
  ASSERT_TRUE(create(grant()));
  EXPECT_EQ(GrantFolder::read_how(root_, holder, {}), how_);
  EXPECT_EQ(GrantFolder::read_how(root_, holder, {core::FaultDomain::job, true, {}, 7}), how_);
  const HeldHow without{core::FaultDomain::user, true, "/run/x/p"};
  ASSERT_TRUE(GrantFolder::create(root_, grant(), {}, without));
  EXPECT_EQ(GrantFolder::read_how(root_, holder, how_), without) << "none is written, too";
  // Of the versions before.
  std::ofstream(root_ / "7/how") << "domain user\nlibrary 1\npipes /run/x/p\n";
  EXPECT_EQ(GrantFolder::read_how(root_, holder, how_),
            (HeldHow{core::FaultDomain::user, true, "/run/x/p", 30, gib(11), true}));
  fs::remove(root_ / "7/how");
  std::ofstream(root_ / "7/mps") << "/run/y/p";
  EXPECT_EQ(GrantFolder::read_how(root_, holder, {core::FaultDomain::job, true, {}}),
            (HeldHow{core::FaultDomain::job, true, "/run/y/p"}));
  // What cannot be read is as usual.
  std::ofstream(root_ / "7/how") << "domain x\nlibrary\n\xff";
  EXPECT_EQ(GrantFolder::read_how(root_, holder, {core::FaultDomain::job, true, {}}).domain,
            core::FaultDomain::job);
}

TEST_F(GrantFolderTest, IsFoundAgainAndRemoved) {
  ASSERT_TRUE(create(grant()));
  const auto again = GrantFolder::open(root_, HolderId("7"));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->gpus().size(), 1U);
  EXPECT_EQ(again->gpus()[0].gpu, kGpu);
  EXPECT_EQ(again->gpus()[0].portion.memory, gib(10));
  EXPECT_EQ(again->gpus()[0].lease, (LeasePlace{root_ / "board", 3}));
  EXPECT_EQ(GrantFolder::list(root_), std::vector<HolderId>{HolderId("7")});
  GrantFolder::remove(root_, HolderId("7"));
  EXPECT_FALSE(GrantFolder::open(root_, HolderId("7")));
  EXPECT_TRUE(GrantFolder::list(root_).empty());
}

TEST_F(GrantFolderTest, SumsWhatProcessesUse) {
  auto folder = create(grant());
  test::MappedUsage usage(root_ / "7");
  EXPECT_EQ(::pthread_mutex_lock(&usage->lock.mutex), 0);
  EXPECT_EQ(::pthread_mutex_unlock(&usage->lock.mutex), 0);
  usage->high_water = 3;
  usage->past[0].gpu_ns = 100;
  usage->past[0].peak_bytes = 5000;
  const Pid first = usage.take(0);
  usage->slots[0].gpus[0].charged = 1000;
  usage->slots[0].gpus[0].gpu_ns = 10;
  const Pid second = usage.take(2);
  usage->slots[2].gpus[0].charged = 500;
  usage->slots[2].gpus[0].gpu_ns = 1;
  usage->slots[2].gpus[0].launched = 2;
  usage->slots[2].gpus[0].last_launch_ns = 1;
  folder->find_dead();
  auto seen = folder->usage();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].memory, Bytes(1500));
  EXPECT_EQ(seen[0].memory_peak, Bytes(5000));
  EXPECT_EQ(seen[0].gpu_ns, 111);
  ASSERT_EQ(seen[0].flights.size(), 1U);
  EXPECT_EQ(seen[0].flights[0].launched, 2U);
  EXPECT_EQ(seen[0].flights[0].completed, 0U);
  ASSERT_EQ(folder->members().size(), 2U);
  EXPECT_EQ(folder->members()[0].pid, first);
  EXPECT_EQ(folder->members()[1].pid, second);
  // A dead process holds nothing, but what it did is not forgotten.
  usage.end(second);
  folder->find_dead();
  seen = folder->usage();
  EXPECT_EQ(seen[0].memory, Bytes(1000));
  EXPECT_EQ(seen[0].gpu_ns, 111);
  EXPECT_TRUE(seen[0].flights.empty());
  ASSERT_EQ(folder->members().size(), 1U);
  EXPECT_EQ(folder->members()[0].pid, first);
  EXPECT_EQ(folder->members()[0].charged, std::vector<Bytes>{Bytes(1000)});
}

TEST_F(GrantFolderTest, FindsEveryHolderWhateverTheyLock) {
  auto folder = create(grant());
  test::MappedUsage usage(root_ / "7");
  usage->high_water = 40;
  std::vector<Pid> expected;
  std::vector<Pid> children;
  for (const std::uint32_t slot : {30U, 0U, 7U, 39U, 8U, 31U}) {
    children.push_back(usage.take(slot));
  }
  for (const std::size_t i : {1U, 2U, 4U, 0U, 5U, 3U}) expected.push_back(children[i]);
  usage->slots[20].pid = 1;  // dead
  usage->slots[20].gpus[0].charged = 5;
  folder->find_dead();
  EXPECT_EQ(folder->usage()[0].memory, Bytes(0));
  std::vector<Pid> found;
  for (const auto& member : folder->members()) found.push_back(member.pid);
  EXPECT_EQ(found, expected);
}

// Of this thread: how busy the machine is does not count.
std::int64_t cpu_ms() { return sys::clock_ns(CLOCK_THREAD_CPUTIME_ID) / 1'000'000; }

TEST_F(GrantFolderTest, ALongListOfLocksTakesNobodysTime) {
  auto folder = create(grant());
  test::MappedUsage usage(root_ / "7");
  usage->high_water = ALIQUOT_USAGE_SLOTS;
  for (auto& slot : usage->slots) slot.pid = 1;
  const auto cost = [&] {
    const std::int64_t before = cpu_ms();
    for (int i = 0; i < 10; ++i) (void)folder->members();
    return cpu_ms() - before;
  };
  // Far away from all slots, then in every second one of them.
  usage.take(0, 3'000, 1'000'000);
  const std::int64_t with_far = cost();
  EXPECT_LT(with_far, 100);
  usage.take(1, 500, 3);
  const std::int64_t with_near = cost();
  EXPECT_LT(with_near, 100);
}

TEST_F(GrantFolderTest, NonsenseFromTheJobHurtsNobody) {
  auto folder = create(grant());
  test::MappedUsage usage(root_ / "7");
  usage->high_water = 0xffffffff;
  for (auto& slot : usage->slots) {
    slot.pid = -5;
    slot.gpus[0].charged = ~0ULL;
  }
  usage->slots[1].pid = 1;
  usage->past[0].peak_bytes = ~0ULL;
  usage->past[0].gpu_ns = ~0ULL;
  EXPECT_GE(folder->usage()[0].memory, Bytes(0));
  folder->find_dead();
  EXPECT_EQ(folder->usage()[0].memory, Bytes(0));
  EXPECT_TRUE(folder->members().empty());  // a pid alone proves nothing
  // Its owner may cut it off at any time.
  ASSERT_EQ(::truncate((root_ / "7/usage").c_str(), 100), 0);
  EXPECT_EQ(folder->usage()[0].memory, Bytes(0));
  EXPECT_TRUE(folder->members().empty());
  ASSERT_EQ(::truncate((root_ / "7/usage").c_str(), 20'000), 0);
  EXPECT_EQ(folder->usage()[0].memory, Bytes(0));
}

RC_GTEST_PROP(GrantUuid, OnlySixteenBytesAreOne, (const std::string& text)) {
  const auto bytes = uuid_bytes(GpuId("GPU-" + text));
  if (bytes) RC_ASSERT(bytes->size() == 16U);
}

TEST_F(GrantFolderTest, AGateWakesWhoWaits) {
  auto board = LeaseBoard::open(root_ / "board");
  ASSERT_TRUE(board) << board.error().message;
  board->set_paused(3, true);
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open((root_ / "board").c_str(), O_RDONLY | O_CLOEXEC);
    auto* seen = static_cast<aliquot_board*>(
        ::mmap(nullptr, sizeof(aliquot_board), PROT_READ, MAP_SHARED, fd, 0));
    const timespec limit{300, 0};
    ::syscall(SYS_futex, &seen->gates[3].word, FUTEX_WAIT, 1, &limit, nullptr, 0);
    ::_exit(__atomic_load_n(&seen->gates[3].word, __ATOMIC_SEQ_CST) == 0 ? 0 : 1);
  }
  ::usleep(100'000);
  const std::int64_t before = sys::mono_ms();
  board->set_paused(3, false);
  EXPECT_EQ(sys::wait_for_child(Pid(child)), 0);
  EXPECT_LT(sys::mono_ms() - before, 120'000);
  // The next daemon uses the same one, so that those who have it mapped hear it.
  struct stat first {};
  struct stat second {};
  ::stat((root_ / "board").c_str(), &first);
  const auto again = LeaseBoard::open(root_ / "board");
  ::stat((root_ / "board").c_str(), &second);
  EXPECT_EQ(first.st_ino, second.st_ino);
  EXPECT_EQ(first.st_mode & 0777U, 0644U);
}

}  // namespace
}  // namespace aliquot::node
