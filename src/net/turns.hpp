// Which user is served next: each in turn, so that a user waits for at most one request of each
// other user. It also counts the bytes of requests and answers that the server keeps for each user.
// A user with too many gets no further turn until some are gone, so a user who sends much or does
// not read the answers slows down nobody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

namespace aliquot::net {

class Turns {
 public:
  using User = std::uint32_t;
  using Work = std::function<void()>;

  explicit Turns(std::size_t bytes_per_user) : most_(bytes_per_user) {}

  // A request that is here, to be handled.
  void handle(User user, Work work);
  // A request that is announced: once it has its turn, these bytes are kept for it.
  void receive(User user, std::size_t bytes, Work work);
  // The next one, each user in turn; nothing: there is none, or its user has too many bytes.
  std::optional<Work> next();

  // The server keeps these bytes for the user, or no longer.
  void keep(User user, std::size_t bytes) { users_[user].kept += bytes; }
  void drop(User user, std::size_t bytes);
  [[nodiscard]] std::size_t kept(User user) const;

 private:
  struct Announced {
    std::size_t bytes = 0;
    Work work;
  };
  struct Queue {
    std::size_t kept = 0;
    // First those that are here: their bytes go once they are handled.
    std::deque<Work> here;
    std::deque<Announced> announced;
  };
  [[nodiscard]] bool may_go_on(const Queue& queue) const;
  static Work take(Queue& queue);

  std::size_t most_;
  std::map<User, Queue> users_;  // who has something waiting or kept
  User last_ = 0;                // who had a turn
};

}  // namespace aliquot::net
