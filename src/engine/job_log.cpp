#include "engine/job_log.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "node/spawn.hpp"
#include "sys/fd.hpp"
#include "sys/identity.hpp"

namespace aliquot::engine {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Prints where it begins, in a line, and then what there is. $1: the file, $2: from where, $3: so
// much at most. A file that was cut is read from its beginning.
constexpr const char* kReader =
    "[ -f \"$1\" ] || exit 3\n"
    "size=$(stat -L -c %s -- \"$1\") || exit 3\n"
    "from=$2\n"
    "[ \"$from\" -le \"$size\" ] || from=0\n"
    "[ \"$from\" -ge $((size - $3)) ] || from=$((size - $3))\n"
    "echo \"$from\"\n"
    "exec tail -c \"+$((from + 1))\" -- \"$1\"\n";

std::string read_pipe(int fd, std::size_t most, Millis patience) {
  std::string text;
  const auto until = SteadyClock::now() + std::chrono::milliseconds(patience.value());
  while (text.size() < most) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - SteadyClock::now());
    pollfd ready{fd, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0) break;
    std::array<char, 16'384> chunk{};
    const ssize_t count = ::read(fd, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
  return text;
}

class Processes final : public LogReaders {
 public:
  Result<Pid> start(const Order& order, int out) override {
    node::SpawnSpec spec;
    auto identity = sys::find_identity(order.user);
    if (!identity) return tl::make_unexpected(identity.error());
    spec.identity = std::move(*identity);
    spec.identity.gid = order.group;
    spec.file = "/bin/sh";
    spec.argv = {"sh",
                 "-c",
                 kReader,
                 "sh",
                 order.path,
                 std::to_string(order.begin),
                 std::to_string(JobLog::kMost)};
    spec.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
    spec.out = node::FromFd{out};
    const auto reader = node::spawn(spec);
    if (!reader) return fail(Error::Code::unavailable, "{}", reader.error().what);
    return *reader;
  }
  void kill(Pid reader) override { ::kill(-reader.value(), SIGKILL); }
};

bool has_gone(Pid child) { return ::waitpid(child.value(), nullptr, WNOHANG) != 0; }

}  // namespace

JobLog::JobLog(Post post) : JobLog(std::move(post), std::make_unique<Processes>(), Patience{}) {}

JobLog::JobLog(Post post, std::unique_ptr<LogReaders> readers, Patience patience)
    : post_(std::move(post)), readers_(std::move(readers)), patience_(patience) {}

// Of one user one task at a time comes here: the lane's.
Result<void> JobLog::admit(Uid user) {
  const std::lock_guard lock(mutex_);
  std::erase_if(reading_, [](const auto& one) { return one.second && has_gone(*one.second); });
  if (reading_.contains(user)) {
    return fail(Error::Code::unavailable,
                "the last file that was read hangs, and its reader with it: try again once its "
                "file system answers");
  }
  if (reading_.size() >= kMostReaders) {
    return fail(Error::Code::unavailable, "too many files are read at once: try again");
  }
  reading_.try_emplace(user);
  return {};
}

void JobLog::let_go(Uid user, Pid reader) {
  readers_->kill(reader);
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_.ending.value());
  bool gone = has_gone(reader);
  while (!gone && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gone = has_gone(reader);
  }
  const std::lock_guard lock(mutex_);
  if (gone) {
    reading_.erase(user);
  } else {
    reading_[user] = reader;
  }
}

Result<JobLog::Part> JobLog::read_now(const LogReaders::Order& order) {
  TRY(admit(order.user));
  sys::Pipe pipe = sys::make_pipe();
  auto reader = pipe ? readers_->start(order, pipe.write.get())
                     : fail(Error::Code::unavailable, "no pipe can be had: try again");
  if (!reader) {
    const std::lock_guard lock(mutex_);
    reading_.erase(order.user);
    return tl::make_unexpected(reader.error());
  }
  pipe.write.reset();
  constexpr std::size_t kFirstLine = 24;
  const std::string text = read_pipe(pipe.read.get(), kMost + kFirstLine, patience_.reading);
  pipe.read.reset();
  let_go(order.user, *reader);
  const auto line = text.find('\n');
  const auto from = line == std::string::npos ? std::nullopt : parse_digits(text.substr(0, line));
  if (!from) return fail(Error::Code::not_found, "{} cannot be read", quote(order.path));
  return Part{text.substr(line + 1, kMost), *from};
}

void JobLog::read(Uid user, Gid group, const std::string& path, std::int64_t begin, Done done) {
  if (asked_[user] >= kMostAsked) {
    return done(fail(Error::Code::unavailable, "files of yours are being read: try again"));
  }
  ++asked_[user];
  lanes_.post(
      user, user.value(),
      [this, order = LogReaders::Order{user, group, path, begin}, done = std::move(done)] {
        auto part = read_now(order);
        post_([this, user = order.user, done, part = std::move(part)]() mutable {
          if (--asked_[user] == 0) asked_.erase(user);
          done(std::move(part));
        });
      },
      node::Lanes::Pace::slow);
}

}  // namespace aliquot::engine
