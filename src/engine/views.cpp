#include "engine/views.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "core/explain.hpp"
#include "core/placement.hpp"
#include "engine/clients.hpp"
#include "engine/end_words.hpp"
#include "engine/forecast.hpp"
#include "engine/job_info.hpp"
#include "engine/queue.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {
namespace {

// Of records that are read for one answer: nobody waits long for another's question.
constexpr Bytes kPage = mib(1);

bool contains_word(std::string_view list, std::string_view word) {
  const auto words = aliquot::split(list, ',');
  return std::ranges::find(words, word) != words.end();
}

std::string as_sentence(std::string words) {
  if (words[0] >= 'a' && words[0] <= 'z') words[0] = static_cast<char>(words[0] - 'a' + 'A');
  return words + ".";
}

}  // namespace

void Views::redact(const Caller& caller, api::JobInfo& info) const {
  if (state_.owns(caller, Uid(info.uid))) return;
  info.command.clear();
  info.work_dir.clear();
  info.std_out.clear();
  info.std_err.clear();
  info.std_in.clear();
  info.comment.clear();
  info.reason_detail.clear();  // it may name its files
}

std::string Views::partition_sentence(const Job& job) const {
  std::string text;
  for (const Partition& one : state_.settings.partitions) {
    if (one.max_time.unlimited() || !contains_word(job.partition, one.name)) continue;
    const auto most = format_time_limit(one.max_time, TimeStyle::squeue);
    text = fmt::format(
        "its time limit, {}, is longer than the partition {} allows, {}: 'scontrol update "
        "jobid={} timelimit={}'",
        format_time_limit({job.time_limit}, TimeStyle::squeue), one.name, most, job.id, most);
  }
  return text;
}

// Slurm's word in ours. `aliquot why` looks closer, for one job.
std::string Views::wait_sentence(const Job& job) const {
  if (job.state != core::JobState::pending || !job.detail.empty()) return "";
  if (auto held_up = runs_.held_up()) return *held_up;
  if (is_limit(job.reason)) {
    return fmt::format("a limit keeps it: 'aliquot why {}' says whose", job.id);
  }
  switch (job.reason) {
    case Reason::resources:
      return "there is not enough room for it now";
    case Reason::priority:
      return "jobs before it wait for the room it needs";
    case Reason::dependency:
      return "it waits for " + job.dependency_text;
    case Reason::dependency_never:
      return fmt::format(
          "what it waits for can never happen any more ({0}): 'scancel {1}', or 'scontrol update "
          "JobId={1} Dependency=' to start it without",
          job.spec.dependency, job.id);
    case Reason::begin_time:
      return fmt::format(
          "it is not to start before {0}: 'scontrol update JobId={1} StartTime=now' lets it",
          format_timestamp(WallTime(job.spec.begin_ms.value_or(0))), job.id);
    case Reason::held_user:
      return fmt::format("held: 'scontrol release {}'", job.id);
    case Reason::invalid_account:
      return fmt::format("its account, {}, has been removed: 'scontrol update jobid={} account=…'",
                         job.spec.account, job.id);
    case Reason::reservation:
      return queue_.reservations().not_yet(job).value_or("");
    case Reason::invalid_qos:
      return fmt::format("its QOS, {}, has been removed: 'scontrol update jobid={} qos=…'",
                         job.spec.qos, job.id);
    case Reason::held_admin:
      return "held by an administrator";
    case Reason::bad_constraints:
      return job.unfit;
    case Reason::task_limit:
      return "as many of its array run as may run at once";
    case Reason::partition_time_limit:
      return partition_sentence(job);
    case Reason::partition_down:
      return fmt::format("the partition {} is down or gone: an administrator brings it up",
                         job.partition);
    case Reason::not_available:
      return queue_.drained() ? "the machine is drained: " + queue_.drained()->reason : "";
    default:
      return "";
  }
}

// A job may be expected since a while ago: what it waits for takes longer than its limit.
void Views::show_start(const Job& job, api::JobInfo& shown) const {
  if (job.state != core::JobState::pending || !shown.start_ms) return;
  shown.start_ms = std::max(*shown.start_ms, state_.clock.wall().ms());
}

Answer<std::optional<std::int64_t>> Views::list(const Caller& caller, const ListQuery& wanted,
                                                const ShowJob& show) {
  TRY(state_.admit(caller));
  if (!wanted.brief) forecast_.look_ahead();
  AccountingQuery query;
  query.only_over = true;
  query.start = state_.clock.wall() - state_.settings.min_job_age;
  query.after = wanted.after;
  query.most = kPage;
  if (!wanted.id.empty()) {
    const auto named = names_.parse_id(caller, wanted.id);
    if (!named) return tl::make_unexpected(named.error());
    query.id = named->head.value();
  }
  const auto other = [&](const std::string& user) {
    return !wanted.user.empty() && user != wanted.user;
  };
  JobPage over;
  if (!wanted.live) over = TRY(or_try_again(state_.store.query(query)));
  for (api::JobInfo& job : over.jobs) {
    if (other(job.user)) continue;
    redact(caller, job);
    show(job);
  }
  // First, since it may be over by the last page; and last, since what is over may be back by then.
  if (wanted.after != 0 && over.next) return over.next;
  api::JobInfo shown;  // one for all: its texts keep their memory
  for (const auto& [live, job] : state_.jobs) {
    if (other(job.owner.user)) continue;
    if (query.id && job.id.value() != *query.id && job.array != JobId(*query.id)) continue;
    write_info(job, shown);
    show_start(job, shown);
    clients_.add_steps(live, shown.steps);
    if (!wanted.brief && state_.owns(caller, job.owner.uid)) {
      if (auto why = wait_sentence(job); !why.empty()) shown.reason_detail = std::move(why);
    }
    redact(caller, shown);
    show(shown);
  }
  return over.next;
}

