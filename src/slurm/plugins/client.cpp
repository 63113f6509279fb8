#include "slurm/plugins/client.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <array>
#include <string>
#include <vector>

#include "slurm/plugins/job_number.hpp"

// In libslurm, though not in its headers.
extern "C" void slurm_xfree(void** item) __attribute__((weak));

namespace {

using aliquot::slurm_plugin::JobNumber;

std::string last_error;

int failed(const char* what) {
  const int error = errno;
  last_error = std::string(what) + ": " + slurm_strerror(error);
  return error == ESLURM_INVALID_JOB_ID ? 1 : -1;
}

const char* text(const char* value) { return value == nullptr ? "" : value; }

// Not in Slurm's headers, and renamed between its versions.
using Namer = char* (*)(uint32_t);
Namer namer(const char* name, const char* other) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, other);
  return reinterpret_cast<Namer>(found);
}

std::string job_state(uint32_t state) {
  static const Namer name = namer("slurm_job_state_string", "job_state_string");
  return name == nullptr ? std::to_string(state) : text(name(state));
}

std::string job_reason(uint32_t reason) {
  static const Namer name = namer("slurm_job_reason_string", "slurm_job_state_reason_string");
  return name == nullptr ? std::to_string(reason) : text(name(reason));
}

std::string node_state(uint32_t state) {
  static const Namer name = namer("slurm_node_state_string", "node_state_string");
  return name == nullptr ? std::to_string(state) : text(name(state));
}

std::vector<std::string> expand(const char* nodes) {
  std::vector<std::string> names;
  if (*text(nodes) == '\0') return names;
  auto* list = slurm_hostlist_create(nodes);
  if (list == nullptr) return names;
  while (char* host = slurm_hostlist_shift(list)) {
    names.emplace_back(host);
    free(host);
  }
  slurm_hostlist_destroy(list);
  return names;
}

std::string expanded(const char* nodes) {
  std::string all;
  for (const std::string& name : expand(nodes)) all += (all.empty() ? "" : ",") + name;
  return all;
}

void show(const slurm_job_info_t& job, aliquot_slurm_job_visitor visit, void* data) {
  const std::string state = job_state(job.job_state);
  const std::string reason = job_reason(job.state_reason);
  std::vector<std::string> names;
  std::vector<const char*> detail_nodes, detail_gres;
  if (job.gres_detail_cnt > 0) names = expand(job.nodes);
  for (uint32_t i = 0; i < job.gres_detail_cnt && i < names.size(); ++i) {
    detail_nodes.push_back(names[i].c_str());
    detail_gres.push_back(text(job.gres_detail_str[i]));
  }
  const std::string required = expanded(job.req_nodes);
  const std::string excluded = expanded(job.exc_nodes);
  aliquot_slurm_job shown{};
  shown.id = job.job_id;
  shown.array_job_id = job.array_job_id;
  shown.array_task_id = job.array_task_id == NO_VAL ? -1 : static_cast<int64_t>(job.array_task_id);
  shown.array_tasks = text(job.array_task_str);
  shown.uid = job.user_id;
  shown.gid = job.group_id;
  shown.submit = job.submit_time;
  shown.start = job.start_time;
  shown.end = job.end_time;
  shown.time_limit_minutes = job.time_limit == INFINITE || job.time_limit == NO_VAL
                                 ? -1
                                 : static_cast<int64_t>(job.time_limit);
  shown.priority = job.priority;
  shown.tasks = job.num_tasks == NO_VAL ? 1 : static_cast<int64_t>(job.num_tasks);
  shown.cpus = job.num_cpus;
  shown.restarts = job.restart_cnt;
  shown.exit_status = job.exit_code;
  shown.name = text(job.name);
  shown.account = text(job.account);
  shown.partition = text(job.partition);
  shown.qos = text(job.qos);
  shown.state = state.c_str();
  shown.reason = reason.c_str();
  shown.state_desc = text(job.state_desc);
  shown.tres_per_node = text(job.tres_per_node);
  shown.tres_requested = text(job.tres_req_str);
  shown.admin_comment = text(job.admin_comment);
  shown.comment = text(job.comment);
  shown.command = text(job.command);
  shown.work_dir = text(job.work_dir);
  // As slurmctld has them these are patterns, or nothing for the usual name.
  std::array<char, PATH_MAX> std_out{}, std_err{};
  if (job.batch_flag != 0) {
    auto* own = const_cast<slurm_job_info_t*>(&job);
    slurm_get_job_stdout(std_out.data(), static_cast<int>(std_out.size()), own);
    slurm_get_job_stderr(std_err.data(), static_cast<int>(std_err.size()), own);
  }
  shown.std_out = std_out.data();
  shown.std_err = std_err.data();
  shown.exclusive = job.shared == JOB_SHARED_NONE ? 1 : 0;
  shown.nodes = text(job.nodes);
  shown.required_nodes = required.c_str();
  shown.excluded_nodes = excluded.c_str();
  shown.details = detail_nodes.size();
  shown.detail_nodes = detail_nodes.data();
  shown.detail_gres = detail_gres.data();
  visit(&shown, data);
}

