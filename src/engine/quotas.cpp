#include "engine/quotas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "core/placement.hpp"
#include "engine/accounts.hpp"
#include "engine/admission.hpp"

namespace aliquot::engine {
namespace {

using core::Ceiling;
using core::kMeasures;
using core::Measure;
using core::Tally;
using Words = core::PerMeasure<std::string_view>;

// In the order of Measure. What Slurm calls a partition's limit is that of a QOS of the
// partition's.
constexpr Words kQosUser{{"QOSMaxGRESPerUser", "QOSMaxCpuPerUserLimit", "QOSMaxMemoryPerUser",
                          "QOSMaxJobsPerUserLimit"}};
constexpr Words kQosGroup{{"QOSGrpGRES", "QOSGrpCpuLimit", "QOSGrpMemLimit", "QOSGrpJobsLimit"}};
constexpr Words kAssociationGroup{
    {"AssocGrpGRES", "AssocGrpCpuLimit", "AssocGrpMemLimit", "AssocGrpJobsLimit"}};
constexpr Words kAssociationUser{
    {"AssocGrpGRES", "AssocGrpCpuLimit", "AssocGrpMemLimit", "AssocMaxJobsLimit"}};
// Of one job alone; the last is its time.
constexpr Words kQosJob{{"QOSMaxGRESPerJob", "QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob",
                         "QOSMaxWallDurationPerJobLimit"}};
constexpr Words kAssociationJob{{"AssocMaxGRESPerJob", "AssocMaxCpuPerJobLimit",
                                 "AssocMaxMemPerJob", "AssocMaxWallDurationPerJobLimit"}};

Ceiling ceiling(const api::TresLimit& tres, const std::optional<std::int64_t>& jobs) {
  Ceiling most;
  most[Measure::gpus] = tres.gpus;
  if (tres.cpus) most[Measure::cpus] = *tres.cpus * kOneCpu.value();
  most[Measure::memory] = tres.memory;
  most[Measure::jobs] = jobs;
  return most;
}

bool is_empty(const Ceiling& most) {
  return std::ranges::none_of(most.all, [](const auto& one) { return one.has_value(); });
}

// The nearest association that limits one job, measure by measure.
Ceiling job_ceiling(const std::vector<const api::AssociationInfo*>& chain) {
  Ceiling most;
  for (const api::AssociationInfo* one : chain) {
    const Ceiling own = ceiling(one->max_tres, std::nullopt);
    for (std::size_t i = 0; i < kMeasures; ++i) {
      if (!most.all[i]) most.all[i] = own.all[i];
    }
  }
  return most;
}

std::string amount_text(Measure measure, std::int64_t amount) {
  switch (measure) {
    case Measure::gpus:
      return format_gpus(Compute(amount)) + (amount == kWholeGpu.value() ? " GPU" : " GPUs");
    case Measure::cpus: {
      const std::int64_t cpus = amount / kOneCpu.value();
      return fmt::format("{} CPU{}", cpus, cpus == 1 ? "" : "s");
    }
    case Measure::memory:
      return format_size(Bytes(amount)) + " of memory";
    case Measure::jobs:
      return fmt::format("{} job{}", amount, amount == 1 ? "" : "s");
  }
  return "";
}

std::string names_of(const std::vector<JobId>& jobs) {
  constexpr std::size_t kFew = 5;
  std::string text = jobs.size() == 1 ? "job " : "jobs ";
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const bool rest = i == kFew && jobs.size() > kFew + 1;
    if (i > 0) text += rest || i + 1 == jobs.size() ? " and " : ", ";
    if (rest) return text + fmt::format("{} more", jobs.size() - kFew);
    text += fmt::format("{}", jobs[i]);
  }
  return text;
}

}  // namespace

const std::vector<std::string_view>& limit_words() {
  static const std::vector<std::string_view> words = [] {
    std::vector<std::string_view> all;
    for (const Words& some :
         {kQosUser, kQosGroup, kAssociationGroup, kAssociationUser, kQosJob, kAssociationJob}) {
      for (const std::string_view word : some.all) {
        if (std::ranges::find(all, word) == all.end()) all.push_back(word);
      }
    }
    return all;
  }();
  return words;
}

