// What starts keeps every limit that there is at that instant: of its QOS, its partition's, its
// association and the accounts above it, the settings', of partitions and reservations, and no GPU
// out of service. Counted from the jobs themselves, after sacctmgr(1) and docs/engine.md.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "engine/walk/world.hpp"

namespace aliquot::engine::walk {
namespace {

constexpr std::int64_t kGpu = 10'000;
constexpr std::int64_t kGpuMemory = gib(100).value();  // of each of this machine's

// The account and those above it. One that nobody keeps is a label: then the root's count.
std::vector<std::string> accounts_above(const api::AccountBook& book, const std::string& account) {
  const auto find = [&](const std::string& name) {
    return std::ranges::find_if(book.associations, [&](const api::AssociationInfo& one) {
      return one.account == name && one.user.empty();
    });
  };
  std::vector<std::string> above;
  auto at = find(account);
  if (at == book.associations.end()) at = find("root");
  while (at != book.associations.end()) {
    above.push_back(at->account);
    at = at->parent.empty() ? book.associations.end() : find(at->parent);
  }
  return above;
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::ranges::find(all, one) != all.end();
}

using Holding = std::map<JobId, Held>;
using Counts = std::function<bool(const Held&)>;

class LimitCheck {
 public:
  LimitCheck(const api::AccountBook& book, const Settings& settings, const Holding& holding,
             const Job& job)
      : book_(book), settings_(settings), holding_(holding), job_(job), mine_(holding.at(job.id)) {}

  void check() const {
    const Partition* partition = find(mine_);
    if (partition == nullptr) throw Violation(fmt::format("job {} is in no partition", job_.id));
    if (!partition->up) throw Violation(fmt::format("job {} starts in what is down", job_.id));
    if (!partition->max_time.unlimited()) {
      check_alone("its partition", {}, partition->max_time.length->value());
    }
    if (partition->gpu_count) {
      check_gpus("a partition", *partition->gpu_count * kGpu,
                 [&](const Held& held) { return held.partition == mine_.partition; });
    }
    for (const api::QosInfo& qos : book_.qos) {
      if (qos.name == mine_.qos || qos.name == partition->qos) check_qos(qos);
    }
    if (settings_.gpus_per_user) {
      const auto counts = [&](const Held& held) {
        return held.user == mine_.user && !is_spare(held) && !has_own_gpus(held);
      };
      if (counts(mine_)) check_gpus("a user", settings_.gpus_per_user->value(), counts);
    }
    check_associations();
  }

 private:
  void check_sum(const std::string& limit, const std::optional<std::int64_t>& most,
                 std::int64_t Held::*amount, const Counts& counts) const {
    if (!most || mine_.*amount == 0) return;
    std::int64_t sum = 0;
    for (const auto& [id, held] : holding_) {
      if (counts(held)) sum += held.*amount;
    }
    if (sum <= *most) return;
    throw Violation(fmt::format("job {} starts, and {}: {} of {}", job_.id, limit, sum, *most));
  }
  void check_gpus(const std::string& whose, const std::optional<std::int64_t>& most,
                  const Counts& counts) const {
    check_sum("GPUs of " + whose, most, &Held::gpus, counts);
  }
  void check_others(const std::string& whose, const api::TresLimit& most,
                    const std::optional<std::int64_t>& jobs, const Counts& counts) const {
    check_sum("CPUs of " + whose, most.cpus, &Held::cpus, counts);
    check_sum("memory of " + whose, most.memory, &Held::memory, counts);
    check_sum("jobs of " + whose, jobs, &Held::jobs, counts);
  }
  void check_alone(const std::string& whose, const api::TresLimit& most,
                   const std::optional<std::int64_t>& wall_ms) const {
    const bool fits = mine_.gpus <= most.gpus.value_or(INT64_MAX) &&
                      mine_.cpus <= most.cpus.value_or(INT64_MAX) &&
                      mine_.memory <= most.memory.value_or(INT64_MAX);
    if (!fits) throw Violation(fmt::format("job {} is more than {} allows one", job_.id, whose));
    if (wall_ms && (!job_.time_limit || job_.time_limit->value() > *wall_ms)) {
      throw Violation(fmt::format("job {} is longer than {} allows one", job_.id, whose));
    }
  }