void show_all(job_info_msg_t* message, aliquot_slurm_job_visitor visit, void* data) {
  for (uint32_t i = 0; i < message->record_count; ++i) {
    show(message->job_array[i], visit, data);
    // 22.05 forgets this one when it frees the others.
    if (slurm_xfree != nullptr) {
      slurm_xfree(reinterpret_cast<void**>(&message->job_array[i].admin_comment));
    }
  }
  slurm_free_job_info_msg(message);
}

// What the jobs of a node take is only in its select data, which every version packs anew; the
// number of CPUs is asked for by an item that all have.
int64_t allocated(const node_info_t& node, uint32_t item) {
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
  uint64_t wide = 0;
  uint16_t narrow = 0;
  void* out = item == SELECT_NODEDATA_MEM_ALLOC ? static_cast<void*>(&wide) : &narrow;
  if (slurm_get_select_nodeinfo(node.select_nodeinfo, static_cast<select_nodedata_type>(item),
                                NODE_STATE_ALLOCATED, out) != SLURM_SUCCESS) {
    return 0;
  }
  return item == SELECT_NODEDATA_MEM_ALLOC ? static_cast<int64_t>(wide) : narrow;
#else
  return item == 0 ? static_cast<int64_t>(node.alloc_cpus)
                   : static_cast<int64_t>(node.alloc_memory);
#endif
}

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
constexpr uint32_t kCpus = SELECT_NODEDATA_SUBCNT;
constexpr uint32_t kMemory = SELECT_NODEDATA_MEM_ALLOC;
#else
constexpr uint32_t kCpus = 0;
constexpr uint32_t kMemory = 1;
#endif

void show_nodes(node_info_msg_t* message, aliquot_slurm_node_visitor visit, void* data) {
  for (uint32_t i = 0; i < message->record_count; ++i) {
    const node_info_t& node = message->node_array[i];
    if (node.name == nullptr) continue;
    const std::string state = node_state(node.node_state);
    const aliquot_slurm_node shown{.name = node.name,
                                   .state = state.c_str(),
                                   .gres = text(node.gres),
                                   .extra = text(node.extra),
                                   .reason = text(node.reason),
                                   .partitions = text(node.partitions),
                                   .weight = node.weight,
                                   .cpus = node.cpus,
                                   .cpus_allocated = allocated(node, kCpus),
                                   .memory_mib = static_cast<int64_t>(node.real_memory),
                                   .memory_allocated_mib = allocated(node, kMemory)};
    visit(&shown, data);
    // 22.05 forgets this one when it frees the rest; what is null is not freed twice.
    if (slurm_xfree != nullptr) {
      slurm_xfree(reinterpret_cast<void**>(&message->node_array[i].extra));
    }
  }
  slurm_free_node_info_msg(message);
}

}  // namespace

int aliquot_slurm_abi(void) { return ALIQUOT_SLURM_ABI; }

void aliquot_slurm_start(const char* conf) { slurm_init(conf); }

const char* aliquot_slurm_version(void) {
  static std::string version;
  if (version.empty()) {
    // Not slurm_api_version(), which counts by itself: 38 for 22.05.
    const long number = SLURM_VERSION_NUMBER;
    const auto part = [&](long at) { return std::to_string((number >> at) & 0xff); };
    const std::string minor = part(8);
    version = part(16) + "." + (minor.size() < 2 ? "0" : "") + minor + "." + part(0);
  }
  return version.c_str();
}

const char* aliquot_slurm_error(void) { return last_error.c_str(); }

int aliquot_slurm_find_job(uint32_t id, aliquot_slurm_job_visitor visit, void* data) {
  job_info_msg_t* message = nullptr;
  if (slurm_load_job(&message, JobNumber{id}, SHOW_DETAIL) != SLURM_SUCCESS) {
    return failed("Slurm does not show the job");
  }
  if (message->record_count == 0) {
    slurm_free_job_info_msg(message);
    return 1;
  }
  show_all(message, visit, data);
  return 0;
}

