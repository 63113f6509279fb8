#include "engine/lookup.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace aliquot::engine {
namespace {

tl::unexpected<Refused> no_such_job(const std::string& id) {
  return refuse(Why::no_such_job, "there is no job " + quote(id));
}

}  // namespace

Answer<Lookup::Named> Lookup::parse_id(const Caller& caller, const std::string& id) {
  if (id == "last") {
    const auto last = state_.store.last_of(caller.uid);
    if (!last) return try_again(last.error());
    if (!*last) return no_such_job(id);
    return Named{**last, **last, std::nullopt};
  }
  const auto line = id.find('_');
  const auto number = parse_digits(std::string_view(id).substr(0, line));
  if (!number) return no_such_job(id);
  const JobId head(*number);
  if (line == std::string::npos) {
    const auto facts = state_.store.facts(head, std::nullopt);
    if (!facts) return try_again(facts.error());
    if (!*facts) return no_such_job(id);
    return Named{head, head, std::nullopt};
  }
  const auto task = parse_digits(std::string_view(id).substr(line + 1));
  if (!task) return no_such_job(id);
  const auto record = find_task(head, *task);
  if (!record) return try_again(record.error());
  if (!*record) return no_such_job(id);
  return Named{head, **record, task};
}

Result<std::optional<JobId>> Lookup::find_task(JobId array, std::int64_t task) {
  if (const auto element = TRY(state_.store.find_task(array.value(), task))) return element;
  const Job* head = state_.find(array);
  if (head == nullptr || !std::ranges::binary_search(head->waiting.tasks, task)) {
    return std::nullopt;
  }
  return std::optional(array);
}

Answer<Lookup::Found> Lookup::find_owned(const Caller& caller, const std::string& id, Why denied) {
  TRY(state_.admit(caller));
  const auto named = TRY(parse_id(caller, id));
  const auto not_yours = [&] { return refuse(denied, fmt::format("job {} is not yours", id)); };
  std::vector<Job*> found;
  if (named.task) {
    if (Job* job = state_.find(named.record)) found.push_back(job);
  } else {
    // An array's id means all of it, also once the id has become its last element's.
    Job* head = state_.find(named.head);
    if (head != nullptr) found.push_back(head);
    if (head == nullptr || head->array == named.head) {
      for (auto& [other, job] : state_.jobs) {
        if (job.array == named.head && &job != head) found.push_back(&job);
      }
    }
  }
  if (found.empty()) {
    AccountingQuery query;
    query.id = named.head.value();
    query.most = Bytes(1);  // any of them says whose they are
    const auto over = state_.store.query(query);
    if (!over) return try_again(over.error());
    if (over->jobs.empty()) return no_such_job(id);
    if (!state_.owns(caller, Uid(over->jobs.front().uid))) return not_yours();
    return refuse(Why::already_over, fmt::format("job {} is over", id));
  }
  for (const Job* job : found) {
    if (!state_.owns(caller, job->owner.uid)) return not_yours();
  }
  const bool element = named.task && found.front()->is_array();
  return Found{std::move(found), element ? named.task : std::nullopt};
}

void Lookup::single_out(Found& found) {
  if (!found.task) return;
  const std::int64_t task = *std::exchange(found.task, std::nullopt);
  Job*& job = found.jobs.front();
  if (std::ranges::binary_search(job->waiting.tasks, task)) {
    job = &state_.split(*job, task);
    return state_.save(*job);
  }
  // It was named twice.
  for (auto& [id, other] : state_.jobs) {
    if (other.array == job->array && other.task == task) job = &other;
  }
}

}  // namespace aliquot::engine
