#include "slurm/agent/user_names.hpp"

#include <chrono>
#include <utility>

#include "node/worker.hpp"

namespace aliquot::slurm {
namespace {

// Of users who have nothing here any more, so many are kept.
constexpr std::size_t kMostNames = 10'000;
constexpr std::chrono::milliseconds kMoment{200};

}  // namespace

std::string UserNames::of(Uid uid) const {
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->names.find(uid);
  return found == shared_->names.end() ? std::to_string(uid.value()) : found->second;
}

void UserNames::add(const std::vector<node::RunningJob>& running,
                    std::vector<node::GpuView>& views) {
  std::vector<Uid> unknown;
  const auto each = [&](auto what) {
    for (node::GpuView& view : views) {
      for (node::GpuProcess& process : view.processes) {
        if (process.uid) what(process);
      }
    }
  };
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->names.size() > kMostNames) shared_->names.clear();
    const auto note = [&](Uid uid) {
      if (!shared_->names.contains(uid)) unknown.push_back(uid);
    };
    for (const node::RunningJob& job : running) note(job.uid);
    each([&](const node::GpuProcess& process) { note(*process.uid); });
  }
  if (!unknown.empty()) learn(std::move(unknown));
  each([&](node::GpuProcess& process) { process.user = of(*process.uid); });
}

void UserNames::learn(std::vector<Uid> uids) {
  std::unique_lock lock(shared_->mutex);
  if (std::exchange(shared_->asking, true)) return;
  node::start_thread("aq-names", [shared = shared_, uids = std::move(uids)] {
    for (const Uid uid : uids) {
      std::string name = shared->ask(uid);
      const std::lock_guard answer(shared->mutex);
      shared->names.insert_or_assign(uid, std::move(name));
    }
    const std::lock_guard answer(shared->mutex);
    shared->asking = false;
    shared->answered.notify_all();
  }).detach();
  // Most databases answer at once, and what is told of a user by number may be told for long.
  shared_->answered.wait_for(lock, kMoment, [this] { return !shared_->asking; });
}

}  // namespace aliquot::slurm
