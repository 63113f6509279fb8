#include "node/grant_folder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "base/text.hpp"
#include "enforce/abi.h"
#include "node/file.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr std::string_view kSlice = "MIG-";

std::string uuid_text(const std::uint8_t* bytes, bool slice) {
  std::string text(slice ? kSlice : "GPU-");
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

Result<aliquot_limits> encode(const GrantSpec& spec) {
  if (spec.gpus.size() > ALIQUOT_MAX_GPUS) {
    return fail(Error::Code::out_of_range, "shares on more than {} GPUs cannot be held",
                static_cast<int>(ALIQUOT_MAX_GPUS));
  }
  aliquot_limits limits{};
  limits.magic = ALIQUOT_LIMITS_MAGIC;
  limits.version = ALIQUOT_ABI_VERSION;
  limits.size = sizeof limits;
  limits.job = static_cast<std::uint64_t>(spec.job.value());
  limits.gpu_count = static_cast<std::uint32_t>(spec.gpus.size());
  limits.flags = ALIQUOT_FLAG_METER;
  for (std::size_t i = 0; i < spec.gpus.size(); ++i) {
    const GpuGrant& grant = spec.gpus[i];
    aliquot_limit& limit = limits.gpus[i];
    const auto uuid = uuid_bytes(grant.gpu);
    if (!uuid) {
      return fail(Error::Code::invalid_argument, "'{}' is not the UUID of a GPU", grant.gpu);
    }
    std::ranges::copy(*uuid, static_cast<std::uint8_t*>(limit.uuid));
    limit.slice = grant.gpu.value().starts_with(kSlice) ? 1 : 0;
    limit.memory_bytes = static_cast<std::uint64_t>(grant.memory.value());
    limit.compute = static_cast<std::uint32_t>(grant.compute.value());
    if (!grant.lease) continue;
    const std::string board = grant.lease->board;
    if (board.size() >= ALIQUOT_PATH_BYTES || grant.lease->slot >= ALIQUOT_BOARD_SLOTS) {
      return fail(Error::Code::out_of_range, "the path {} is too long", board);
    }
    limit.lease = 1;
    limit.lease_slot = grant.lease->slot;
    std::ranges::copy(board, static_cast<char*>(limit.board));
  }
  return limits;
}

// Ours, but what an older version wrote must not lead us astray.
Result<std::vector<GpuGrant>> decode(const fs::path& path) {
  const std::string text = TRY(read_whole(path, sizeof(aliquot_limits)));
  aliquot_limits limits{};
  if (text.size() == sizeof limits) std::memcpy(&limits, text.data(), sizeof limits);
  if (limits.magic != ALIQUOT_LIMITS_MAGIC || limits.version != ALIQUOT_ABI_VERSION ||
      limits.gpu_count > ALIQUOT_MAX_GPUS) {
    return fail(Error::Code::failed_state, "{} is not of this version", path.string());
  }
  std::vector<GpuGrant> gpus;
  for (std::uint32_t i = 0; i < limits.gpu_count; ++i) {
    const aliquot_limit& limit = limits.gpus[i];
    GpuGrant grant{GpuId(uuid_text(static_cast<const std::uint8_t*>(limit.uuid), limit.slice != 0)),
                   Bytes(static_cast<std::int64_t>(limit.memory_bytes)), Compute(limit.compute)};
    if (limit.lease != 0 && limit.board[ALIQUOT_PATH_BYTES - 1] == '\0') {
      grant.lease = LeasePlace{static_cast<const char*>(limit.board), limit.lease_slot};
    }
    gpus.push_back(std::move(grant));
  }
  return gpus;
}

// Made under another name while it is still ours alone, then given away whole.
Result<void> make_usage(const fs::path& path, Uid uid, Gid gid) {
  fs::path temporary = path;
  temporary += ".tmp";
  unlink(temporary.c_str());
  const Fd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return system_error(errno, "cannot make", temporary);
  if (ftruncate(fd.get(), sizeof(aliquot_usage)) != 0) {
    return system_error(errno, "cannot size", temporary);
  }
  void* memory =
      mmap(nullptr, sizeof(aliquot_usage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return system_error(errno, "cannot map", temporary);
  const int error = aliquot_usage_init(static_cast<aliquot_usage*>(memory));
  munmap(memory, sizeof(aliquot_usage));
  if (error != 0) return system_error(error, "cannot prepare", temporary);
  if (geteuid() == 0 && fchown(fd.get(), uid.value(), gid.value()) != 0) {
    return system_error(errno, "cannot give away", temporary);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return system_error(errno, "cannot rename", temporary);
  }
  return {};
}

Result<Fd> open_usage(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error(errno, "cannot open", path);
  return fd;
}

std::int64_t count(std::uint64_t number) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(number, INT64_MAX / 4096));
}

}  // namespace

