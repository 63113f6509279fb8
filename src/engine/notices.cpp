#include "engine/notices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "engine/job_info.hpp"

namespace aliquot::engine {
namespace {

constexpr std::size_t kMostAddresses = 16;

std::string clock_text(Millis time) {
  return format_duration(std::max(time, Millis(0)), TimeStyle::scontrol);
}

bool is_good(core::JobState state) {
  return state == core::JobState::completed || state == core::JobState::cancelled;
}

std::string percent_words(std::int64_t percent) {
  return percent >= 100 ? "Reached time limit" : fmt::format("Reached {}% of time limit", percent);
}

}  // namespace

MailWanted parse_mail_types(std::string_view words) {
  MailWanted wanted;
  for (const std::string_view word : split(words, ',')) {
    const auto is = [&](std::string_view name) { return equals_ignoring_case(word, name); };
    const bool all = is("ALL");
    if (is("NONE")) wanted = {};
    if (all || is("BEGIN")) wanted.begin = true;
    if (all || is("END")) wanted.end = true;
    if (all || is("FAIL")) wanted.fail = true;
    if (all || is("REQUEUE")) wanted.requeue = true;
    if (all || is("INVALID_DEPEND")) wanted.invalid_dependency = true;
    if (is("ARRAY_TASKS")) wanted.each_task = true;
    if (is("TIME_LIMIT_50")) wanted.percents.push_back(50);
    if (is("TIME_LIMIT_80")) wanted.percents.push_back(80);
    if (is("TIME_LIMIT_90")) wanted.percents.push_back(90);
    if (is("TIME_LIMIT")) wanted.percents.push_back(100);
  }
  std::ranges::sort(wanted.percents);
  return wanted;
}

bool is_mail_address(std::string_view text) {
  constexpr std::string_view kOthers = "@._+=%/!#&'*?^~-";
  if (text.empty() || text.front() == '-' || text.size() > 254) return false;
  return std::ranges::all_of(text, [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || kOthers.find(c) != kOthers.npos;
  });
}

std::vector<std::string> mail_addresses(std::string_view mail_user, std::string_view user,
                                        std::string_view domain) {
  std::vector<std::string> addresses;
  for (const std::string_view one : split(mail_user.empty() ? user : mail_user, ',')) {
    if (one.empty()) continue;
    std::string address(one);
    if (!domain.empty() && address.find('@') == address.npos) address += fmt::format("@{}", domain);
    addresses.push_back(std::move(address));
  }
  return addresses;
}

Answer<void> check_mail(const api::JobSpec& spec, const State& state) {
  if (!parse_mail_types(spec.mail_type).any()) return {};
  const std::string& program = state.settings.mail_program;
  if (!state.executor.has_program(program)) {
    return refuse(Why::bad_change,
                  program.empty()
                      ? "no mail is sent here: mail.program is empty in the settings; write "
                        "--mail-type=NONE, or leave it out"
                      : fmt::format("no mail is sent here: there is no {} (mail.program in the "
                                    "settings); write --mail-type=NONE, or leave it out",
                                    program));
  }
  const auto addresses = mail_addresses(spec.mail_user, "user", "");
  if (addresses.empty() || addresses.size() > kMostAddresses) {
    return refuse(Why::bad_text, "--mail-user takes from 1 to 16 addresses, with commas between");
  }
  for (const std::string& address : addresses) {
    if (is_mail_address(address)) continue;
    return refuse(Why::bad_text, fmt::format("--mail-user: {} is no mail address", quote(address)));
  }
  return {};
}

std::string Notices::run_time(const Job& job) const {
  if (!job.start) return "";
  // Of what runs `end` is when it is expected to.
  const WallTime until = core::is_final(job.state) && job.end ? *job.end : state_.clock.wall();
  const Millis ran = until - *job.start - job.suspended_total;
  return ", Run time " + clock_text(ran);
}

void Notices::mail(const Job& job, const Mail& mail, bool summary) {
  std::string which = fmt::format("Job_id={}", job.id);
  if (job.array && summary) {
    which = fmt::format("Array Summary Job_id={}_* ({})", *job.array, job.id);
  } else if (job.array && job.task) {
    which = fmt::format("Array Task Job_id={}_{} ({})", *job.array, *job.task, job.id);
  }
  Notice notice;
  notice.subject =
      fmt::format("Slurm {} Name={} {}{}{}", which, job.spec.name, mail.type, mail.times, mail.end);
  notice.program = state_.settings.mail_program;
  notice.addresses =
      mail_addresses(job.spec.mail_user, job.owner.user, state_.settings.mail_domain);
  notice.owner = job.owner.uid;
  notice.job = to_info(job);
  state_.act([this, notice = std::move(notice)] { state_.executor.tell(notice); });
}

void Notices::happened(const Job& job, const char* event) {
  if (state_.settings.events_command.empty()) return;
  Notice notice;
  notice.event = event;
  notice.program = state_.settings.events_command;
  notice.as_user = state_.settings.events_user;
  notice.owner = job.owner.uid;
  notice.job = to_info(job);
  state_.act([this, notice = std::move(notice)] { state_.executor.tell(notice); });
}

void Notices::began(const Job& job) {
  happened(job, "BEGIN");
  const auto wanted = parse_mail_types(job.spec.mail_type);
  if (!wanted.percents.empty()) told_.insert_or_assign(job.id, 0);
  if (!wanted.begin) return;
  const bool summary = job.task && !wanted.each_task;
  // Of an array the first element that starts.
  if (summary && job.restarts == 0) {
    const JobId array = job.array.value_or(job.id);
    if (state_.require_value(state_.store.other_began(array, job.id))) return;
  }
  const Millis waited = job.start.value_or(job.submitted) - job.submitted;
  mail(job, {"Began", ", Queued time " + clock_text(waited)}, summary);
}

std::optional<std::string> Notices::array_summary(const Job& job) {
  const JobId array = job.array.value_or(job.id);
  const auto facts = state_.require_value(state_.store.facts(array, std::nullopt));
  if (!facts || !facts->ended) return std::nullopt;
  AccountingQuery elements;
  elements.id = array.value();
  int least = INT32_MAX;
  int most = 0;
  int signal = 0;
  for (const api::JobInfo& one : state_.require_value(state_.store.query(elements)).jobs) {
    least = std::min(least, one.exit_code);
    most = std::max(most, one.exit_code);
    signal = std::max(signal, one.exit_signal);
  }
  if (signal != 0) return fmt::format(", Mixed, MaxSignal [{}]", signal);
  least = std::min(least, most);
  return fmt::format(", {}, ExitCode [{}-{}]",
                     least == 0 && most > 0 ? "Mixed" : core::long_name(job.state), least, most);
}

void Notices::over(const Job& job) {
  told_.erase(job.id);
  const bool good = is_good(job.state);
  happened(job, good ? "END" : "FAIL");
  const auto wanted = parse_mail_types(job.spec.mail_type);
  if (!wanted.any()) return;
  const auto times = run_time(job);
  if (job.state == core::JobState::timeout && std::ranges::count(wanted.percents, 100) > 0) {
    mail(job, {percent_words(100), times});
  }
  // As in Slurm: who wants to hear of ends alone hears of failures as such.
  const bool failed = !good && wanted.fail;
  if (!failed && !wanted.end) return;
  std::string end = fmt::format(", {}", core::long_name(job.state));
  if (job.exit.signal == 0) end += fmt::format(", ExitCode {}", job.exit.code);
  const bool summary = job.array && !wanted.each_task;
  if (summary) {
    const auto all = array_summary(job);
    if (!all) return;
    end = *all;
  }
  mail(job, {failed ? "Failed" : "Ended", times, end}, summary);
}

void Notices::requeued(const Job& job) {
  told_.erase(job.id);
  happened(job, "REQUEUE");
  if (parse_mail_types(job.spec.mail_type).requeue) mail(job, {"Requeued", run_time(job)});
}

void Notices::never(const Job& job) {
  happened(job, "INVALID_DEPEND");
  if (parse_mail_types(job.spec.mail_type).invalid_dependency) {
    mail(job, {"Invalid dependency", ""});
  }
}

std::optional<std::int64_t> Notices::percent_of(const Job& job) const {
  if (!job.time_limit || *job.time_limit <= Millis(0)) return std::nullopt;
  return state_.ran(job) * 100 / *job.time_limit;
}

void Notices::taken_up(const Job& job) {
  if (parse_mail_types(job.spec.mail_type).percents.empty()) return;
  told_.try_emplace(job.id, percent_of(job).value_or(0));
}

void Notices::enforce_times() {
  for (auto known = told_.begin(); known != told_.end();) {
    const Job* job = state_.find(known->first);
    if (job == nullptr || !core::is_active(job->state)) {
      known = told_.erase(known);
      continue;
    }
    const auto now = percent_of(*job);
    for (const int percent : parse_mail_types(job->spec.mail_type).percents) {
      // The whole of it is told with the end that it brings.
      if (percent == 100 || !now || *now < percent || known->second >= percent) continue;
      mail(*job, {percent_words(percent), run_time(*job)});
      // What is not on record was not sent.
      state_.act([this, id = job->id, percent] {
        const auto told = told_.find(id);
        if (told != told_.end()) told->second = std::max<std::int64_t>(told->second, percent);
      });
    }
    ++known;
  }
}

std::optional<WallTime> Notices::due() const {
  std::optional<WallTime> due;
  for (const auto& [id, told] : told_) {
    const auto known = state_.jobs.find(id);
    if (known == state_.jobs.end() || known->second.state != core::JobState::running) continue;
    const Job& job = known->second;
    if (!job.time_limit) continue;
    for (const int percent : parse_mail_types(job.spec.mail_type).percents) {
      if (percent == 100 || percent <= told) continue;
      const Millis left = scale_down(*job.time_limit, percent, 100) - state_.ran(job);
      const WallTime at = state_.clock.wall() + std::max(left, Millis(0));
      if (!due || at < *due) due = at;
    }
  }
  return due;
}

}  // namespace aliquot::engine
