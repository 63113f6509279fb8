#include "engine/job_log.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "base/text.hpp"
#include "node/spawn.hpp"
#include "sys/fd.hpp"
#include "sys/identity.hpp"
#include "sys/program.hpp"

namespace aliquot::engine {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kReadPatience{3};

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

std::string read_pipe(int fd, std::size_t most) {
  std::string text;
  const auto until = SteadyClock::now() + kReadPatience;
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

Result<JobLog::Part> read_as(Uid user, Gid group, const std::string& path, std::int64_t begin) {
  node::SpawnSpec spec;
  auto identity = sys::find_identity(user);
  if (!identity) return tl::make_unexpected(identity.error());
  spec.identity = std::move(*identity);
  spec.identity.gid = group;
  spec.file = "/bin/sh";
  spec.argv = {
      "sh", "-c", kReader, "sh", path, std::to_string(begin), std::to_string(JobLog::kMost)};
  spec.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
  sys::Pipe pipe = sys::make_pipe();
  if (!pipe) return fail(Error::Code::unavailable, "no pipe can be had: try again");
  spec.out = node::FromFd{pipe.write.get()};
  const auto reader = node::spawn(spec);
  if (!reader) return fail(Error::Code::unavailable, "{}", reader.error().what);
  pipe.write.reset();
  constexpr std::size_t kFirstLine = 24;
  const std::string text = read_pipe(pipe.read.get(), JobLog::kMost + kFirstLine);
  pipe.read.reset();
  ::kill(-reader->value(), SIGKILL);
  sys::wait_in_background(*reader);
  const auto line = text.find('\n');
  const auto from = line == std::string::npos ? std::nullopt : parse_digits(text.substr(0, line));
  if (!from) return fail(Error::Code::not_found, "{} cannot be read", quote(path));
  return JobLog::Part{text.substr(line + 1, JobLog::kMost), *from};
}

}  // namespace

void JobLog::read(Uid user, Gid group, const std::string& path, std::int64_t begin, Done done) {
  lanes_.post(
      user, 0,
      [this, user, group, path, begin, done = std::move(done)] {
        auto part = read_as(user, group, path, begin);
        post_([done, part = std::move(part)]() mutable { done(std::move(part)); });
      },
      node::Lanes::Pace::slow);
}

}  // namespace aliquot::engine
