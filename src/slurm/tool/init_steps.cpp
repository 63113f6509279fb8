#include "slurm/tool/init_steps.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/text.hpp"
#include "slurm/conf_text.hpp"
#include "slurm/init/cluster_files.hpp"
#include "slurm/setup_files.hpp"
#include "slurm/text_diff.hpp"
#include "sys/file.hpp"
#include "sys/owned_file.hpp"
#include "sys/program.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

// A file for each daemon that has yet to start anew.
const char* const kStale = "/var/lib/aliquot/init-restart";
constexpr auto kPortPatience = std::chrono::seconds(60);
constexpr std::size_t kLongDiff = 200;  // lines of a new file that are worth showing

sys::Ended outcome(const std::vector<std::string>& command, std::optional<Millis> patience) {
  std::vector<std::string> environment{"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LC_ALL=")) environment.emplace_back(*entry);
  }
  return sys::run_program({.file = command.front(),
                           .argv = command,
                           .environment = std::move(environment),
                           .directory = "/"},
                          sys::Streams::together, "", patience);
}

bool succeeds(const std::vector<std::string>& command, const std::string& line) {
  const auto ended = outcome(command, seconds(20));
  if (ended.status != 0) return false;
  const auto lines = lines_of_text(ended.out);
  return line.empty() || std::ranges::find(lines, line) != lines.end();
}

std::string last_line(std::string_view text) {
  const auto lines = lines_of_text(text);
  const auto last = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return line.find_first_not_of(" \t\r") != std::string::npos;
  });
  return last == lines.rend() ? "it says nothing" : make_plain(*last);
}

std::uintmax_t size_of_log(const std::string& log) {
  std::error_code error;
  const auto size = fs::file_size(log, error);
  return error ? 0 : size;
}

// The last complaints in a daemon's log since it was so long; one that is shorter has begun anew.
std::string complaints(const std::string& log, std::uintmax_t since) {
  constexpr std::uintmax_t kMostRead = 1U << 20U;
  const std::uintmax_t size = size_of_log(log);
  const std::uintmax_t from = std::max(size < since ? 0 : since, size - std::min(size, kMostRead));
  std::ifstream file(log, std::ios::binary);
  std::string text(size - from, '\0');
  file.seekg(static_cast<std::streamoff>(from));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  std::vector<std::string> found;
  for (const auto& line : lines_of_text(text)) {
    for (const std::string_view level : {"error: ", "fatal: "}) {
      const auto at = line.find(level);
      if (at != std::string::npos) found.push_back(make_plain(line.substr(at + level.size())));
    }
  }
  if (found.empty()) return "";
  const auto last = found.end() - std::min<std::ptrdiff_t>(std::ssize(found), 3);
  return fmt::format("; {}: {}", log, fmt::join(last, found.end(), "; "));
}

}  // namespace

bool StepRunner::is_done(const Step& step) const {
  if (!step.daemon.empty()) {
    if (std::ranges::count(stale_, step.daemon) > 0) return false;
    if (fs::exists(fs::path(kStale) / step.daemon)) return false;
  }
  return succeeds(step.done_by, step.done_line);
}

Result<void> StepRunner::run(const Step& step) {
  const std::uintmax_t said = size_of_log(step.log);
  const auto ended = outcome(step.command, std::nullopt);
  if (ended.status != 0) {
    return fail(Error::Code::internal, "{} failed: {}: {}{}", step.purpose,
                shell_line(step.command), last_line(ended.out), complaints(step.log, said));
  }
  const auto deadline = std::chrono::steady_clock::now() + kPortPatience;
  while (!step.until.empty() && !succeeds(step.until, step.until_line)) {
    if (std::chrono::steady_clock::now() > deadline) {
      return fail(Error::Code::unavailable,
                  "{} does not answer as it should within 60 s ({}){}: put that right, and run "
                  "this again",
                  step.purpose, shell_line(step.until), complaints(step.log, said));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  if (!step.daemon.empty()) {
    std::error_code ignored;
    fs::remove(fs::path(kStale) / step.daemon, ignored);
  }
  return {};
}

Result<void> StepRunner::steps(const std::vector<Step>& list) {
  for (const Step& step : list) {
    if (is_done(step)) continue;
    ++changes_;
    fmt::print("# {}\n{}\n", step.purpose, shell_line(step.command));
    std::fflush(stdout);
    if (apply_) TRY(run(step));
  }
  return {};
}

Result<void> StepRunner::mark(const std::string& path) {
  const auto daemons = daemons_of(path);
  if (!apply_) {
    stale_.insert(stale_.end(), daemons.begin(), daemons.end());
    return {};
  }
  std::error_code error;
  fs::create_directories(kStale, error);
  if (error) return sys::system_error(error.value(), "cannot make", kStale);
  for (const std::string& daemon : daemons) {
    if (daemon == "slurmd" && !fs::exists("/usr/sbin/slurmd")) continue;  // the controller alone
    TRY(sys::write_whole(fs::path(kStale) / daemon, "", 0600, true));
  }
  return {};
}

Result<void> StepRunner::files(const SetupPlan& plan) {
  for (const FileChange& change : plan.changes) {
    const auto lines = lines_of_text(change.after.value_or("")).size();
    if (apply_) {
      fmt::print("# {} is {}\n", change.path, change.before ? "changed" : "written");
    } else if (lines > kLongDiff) {
      fmt::print("# {}: {} lines, generated\n", change.path, lines);
    } else {
      fmt::print("{}", unified_diff(change.before.value_or(""), change.after.value_or(""),
                                    change.before ? change.path : "/dev/null",
                                    change.after ? change.path : "/dev/null"));
    }
    TRY(mark(change.path));
  }
  std::fflush(stdout);
  changes_ += plan.changes.size();
  if (!apply_ || plan.changes.empty()) return {};
  for (const FileChange& change : plan.changes) {
    std::error_code error;
    fs::create_directories(fs::path(change.path).parent_path(), error);
    if (error) return sys::system_error(error.value(), "cannot make the folder of", change.path);
  }
  TRY(apply_plan(plan, fmt::format("{}/aliquot-backup", kSlurmFolder), "slurm"));
  return {};
}

Result<void> StepRunner::secret(const std::string& path, const std::string& text,
                                const std::string& user) {
  constexpr mode_t kMode = 0400;
  const passwd* owner = ::getpwnam(user.c_str());
  // One that is there and not yet its user's is of a run that was interrupted.
  if (owner != nullptr && sys::is_owned(path, text, kMode, {owner->pw_uid, owner->pw_gid}))
    return {};
  ++changes_;
  fmt::print("# {}: the controller's\n", path);
  TRY(mark(path));
  if (!apply_) return {};
  if (owner == nullptr) {
    return fail(Error::Code::not_found, "there is no user {}: install its package again", user);
  }
  return sys::write_owned(path, text, kMode, {owner->pw_uid, owner->pw_gid});
}

}  // namespace aliquot::slurm
