#include "engine/messenger.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "api/json.hpp"
#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "node/spawn.hpp"
#include "sys/identity.hpp"
#include "sys/process.hpp"

namespace aliquot::engine {
namespace {

constexpr std::size_t kMostWaiting = 1'000;  // of one user's jobs
constexpr Millis kPatience = seconds(30);

std::string base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(text.size() - at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = (bits << 8U) | (i < count ? static_cast<unsigned char>(text[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      out += i <= count ? kDigits[(bits >> (18U - 6U * i)) & 63U] : '=';
    }
  }
  return out;
}

// In words of at most 75 characters, as headers want it, cut between characters of UTF-8.
std::string header_text(const std::string& text) {
  constexpr std::size_t kPart = 42;
  if (std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; })) return text;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(at + kPart, text.size());
    while (end < text.size() && end > at + 1 &&
           (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) {
      --end;
    }
    out += fmt::format("{}=?UTF-8?B?{}?=", out.empty() ? "" : "\n ",
                       base64(std::string_view(text).substr(at, end - at)));
    at = end;
  }
  return out;
}

// The user database may be slow: in a lane.
Result<sys::Identity> identity_of(const Notice& notice) {
  if (notice.as_user.empty() || ::getuid() != 0) {
    return sys::find_identity(notice.as_user.empty() ? notice.owner : Uid(::getuid()));
  }
  std::array<char, 16'384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(notice.as_user.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return fail(Error::Code::not_found, "events.user: there is no user {}", notice.as_user);
  }
  return sys::find_identity(Uid(found->pw_uid));
}

std::vector<std::string> arguments_of(const Notice& notice) {
  const auto slash = notice.program.rfind('/');
  std::vector<std::string> argv = {
      notice.program.substr(slash == std::string::npos ? 0 : slash + 1)};
  if (!notice.event.empty()) {
    argv.push_back(notice.event);
    argv.push_back(fmt::format("{}", notice.job.id));
    return argv;
  }
  argv.insert(argv.end(), {"-i", "--"});  // a dot is a dot; what follows is no option
  argv.insert(argv.end(), notice.addresses.begin(), notice.addresses.end());
  return argv;
}

std::vector<std::string> environment_for(const Notice& notice, const sys::Identity& identity) {
  std::vector<std::string> environment = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                                          "HOME=" + identity.home, "USER=" + identity.user,
                                          "LOGNAME=" + identity.user};
  if (notice.event.empty()) return environment;
  const api::JobInfo& job = notice.job;
  for (const auto& [name, value] :
       {std::pair("ALIQUOT_EVENT", notice.event),
        std::pair("SLURM_JOB_ID", fmt::format("{}", job.id)), std::pair("SLURM_JOB_NAME", job.name),
        std::pair("SLURM_JOB_USER", job.user),
        std::pair("SLURM_JOB_UID", fmt::format("{}", job.uid)),
        std::pair("SLURM_JOB_PARTITION", job.partition), std::pair("SLURM_JOB_STATE", job.state),
        std::pair("SLURM_JOB_EXIT_CODE", fmt::format("{}", job.exit_code))}) {
    environment.push_back(fmt::format("{}={}", name, value));
  }
  return environment;
}

Result<sys::Fd> as_file(const std::string& text) {
  sys::Fd file(::memfd_create("aliquot-notice", MFD_CLOEXEC));
  std::size_t done = 0;
  while (file && done < text.size()) {
    const auto wrote = ::write(file.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  if (!file || done < text.size() || ::lseek(file.get(), 0, SEEK_SET) != 0) {
    return fail(Error::Code::unavailable, "no memory for a message: {}", std::strerror(errno));
  }
  return file;
}

Result<void> send(const Notice& notice) {
  const auto identity = TRY(identity_of(notice));
  const auto text =
      TRY(as_file(notice.event.empty() ? mail_text(notice) : api::to_json(notice.job) + "\n"));
  node::SpawnSpec spec{.identity = identity,
                       .file = notice.program,
                       .argv = arguments_of(notice),
                       .environment = environment_for(notice, identity)};
  spec.in = node::FromFd{text.get()};
  const auto child = node::spawn(spec);
  if (!child) return fail(Error::Code::unavailable, "{}", child.error().what);
  const auto process = sys::open_pid(*child);
  const bool ended = process && sys::has_ended(process, kPatience);
  // With all that it has started: it leads a session, and its group.
  if (!ended) ::kill(-child->value(), SIGKILL);
  const int status = sys::wait_for_child(*child);
  if (!ended) return fail(Error::Code::unavailable, "it took over {} s", kPatience / seconds(1));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(Error::Code::unavailable, "it ended with {}",
                WIFEXITED(status) ? fmt::format("status {}", WEXITSTATUS(status))
                                  : fmt::format("signal {}", WTERMSIG(status)));
  }
  return {};
}

}  // namespace

std::string mail_text(const Notice& notice) {
  const api::JobInfo& job = notice.job;
  std::string text = fmt::format(
      "To: {}\nSubject: {}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n"
      "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n",
      fmt::join(notice.addresses, ", "), header_text(notice.subject));
  const auto line = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) text += fmt::format("{}: {}\n", key, make_plain(value));
  };
  line("Job", fmt::format("{} ({})", job.id, job.name));
  line("User", job.user);
  line("Partition", job.partition);
  line("State", job.state);
  line("Submitted", format_timestamp(WallTime(job.submit_ms)));
  if (!job.node.empty() && job.start_ms) {
    line("Started", format_timestamp(WallTime(*job.start_ms)) + " on " + job.node);
  }
  line("Why", job.reason_detail);
  line("Output", job.std_out);
  return text;
}

void Messenger::post(const Notice& notice) {
  {
    const std::lock_guard lock(mutex_);
    std::size_t& waiting = waiting_[notice.owner];
    if (waiting >= kMostWaiting) {
      spdlog::warn("job {}: {} messages of its user wait already: nobody is told that {}",
                   notice.job.id, waiting,
                   notice.event.empty() ? make_plain(notice.subject) : notice.event);
      return;
    }
    ++waiting;
  }
  lanes_.post(notice.owner, static_cast<std::int64_t>(notice.owner.value()), [this, notice] {
    if (const auto sent = send(notice); !sent) {
      spdlog::warn("job {}: {}: {}", notice.job.id, notice.program,
                   make_plain(sent.error().message));
    }
    const std::lock_guard lock(mutex_);
    if (--waiting_[notice.owner] == 0) waiting_.erase(notice.owner);
  });
}

}  // namespace aliquot::engine
