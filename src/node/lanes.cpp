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

bool Lanes::is_idle(const User& user) {
  return std::ranges::all_of(user.busy, [](const auto& one) { return one.second == 0; }) &&
         std::ranges::all_of(user.waiting, [](const auto& one) { return one.second.empty(); });
}

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

void Lanes::post(Uid user, std::int64_t lane, std::function<void()> task, Pace pace) {
  const std::lock_guard lock(mutex_);
  const auto [entry, fresh] = lanes_.try_emplace(lane);
  entry->second.tasks.push_back({std::move(task), pace});
  if (fresh) {
    entry->second.user = user;
    wait(lane, entry->second);
  }
  grow();
}

void Lanes::wait(std::int64_t lane, const Lane& what) {
  users_[what.user].waiting[what.tasks.front().pace].push_back(lane);
}

std::size_t Lanes::room(const User& user, Pace pace) const {
  std::size_t busy = 0;
  std::size_t slow = 0;
  for (const auto& [its, count] : user.busy) {
    busy += count;
    if (its == Pace::slow) slow += count;
  }
  const std::size_t left = sizes_.per_user - busy;
  if (pace == Pace::usual) return left;
  return std::min(left, std::max<std::size_t>(sizes_.per_user / 2, 1) - slow);
}

std::size_t Lanes::ready() const {
  std::size_t count = 0;
  for (const auto& [uid, user] : users_) {
    std::size_t its = 0;
    for (const auto& [pace, waiting] : user.waiting) {
      its += std::min(waiting.size(), room(user, pace));
    }
    count += std::min(its, room(user, Pace::usual));
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
    for (auto& [pace, waiting] : user->second.waiting) {
      if (waiting.empty() || room(user->second, pace) == 0) continue;
      last_ = user->first;
      ++user->second.busy[pace];
      const auto lane = lanes_.find(waiting.front());
      waiting.pop_front();
      return lane;
    }
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
    task.run();
    task.run = nullptr;
    lock.lock();
    const auto user = users_.find(lane.user);
    --user->second.busy[task.pace];
    if (lane.tasks.empty()) {
      lanes_.erase(entry);
    } else {
      wait(entry->first, lane);
    }
    if (is_idle(user->second)) users_.erase(user);
    grow();  // this user may have one more now
  }
  --threads_;
  gone_.notify_all();
}

}  // namespace aliquot::node
