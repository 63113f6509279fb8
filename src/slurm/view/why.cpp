#include "slurm/view/why.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "core/array_spec.hpp"
#include "core/explain.hpp"
#include "core/ledger.hpp"
#include "core/placement.hpp"
#include "slurm/admin_comment.hpp"
#include "slurm/gres.hpp"
#include "slurm/job_state.hpp"
#include "slurm/sample_text.hpp"
#include "slurm/site_table.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::size_t kFewNodes = 6;

struct Phrase {
  std::string_view reason;
  std::string_view sentence;
};

constexpr auto kPhrases = std::to_array<Phrase>({
    {"Dependency", "It waits for other jobs (--dependency), not for room."},
    {"DependencyNeverSatisfied",
     "What it waits for (--dependency) cannot happen any more: cancel it."},
    {"BeginTime", "It is not to start before its time (--begin, or it was requeued)."},
    {"JobHeldUser", "It is held: 'scontrol release' lets it go, as its user or as root."},
    {"JobHeldAdmin", "It is held by an administrator, who alone can release it."},
    {"JobArrayTaskLimit", "As many of its array run as may run at once."},
    {"PartitionDown", "Its partition is down."},
    {"PartitionInactive", "Its partition is not active."},
    {"PartitionNodeLimit", "It wants more nodes than its partition gives to one job."},
    {"PartitionTimeLimit", "Its time limit is longer than its partition's."},
    {"PartitionConfig", "Its partition cannot hold it as it is configured."},
    {"Reservation", "It waits for its reservation to begin."},
    {"ReservationDeleted", "Its reservation is gone: cancel it, or give it another."},
    {"Licenses", "It waits for licenses."},
    {"InvalidAccount", "Its account may not run jobs here: ask the administrator."},
    {"InvalidQOS", "Its QOS may not be used here: ask the administrator."},
    {"BadConstraints", "What it asks for (--constraint, --nodelist) is nowhere."},
    {"JobLaunchFailure", "Starting it failed; it is held: 'scontrol release' tries again."},
    {"Cleaning", "It was requeued, and its last run is still being cleared away."},
});

// Whether another job holds something of what the limit counts; of the limits of an association,
// those of its parents included, any job.
bool shares_a_limit(const SlurmJob& job, const SlurmJob& other) {
  if (other.id == job.id || !holds_gpus(other.state)) return false;
  if (job.reason.find("PerUser") != job.reason.npos && other.uid != job.uid) return false;
  if (job.reason.find("PerAccount") != job.reason.npos && other.account != job.account)
    return false;
  return !job.reason.starts_with("QOS") || other.qos == job.qos || other.partition == job.partition;
}

// `QOSMaxGRESPerUser`, `AssocGrpGRES`, `QOSMaxBillingPerUser`: who limits whom.
std::string limit_sentence(const Snapshot& snapshot, const SlurmJob& job,
                           const std::string& too_much) {
  const std::string& reason = job.reason;
  const auto has = [&](std::string_view part) { return reason.find(part) != reason.npos; };
  const bool qos = reason.starts_with("QOS");
  if (!qos && !reason.starts_with("Assoc") && !reason.starts_with("Max")) return "";
  const auto who =
      qos ? fmt::format("QOS {}", quote(job.qos)) : fmt::format("account {}", quote(job.account));
  if (has("PerJob") || has("PerNode")) {
    return fmt::format("It wants more than its {} gives to one job ({}).", who, reason);
  }
  const std::string_view whose = has("PerUser") ? "one user" : "all its jobs together";
  if (!too_much.empty()) {
    return fmt::format("{} ({}): it can never start; ask for less.", too_much, reason);
  }
  // What has been used up in the past is another matter.
  const bool used_up = has("Minutes") || has("Submit");
  if (!used_up && std::ranges::none_of(snapshot.jobs, [&](const SlurmJob& other) {
        return shares_a_limit(job, other);
      })) {
    return fmt::format(
        "Its {} gives {} too little ({}), though nothing else of that is held now: by itself it "
        "wants more than it can ever get, or a job has just ended and Slurm has not looked again.",
        who, whose, reason);
  }
  return has("PerUser")
             ? fmt::format(
                   "Its user holds as much as its {} gives to one user ({}); it can start when "
                   "jobs of that user end.",
                   who, reason)
             : fmt::format("The jobs of its {} hold as much as they may together ({}).", who,
                           reason);
}

