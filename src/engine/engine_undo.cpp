// When the record cannot be written: a full disk, an I/O error. What this transaction changed in
// memory goes back to what is committed; what happened outside is kept and applied again.
#include "engine/engine.hpp"

namespace aliquot::engine {

void Engine::happened(std::function<void()> event) { events_.push_back(std::move(event)); }

void Engine::after_commit(std::function<void()> action, std::function<void()> otherwise) {
  actions_.push_back(std::move(action));
  if (otherwise) refusals_.push_back(std::move(otherwise));
}

void Engine::give_up(const Error& why) {
  trouble_ = why;
  ahead_ = true;
  unread_.reset();
  store_.rollback();
  facts_.clear();
  actions_.clear();
  for (const auto& refusal : std::exchange(refusals_, {})) refusal();
  try_again_at_ = clock_.wall() + kRecordPause;
}

// All that is kept in memory of a job is on record, or follows from it: what was touched is read
// back. Ids are not given twice: connections may still name what is gone.
Result<void> Engine::restore() {
  if (!ahead_) return {};
  std::vector<Job> before;
  for (const JobId id : touched_) {
    auto job = store_.load(id);
    if (!job && job.error().code == Error::Code::not_found) continue;
    before.push_back(TRY(std::move(job)));
  }
  TRY(read_drained());
  for (const JobId id : touched_) {
    if (ledger_.find(id) != nullptr) (void)ledger_.release(id);
    jobs_.erase(id);
    steps_.erase(id);
  }
  for (Job& job : before) {
    if (!core::is_final(job.state)) TRY(take_up(std::move(job)));
  }
  for (const JobId id : std::exchange(touched_, {})) {
    const auto client = clients_.find(id);
    if (client == clients_.end() || find(id) != nullptr) continue;
    // It asked for a job that never came to be.
    if (const Granted granted = client->second.granted) granted(try_again(*trouble_));
    clients_.erase(client);
  }
  counts_.reset();
  dependencies_changed_ = true;
  schedule_needed_ = true;
  ahead_ = false;
  return {};
}

}  // namespace aliquot::engine