std::optional<std::vector<std::uint8_t>> uuid_bytes(const GpuId& gpu) {
  std::string_view text = gpu.value();
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  text.remove_prefix(dash + 1);
  std::vector<std::uint8_t> bytes;
  int high = -1;
  for (const char c : text) {
    if (c == '-') continue;
    const int value = digit(c);
    if (value < 0) return std::nullopt;
    if (high < 0) {
      high = value;
    } else {
      bytes.push_back(static_cast<std::uint8_t>(high * 16 + value));
      high = -1;
    }
  }
  if (bytes.size() != 16 || high >= 0) return std::nullopt;
  return bytes;
}

Result<GrantFolder> GrantFolder::create(const fs::path& root, const GrantSpec& spec) {
  const aliquot_limits limits = TRY(encode(spec));
  remove(root, spec.job);
  const fs::path path = root / std::to_string(spec.job.value());
  // The library opens the folder itself first, which takes the right to read it.
  const mode_t mode = geteuid() == 0 ? 0755 : 0700;
  if (mkdir(path.c_str(), mode) != 0) return system_error(errno, "cannot make", path);
  if (chmod(path.c_str(), mode) != 0) return system_error(errno, "cannot change", path);
  TRY(make_usage(path / ALIQUOT_USAGE_FILE, spec.uid, spec.gid));
  std::string bytes(sizeof limits, '\0');
  std::memcpy(bytes.data(), &limits, sizeof limits);
  // Last: where there are limits, everything is there.
  TRY(write_whole(path / ALIQUOT_LIMITS_FILE, bytes, 0444, false));
  Fd usage = TRY(open_usage(path / ALIQUOT_USAGE_FILE));
  return GrantFolder(path, spec.gpus, std::move(usage));
}

Result<GrantFolder> GrantFolder::open(const fs::path& root, JobId job) {
  const fs::path path = root / std::to_string(job.value());
  auto gpus = TRY(decode(path / ALIQUOT_LIMITS_FILE));
  Fd usage = TRY(open_usage(path / ALIQUOT_USAGE_FILE));
  return GrantFolder(path, std::move(gpus), std::move(usage));
}

void GrantFolder::remove(const fs::path& root, JobId job) {
  std::error_code ignored;
  fs::remove_all(root / std::to_string(job.value()), ignored);
}

std::vector<JobId> GrantFolder::list(const fs::path& root) {
  std::vector<JobId> jobs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    if (const auto id = parse_digits(entry.path().filename().string())) jobs.emplace_back(*id);
  }
  return jobs;
}