  void check_qos(const api::QosInfo& qos) const {
    const auto in_qos = [&](const Held& held) {
      return held.qos == qos.name || qos_of_partition(held) == qos.name;
    };
    const auto users = [&](const Held& held) { return in_qos(held) && held.user == mine_.user; };
    // What may be pushed aside is beyond the GPUs of its user, unless its partition's QOS says.
    const auto users_gpus = [&](const Held& held) {
      return users(held) && (!is_spare(held) || qos_of_partition(held) == qos.name);
    };
    const std::string user = "a user in QOS " + qos.name;
    const std::string all = "QOS " + qos.name;
    if (users_gpus(mine_)) check_gpus(user, qos.max_tres_per_user.gpus, users_gpus);
    check_others(user, qos.max_tres_per_user, qos.max_jobs_per_user, users);
    check_gpus(all, qos.grp_tres.gpus, in_qos);
    check_others(all, qos.grp_tres, qos.grp_jobs, in_qos);
    check_alone(all, qos.max_tres, qos.max_wall_ms);
  }

  // The nearest association says what one job and one user may; each says what all below it may.
  void check_associations() const {
    std::optional<std::int64_t> jobs;
    std::optional<std::int64_t> wall_ms;
    api::TresLimit alone;
    const auto nearest = [](auto& known, const auto& next) {
      if (!known) known = next;
    };
    const auto look = [&](const std::string& account, const std::string& user) {
      const auto one = std::ranges::find_if(book_.associations, [&](const auto& other) {
        return other.account == account && other.user == user;
      });
      if (one == book_.associations.end()) return;
      nearest(jobs, one->max_jobs);
      nearest(wall_ms, one->max_wall_ms);
      nearest(alone.gpus, one->max_tres.gpus);
      nearest(alone.cpus, one->max_tres.cpus);
      nearest(alone.memory, one->max_tres.memory);
      const std::string whose = fmt::format("{} in {}", user, account);
      const auto below = [&](const Held& held) {
        return contains(held.accounts, account) &&
               (user.empty() || (held.user == user && held.accounts.front() == account));
      };
      check_gpus(whose, one->grp_tres.gpus, below);
      check_others(whose, one->grp_tres, one->grp_jobs, below);
    };
    if (mine_.in_book) look(mine_.accounts.front(), mine_.user);
    for (const std::string& account : mine_.accounts) look(account, "");
    check_alone("its association", alone, wall_ms);
    check_others(mine_.user + " in one account", {}, jobs, [&](const Held& held) {
      return held.user == mine_.user && held.accounts.front() == mine_.accounts.front();
    });
  }

  [[nodiscard]] const Partition* find(const Held& held) const {
    const auto& all = settings_.partitions;
    const auto found = std::ranges::find(all, held.partition, &Partition::name);
    return found == all.end() ? nullptr : &*found;
  }
  [[nodiscard]] bool is_spare(const Held& held) const {
    const auto qos = std::ranges::find(book_.qos, held.qos, &api::QosInfo::name);
    if (qos != book_.qos.end() && !qos->preempt_mode.empty()) return qos->preempt_mode != "OFF";
    const Partition* partition = find(held);
    return partition != nullptr && partition->preempt != PreemptMode::off;
  }
  [[nodiscard]] std::string qos_of_partition(const Held& held) const {
    const Partition* partition = find(held);
    return partition == nullptr ? "" : partition->qos;
  }
  [[nodiscard]] bool has_own_gpus(const Held& held) const {
    return std::ranges::any_of(book_.qos, [&](const api::QosInfo& qos) {
      return qos.max_tres_per_user.gpus &&
             (qos.name == held.qos || qos.name == qos_of_partition(held));
    });
  }