std::string format_gpus(Compute gpus) {
  std::string text = fmt::format("{}.{:04}", gpus / kWholeGpu, gpus.value() % kWholeGpu.value());
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// Who holds a GPU's memory keeps others off it as who holds its compute does.
Compute held_part(const core::GrantedGpu& granted, const core::Node& node) {
  if (granted.whole) return kWholeGpu;
  const auto gpu = std::ranges::find(node.gpus, granted.gpu, &core::Gpu::id);
  return gpu == node.gpus.end() ? granted.portion.compute
                                : core::part_of_gpu(granted.portion, gpu->memory);
}

Tally wants_of(const Job& job, const core::Node& node) {
  Tally wants;
  wants[Measure::cpus] = job.request.cpus.value();
  wants[Measure::memory] = job.request.memory.value();
  wants[Measure::jobs] = 1;
  if (core::is_active(job.state)) {  // what it was granted, whatever that would be now
    wants[Measure::cpus] = job.cpus.value();
    wants[Measure::memory] = job.memory.value();
    for (const HeldGpu& gpu : job.gpus) {
      wants[Measure::gpus] += held_part(gpu.granted, node).value();
    }
    return wants;
  }
  if (!job.request.gpus || node.gpus.empty()) return wants;
  const auto each = core::portion_on(job.request.gpus->what, node, node.gpus.front());
  const bool whole = std::holds_alternative<core::WholeGpu>(job.request.gpus->what) || !each;
  const Compute part = whole ? kWholeGpu : core::part_of_gpu(*each, node.gpus.front().memory);
  wants[Measure::gpus] = (part * job.request.gpus->count).value();
  return wants;
}

Quotas::Quotas(const State& state) : state_(state) {
  for (const JobId id : state.ledger.jobs()) {
    const Job& job = state.jobs.at(id);
    const auto partition =
        std::ranges::find(state.settings.partitions, job.partition, &Partition::name);
    // One that has gone since has no limits of its own any more, nor those of another one's name.
    static const Partition gone{.name = ""};
    const core::Claim& held =
        claim(job, partition == state.settings.partitions.end() ? gone : *partition);
    limits_.take(held);
    running_.emplace_back(id, held);
    for (const std::size_t pot : held.pots) holders_[pot].push_back(id);
  }
}

std::size_t Quotas::pot(const Key& key, const Ceiling& most) {
  const auto [known, added] = numbers_.try_emplace(key, 0);
  if (added) {
    const bool qos = key.whose == Whose::qos || key.whose == Whose::partition;
    known->second = limits_.add({.most = most,
                                 .reasons = qos                               ? kQosGroup
                                            : key.whose == Whose::account     ? kAssociationGroup
                                            : key.whose == Whose::association ? kAssociationUser
                                                                              : kQosUser});
    keys_.push_back(key);
  }
  return known->second;
}

void Quotas::count_in(Group& group, const Key& key, const Ceiling& most) {
  if (is_empty(most)) return;
  const std::size_t number = pot(key, most);
  if (std::ranges::find(group.pots, number) == group.pots.end()) group.pots.push_back(number);
}

const Quotas::Group& Quotas::group_of(const Job& job, const Partition& partition) {
  const auto [known, added] =
      groups_.try_emplace({job.owner.uid, job.spec.account, job.spec.qos, partition.name}, Group{});
  Group& group = known->second;
  if (!added) return group;
  const std::string& user = job.owner.user;
  // What may be pushed aside is beyond what its user has: only its partition's QOS limits it.
  const bool spare = preempt_mode(state_.book, job, partition) != PreemptMode::off;
  bool own_gpus = spare;
  const auto* own_qos = qos_of(state_.book, job);
  for (const auto* qos : {own_qos, find_qos(state_.book, partition.qos)}) {
    if (qos == nullptr) continue;
    own_gpus = own_gpus || qos->max_tres_per_user.gpus;
    // GPUs by themselves: what may be pushed aside counts in all the others.
    Ceiling each = ceiling(qos->max_tres_per_user, qos->max_jobs_per_user);
    Ceiling gpus;
    std::swap(gpus[Measure::gpus], each[Measure::gpus]);
    if (!spare || qos->name == partition.qos) {
      count_in(group, {Whose::qos_user_gpus, qos->name, user}, gpus);
    }
    count_in(group, {Whose::qos_user, qos->name, user}, each);
    count_in(group, {Whose::qos, qos->name, ""}, ceiling(qos->grp_tres, qos->grp_jobs));
    group.alone.push_back({ceiling(qos->max_tres, std::nullopt), qos->max_wall_ms, qos->name});
  }
  // The settings' limit is for whom no QOS has one.
  if (!own_gpus && state_.settings.gpus_per_user) {
    Ceiling most;
    most[Measure::gpus] = state_.settings.gpus_per_user->value();
    count_in(group, {Whose::user, "", user}, most);
  }
  if (partition.gpu_count) {
    Ceiling most;
    most[Measure::gpus] = *partition.gpu_count * kWholeGpu.value();
    count_in(group, {Whose::partition, partition.name, ""}, most);
  }
  const auto chain = chain_of(state_.book, job.spec.account, user);
  // An account that nobody keeps is a label: another one gives nobody more.
  const bool kept = !chain.empty() && chain.front()->account == job.spec.account;
  Ceiling own;
  own[Measure::jobs] = nearest(chain, &api::AssociationInfo::max_jobs);
  if (!chain.empty() && !chain.front()->user.empty()) {
    const auto jobs = own[Measure::jobs];
    own = ceiling(chain.front()->grp_tres, chain.front()->grp_jobs);
    if (jobs) own[Measure::jobs] = std::min(own[Measure::jobs].value_or(*jobs), *jobs);
  }
  count_in(group, {Whose::association, kept ? job.spec.account : "", user}, own);
  for (const api::AssociationInfo* one : chain) {
    if (!one->user.empty()) continue;
    count_in(group, {Whose::account, one->account, ""}, ceiling(one->grp_tres, one->grp_jobs));
  }
  group.alone.push_back({job_ceiling(chain), nearest(chain, &api::AssociationInfo::max_wall_ms)});
  return group;
}

const core::Claim& Quotas::claim(const Job& job, const Partition& partition) {
  const Group& group = group_of(job, partition);
  claim_.wants = wants_of(job, state_.ledger.cluster().node(0));
  claim_.pots = group.pots;
  claim_.never = {};
  broken_ = {};
  for (const Alone& one : group.alone) {
    const Words& words = one.qos.empty() ? kAssociationJob : kQosJob;
    const auto measure = core::over(one.most, {}, claim_.wants);
    const bool longer = one.wall_ms && (!job.time_limit || job.time_limit->value() > *one.wall_ms);
    if (measure || longer) {
      claim_.never = words[measure.value_or(Measure::jobs)];
      broken_ = one;
      break;
    }
  }
  return claim_;
}

std::unique_ptr<core::Rules> Quotas::rules(const std::vector<core::QueueEntry>& queue,
                                           const Job* extra) {
  std::map<std::pair<JobId, std::uint32_t>, core::Claim> claims;
  for (const core::QueueEntry& entry : queue) {
    const bool is_extra = extra != nullptr && entry.job == extra->id;
    const auto [known, added] = claims.try_emplace({entry.job, entry.partition});
    if (!added) continue;
    known->second = claim(is_extra ? *extra : state_.jobs.at(entry.job),
                          state_.settings.partitions[entry.partition]);
  }
  auto rules = std::make_unique<core::LimitRules>(limits_);  // all pots are there by now
  for (auto& [key, one] : claims) rules->note(key.first, key.second, std::move(one));
  for (auto& [id, one] : running_) rules->runs(id, one);
  return rules;
}

std::string Quotas::who(const Key& key) const {
  switch (key.whose) {
    case Whose::user:
    case Whose::qos_user:
    case Whose::qos_user_gpus:
    case Whose::association:
      return key.user;
    case Whose::qos:
      return fmt::format("the jobs of QOS {}", key.name);
    case Whose::account:
      return fmt::format("the jobs of account {}", key.name);
    case Whose::partition:
      return fmt::format("the jobs of partition {}", key.name);
  }
  return "";
}

std::string Quotas::limit_text(const Key& key, const Ceiling& most, Measure measure) const {
  const std::string verb = measure == Measure::jobs ? "run" : "hold";
  const std::string amount = amount_text(measure, most[measure].value_or(0));
  switch (key.whose) {
    case Whose::user:
      return fmt::format("Each user may {} {} at once.", verb, amount);
    case Whose::qos_user:
    case Whose::qos_user_gpus:
      return fmt::format("QOS {} lets each user {} {} at once.", key.name, verb, amount);
    case Whose::association:
      return fmt::format("{} may {} {} at once{}.", key.user, verb, amount,
                         key.name.empty() ? "" : " in account " + key.name);
    default: {
      std::string text = fmt::format("{} may {} {} together.", who(key), verb, amount);
      text[0] = 'T';
      return text;
    }
  }
}

// Of one job alone.
std::vector<std::string> Quotas::never_sentences(const Job& job, const Partition& partition,
                                                 const core::Claim& claim) const {
  const bool qos = !broken_.qos.empty();
  const auto* own = qos_of(state_.book, job);
  const bool its_own = own != nullptr && own->name == broken_.qos;
  const std::string whose =
      !qos ? "its account"
           : fmt::format("{}, {},", its_own ? "its QOS" : "the QOS of its partition", broken_.qos);
  const auto most = max_wall(state_.book, job, partition.qos);
  if (most && broken_.wall_ms && claim.never.ends_with("WallDurationPerJobLimit")) {
    return {fmt::format("Its time limit is {}, and {} allows a job {}.",
                        format_time_limit({job.time_limit}, TimeStyle::squeue), whose,
                        format_time_limit({Millis(*broken_.wall_ms)}, TimeStyle::squeue)),
            fmt::format("It starts with a shorter one: 'scontrol update jobid={} timelimit={}'.",
                        job.id, format_time_limit({most}, TimeStyle::squeue))};
  }
  std::string asks;
  for (const Measure measure : {Measure::gpus, Measure::cpus, Measure::memory}) {
    if (claim.wants[measure] == 0) continue;
    asks += (asks.empty() ? "" : ", ") + amount_text(measure, claim.wants[measure]);
  }
  return {fmt::format("It asks for {}: more than {} allows one job.", asks, whose),
          fmt::format("'sacctmgr show {}' lists the limits: ask for less, or have them raised.",
                      qos ? "qos" : "assoc")};
}

std::vector<std::string> Quotas::sentences(const Job& job, const Partition& partition) {
  const core::Claim wanted = claim(job, partition);
  if (!wanted.never.empty()) return never_sentences(job, partition, wanted);
  const auto broken = limits_.broken_by(wanted);
  if (!broken) return {};
  const core::Pot& pot = limits_.pot(broken->pot);
  const Measure measure = broken->measure;
  const Key& key = keys_[broken->pot];
  std::vector<std::string> text{limit_text(key, pot.most, measure)};
  const std::int64_t wants = wanted.wants[measure];
  if (wants > *pot.most[measure]) {
    text.push_back(fmt::format("This job alone wants {}: ask for less, or have the limit raised.",
                               amount_text(measure, wants)));
    return text;
  }
  std::vector<JobId> holders;
  for (const JobId id : holders_[broken->pot]) {
    const Tally held = wants_of(state_.jobs.at(id), state_.ledger.cluster().node(0));
    if (held[measure] > 0) holders.push_back(id);
  }
  std::string whose = who(key);
  whose[0] = whose[0] == 't' && whose.starts_with("the ") ? 'T' : whose[0];
  text.push_back(measure == Measure::jobs
                     ? fmt::format("{} {} {} now: {}.", whose,
                                   whose.starts_with("The ") ? "are" : "runs",
                                   amount_text(measure, pot.held[measure]), names_of(holders))
                     : fmt::format("{} {} {} with {}, and this job wants {}.", whose,
                                   whose.starts_with("The ") ? "hold" : "holds",
                                   amount_text(measure, pot.held[measure]), names_of(holders),
                                   amount_text(measure, wants)));
  text.push_back("It can start when enough of them have ended.");
  return text;
}

}  // namespace aliquot::engine
