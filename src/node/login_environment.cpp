#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>
#include <vector>

#include "base/text.hpp"
#include "node/environment.hpp"
#include "node/process_tree.hpp"
#include "node/spawn.hpp"
#include "sys/clock.hpp"
#include "sys/fd.hpp"

namespace aliquot::node {
namespace {

constexpr std::string_view kBegin = "aliquot-environment-begins";
constexpr std::string_view kEnd = "aliquot-environment-ends";
constexpr std::size_t kMostOutput = 8UL << 20U;

Environment bare(const sys::Identity& identity) {
  return {"HOME=" + identity.home, "SHELL=" + identity.shell, "USER=" + identity.user,
          "LOGNAME=" + identity.user,
          identity.uid.value() == 0
              ? "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
              : "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"};
}

// Up to the end mark, the end of the output, or the deadline.
std::string read_until(int fd, std::int64_t deadline) {
  std::string text;
  std::array<char, 16384> buffer{};
  while (text.size() < kMostOutput && text.find(kEnd) == std::string::npos) {
    pollfd readable{fd, POLLIN, 0};
    const std::int64_t left = deadline - sys::mono_ms();
    if (left <= 0) break;
    const int ready = poll(&readable, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return text;
}

// Profiles print banners: only what is between the marks counts.
std::optional<Environment> parse(const std::string& text) {
  const auto begin = text.find(kBegin);
  const auto end = text.rfind(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
  Environment environment;
  const auto body =
      std::string_view(text).substr(begin + kBegin.size(), end - begin - kBegin.size());
  for (const auto variable : split(body, '\0')) {
    // Of the shell that ran env, not of the user.
    if (variable.starts_with("_=") || variable.starts_with("SHLVL=")) continue;
    if (variable.starts_with("PWD=") || variable.starts_with("OLDPWD=")) continue;
    environment.emplace_back(variable);
  }
  return merge({}, environment);
}

// Somebody who traces it keeps a dead process until he lets go of it: it is not waited for then,
// and taken off the list later.
void reap(Pid pid, Millis patience) {
  static std::mutex mutex;
  static std::vector<pid_t> left;
  const auto over = [](pid_t one) { return waitpid(one, nullptr, WNOHANG) != 0; };
  const std::int64_t deadline = sys::mono_ms() + patience.value();
  bool gone = false;
  while (!(gone = over(pid.value())) && sys::mono_ms() < deadline) usleep(1'000);
  const std::lock_guard lock(mutex);
  std::erase_if(left, over);
  if (!gone) left.push_back(pid.value());
}

}  // namespace

LoginEnvironment login_environment(const sys::Identity& identity, Millis patience,
                                   const std::vector<ResourceLimit>& limits,
                                   const GroupPaths& group) {
  LoginEnvironment result{.environment = bare(identity), .warning = {}};
  const auto without = [&](std::string_view why) {
    result.warning = fmt::format(
        "no login environment of user {}: {}; HOME, SHELL, USER and PATH only", identity.user, why);
    return result;
  };

  sys::Pipe pipe = sys::make_pipe();
  if (!pipe) return without("no pipe");
  SpawnSpec spec;
  spec.identity = identity;
  spec.file = identity.shell;
  // The dash in front makes it a login shell, in every shell there is.
  spec.argv = {"-" + identity.shell.substr(identity.shell.rfind('/') + 1), "-c",
               fmt::format("printf %s {}; env -0; printf %s {}", kBegin, kEnd)};
  spec.environment = bare(identity);
  const auto mark = make_mark(JobId(0));
  spec.environment.push_back(std::string(kMarkVariable) + "=" + mark);
  spec.directory = identity.home;
  spec.fallback_directory = "/";
  spec.out = FromFd{pipe.write.get()};
  spec.limits = limits;
  spec.group = group;
  const auto pid = spawn(spec);
  pipe.write.reset();
  if (!pid) return without(pid.error().what);

  const std::int64_t deadline = sys::mono_ms() + patience.value();
  const auto text = read_until(pipe.read.get(), deadline);
  const bool late = sys::mono_ms() >= deadline;
  // The shell, and what its profile left running in our hands.
  if (group.empty()) {
    kill_tree({.session = *pid, .mark = mark, .marked_uid = identity.uid}, seconds(1));
  } else {
    kill_group(group, seconds(1));
    kill(pid->value(), SIGKILL);  // whatever became of the group
  }
  reap(*pid, seconds(1));
  auto environment = parse(text);
  if (!environment) {
    return without(late ? fmt::format("the profile took over {} ms", patience)
                        : fmt::format("{} printed none", identity.shell));
  }
  std::erase_if(*environment, [](const std::string& variable) {
    return std::string_view(variable).starts_with(kMarkVariable);
  });
  result.environment = merge(bare(identity), *environment);
  return result;
}

}  // namespace aliquot::node