Answer<api::JobInfo> Views::show(const Caller& caller, const std::string& id) {
  TRY(state_.admit(caller));
  const auto named = TRY(names_.parse_id(caller, id));
  const JobId wanted = named.record;
  api::JobInfo info;
  if (const Job* job = state_.find(wanted)) {
    forecast_.look_ahead();
    info = to_info(*job);
    show_start(*job, info);
    if (auto why = wait_sentence(*job); !why.empty()) info.reason_detail = std::move(why);
  } else {
    auto over = state_.store.info(wanted);
    if (!over && over.error().code == Error::Code::unavailable) return try_again(over.error());
    if (!over) return refuse(Why::no_such_job, over.error().message);
    info = std::move(*over);
  }
  info.steps = TRY(or_try_again(state_.store.steps(wanted)));
  redact(caller, info);
  return info;
}

Answer<std::string> Views::script(const Caller& caller, const std::string& id) {
  const auto info = TRY(show(caller, id));
  if (!state_.owns(caller, Uid(info.uid)))
    return refuse(Why::access_denied, "the job is not yours");
  const auto job = state_.store.load(JobId(info.id));
  if (!job) {
    if (job.error().code != Error::Code::not_found) return try_again(job.error());
    return refuse(Why::no_such_job, job.error().message);
  }
  const auto payload = state_.store.payload(job->payload);
  if (!payload && payload.error().code == Error::Code::unavailable) {
    return try_again(payload.error());
  }
  if (!payload) return refuse(Why::no_script, payload.error().message);
  if (!job->spec.batch) {
    return refuse(Why::no_script, "an interactive job has no script");
  }
  return payload->script;
}

Answer<Views::LogFile> Views::log_of(const Caller& caller, const std::string& id) {
  const auto info = TRY(show(caller, id));
  if (!state_.owns(caller, Uid(info.uid))) {
    return refuse(Why::access_denied, "the job is not yours");
  }
  if (info.std_out.empty() || !info.start_ms || info.state == "PENDING") {
    return refuse(Why::pending, "the job has written nothing yet");
  }
  // A name without a folder is in the job's.
  std::string path = info.std_out;
  if (!path.starts_with('/')) path = info.work_dir + "/" + path;
  return LogFile{Uid(info.uid), Gid(info.gid), std::move(path)};
}

std::optional<Views::WaiterId> Views::wait(const Caller& caller, const std::string& id,
                                           Ended ended) {
  const auto at_once = [&](Answer<api::JobInfo> answer) {
    ended(std::move(answer));
    return std::nullopt;
  };
  auto info = show(caller, id);
  if (!info) return at_once(std::move(info));
  const auto named = names_.parse_id(caller, id);
  if (!named) return at_once(tl::make_unexpected(named.error()));
  const auto facts = state_.store.facts(named->head, named->task);
  if (!facts) return at_once(try_again(facts.error()));
  if (*facts && (*facts)->ended) return at_once(std::move(info));
  const WaiterId waiter{named->head, ++last_waiter_};
  waiting_[waiter.job][waiter.number] = {
      named->task, [this, caller, ended = std::move(ended)](Answer<api::JobInfo> last) {
        if (last) redact(caller, *last);
        ended(std::move(last));
      }};
  return waiter;
}

std::optional<Views::WaiterId> Views::wait_for_ending(const Caller& caller, const std::string& id,
                                                      Ended told) {
  auto info = show(caller, id);
  const Job* job = info ? state_.find(JobId(info->id)) : nullptr;
  if (job == nullptr || job->state == core::JobState::completing) {
    told(std::move(info));
    return std::nullopt;
  }
  const WaiterId waiter{job->id, ++last_waiter_};
  watching_[waiter.job][waiter.number] = [this, caller,
                                          told = std::move(told)](Answer<api::JobInfo> now) {
    if (now) redact(caller, *now);
    told(std::move(now));
  };
  return waiter;
}

void Views::ending(const Job& job) {
  if (!watching_.contains(job.id)) return;
  state_.act([this, id = job.id, info = to_info(job)] {
    const auto told = watching_.extract(id);
    if (!told) return;
    for (const auto& [number, tell] : told.mapped()) tell(info);
  });
}

