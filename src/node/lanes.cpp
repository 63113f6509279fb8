#include "node/lanes.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "node/worker.hpp"

namespace aliquot::node {
namespace {

// A thread with nothing to do for so long goes.
constexpr std::chrono::seconds kIdle(10);

}  // namespace

Lanes::Lanes(std::string name, Sizes sizes) : name_(std::move(name)), sizes_(sizes) {
  ++threads_;
  start_thread(name_, [this] { run(); }).detach();
}

Lanes::~Lanes() {
  std::unique_lock lock(mutex_);
  stop_ = true;
  wake_.notify_all();
  gone_.wait(lock, [this] { return threads_ == 0; });
}

void Lanes::post(Uid user, std::int64_t lane, std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  const auto [entry, fresh] = lanes_.try_emplace(lane);
  if (fresh) {
    entry->second.user = user;
    users_[user].waiting.push_back(lane);
  }
  entry->second.tasks.push_back(std::move(task));
  grow();
}

std::size_t Lanes::ready() const {
  std::size_t count = 0;
  for (const auto& [uid, user] : users_) {
    count += std::min(user.waiting.size(), sizes_.per_user - user.busy);
  }
  return count;
}

void Lanes::grow() {
  wake_.notify_one();
  if (stop_ || ready() <= idle_ + coming_ || threads_ >= sizes_.threads) return;
  try {
    start_thread(name_, [this] { run(true); }).detach();
    ++threads_;
    ++coming_;
  } catch (const std::system_error&) {
    // The machine has no more: those there are do it, later.
  }
}

std::map<std::int64_t, Lanes::Lane>::iterator Lanes::take() {
  auto user = users_.upper_bound(last_);
  for (std::size_t i = 0; i < users_.size(); ++i, ++user) {
    if (user == users_.end()) user = users_.begin();
    if (user->second.waiting.empty() || user->second.busy >= sizes_.per_user) continue;
    last_ = user->first;
    ++user->second.busy;
    const auto lane = lanes_.find(user->second.waiting.front());
    user->second.waiting.pop_front();
    return lane;
  }
  return lanes_.end();
}

void Lanes::run(bool coming) {
  std::unique_lock lock(mutex_);
  if (coming) --coming_;
  while (!stop_) {
    const auto entry = take();
    if (entry == lanes_.end()) {
      ++idle_;
      const bool woken = wake_.wait_for(lock, kIdle) == std::cv_status::no_timeout;
      --idle_;
      if (!woken && ready() == 0 && threads_ > 1) break;  // one is always there
      continue;
    }
    Lane& lane = entry->second;
    auto task = std::move(lane.tasks.front());
    lane.tasks.pop_front();
    grow();  // for what came together with this one
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    const auto user = users_.find(lane.user);
    --user->second.busy;
    if (lane.tasks.empty()) {
      lanes_.erase(entry);
    } else {
      user->second.waiting.push_back(entry->first);
    }
    if (user->second.busy == 0 && user->second.waiting.empty()) users_.erase(user);
    grow();  // this user may have one more now
  }
  --threads_;
  gone_.notify_all();
}

}  // namespace aliquot::node
