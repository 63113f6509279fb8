#include "engine/known_users.hpp"

#include <utility>

#include "sys/identity.hpp"

namespace aliquot::engine {

Result<Users::User> ask_database(Uid uid) {
  const sys::Identity identity = TRY(sys::find_identity(uid));
  Users::User user{identity.user, sys::group_name(identity.gid), identity.gid.value(), {}};
  for (const Gid group : identity.groups) user.groups.push_back(sys::group_name(group));
  return user;
}

Result<Users::User> KnownUsers::find(Uid uid) {
  if (const auto known = known_.find(uid); known != known_.end()) return known->second;
  learn(uid, [] {});
  return fail(Error::Code::unavailable, "the user database was not asked for user {} yet", uid);
}

void KnownUsers::learn(Uid uid, std::function<void()> then) {
  if (const auto known = known_.find(uid); known != known_.end() && known->second) return then();
  const auto [waiting, first] = asking_.try_emplace(uid);
  waiting->second.push_back(std::move(then));
  if (!first) return;
  lanes_.post(uid, static_cast<std::int64_t>(uid.value()), [this, uid] {
    post_([this, uid, answer = ask_(uid)]() mutable { answered(uid, std::move(answer)); });
  });
}

void KnownUsers::answered(Uid uid, Result<User> answer) {
  known_.insert_or_assign(uid, std::move(answer));
  const auto waiting = asking_.extract(uid);
  for (const auto& then : waiting.mapped()) then();
}

}  // namespace aliquot::engine