  const api::AccountBook& book_;
  const Settings& settings_;
  const Holding& holding_;
  const Job& job_;
  const Held& mine_;
};

}  // namespace

Held World::held_by(const Job& job) const {
  Held held{.user = fmt::format("u{}", job.owner.uid),
            .account = job.spec.account,
            .qos = job.spec.qos.empty() ? "normal" : job.spec.qos,
            .partition = job.partition,
            .cpus = job.cpus / kOneCpu,
            .memory = job.memory.value()};
  for (const HeldGpu& gpu : job.gpus) {
    // The larger part, of memory or of compute, in 1/10,000 and rounded up.
    const auto& portion = gpu.granted.portion;
    const auto memory = (portion.memory.value() * kGpu + kGpuMemory - 1) / kGpuMemory;
    held.gpus += gpu.granted.whole ? kGpu : std::max(memory, portion.compute.value());
  }
  return held;
}

void World::check_start(const Job& job) {
  if (engine_ == nullptr) throw Violation(fmt::format("job {} starts too early", job.id));
  holding_[job.id] = held_by(job);
  for (auto& [id, held] : holding_) {  // the book may have changed since they started
    held.accounts = accounts_above(engine_->book(), held.account);
    held.in_book = !held.accounts.empty() && held.accounts.front() == held.account;
  }
  LimitCheck(engine_->book(), engine_->settings(), holding_, job).check();
  check_gpus(job);
}

// GPUs out of service, of other partitions, and in reservations.
void World::check_gpus(const Job& job) {
  if (machine_drained_) throw Violation(fmt::format("job {} starts on a drained node", job.id));
  const std::int64_t now = clock_.wall().ms();
  const auto over_by = [&](std::int64_t then) {
    return job.time_limit && now + job.time_limit->value() <= then;
  };
  const std::string& own = job.spec.reservation;
  const api::ReservationInfo* mine = nullptr;
  for (const api::ReservationInfo& one : engine_->reservations()) {
    if (!own.empty() && one.name == own) mine = &one;
  }
  if (!own.empty()) {
    const bool open = mine != nullptr && mine->start_ms <= now && over_by(mine->end_ms);
    if (!open) throw Violation(fmt::format("job {} starts beyond its reservation", job.id));
    const bool may = job.owner.uid == Uid(0) ||
                     contains(mine->users, fmt::format("u{}", job.owner.uid)) ||
                     contains(mine->accounts, job.spec.account);
    if (!may) throw Violation(fmt::format("job {} is in another's reservation", job.id));
  }
  const auto& all = engine_->settings().partitions;
  const auto& gpus = std::ranges::find(all, job.partition, &Partition::name)->gpus;
  for (const HeldGpu& held : job.gpus) {
    if (drained_.contains(held.index)) {
      throw Violation(fmt::format("job {} starts on the drained GPU {}", job.id, held.index));
    }
    if (!gpus.empty() && std::ranges::find(gpus, held.index) == gpus.end()) {
      throw Violation(fmt::format("job {} has a GPU of another partition", job.id));
    }
    const auto has = [&](const api::ReservationInfo& one) {
      return std::ranges::find(one.gpus, held.index) != one.gpus.end();
    };
    if (mine != nullptr && !has(*mine)) {
      throw Violation(fmt::format("job {} has a GPU outside of its reservation", job.id));
    }
    for (const api::ReservationInfo& one : engine_->reservations()) {
      if (&one == mine || !has(one) || one.end_ms <= now || over_by(one.start_ms)) continue;
      throw Violation(
          fmt::format("job {} starts on GPU {}, reserved for {}", job.id, held.index, one.name));
    }
  }
}

}  // namespace aliquot::engine::walk
