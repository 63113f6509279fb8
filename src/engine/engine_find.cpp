// Which jobs a text names, and whether they are the caller's to command. A task that its array does
// not have is no job, in every verb: nothing stands in for it.
#include <algorithm>

#include "base/text.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {
namespace {

tl::unexpected<Refused> no_such_job(const std::string& id) {
  return refuse(404, "ESLURM_INVALID_JOB_ID", "there is no job " + quote(id));
}

}  // namespace

bool Engine::is_admin(const Caller& caller) const {
  return caller.uid == Uid(0) || caller.uid == owner_;
}

bool Engine::owns(const Caller& caller, const api::JobInfo& job) const {
  return is_admin(caller) || caller.uid == Uid(job.uid);
}

Answer<Engine::Named> Engine::parse_id(const Caller& caller, const std::string& id) {
  if (id == "last") {
    const auto last = store_.last_of(caller.uid);
    if (!last) return try_again(last.error());
    if (!*last) return no_such_job(id);
    return Named{**last, **last, std::nullopt};
  }
  const auto line = id.find('_');
  const auto number = parse_digits(std::string_view(id).substr(0, line));
  if (!number) return no_such_job(id);
  const JobId head(*number);
  if (line == std::string::npos) {
    const auto facts = store_.facts(head, std::nullopt);
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

Result<std::optional<JobId>> Engine::find_task(JobId array, std::int64_t task) {
  if (const auto element = TRY(store_.find_task(array.value(), task))) return element;
  const Job* head = find(array);
  if (head == nullptr || !std::ranges::binary_search(head->waiting.tasks, task)) {
    return std::nullopt;
  }
  return std::optional(array);
}

Answer<std::vector<Job*>> Engine::find_owned(const Caller& caller, const std::string& id,
                                             std::string_view denied) {
  if (const auto fine = admit(caller); !fine) return tl::make_unexpected(fine.error());
  const auto named = parse_id(caller, id);
  if (!named) return tl::make_unexpected(named.error());
  const auto not_yours = [&] {
    return refuse(403, std::string(denied), fmt::format("job {} is not yours", id));
  };
  std::vector<Job*> found;
  if (named->task) {
    if (Job* job = find(named->record)) found.push_back(job);
  } else {
    // An array's id means all of it, also once the id has become its last element's.
    Job* head = find(named->head);
    if (head != nullptr) found.push_back(head);
    if (head == nullptr || head->info.array_job_id == named->head.value()) {
      for (auto& [other, job] : jobs_) {
        if (job.info.array_job_id == named->head.value() && &job != head) found.push_back(&job);
      }
    }
  }
  if (found.empty()) {
    AccountingQuery query;
    query.id = named->head.value();
    query.most = Bytes(1);  // any of them says whose they are
    const auto over = store_.query(query);
    if (!over) return try_again(over.error());
    if (over->jobs.empty()) return no_such_job(id);
    if (!owns(caller, over->jobs.front())) return not_yours();
    return refuse(409, "ESLURM_ALREADY_DONE", fmt::format("job {} is over", id));
  }
  for (const Job* job : found) {
    if (!owns(caller, job->info)) return not_yours();
  }
  if (named->task && found.front()->is_array()) {
    // From here on the element goes its own way.
    Job& element = split(*found.front(), *named->task);
    save(element);
    found.front() = &element;
  }
  return found;
}

}  // namespace aliquot::engine