bool about_room(const SlurmJob& job) {
  return job.reason.empty() || job.reason == "None" || job.reason == "Resources" ||
         job.reason == "Priority" || job.reason == "ReqNodeNotAvail" || job.reason == "NodeDown";
}

std::int64_t node_count(const SlurmJob& job) {
  return std::max<std::int64_t>(1, tres_count(job.tres_requested, "node"));
}

// Whether the job could run there: its partitions, -w and -x.
bool is_asked_for(const SlurmJob& job, const SlurmNode& node) {
  if (std::ranges::count(job.excluded_nodes, node.name) > 0) return false;
  if (std::ssize(job.required_nodes) >= node_count(job) &&
      std::ranges::count(job.required_nodes, node.name) == 0) {
    return false;
  }
  for (const auto partition : split(job.partition, ',')) {
    if (std::ranges::find(node.partitions, partition) != node.partitions.end()) return true;
  }
  return false;
}

// The same, and reservations.
bool could_get(const SlurmJob& job, const Confines& confines, const SlurmNode& node) {
  return confines.allow(node.name) && is_asked_for(job, node);
}

// What slurmctld books, as the ledger that core explains from: shards are memory there, and compute
// plays no part, since the shards of a share cover both.
struct Books {
  core::Ledger ledger;
  std::vector<const SlurmNode*> closed;  // of its partition, with GPUs, taking no jobs
};

core::Node node_of(const SlurmNode& node, const SiteSettings& settings) {
  core::Node made{.id = NodeId(node.name),
                  .cpus = kOneCpu * node.cpus,
                  .memory = node.memory,
                  .gpus = {},
                  .compute_limit = settings.share.most_compute(node.partitions),
                  .mps_per_gpu = settings.share.mps_per_gpu,
                  .shards_per_gpu = settings.share.shards_per_gpu};
  for (const auto& gpu : gpus_of(node, settings)) {
    made.gpus.push_back({.id = GpuId(fmt::format("{}:{}", node.name, made.gpus.size())),
                         .model = gpu.model,
                         .memory = gpu.memory});
    // What the job booked is counted in these, whatever its user's own words count in.
    if (gpu.shards > 0) made.shards_per_gpu = gpu.shards;
  }
  return made;
}

void grant_job(core::Ledger& ledger, const SlurmJob& job, const SiteSettings& settings) {
  for (const auto& detail : job.details) {
    const auto place = ledger.cluster().find(detail.node);
    const auto held = parse_gres_detail(detail.gres);
    if (!place || !held) continue;
    const core::Node& node = ledger.cluster().node(*place);
    core::Use use{.node = *place, .cpus = CpuMilli(0), .memory = Bytes(0), .gpus = {}};
    for (const auto& item : *held) {
      for (const auto& [index, count] : item.on) {
        if (index < 0 || index >= std::ssize(node.gpus)) continue;
        const auto gpu = static_cast<core::GpuIndex>(index);
        const Bytes all = node.gpus[gpu].memory;
        const auto shards = shards_of(all, settings.share.unit);
        if (item.name == "gpu" || (item.name == "shard" && count >= shards)) {
          use.gpus.push_back({gpu, {all, node.compute_limit}, true});
        } else if (item.name == "shard") {
          use.gpus.push_back({gpu, {shard_memory(all, shards, count), Compute(0)}, false});
        }
      }
    }
    // A job on several nodes has one grant in the ledger: enough for the node that is looked at
    // first; the others are the same job's all the same.
    if (!use.gpus.empty() && ledger.find(JobId(job.id)) == nullptr) {
      static_cast<void>(ledger.grant(JobId(job.id), use));
    } else if (!use.gpus.empty()) {
      static_cast<void>(ledger.cluster().take(use));
    }
  }
}