bool GrantFolder::copy() {
  slots_ = 0;
  aliquot_usage* usage = nullptr;
  constexpr std::size_t kHead = offsetof(aliquot_usage, slots);
  copy_.resize(std::max(copy_.size(), (kHead + 7) / 8));
  if (pread(usage_.get(), copy_.data(), kHead, 0) != static_cast<ssize_t>(kHead)) return false;
  usage = reinterpret_cast<aliquot_usage*>(copy_.data());
  if (usage->magic != ALIQUOT_USAGE_MAGIC) return false;
  const std::uint32_t slots =
      std::min(usage->high_water, static_cast<std::uint32_t>(ALIQUOT_USAGE_SLOTS));
  const std::size_t size = slots * sizeof(aliquot_slot);
  copy_.resize(std::max(copy_.size(), (kHead + size + 7) / 8));
  const ssize_t n = pread(usage_.get(), reinterpret_cast<char*>(copy_.data()) + kHead, size,
                          static_cast<off_t>(kHead));
  if (n < 0) return false;
  slots_ = static_cast<std::uint32_t>(static_cast<std::size_t>(n) / sizeof(aliquot_slot));
  return true;
}

std::vector<GpuUsage> GrantFolder::usage() {
  std::vector<GpuUsage> all(gpus_.size());
  if (!copy()) return all;
  const auto* usage = reinterpret_cast<const aliquot_usage*>(copy_.data());
  const auto* slots = static_cast<const aliquot_slot*>(usage->slots);
  for (std::size_t i = 0; i < all.size(); ++i) {
    GpuUsage& sum = all[i];
    const aliquot_past& past = usage->past[i];
    sum.gpu_ns = count(past.gpu_ns);
    sum.launches = count(past.launches);
    sum.refusals = count(past.refusals);
    sum.memory_peak = Bytes(count(past.peak_bytes));
    for (std::uint32_t s = 0; s < slots_; ++s) {
      if (slots[s].pid <= 0) continue;
      const aliquot_use& use = slots[s].gpus[i];
      sum.gpu_ns += count(use.gpu_ns);
      sum.launches += count(use.launches);
      sum.refusals += count(use.refusals);
      if (dead_.contains({s, slots[s].generation})) continue;
      sum.memory += Bytes(count(use.charged));
      if (use.last_launch_ns != 0) {
        sum.flights.push_back(
            {{s, slots[s].generation},
             use.launched,
             std::min(use.completed, use.launched),
             use.waiting != 0,
             use.in_wait != 0,
             static_cast<std::int64_t>(std::min<std::uint64_t>(use.looked_ns, INT64_MAX)),
             use.busy == 0 ? 1 : std::min(use.busy, 1'000U) / 1'000.0,
             static_cast<double>(use.launch_ns)});
      }
      sum.last_launch_ns = std::max(
          sum.last_launch_ns,
          static_cast<std::int64_t>(std::min<std::uint64_t>(use.last_launch_ns, INT64_MAX)));
    }
    sum.memory_peak = std::max(sum.memory_peak, sum.memory);
  }
  return all;
}

std::optional<Pid> GrantFolder::holder(std::uint32_t slot) const {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  if (fcntl(usage_.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return Pid(lock.l_pid);
}

std::vector<GrantFolder::Member> GrantFolder::members() {
  std::vector<Member> all;
  if (!copy()) return all;
  const auto* usage = reinterpret_cast<const aliquot_usage*>(copy_.data());
  const auto* slots = static_cast<const aliquot_slot*>(usage->slots);
  for (std::uint32_t s = 0; s < slots_; ++s) {
    if (slots[s].pid <= 0) continue;
    const auto pid = holder(s);
    if (!pid) continue;
    Member member{*pid, {}};
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      member.charged.emplace_back(count(slots[s].gpus[i].charged));
    }
    all.push_back(std::move(member));
  }
  return all;
}

void GrantFolder::find_dead() {
  dead_.clear();
  if (!copy()) return;
  const auto* usage = reinterpret_cast<const aliquot_usage*>(copy_.data());
  const auto* slots = static_cast<const aliquot_slot*>(usage->slots);
  for (std::uint32_t s = 0; s < slots_; ++s) {
    if (slots[s].pid > 0 && !holder(s)) dead_.insert({s, slots[s].generation});
  }
}

}  // namespace aliquot::node