void Views::stop_waiting(const WaiterId& waiter) {
  if (const auto watchers = watching_.find(waiter.job); watchers != watching_.end()) {
    watchers->second.erase(waiter.number);
    if (watchers->second.empty()) watching_.erase(watchers);
  }
  const auto waiters = waiting_.find(waiter.job);
  if (waiters == waiting_.end()) return;
  waiters->second.erase(waiter.number);
  if (waiters->second.empty()) waiting_.erase(waiters);
}

void Views::over(const Job& job) {
  ending(job);
  state_.act([this, over = JobTally::over_of(job)] { state_.tally->note_over(over); });
  const api::JobInfo last = to_info(job);
  tell_waiters(job.id, last);
  if (job.array && *job.array != job.id) tell_waiters(*job.array, last);
}

// Those who wait for what is over now; of an array's waiters some wait for one element.
void Views::tell_waiters(JobId waited, const api::JobInfo& last) {
  const auto waiters = waiting_.find(waited);
  if (waiters == waiting_.end()) return;
  std::map<std::optional<std::int64_t>, bool> over;
  for (const auto& [number, waiter] : waiters->second) {
    const auto [known, fresh] = over.try_emplace(waiter.task, false);
    if (fresh) {
      const auto facts = state_.require_value(state_.store.facts(waited, waiter.task));
      known->second = facts && facts->ended;
    }
    if (!known->second) continue;
    state_.act([this, one = WaiterId{waited, number}, last] {
      const auto all = waiting_.find(one.job);
      if (all == waiting_.end()) return;
      const auto told = all->second.extract(one.number);
      if (all->second.empty()) waiting_.erase(all);
      if (told) told.mapped().ended(last);
    });
  }
}

Answer<api::WhyInfo> Views::why(const Caller& caller, const std::string& id) {
  const auto info = show(caller, id);
  if (!info) return tl::make_unexpected(info.error());
  api::WhyInfo why{.job_id = info->id,
                   .state = info->state,
                   .reason = info->reason,
                   .sentences = {},
                   .earliest_start_ms = std::nullopt};
  const Job* job = state_.find(JobId(info->id));
  if (job == nullptr) {
    why.sentences = end_sentences(*info);
    return why;
  }
  if (job->state != core::JobState::pending) {
    why.sentences.push_back(fmt::format("Job {} is {}.", info->id, info->state));
    if (!info->reason_detail.empty()) why.sentences.push_back(info->reason_detail + ".");
    say_default_time(*job, why);
    return why;
  }
  why.earliest_start_ms = info->start_ms;
  if (is_limit(job->reason) && !queue_.not_yet(*job) && !runs_.held_up()) {
    why.sentences = queue_.limit_sentences(*job);
    if (!why.sentences.empty()) return why;
  }
  const bool room = !queue_.not_yet(*job) && !is_limit(job->reason) &&
                    job->reason != Reason::task_limit && !runs_.held_up();
  if (!room) {
    const std::string& detail = job->detail;  // of a start that failed, its owner's
    auto words = detail.empty()                        ? wait_sentence(*job)
                 : state_.owns(caller, job->owner.uid) ? detail
                                                       : "";
    if (words.empty()) {
      words = detail.empty() ? "it has not been looked at yet: ask again in a moment"
                             : "a start of it failed, and it is tried again: its user sees why";
    }
    why.sentences.push_back(as_sentence(std::move(words)));
    return why;
  }
  const auto refusal = core::explain_refusal(state_.ledger.cluster(), job->shape);
  if (core::place_by_scan(state_.ledger.cluster(), job->shape, *state_.policy)) {
    const auto before = queue_.before(*job);
    why.sentences.emplace_back(before && before->count > 0
                                   ? "There is room for it, but jobs before it wait for that room."
                                   : "There is room for it, but not where it may be now: a "
                                     "reservation or its partition keeps "
                                     "it from the GPUs that are free.");
  } else {
    why.sentences = core::explain(state_.ledger, job->request, refusal).sentences;
    if (job->reason == Reason::resources && !job->start && !forecast_.unfinished()) {
      const bool endless = std::ranges::any_of(state_.ledger.jobs(), [&](JobId other) {
        return !queue_.left_of(state_.jobs.at(other));
      });
      why.sentences.emplace_back(
          endless ? "When it can start is not known: jobs without a time limit hold what it needs."
                  : "When it can start is not known: what it needs is reserved, or taken out of "
                    "service, for "
                    "longer than can be planned.");
    }
  }
  say_who_is_before(*job, why);
  say_default_time(*job, why);
  return why;
}

Answer<api::JobList> Views::accounting(const Caller& caller, AccountingQuery query) {
  TRY(state_.admit(caller));
  query.steps = true;
  query.most = kPage;
  JobPage page = TRY(or_try_again(state_.store.query(query)));
  for (api::JobInfo& job : page.jobs) {
    // What runs is fresher in memory.
    if (const Job* live = state_.find(JobId(job.id));
        live != nullptr && live->restarts == job.restarts) {
      auto steps = std::move(job.steps);
      job = to_info(*live);
      job.steps = std::move(steps);
    }
    redact(caller, job);
  }
  return api::JobList{std::move(page.jobs), page.next};
}

}  // namespace aliquot::engine