Result<Books> open_books(const Snapshot& snapshot, const SiteSettings& settings,
                         const SlurmJob& job, const Confines& confines) {
  std::vector<core::Node> nodes;
  std::vector<const SlurmNode*> closed;
  std::vector<const SlurmNode*> open;
  for (const auto& node : snapshot.nodes) {
    if (!could_get(job, confines, node)) continue;
    if (takes_jobs(node)) {
      nodes.push_back(node_of(node, settings));
      open.push_back(&node);
    } else if (!gpus_of(node, settings).empty()) {
      closed.push_back(&node);
    }
  }
  Books books{core::Ledger(TRY(core::Cluster::create(std::move(nodes)))), std::move(closed)};
  for (std::size_t i = 0; i < open.size(); ++i) {
    core::Use cpus{.node = static_cast<core::NodeIndex>(i),
                   .cpus = kOneCpu * std::min(open[i]->cpus_allocated, open[i]->cpus),
                   .memory = Bytes(0),
                   .gpus = {}};
    static_cast<void>(books.ledger.cluster().take(cpus));
  }
  for (const auto& other : snapshot.jobs) {
    if (holds_gpus(other.state)) grant_job(books.ledger, other, settings);
  }
  return books;
}

// What slurmctld does not know.
void add_strangers(const SlurmNode& node, const SiteSettings& settings,
                   std::vector<std::string>& sentences) {
  for (const GpuLoad& gpu : parse_sample_text(node.extra).value_or(std::vector<GpuLoad>())) {
    const Bytes held = foreign_memory(gpu);
    if (held < settings.share.unit) continue;
    sentences.push_back(fmt::format(
        "Processes of no job hold {} MiB of gpu{} on {}: a share that does not fit beside them "
        "does not start there.",
        held / mib(1), gpu.index, node.name));
  }
}

// The GPUs that the job names itself (share.placement): `h200.1`; empty: none.
std::string named_slots(const SlurmJob& job, const SiteSettings& settings) {
  std::string slots;
  if (settings.share.placement != "aliquot") return slots;
  for (const auto entry : split(job.tres_per_node, ',')) {
    const auto parts = split(entry, ':');
    for (const auto part : parts) {
      if (model_of_slot(part) != part) slots += (slots.empty() ? "" : ", ") + std::string(part);
    }
  }
  return slots;
}

std::string id_text(const SlurmJob& job) {
  return job.array_task_id
             ? fmt::format("{}_{}", job.array_job_id.value_or(job.id), *job.array_task_id)
             : fmt::format("{}", job.id);
}

// The element of its array, or one of those that the record stands for while they wait.
bool stands_for(const SlurmJob& job, std::int64_t task) {
  if (job.array_task_id) return *job.array_task_id == task;
  const auto waiting = core::parse_array(job.array_tasks);
  return waiting && std::ranges::binary_search(waiting->tasks, task);
}

// Nodes that do not count, or alone do, for reservations.
std::vector<std::string> tell_confines(const Snapshot& snapshot, const SiteSettings& settings,
                                       const SlurmJob& job, const Confines& confines) {
  std::vector<std::string> sentences;
  if (confines.only) {
    sentences.push_back(fmt::format("Its reservation {} has {}: it can start nowhere else.",
                                    quote(job.reservation), fold_hostlist(*confines.only)));
  }
  std::map<std::string, std::vector<std::string>> kept;
  for (const auto& node : snapshot.nodes) {
    const auto found = confines.kept.find(node.name);
    if (found == confines.kept.end() || !is_asked_for(job, node)) continue;
    if (!gpus_of(node, settings).empty()) kept[found->second].push_back(node.name);
  }
  for (const auto& [reservation, nodes] : kept) {
    sentences.push_back(fmt::format("{} {} for the reservation {}, which it is not in.",
                                    fold_hostlist(nodes), nodes.size() == 1 ? "is" : "are",
                                    quote(reservation)));
  }
  return sentences;
}

