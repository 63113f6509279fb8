#include "slurm/agent/user_names.hpp"

#include <utility>

#include "node/worker.hpp"

namespace aliquot::slurm {
namespace {

// Of users who have nothing here any more, so many are kept.
constexpr std::size_t kMostNames = 10'000;

}  // namespace

std::string UserNames::of(Uid uid) const {
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->names.find(uid);
  return found == shared_->names.end() ? std::to_string(uid.value()) : found->second;
}

void UserNames::add(const std::vector<node::RunningJob>& running,
                    std::vector<node::GpuView>& views) {
  std::vector<Uid> unknown;
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->names.size() > kMostNames) shared_->names.clear();
    const auto name = [&](Uid uid) -> const std::string* {
      const auto found = shared_->names.find(uid);
      if (found != shared_->names.end()) return &found->second;
      unknown.push_back(uid);
      return nullptr;
    };
    for (const node::RunningJob& job : running) (void)name(job.uid);
    for (node::GpuView& view : views) {
      for (node::GpuProcess& process : view.processes) {
        if (!process.uid) continue;
        const std::string* known = name(*process.uid);
        process.user = known != nullptr ? *known : std::to_string(process.uid->value());
      }
    }
  }
  if (!unknown.empty()) learn(std::move(unknown));
}

void UserNames::learn(std::vector<Uid> uids) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (std::exchange(shared_->asking, true)) return;
  }
  node::start_thread("aq-names", [shared = shared_, uids = std::move(uids)] {
    for (const Uid uid : uids) {
      std::string name = shared->ask(uid);
      const std::lock_guard lock(shared->mutex);
      shared->names.insert_or_assign(uid, std::move(name));
    }
    const std::lock_guard lock(shared->mutex);
    shared->asking = false;
  }).detach();
}

}  // namespace aliquot::slurm
