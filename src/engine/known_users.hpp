// The users of the machine's database, asked for once each and in a lane of their own: who asks the
// loop for something waits for no other user's name, however slow the database is.
//
// Belongs to the loop's thread; only the question leaves it.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "engine/state.hpp"
#include "node/lanes.hpp"

namespace aliquot::engine {

// May wait for the network.
Result<Users::User> ask_database(Uid uid);

class KnownUsers final : public Users {
 public:
  using Post = std::function<void(std::function<void()>)>;  // into the loop
  using Ask = std::function<Result<User>(Uid)>;
  KnownUsers(Post post, Ask ask) : post_(std::move(post)), ask_(std::move(ask)) {}

  Result<User> find(Uid uid) override;
  // Who was not found is asked for again.
  void learn(Uid uid, std::function<void()> then) override;

 private:
  void answered(Uid uid, Result<User> answer);

  Post post_;
  Ask ask_;
  std::map<Uid, Result<User>> known_;
  std::map<Uid, std::vector<std::function<void()>>> asking_;
  node::Lanes lanes_{"aq-users"};  // last: it ends first
};

}  // namespace aliquot::engine
