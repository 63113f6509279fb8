#include "node/grant_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "enforce/abi.h"
#include "node/lease_board.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

const GpuId kGpu("GPU-8178b55f-6126-8f32-0102-030405060708");

class GrantFolderTest : public testing::Test {
 protected:
  GrantFolderTest() {
    std::string pattern = testing::TempDir() + "grant-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~GrantFolderTest() override {
    std::error_code error;
    fs::remove_all(root_, error);
  }
  GrantSpec spec() const {
    return {.job = JobId(7),
            .attempt = 0,
            .uid = Uid(::geteuid() == 0 ? 65534 : ::geteuid()),
            .gid = Gid(::getegid()),
            .gpus = {{kGpu, gib(10), Compute(2'500), LeasePlace{root_ / "board", 3}}}};
  }
  aliquot_usage* map() const {
    const Fd fd(::open((root_ / "7" / "usage").c_str(), O_RDWR | O_CLOEXEC));
    void* memory =
        ::mmap(nullptr, sizeof(aliquot_usage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    return memory == MAP_FAILED ? nullptr : static_cast<aliquot_usage*>(memory);
  }
  // A process that holds a slot, until it is killed.
  pid_t take(aliquot_usage* usage, std::uint32_t slot) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const int fd = ::open((root_ / "7" / "usage").c_str(), O_RDWR | O_CLOEXEC);
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_start = slot;
      lock.l_len = 1;
      ::fcntl(fd, F_SETLK, &lock);
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      ::alarm(60);
      ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    usage->slots[slot].pid = child;
    return child;
  }
  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  fs::path root_;
};

// A slice has a name of its own: taken for a GPU, neither the library nor the watchdog would find
// it.
TEST_F(GrantFolderTest, ASliceIsFoundAgainByItsOwnName) {
  const GpuId slice("MIG-8178b55f-6126-8f32-0102-030405060708");
  GrantSpec wanted = spec();
  wanted.gpus.push_back({slice, gib(5), Compute(1'000)});
  ASSERT_TRUE(GrantFolder::create(root_, wanted));
  const auto again = GrantFolder::open(root_, JobId(7));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->gpus().size(), 2U);
  EXPECT_EQ(again->gpus()[0].gpu, kGpu);
  EXPECT_EQ(again->gpus()[1].gpu, slice);
}

TEST_F(GrantFolderTest, LimitsAreOursAndUsageIsTheJobs) {
  const auto folder = GrantFolder::create(root_, spec());
  ASSERT_TRUE(folder) << folder.error().message;
  struct stat info {};
  ASSERT_EQ(::lstat((root_ / "7/limits").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0444U);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_EQ(info.st_size, static_cast<off_t>(sizeof(aliquot_limits)));
  ASSERT_EQ(::lstat((root_ / "7/usage").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0600U);
  EXPECT_EQ(info.st_uid, spec().uid.value());
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

TEST_F(GrantFolderTest, IsFoundAgainAndRemoved) {
  ASSERT_TRUE(GrantFolder::create(root_, spec()));
  const auto again = GrantFolder::open(root_, JobId(7));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->gpus().size(), 1U);
  EXPECT_EQ(again->gpus()[0].gpu, kGpu);
  EXPECT_EQ(again->gpus()[0].memory, gib(10));
  EXPECT_EQ(again->gpus()[0].lease, (LeasePlace{root_ / "board", 3}));
  EXPECT_EQ(GrantFolder::list(root_), std::vector<JobId>{JobId(7)});
  GrantFolder::remove(root_, JobId(7));
  EXPECT_FALSE(GrantFolder::open(root_, JobId(7)));
  EXPECT_TRUE(GrantFolder::list(root_).empty());
}

TEST_F(GrantFolderTest, SumsWhatProcessesUse) {
  auto folder = GrantFolder::create(root_, spec());
  aliquot_usage* usage = map();
  ASSERT_NE(usage, nullptr);
  EXPECT_EQ(::pthread_mutex_lock(&usage->lock.mutex), 0);
  EXPECT_EQ(::pthread_mutex_unlock(&usage->lock.mutex), 0);
  usage->high_water = 3;
  usage->past[0].gpu_ns = 100;
  usage->past[0].peak_bytes = 5000;
  const pid_t first = take(usage, 0);
  usage->slots[0].gpus[0].charged = 1000;
  usage->slots[0].gpus[0].gpu_ns = 10;
  const pid_t second = take(usage, 2);
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
  EXPECT_EQ(folder->members()[0].pid, Pid(first));
  EXPECT_EQ(folder->members()[1].pid, Pid(second));
  // A dead process holds nothing, but what it did is not forgotten.
  end(second);
  folder->find_dead();
  seen = folder->usage();
  EXPECT_EQ(seen[0].memory, Bytes(1000));
  EXPECT_EQ(seen[0].gpu_ns, 111);
  EXPECT_TRUE(seen[0].flights.empty());
  ASSERT_EQ(folder->members().size(), 1U);
  EXPECT_EQ(folder->members()[0].pid, Pid(first));
  EXPECT_EQ(folder->members()[0].charged, std::vector<Bytes>{Bytes(1000)});
  end(first);
  ::munmap(usage, sizeof *usage);
}

TEST_F(GrantFolderTest, NonsenseFromTheJobHurtsNobody) {
  auto folder = GrantFolder::create(root_, spec());
  aliquot_usage* usage = map();
  ASSERT_NE(usage, nullptr);
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
  ::munmap(usage, sizeof *usage);
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
    const timespec limit{10, 0};
    ::syscall(SYS_futex, &seen->gates[3].word, FUTEX_WAIT, 1, &limit, nullptr, 0);
    ::_exit(__atomic_load_n(&seen->gates[3].word, __ATOMIC_SEQ_CST) == 0 ? 0 : 1);
  }
  ::usleep(100'000);
  timespec before{};
  timespec after{};
  ::clock_gettime(CLOCK_MONOTONIC, &before);
  board->set_paused(3, false);
  int status = -1;
  ::waitpid(child, &status, 0);
  ::clock_gettime(CLOCK_MONOTONIC, &after);
  EXPECT_EQ(status, 0);
  EXPECT_LT(after.tv_sec - before.tv_sec, 5);
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