// The GPUs, one by one; where one would do, what the job waits for instead.
std::vector<std::string> tell_room(const Snapshot& snapshot, const SiteSettings& settings,
                                   const SlurmJob& job) {
  const auto gpus = request_of(job, settings);
  const auto confines = confines_of(job, snapshot.reservations, snapshot.nodes);
  const auto books = open_books(snapshot, settings, job, confines);
  if (!books) return {};
  const auto nodes = std::max(node_count(job), std::ssize(job.required_nodes));
  const core::Request asked{
      .gpus = gpus, .cpus = kOneCpu * ((job.cpus + nodes - 1) / nodes), .memory = Bytes(0)};
  core::Request booked = asked;
  if (const auto shards = booked_of(job, "shard");
      shards && !std::holds_alternative<core::WholeGpu>(gpus ? gpus->what : core::WholeGpu{})) {
    booked.gpus->what = core::Tickets{core::Tickets::Kind::shard, *shards};
  }
  std::vector<std::string> sentences;
  const auto shape = books->ledger.cluster().shape(booked);
  if (!shape) return {shape.error().message + "."};
  const auto refusal = core::explain_refusal(books->ledger.cluster(), *shape);
  const auto wanted = static_cast<std::uint32_t>(gpus ? gpus->count : 0);
  const auto with_room = std::ranges::count_if(refusal.nodes, [&](const core::NodeRefusal& node) {
    return node.gpus_fitting >= wanted && node.cpus_missing == CpuMilli(0) && node.curable;
  });
  const auto slots = named_slots(job, settings);
  if (with_room >= nodes) {
    sentences.push_back(
        job.reason == "Priority"
            ? "There is room for it, but a job before it is waiting for that room."
        : job.reason == "ReqNodeNotAvail"
            ? "There is room for it, but not on the nodes it asks for, or not for as long as it "
              "wants."
        : !slots.empty()
            ? fmt::format("There is room for it, but not on the GPU that it names, {}, the least "
                          "held one when it was submitted: it waits for that.",
                          slots)
            : "There is room for it: Slurm starts it when it next looks at the queue.");
  } else {
    const auto around = tell_confines(snapshot, settings, job, confines);
    // What the other nodes can never hold, those of a reservation may, when that is over.
    const bool ever = std::ranges::any_of(refusal.nodes, &core::NodeRefusal::curable);
    if (ever || confines.only || around.empty()) {
      sentences = core::explain(books->ledger, asked, refusal).sentences;
    }
    sentences.insert(sentences.end(), around.begin(), around.end());
    if (nodes > 1) {
      sentences.push_back(
          fmt::format("It needs {} such nodes at once; {} would do now.", nodes, with_room));
    }
  }
  for (const auto& node : snapshot.nodes) {
    if (could_get(job, confines, node)) add_strangers(node, settings, sentences);
  }
  for (std::size_t i = 0; i < books->closed.size(); ++i) {
    if (i == kFewNodes) {
      sentences.push_back(fmt::format("{} more nodes take no jobs now.", books->closed.size() - i));
      break;
    }
    const auto& node = *books->closed[i];
    sentences.push_back(fmt::format("{} is {}{}.", node.name, node_state(node.state),
                                    node.reason.empty() ? "" : ": " + node.reason));
  }
  return sentences;
}

}  // namespace

std::string reason_sentence(const Snapshot& snapshot, const SlurmJob& job,
                            const std::string& too_much) {
  for (const auto& phrase : kPhrases) {
    if (phrase.reason == job.reason) return std::string(phrase.sentence);
  }
  if (auto limit = limit_sentence(snapshot, job, too_much); !limit.empty()) return limit;
  if (about_room(job)) return "";
  return fmt::format("Slurm's word for it is {}.", job.reason);
}

