#include "node/device_filter.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>

#include "node/group_paths.hpp"

namespace aliquot::node {
namespace {

// As much of the kernel's machine as our programs use. Nothing: it did what the kernel forbids.
std::optional<std::uint64_t> interpret(const std::vector<bpf_insn>& program,
                                       const bpf_cgroup_dev_ctx& context) {
  std::array<std::optional<std::uint64_t>, 11> registers{};
  registers[1] = 0;  // the context's place
  std::size_t steps = 0;
  for (std::size_t at = 0; at < program.size() && ++steps < 10'000; ++at) {
    const auto& one = program[at];
    auto& target = registers.at(one.dst_reg);
    switch (one.code) {
      case BPF_LDX | BPF_MEM | BPF_W: {
        if (one.src_reg != 1 || one.off < 0 || one.off > 8 || one.off % 4 != 0) return std::nullopt;
        std::uint32_t value = 0;
        std::memcpy(&value, reinterpret_cast<const char*>(&context) + one.off, sizeof value);
        target = value;
        break;
      }
      case BPF_ALU64 | BPF_AND | BPF_K:
        if (!target) return std::nullopt;
        *target &= static_cast<std::uint64_t>(static_cast<std::int64_t>(one.imm));
        break;
      case BPF_ALU64 | BPF_MOV | BPF_K:
        target = static_cast<std::uint64_t>(static_cast<std::int64_t>(one.imm));
        break;
      case BPF_JMP32 | BPF_JNE | BPF_K:
        if (!target) return std::nullopt;
        if (static_cast<std::uint32_t>(*target) != static_cast<std::uint32_t>(one.imm)) {
          at += static_cast<std::size_t>(one.off);
        }
        break;
      case BPF_JMP | BPF_JA:
        at += static_cast<std::size_t>(one.off);
        break;
      case BPF_JMP | BPF_EXIT:
        return registers[0];
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;  // ran off its end
}

constexpr std::uint32_t kAll = BPF_DEVCG_ACC_MKNOD | BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE;

std::optional<std::uint64_t> ask(const std::vector<bpf_insn>& program, unsigned type,
                                 unsigned access, unsigned major, unsigned minor) {
  return interpret(program, {.access_type = access << 16U | type, .major = major, .minor = minor});
}

TEST(DeviceProgram, HidesWhatItNamesAndNothingElse) {
  const auto program = device_program({{195, 1}, {195, 255}, {508, 0}});
  for (const unsigned access : {1U, 2U, 4U, 6U, kAll}) {
    EXPECT_EQ(ask(program, BPF_DEVCG_DEV_CHAR, access, 195, 1), 0U);
    EXPECT_EQ(ask(program, BPF_DEVCG_DEV_CHAR, access, 195, 255), 0U);
    EXPECT_EQ(ask(program, BPF_DEVCG_DEV_CHAR, access, 508, 0), 0U);
    EXPECT_EQ(ask(program, BPF_DEVCG_DEV_CHAR, access, 195, 0), 1U);
    EXPECT_EQ(ask(program, BPF_DEVCG_DEV_CHAR, access, 1, 1), 1U);
    EXPECT_EQ(ask(program, BPF_DEVCG_DEV_CHAR, access, 508, 1), 1U);
    // A disk may have the same numbers.
    EXPECT_EQ(ask(program, BPF_DEVCG_DEV_BLOCK, access, 195, 1), 1U);
  }
  EXPECT_EQ(ask(device_program({}), BPF_DEVCG_DEV_CHAR, kAll, 195, 0), 1U);
}

RC_GTEST_PROP(DeviceProgramProperty, SaysNoToTheListAlone, ()) {
  const auto number = rc::gen::oneOf(rc::gen::inRange(0U, 4U), rc::gen::arbitrary<unsigned>());
  std::vector<DeviceNumber> hidden;
  const auto count = *rc::gen::inRange(0, 40);
  for (int i = 0; i < count; ++i) hidden.push_back({*number, *number});
  const DeviceNumber asked = !hidden.empty() && *rc::gen::arbitrary<bool>()
                                 ? *rc::gen::elementOf(hidden)
                                 : DeviceNumber{*number, *number};
  const auto type = *rc::gen::element<unsigned>(BPF_DEVCG_DEV_CHAR, BPF_DEVCG_DEV_BLOCK);
  const bool listed = std::ranges::find(hidden, asked) != hidden.end();
  RC_ASSERT(ask(device_program(hidden), type, *rc::gen::inRange(1U, 8U), asked.major,
                asked.minor) == (type == BPF_DEVCG_DEV_CHAR && listed ? 0U : 1U));
}

// Anything else is a program that the kernel finds fault with.
bool not_allowed(const Error& error) {
  return error.code == Error::Code::permission_denied || error.code == Error::Code::unsupported;
}

TEST(DeviceProgram, TheKernelTakesIt) {
  std::vector<DeviceNumber> many;
  for (unsigned i = 0; i < 200; ++i) many.push_back({195, i});
  const auto loaded = load_device_program(device_program(many));
  if (!loaded && not_allowed(loaded.error())) GTEST_SKIP() << loaded.error().message;
  EXPECT_TRUE(loaded) << loaded.error().message;
}

// Where a v2 hierarchy is mounted, whatever its controllers; else mounted for this test alone.
std::optional<std::string> find_v2() {
  std::ifstream mounts("/proc/self/mounts");
  for (std::string device, folder, kind, rest; mounts >> device >> folder >> kind;) {
    std::getline(mounts, rest);
    if (kind == "cgroup2") return folder;
  }
  return std::nullopt;
}

TEST(DeviceProgram, ClosesADeviceToAGroupAndAllBelowIt) {
  const auto mount = find_v2();
  if (!mount) GTEST_SKIP() << "no cgroup v2 is mounted";
  const std::string folder = fmt::format("{}/aliquot-test-{}", *mount, getpid());
  if (mkdir(folder.c_str(), 0755) != 0) GTEST_SKIP() << folder << ": " << std::strerror(errno);
  const std::string below = folder + "/below";
  ASSERT_EQ(mkdir(below.c_str(), 0755), 0);
  // /dev/full, which nobody will miss; twice, since a group may be fenced again.
  auto hidden = hide_devices(folder, {{1, 7}});
  if (hidden) hidden = hide_devices(folder, {{1, 7}, {1, 5}});
  const pid_t child = fork();
  if (child == 0) {
    if (!write_control(below + "/cgroup.procs", "0")) _exit(10);
    if (open("/dev/full", O_WRONLY) >= 0 || errno != EPERM) _exit(11);
    if (open("/dev/zero", O_RDONLY) >= 0 || errno != EPERM) _exit(12);
    if (open("/dev/null", O_RDWR) < 0) _exit(13);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  rmdir(below.c_str());
  rmdir(folder.c_str());
  if (!hidden && not_allowed(hidden.error())) GTEST_SKIP() << hidden.error().message;
  ASSERT_TRUE(hidden) << hidden.error().message;
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

}  // namespace
}  // namespace aliquot::node
