#include "net/turns.hpp"

#include <utility>

namespace aliquot::net {

void Turns::handle(User user, Work work) { users_[user].here.push_back(std::move(work)); }

void Turns::receive(User user, std::size_t bytes, Work work) {
  users_[user].announced.push_back({bytes, std::move(work)});
}

bool Turns::may_go_on(const Queue& queue) const {
  if (!queue.here.empty()) return queue.kept <= most_;
  if (queue.announced.empty()) return false;
  // Whatever its size, it may come when nothing else is there.
  return queue.kept == 0 || queue.kept + queue.announced.front().bytes <= most_;
}

Turns::Work Turns::take(Queue& queue) {
  if (!queue.here.empty()) {
    Work work = std::move(queue.here.front());
    queue.here.pop_front();
    return work;
  }
  auto [bytes, work] = std::move(queue.announced.front());
  queue.announced.pop_front();
  queue.kept += bytes;
  return work;
}

std::optional<Turns::Work> Turns::next() {
  auto at = users_.upper_bound(last_);
  for (std::size_t looked = 0; looked < users_.size(); ++looked) {
    if (at == users_.end()) at = users_.begin();
    auto& [user, queue] = *at;
    if (may_go_on(queue)) {
      last_ = user;
      return take(queue);
    }
    ++at;
  }
  return std::nullopt;
}

void Turns::drop(User user, std::size_t bytes) {
  const auto found = users_.find(user);
  if (found == users_.end()) return;
  Queue& queue = found->second;
  queue.kept -= bytes;
  if (queue.kept == 0 && queue.here.empty() && queue.announced.empty()) users_.erase(found);
}

std::size_t Turns::kept(User user) const {
  const auto found = users_.find(user);
  return found == users_.end() ? 0 : found->second.kept;
}

}  // namespace aliquot::net