int aliquot_slurm_each_job(aliquot_slurm_job_visitor visit, void* data) {
  job_info_msg_t* message = nullptr;
  if (slurm_load_jobs(0, &message, SHOW_ALL | SHOW_DETAIL) != SLURM_SUCCESS) {
    return failed("Slurm does not list its jobs");
  }
  show_all(message, visit, data);
  return 0;
}

int aliquot_slurm_each_node(aliquot_slurm_node_visitor visit, void* data) {
  node_info_msg_t* message = nullptr;
  partition_info_msg_t* partitions = nullptr;
  if (slurm_load_node(0, &message, SHOW_ALL | SHOW_DETAIL) != SLURM_SUCCESS) {
    return failed("Slurm does not list its nodes");
  }
  // Slurm's own commands do this to learn which states a node is in, and in which partitions.
  if (slurm_load_partitions(0, &partitions, SHOW_ALL) == SLURM_SUCCESS) {
    slurm_populate_node_partitions(message, partitions);
    slurm_free_partition_info_msg(partitions);
  }
  show_nodes(message, visit, data);
  return 0;
}

int aliquot_slurm_find_node(const char* name, aliquot_slurm_node_visitor visit, void* data) {
  node_info_msg_t* message = nullptr;
  std::string copy = name;
  if (slurm_load_node_single(&message, copy.data(), SHOW_ALL | SHOW_DETAIL) != SLURM_SUCCESS) {
    return failed("Slurm does not show the node");
  }
  const bool none = message->record_count == 0;
  show_nodes(message, visit, data);
  return none ? 1 : 0;
}

int aliquot_slurm_each_partition(aliquot_slurm_partition_visitor visit, void* data) {
  partition_info_msg_t* message = nullptr;
  if (slurm_load_partitions(0, &message, SHOW_ALL) != SLURM_SUCCESS) {
    return failed("Slurm does not list its partitions");
  }
  for (uint32_t i = 0; i < message->record_count; ++i) {
    const partition_info_t& partition = message->partition_array[i];
    const aliquot_slurm_partition shown{
        .name = text(partition.name),
        .billing_weights = text(partition.billing_weights_str),
        .qos = text(partition.qos_char),
        .is_default = (partition.flags & PART_FLAG_DEFAULT) != 0 ? 1 : 0,
        .up = partition.state_up == PARTITION_UP ? 1 : 0};
    visit(&shown, data);
  }
  slurm_free_partition_info_msg(message);
  return 0;
}

int aliquot_slurm_update_nodes(const char* names, const uint32_t* weight, const char* extra) {
  update_node_msg_t message;
  slurm_init_update_node_msg(&message);
  std::string name_copy = names;
  std::string extra_copy = text(extra);
  message.node_names = name_copy.data();
  if (weight != nullptr) message.weight = *weight;
  if (extra != nullptr) message.extra = extra_copy.data();
  if (slurm_update_node(&message) != SLURM_SUCCESS) return failed("Slurm does not change the node");
  return 0;
}

int aliquot_slurm_drain_node(const char* name, const char* reason) {
  update_node_msg_t message;
  slurm_init_update_node_msg(&message);
  std::string name_copy = name;
  std::string reason_copy = reason;
  message.node_names = name_copy.data();
  message.node_state = NODE_STATE_DRAIN;
  message.reason = reason_copy.data();
  if (slurm_update_node(&message) != SLURM_SUCCESS) return failed("Slurm does not drain the node");
  return 0;
}

int aliquot_slurm_undrain_node(const char* name) {
  update_node_msg_t message;
  slurm_init_update_node_msg(&message);
  std::string copy = name;
  message.node_names = copy.data();
  message.node_state = NODE_STATE_UNDRAIN;
  if (slurm_update_node(&message) != SLURM_SUCCESS)
    return failed("Slurm does not undrain the node");
  return 0;
}

int aliquot_slurm_set_admin_comment(uint32_t job, const char* comment) {
  job_desc_msg_t message;
  slurm_init_job_desc_msg(&message);
  std::string copy = comment;
  aliquot::slurm_plugin::set_job_number(&message, job);
  message.admin_comment = copy.data();
  if (slurm_update_job(&message) != SLURM_SUCCESS) return failed("Slurm does not change the job");
  return 0;
}
