#include "node/grant_folder.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "base/text.hpp"
#include "enforce/abi.h"
#include "sys/clock.hpp"
#include "sys/file.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSlice = "MIG-";

std::string uuid_text(const std::uint8_t* bytes, bool slice) {
  std::string text(slice ? kSlice : "GPU-");
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

// No holder has one otherwise.
constexpr char kSlash = '=';

HolderId holder_in(std::string name) {
  std::ranges::replace(name, kSlash, '/');
  return HolderId(std::move(name));
}

constexpr const char* kHowFile = "how";
constexpr const char* kServerFile = "mps";

std::string to_text(const HeldHow& how) {
  return fmt::format("domain {}\nlibrary {}\npipes {}\npercentage {}\npinned {}\nlate {}\n",
                     core::to_string(how.domain), how.library ? 1 : 0, how.pipes.string(),
                     how.thread_percentage.value_or(0), how.pinned_limit.value_or(Bytes(0)).value(),
                     how.late ? 1 : 0);
}

// 0: none. What is no number is as usual.
template <class T>
void read_number(std::string_view value, std::optional<T>& number) {
  const auto read = parse_digits(value);
  if (read) number = *read == 0 ? std::nullopt : std::optional(T(*read));
}

// The library says it in its messages; who has no number is not named there.
std::uint64_t number_of(const HolderId& holder) {
  return static_cast<std::uint64_t>(parse_digits(holder.value()).value_or(0));
}

Result<aliquot_limits> encode(const HolderId& holder, const std::vector<LeasedGpu>& gpus) {
  if (gpus.size() > ALIQUOT_MAX_GPUS) {
    return fail(Error::Code::out_of_range, "shares on more than {} GPUs cannot be held",
                static_cast<int>(ALIQUOT_MAX_GPUS));
  }
  aliquot_limits limits{};
  limits.magic = ALIQUOT_LIMITS_MAGIC;
  limits.version = ALIQUOT_ABI_VERSION;
  limits.size = sizeof limits;
  limits.job = number_of(holder);
  limits.gpu_count = static_cast<std::uint32_t>(gpus.size());
  limits.flags = ALIQUOT_FLAG_METER;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const LeasedGpu& grant = gpus[i];
    aliquot_limit& limit = limits.gpus[i];
    const auto uuid = uuid_bytes(grant.gpu);
    if (!uuid) {
      return fail(Error::Code::invalid_argument, "'{}' is not the UUID of a GPU", grant.gpu);
    }
    std::ranges::copy(*uuid, static_cast<std::uint8_t*>(limit.uuid));
    limit.slice = grant.gpu.value().starts_with(kSlice) ? 1 : 0;
    // 0: no limit.
    limit.memory_bytes = grant.whole ? 0 : static_cast<std::uint64_t>(grant.portion.memory.value());
    limit.compute = static_cast<std::uint32_t>(grant.portion.compute.value());
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
Result<std::vector<LeasedGpu>> decode(const fs::path& path) {
  const std::string text = TRY(sys::read_whole(path, sizeof(aliquot_limits)));
  aliquot_limits limits{};
  if (text.size() == sizeof limits) std::memcpy(&limits, text.data(), sizeof limits);
  if (limits.magic != ALIQUOT_LIMITS_MAGIC || limits.version != ALIQUOT_ABI_VERSION ||
      limits.gpu_count > ALIQUOT_MAX_GPUS) {
    return fail(Error::Code::failed_state, "{} is not of this version", path.string());
  }
  std::vector<LeasedGpu> gpus;
  for (std::uint32_t i = 0; i < limits.gpu_count; ++i) {
    const aliquot_limit& limit = limits.gpus[i];
    LeasedGpu grant;
    grant.gpu = GpuId(uuid_text(static_cast<const std::uint8_t*>(limit.uuid), limit.slice != 0));
    grant.portion = {Bytes(static_cast<std::int64_t>(limit.memory_bytes)), Compute(limit.compute)};
    grant.whole = limit.memory_bytes == 0;
    if (limit.lease != 0 && limit.board[ALIQUOT_PATH_BYTES - 1] == '\0') {
      grant.lease = LeasePlace{static_cast<const char*>(limit.board), limit.lease_slot};
    }
    gpus.push_back(std::move(grant));
  }
  return gpus;
}

// Made under another name while it is still ours alone, then given away whole. One for anybody
// stays ours and is open to all: the library takes such a file from root alone, and who does not
// come by the folder does not get to it.
Result<void> make_usage(const fs::path& path, const core::Grant& grant) {
  fs::path temporary = path;
  temporary += ".tmp";
  unlink(temporary.c_str());
  const sys::Fd fd(
      ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return sys::system_error(errno, "cannot make", temporary);
  // All of it, now: where there is no room a page that is written to ends the process.
  if (const int error = posix_fallocate(fd.get(), 0, sizeof(aliquot_usage)); error != 0) {
    unlink(temporary.c_str());
    return sys::system_error(error, "cannot size", temporary);
  }
  void* memory =
      mmap(nullptr, sizeof(aliquot_usage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return sys::system_error(errno, "cannot map", temporary);
  const int error = aliquot_usage_init(static_cast<aliquot_usage*>(memory));
  munmap(memory, sizeof(aliquot_usage));
  if (error != 0) return sys::system_error(error, "cannot prepare", temporary);
  if (grant.any_user) {
    if (fchmod(fd.get(), 0666) != 0) return sys::system_error(errno, "cannot open up", temporary);
  } else if (geteuid() == 0 && fchown(fd.get(), grant.owner.value(), grant.group.value()) != 0) {
    return sys::system_error(errno, "cannot give away", temporary);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return sys::system_error(errno, "cannot rename", temporary);
  }
  return {};
}

Result<sys::Fd> open_usage(const fs::path& path) {
  sys::Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return sys::system_error(errno, "cannot open", path);
  return fd;
}

std::int64_t count(std::uint64_t number) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(number, INT64_MAX / 4096));
}

}  // namespace

std::string folder_name(const HolderId& holder) {
  std::string name = holder.value();
  std::ranges::replace(name, '/', kSlash);
  return name;
}

std::optional<std::vector<std::uint8_t>> uuid_bytes(const GpuId& gpu) {
  std::string_view text = gpu.value();
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  text.remove_prefix(dash + 1);
  std::vector<std::uint8_t> bytes;
  int high = -1;
  for (const char c : text) {
    if (c == '-') continue;
    const int value = hex_value(c);
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

Result<GrantFolder> GrantFolder::create(const fs::path& root, const core::Grant& grant,
                                        const std::vector<std::optional<LeasePlace>>& leases,
                                        const HeldHow& how) {
  std::vector<LeasedGpu> gpus;
  for (std::size_t i = 0; i < grant.gpus.size(); ++i) {
    gpus.push_back({grant.gpus[i], i < leases.size() ? leases[i] : std::nullopt});
  }
  const aliquot_limits limits = TRY(encode(grant.holder, gpus));
  remove(root, grant.holder);
  const fs::path path = root / folder_name(grant.holder);
  // The library opens the folder itself first, which takes the right to read it.
  const mode_t mode = geteuid() == 0 ? 0755 : 0700;
  if (mkdir(path.c_str(), mode) != 0) return sys::system_error(errno, "cannot make", path);
  if (chmod(path.c_str(), mode) != 0) return sys::system_error(errno, "cannot change", path);
  TRY(make_usage(path / ALIQUOT_USAGE_FILE, grant));
  TRY(sys::write_whole(path / kHowFile, to_text(how), 0600, false));
  std::string bytes(sizeof limits, '\0');
  std::memcpy(bytes.data(), &limits, sizeof limits);
  // Last: where there are limits, everything is there.
  TRY(sys::write_whole(path / ALIQUOT_LIMITS_FILE, bytes, 0444, false));
  sys::Fd usage = TRY(open_usage(path / ALIQUOT_USAGE_FILE));
  return GrantFolder(path, std::move(gpus), std::move(usage));
}

Result<GrantFolder> GrantFolder::open(const fs::path& root, const HolderId& job) {
  const fs::path path = root / folder_name(job);
  auto gpus = TRY(decode(path / ALIQUOT_LIMITS_FILE));
  auto usage = open_usage(path / ALIQUOT_USAGE_FILE);
  if (!usage) spdlog::warn("job {}: {}: the job is not heard", job, usage.error().message);
  return GrantFolder(path, std::move(gpus), usage ? std::move(*usage) : sys::Fd());
}

Result<void> GrantFolder::correct(const core::Grant& grant, const HeldHow& how) {
  for (LeasedGpu& gpu : gpus_) {
    const core::GrantedGpu* held = grant.find(gpu.gpu);
    if (held == nullptr) continue;
    gpu.portion = held->portion;
    gpu.whole = held->whole;
  }
  const aliquot_limits limits = TRY(encode(grant.holder, gpus_));
  const fs::path path = path_ / ALIQUOT_LIMITS_FILE;
  const sys::Fd fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return sys::system_error(errno, "cannot open", path);
  void* memory =
      mmap(nullptr, sizeof(aliquot_limits), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return sys::system_error(errno, "cannot map", path);
  auto* shared = static_cast<aliquot_limits*>(memory);
  for (std::uint32_t i = 0; i < limits.gpu_count; ++i) {
    __atomic_store_n(&shared->gpus[i].compute, limits.gpus[i].compute, __ATOMIC_RELEASE);
    __atomic_store_n(&shared->gpus[i].memory_bytes, limits.gpus[i].memory_bytes, __ATOMIC_RELEASE);
  }
  munmap(memory, sizeof(aliquot_limits));
  return sys::write_whole(path_ / kHowFile, to_text(how), 0600, false);
}

void GrantFolder::remove(const fs::path& root, const HolderId& job) {
  std::error_code ignored;
  fs::remove_all(root / folder_name(job), ignored);
}

std::vector<HolderId> GrantFolder::list(const fs::path& root) {
  std::vector<HolderId> jobs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    jobs.push_back(holder_in(entry.path().filename().string()));
  }
  return jobs;
}

HeldHow GrantFolder::read_how(const fs::path& root, const HolderId& holder, HeldHow usual) {
  HeldHow how = std::move(usual);
  // Of a version that wrote only which server it is.
  if (const auto pipes = sys::read_whole(root / folder_name(holder) / kServerFile))
    how.pipes = *pipes;
  const std::string text = sys::read_whole(root / folder_name(holder) / kHowFile).value_or("");
  for (const std::string_view line : split(text, '\n')) {
    const auto space = line.find(' ');
    if (space == std::string_view::npos) continue;
    const auto name = line.substr(0, space);
    const auto value = line.substr(space + 1);
    if (name == "domain") how.domain = core::parse_fault_domain(value).value_or(how.domain);
    if (name == "library") how.library = value == "1";
    if (name == "late") how.late = value == "1";
    if (name == "pipes") how.pipes = value;
    if (name == "percentage") read_number(value, how.thread_percentage);
    if (name == "pinned") read_number(value, how.pinned_limit);
  }
  return how;
}

bool GrantFolder::copy() {
  slots_ = 0;
  if (!usage_) {
    auto opened = open_usage(path_ / ALIQUOT_USAGE_FILE);
    if (!opened) return false;
    usage_ = std::move(*opened);
  }
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
    sum.waited_ns = count(past.waited_ns);
    sum.memory_peak = Bytes(count(past.peak_bytes));
    sum.orphaned = Bytes(count(past.orphaned));
    for (std::uint32_t s = 0; s < slots_; ++s) {
      if (slots[s].pid <= 0) continue;
      const aliquot_use& use = slots[s].gpus[i];
      sum.gpu_ns += count(use.gpu_ns);
      sum.launches += count(use.launches);
      sum.refusals += count(use.refusals);
      sum.waited_ns += count(use.waited_ns);
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

// The list of locks is as long as the job's user makes it, and every question walks along it. So
// not every slot is asked for: the kernel names a lock of the whole range, which leaves what is
// before and after it. If that still takes long, the rest counts as held by somebody, who is no
// process that we know, and nobody asks again for a while.
std::vector<std::optional<Pid>> GrantFolder::holders() {
  constexpr std::int64_t kLongest = 2'000'000;   // ns, of this thread's own
  constexpr std::int64_t kRest = 1'000'000'000;  // ns
  constexpr Pid kSomebody(-1);
  std::vector<std::optional<Pid>> all(slots_);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
  if (slots_ > 0) ranges.emplace_back(0, slots_);
  const std::int64_t begin = sys::clock_ns(CLOCK_THREAD_CPUTIME_ID);
  while (!ranges.empty()) {
    const auto [from, to] = ranges.back();
    ranges.pop_back();
    if (sys::clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin > kLongest) {
      rest_until_ns_ = sys::mono_ns() + kRest;
    }
    if (rest_until_ns_ != 0) {
      if (sys::mono_ns() < rest_until_ns_) {
        std::fill(all.begin() + from, all.begin() + to, kSomebody);
        continue;
      }
      rest_until_ns_ = 0;
    }
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = from;
    lock.l_len = to - from;
    if (fcntl(usage_.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) continue;
    const auto first = static_cast<std::uint32_t>(std::clamp<off_t>(lock.l_start, from, to - 1));
    const auto end = lock.l_len == 0 ? to
                                     : static_cast<std::uint32_t>(std::clamp<off_t>(
                                           lock.l_start + lock.l_len, first + 1, to));
    std::fill(all.begin() + first, all.begin() + end, Pid(lock.l_pid));
    if (from < first) ranges.emplace_back(from, first);
    if (end < to) ranges.emplace_back(end, to);
  }
  return all;
}

std::vector<GrantFolder::Member> GrantFolder::members() {
  std::vector<Member> all;
  if (!copy()) return all;
  const auto* usage = reinterpret_cast<const aliquot_usage*>(copy_.data());
  const auto* slots = static_cast<const aliquot_slot*>(usage->slots);
  const auto held_by = holders();
  for (std::uint32_t s = 0; s < slots_; ++s) {
    if (slots[s].pid <= 0 || !held_by[s]) continue;
    Member member{*held_by[s], {}};
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      member.charged.emplace_back(count(slots[s].gpus[i].charged));
    }
    all.push_back(std::move(member));
  }
  return all;
}

bool GrantFolder::cut_back() {
  // What a file system may have beside a file of this size: tables, large pages.
  constexpr std::int64_t kBeside = 8LL << 20U;
  constexpr std::int64_t kSize = sizeof(aliquot_usage);
  constexpr std::int64_t kBlock = 512;
  struct stat info {};
  // Who keeps us from opening it may not fill the disk either.
  const fs::path path = path_ / ALIQUOT_USAGE_FILE;
  if ((usage_ ? fstat(usage_.get(), &info) : lstat(path.c_str(), &info)) != 0) return false;
  // Blocks as well: they can lie behind the end.
  if (info.st_size <= kSize && info.st_blocks * kBlock <= kSize + kBeside) return false;
  // Opened for it alone: one that has it open to write keeps the user's leases off.
  const sys::Fd fd(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (fd) (void)!ftruncate(fd.get(), kSize);  // else in the next look
  return true;
}

void GrantFolder::find_dead() {
  dead_.clear();
  if (!copy()) return;
  const auto* usage = reinterpret_cast<const aliquot_usage*>(copy_.data());
  const auto* slots = static_cast<const aliquot_slot*>(usage->slots);
  const auto held_by = holders();
  for (std::uint32_t s = 0; s < slots_; ++s) {
    if (slots[s].pid > 0 && !held_by[s]) dead_.insert({s, slots[s].generation});
  }
}

}  // namespace aliquot::node