Result<SlurmJob> find_job(const Snapshot& snapshot, std::string_view id, std::uint32_t uid) {
  const SlurmJob* found = nullptr;
  if (id == "last") {
    for (const auto& job : snapshot.jobs) {
      if (job.uid == uid && (found == nullptr || job.id > found->id)) found = &job;
    }
    if (found == nullptr) return fail(Error::Code::not_found, "you have no job");
    return *found;
  }
  const auto low = id.find('_');
  const auto number = parse_digits(id.substr(0, low));
  auto task = low == id.npos ? std::nullopt : parse_digits(id.substr(low + 1));
  // 7_[1-3], as the queue shows those that wait.
  const bool several = low != id.npos && id.substr(low).starts_with("_[") && id.ends_with(']');
  if (several) {
    const auto tasks = core::parse_array(id.substr(low + 2, id.size() - low - 3));
    if (tasks) task = tasks->tasks.front();
  }
  if (!number || (low != id.npos && !task)) {
    return fail(Error::Code::invalid_argument, "{} is no job's id: write a number such as 7 or 7_3",
                quote(id));
  }
  const std::int64_t wanted = task.value_or(-1);  // GCC 12 does not see that it is there
  for (const auto& job : snapshot.jobs) {
    const bool element = task && job.array_job_id == *number && stands_for(job, wanted);
    const bool whole = !task && (job.id == *number || job.array_job_id == *number);
    // Of an array, the one that waits is the one that is asked about.
    if (element || (whole && (found == nullptr || (!is_waiting(*found) && is_waiting(job))))) {
      found = &job;
    }
  }
  if (found == nullptr) return fail(Error::Code::not_found, "Slurm knows no job {}", id);
  SlurmJob job = *found;
  if (task && !several) job.array_task_id = wanted;
  return job;
}

api::WhyInfo why_info(const Snapshot& snapshot, const SiteSettings& settings, const SlurmJob& job,
                      WallTime now, const std::string& too_much) {
  api::WhyInfo why{.job_id = job.id,
                   .state = job.state,
                   .reason = job.reason,
                   .sentences = {},
                   .earliest_start_ms = std::nullopt};
  if (!is_waiting(job)) {
    why.sentences.push_back(holds_gpus(job.state)
                                ? fmt::format("Job {} is {}{}.", id_text(job), job.state,
                                              job.nodes.empty() ? "" : " on " + job.nodes)
                                : fmt::format("Job {} is over: {}.", id_text(job), job.state));
    if (const auto node = remarked_on(job.admin_comment, Remark::broken_gpu)) {
      why.sentences.push_back(fmt::format(
          "A GPU that it held on {} broke: what ran there has to be started again.", *node));
    }
    if (const auto used = used_in(job.admin_comment)) {
      why.sentences.push_back(fmt::format(
          "It has used {}.{} s of GPU time and at most {} MiB.", used->gpu_time.value() / 1'000,
          used->gpu_time.value() % 1'000 / 100, used->memory_peak / mib(1)));
    }
    if (const auto node = remarked_on(job.admin_comment, Remark::escape)) {
      why.sentences.push_back(fmt::format(
          "A process of it on {} used the GPU outside of its share: without the environment that "
          "its step was given, or where the node does not load aliquot_spank.so.",
          *node));
    }
    return why;
  }
  const WallTime start(job.start_s * 1'000);
  if (start > now && !is_no_estimate(job)) why.earliest_start_ms = start.ms();
  if (auto sentence = reason_sentence(snapshot, job, too_much); !sentence.empty()) {
    why.sentences.push_back(std::move(sentence));
  }
  if (about_room(job)) {
    for (auto& sentence : tell_room(snapshot, settings, job)) {
      why.sentences.push_back(std::move(sentence));
    }
  }
  if (!job.state_desc.empty()) {
    why.sentences.push_back(fmt::format("Slurm says: {}.", job.state_desc));
  }
  return why;
}

}  // namespace aliquot::slurm
