/* What the daemons need of libslurm, behind a plain C interface: aliquot_slurm.so is built once for
 * each Slurm major (libslurm changes its structures with each), everything else of ours once for
 * all of them. Loaded by slurm/client.cpp.
 *
 * Texts are never null and belong to the library; they live until the visitor returns. Times are
 * seconds since the epoch, 0: none. Not for several threads at once.
 */
#ifndef ALIQUOT_SLURM_CLIENT_H
#define ALIQUOT_SLURM_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALIQUOT_SLURM_ABI 5

struct aliquot_slurm_job {
  int64_t id;
  int64_t array_job_id;    /* 0: none */
  int64_t array_task_id;   /* -1: none */
  const char* array_tasks; /* of the record that stands for elements that wait: 4-40%3 */
  uint32_t uid, gid;
  int64_t submit, start, end;
  int64_t time_limit_minutes; /* -1: none */
  int64_t priority;
  int64_t tasks, cpus;
  int64_t restarts;
  int64_t exit_status; /* as wait() has it */
  const char *name, *account, *partition, *qos;
  const char *state, *reason, *state_desc;
  const char *tres_per_node, *tres_requested;
  const char *admin_comment, *comment;
  const char *command, *work_dir, *std_out, *std_err;
  int exclusive;                               /* it takes its nodes whole */
  const char* nodes;                           /* n[1-4] */
  const char *required_nodes, *excluded_nodes; /* one by one: n1,n2 */
  size_t details;                              /* of the nodes, one by one */
  const char* const* detail_nodes;
  const char* const* detail_gres; /* gpu:h200:1(IDX:2) */
};

struct aliquot_slurm_node {
  const char *name, *state, *gres, *extra, *reason, *partitions;
  uint32_t weight;
  int64_t cpus, cpus_allocated;
  int64_t memory_mib, memory_allocated_mib;
};

struct aliquot_slurm_partition {
  const char *name, *billing_weights, *qos;
  int is_default, up;
};

typedef void (*aliquot_slurm_job_visitor)(const struct aliquot_slurm_job*, void*);
typedef void (*aliquot_slurm_node_visitor)(const struct aliquot_slurm_node*, void*);
typedef void (*aliquot_slurm_partition_visitor)(const struct aliquot_slurm_partition*, void*);

/* 0; 1: there is no such thing; -1: aliquot_slurm_error() says why. */
int aliquot_slurm_abi(void);
void aliquot_slurm_start(const char* conf); /* null: as Slurm's own commands find it */
const char* aliquot_slurm_version(void);    /* "22.05.8" */
const char* aliquot_slurm_error(void);
int aliquot_slurm_find_job(uint32_t id, aliquot_slurm_job_visitor visit, void* data);
int aliquot_slurm_each_job(aliquot_slurm_job_visitor visit, void* data);
int aliquot_slurm_find_node(const char* name, aliquot_slurm_node_visitor visit, void* data);
int aliquot_slurm_each_node(aliquot_slurm_node_visitor visit, void* data);
int aliquot_slurm_each_partition(aliquot_slurm_partition_visitor visit, void* data);
/* names: a list of hosts. What is null stays as it is. */
int aliquot_slurm_update_nodes(const char* names, const uint32_t* weight, const char* extra);
int aliquot_slurm_drain_node(const char* name, const char* reason);
int aliquot_slurm_undrain_node(const char* name); /* whatever else it is stays */
int aliquot_slurm_set_admin_comment(uint32_t job, const char* text);

/* All of them, for who loads the library. */
#define ALIQUOT_SLURM_FUNCTIONS(each)                                                             \
  each(abi) each(start) each(version) each(error) each(find_job) each(each_job) each(find_node)   \
      each(each_node) each(each_partition) each(update_nodes) each(drain_node) each(undrain_node) \
          each(set_admin_comment)

#ifdef __cplusplus
}
#endif
#endif
