// What administrators change: who may hold how much, which GPUs are whose, which there are, and
// what the settings say.
#include <fmt/format.h>

#include <algorithm>

#include "api/json.hpp"
#include "engine/walk/throw.hpp"
#include "engine/walk/world.hpp"

namespace aliquot::engine::walk {
namespace {

api::TresLimit some_tres(Throw& dice) {
  api::TresLimit most;
  if (dice.one_in(2)) most.gpus = 2'500 * (1 + dice.roll(10));
  if (dice.one_in(4)) most.cpus = 1 + dice.roll(16);
  if (dice.one_in(6)) most.memory = gib(1 + dice.roll(64)).value();
  return most;
}

std::optional<std::int64_t> some_count(Throw& dice, std::uint32_t most) {
  if (!dice.one_in(3)) return std::nullopt;
  return 1 + dice.roll(most);
}

void limit(api::QosInfo& qos, Throw& dice) {
  qos = {.name = qos.name};
  qos.max_tres_per_user = some_tres(dice);
  if (dice.one_in(2)) qos.grp_tres = some_tres(dice);
  if (dice.one_in(4)) qos.max_tres = some_tres(dice);
  if (dice.one_in(6)) qos.max_wall_ms = seconds(10 + dice.roll(100)).value();
  qos.max_jobs_per_user = some_count(dice, 4);
  qos.grp_jobs = some_count(dice, 6);
  constexpr std::array<const char*, 4> kModes{"", "", "CANCEL", "OFF"};
  qos.preempt_mode = dice.one_of(kModes);
  if (dice.one_in(3)) qos.grace_ms = seconds(dice.roll(30)).value();
}

void limit(api::AssociationInfo& one, Throw& dice) {
  if (dice.one_in(2)) one.grp_tres = some_tres(dice);
  if (dice.one_in(4)) one.max_tres = some_tres(dice);
  if (dice.one_in(6)) one.max_wall_ms = seconds(10 + dice.roll(100)).value();
  one.max_jobs = some_count(dice, 4);
  one.grp_jobs = some_count(dice, 6);
}

}  // namespace

// The QOS normal and sometimes high; sometimes the accounts lab and, below it, team, with two
// users.
void World::change_limits(Throw& dice, std::uint32_t uid) {
  api::AccountBook book = engine_->book();
  book.qos = {{.name = "normal"}, {.name = "high", .priority = 10}};
  if (dice.one_in(10)) book.qos.clear();
  for (api::QosInfo& qos : book.qos) limit(qos, dice);
  book.accounts = {{"root", "", ""}};
  book.users = {{"root", "root"}};
  book.associations = {{.account = "root", .qos = {"normal", "high"}},
                       {.account = "root", .user = "root"}};
  if (dice.one_in(2)) limit(book.associations.front(), dice);
  if (!dice.one_in(3)) {
    book.accounts.insert(book.accounts.end(), {{"lab", "", ""}, {"team", "", ""}});
    book.associations.push_back({.account = "lab", .parent = "root"});
    book.associations.push_back({.account = "team", .parent = "lab"});
    for (const char* user : {"u1000", "u1001"}) {
      book.users.push_back({user, "team"});
      book.associations.push_back({.account = "team", .user = user});
      if (dice.one_in(2)) book.associations.push_back({.account = "lab", .user = user});
    }
    for (api::AssociationInfo& one : book.associations) {
      if (one.account != "root" && dice.one_in(2)) limit(one, dice);
    }
  }
  ask(uid, "POST", "/v1/accounts", api::to_json(book));
}

void World::administer(Throw& dice, std::uint32_t uid) {
  switch (dice.roll(6)) {
    case 0:
    case 1:
      change_limits(dice, uid);
      break;
    case 2:
    case 3: {
      constexpr std::array<const char*, 3> kPeople{"u1000", "u1000", "u1001"};
      const api::ReservationSpec spec{.name = fmt::format("r{}", dice.roll(3)),
                                      .start_ms = (clock_.wall() + seconds(dice.roll(60))).ms(),
                                      .duration_ms = seconds(dice.roll(200)).value(),
                                      .users = std::vector<std::string>{dice.one_of(kPeople)},
                                      .gpus = std::vector<std::int64_t>{dice.roll(3)},
                                      .ignore_jobs = dice.one_in(2)};
      ask(uid, "POST", dice.one_in(4) ? "/v1/reservations/update" : "/v1/reservations/create",
          api::to_json(spec));
      break;
    }
    case 4:
      ask(uid, "POST", "/v1/reservations/delete", fmt::format(R"({{"name":"r{}"}})", dice.roll(3)));
      break;
    default: {
      const bool drain = dice.one_in(3);
      const std::int64_t gpu = dice.roll(4);
      ask(uid, "POST", drain ? "/v1/node/drain" : "/v1/node/resume",
          fmt::format(R"({{"reason":"x","gpus":[{}],"down":{}}})", gpu, dice.one_in(2)));
      if (uid != 0) return;
      if (drain) {
        drained_.insert(gpu);
      } else {
        drained_.erase(gpu);
      }
    }
  }
}

// As SIGHUP does.
void World::change_settings(Throw& dice) {
  settings_.partitions = usual_partitions();
  Partition& main = settings_.partitions[0];
  Partition& spare = settings_.partitions[1];
  constexpr std::array kModes{PreemptMode::requeue, PreemptMode::requeue, PreemptMode::cancel,
                              PreemptMode::off};
  spare.preempt = dice.one_of(kModes);
  if (dice.one_in(2)) spare.grace = seconds(dice.roll(30));
  if (dice.one_in(3)) spare.qos = "high";
  if (dice.one_in(4)) main.gpus = {0, 1};
  if (dice.one_in(4)) main.gpu_count = 1 + dice.roll(3);
  if (dice.one_in(6)) main.max_time = {seconds(50)};
  settings_.gpus_per_user.reset();
  if (dice.one_in(3)) settings_.gpus_per_user = Compute(2'500 * (1 + dice.roll(12)));
  told(
      fmt::format("the settings are read anew: besteffort {}, grace {} ms, QOS '{}'; main has {} "
                  "GPUs; {} for each user",
                  to_string(spare.preempt), spare.grace, spare.qos, main.gpu_count.value_or(-1),
                  settings_.gpus_per_user.value_or(Compute(-1))));
  engine_->reload(settings_);
}

// Under which account the job is shown.
std::string World::account_of(const api::JobSpec& spec, std::uint32_t uid) const {
  const std::string user = fmt::format("u{}", uid);
  if (!spec.account.empty()) return spec.account;
  const api::AccountBook& book = engine_->book();
  const auto known = std::ranges::find(book.users, user, &api::AccountUserInfo::name);
  return book.accounts.size() > 1 && known != book.users.end() ? known->default_account : user;
}

}  // namespace aliquot::engine::walk
