/* The contract between the daemon and libaliquot.so, the library inside the job: three files. Plain
 * C, fixed-size integers, no pointers. Nothing here does input or output.
 *
 *   <grant folder>/limits   struct aliquot_limits   the daemon's, 0444. The job maps it read-only
 *   <grant folder>/usage    struct aliquot_usage    made by the daemon, given to the job's user,
 *                                                   0600. The job's processes map it read-write,
 *                                                   the daemon reads copies of it. For a container,
 *                                                   whose processes run as anybody: root's, 0666,
 *                                                   behind a folder that only they get to
 *   <board>                 struct aliquot_board    one per GPU, the daemon's, 0644. The daemon
 * maps it read-write, jobs map it read-only
 *
 * The variable ALIQUOT_GRANT in the job's environment names the grant folder. `limits` must belong
 * to root or to the user of the process, be a regular file, no symbolic link, and be complete when
 * it appears (write elsewhere, rename). The file sizes are exactly sizeof the structures. All
 * numbers that change are read and written with atomic operations of their own size.
 *
 * While a process holds slots[i] of `usage` it also holds a POSIX record lock (F_SETLK) on byte i
 * of that file, through a close-on-exec descriptor. The kernel drops the lock when the process ends
 * or execs, in whatever way, and a forked child does not have it. F_GETLK tells who is alive, also
 * across pid namespaces. A slot whose byte is not locked is dead, unless its process is still
 * exiting: then the lock is gone already, and the GPU's memory is given back before the process is
 * a zombie.
 *
 * The job can write all of `usage`, so the daemon must not trust it: it never waits for the mutex
 * without a limit in time, and never believes an index or a count that it reads there. */
#ifndef ALIQUOT_ENFORCE_ABI_H
#define ALIQUOT_ENFORCE_ABI_H

#include <pthread.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define ALIQUOT_ABI_ASSERT(what) static_assert(what, #what)
#else
#define ALIQUOT_ABI_ASSERT(what) _Static_assert(what, #what)
#endif

#define ALIQUOT_GRANT_VARIABLE "ALIQUOT_GRANT"
/* Where daemons say whose control groups are their jobs', for processes that have no such variable
 * (enforce/find_grant.hpp): a file of root's for each kind of daemon, two lines: what the path of a
 * job's group has in it, before a folder job_N; and the folder in which N is the grant folder. */
#define ALIQUOT_PLACES "/run/aliquot/places"
/* Where a container has its grant folder, root's, by a mount. It counts for more than both: nobody
 * in the container can take it away. */
#define ALIQUOT_GRANT_HERE "/run/aliquot/grant"
#define ALIQUOT_PLACE_ENGINE "engine"
#define ALIQUOT_PLACE_SLURM "slurm"
#define ALIQUOT_LIMITS_FILE "limits"
#define ALIQUOT_USAGE_FILE "usage"

#define ALIQUOT_ABI_VERSION 1u
#define ALIQUOT_LIMITS_MAGIC 0x31544d494c514c41ull /* "ALQLIMT1" in memory */
#define ALIQUOT_USAGE_MAGIC 0x3145475355514c41ull  /* "ALQUSGE1" */
#define ALIQUOT_BOARD_MAGIC 0x3144524f42514c41ull  /* "ALQBORD1" */

enum {
  ALIQUOT_MAX_GPUS = 16,
  ALIQUOT_USAGE_SLOTS = 1024, /* processes of one job that use CUDA at the same time */
  ALIQUOT_BOARD_SLOTS = 128,  /* jobs on one GPU */
  ALIQUOT_PATH_BYTES = 256
};

enum {
  ALIQUOT_FLAG_METER = 1 /* measure GPU time with events, into gpu_ns */
};

/* ---- limits --------------------------------------------------------------------------------- */

struct aliquot_limit {
  uint8_t uuid[16];      /* as of cuDeviceGetUuid_v2: the digits of NVML's "GPU-…" or "MIG-…" */
  uint64_t memory_bytes; /* of all the job's processes; 0 = no limit. May be changed in place */
  uint64_t context_bytes;         /* reserved for a context until its cost is known; 0 = 600 MiB */
  uint32_t compute;               /* 1/10,000 of the GPU; for reports, the board is what counts */
  uint32_t lease;                 /* 1 = obey the board below */
  uint32_t lease_slot;            /* the job's index in the board's slots */
  uint32_t slice;                 /* 1 = a slice of a GPU: NVML's "MIG-…" */
  char board[ALIQUOT_PATH_BYTES]; /* absolute path of the GPU's lease board, NUL-terminated */
  uint64_t reserved1[4];
};

struct aliquot_limits {
  uint64_t magic;     /* ALIQUOT_LIMITS_MAGIC */
  uint32_t version;   /* ALIQUOT_ABI_VERSION */
  uint32_t size;      /* sizeof(struct aliquot_limits) */
  uint64_t job;       /* the job's number, for messages */
  uint32_t gpu_count; /* entries used in gpus[]; a GPU that is not listed has a limit of nothing */
  uint32_t flags;     /* ALIQUOT_FLAG_… */
  uint64_t reserved[44];
  struct aliquot_limit gpus[ALIQUOT_MAX_GPUS];
};

/* ---- usage ---------------------------------------------------------------------------------- */

/* What one process holds and does on one GPU; gpus[i] of usage is gpus[i] of limits. Only the
 * process itself writes it, except that whoever finds the process dead clears it, under the mutex.
 */
struct aliquot_use {
  uint64_t charged;        /* bytes, everything; raised only under the mutex, lowered at any time */
  uint64_t context;        /* of these: contexts */
  uint64_t gpu_ns;         /* GPU time measured, in nanoseconds */
  uint64_t launches;       /* of kernels, graphs and copies; brought up to date every 16th or so */
  uint64_t launched;       /* launches handed to the driver, kept exact while turns are taken */
  uint64_t completed;      /* of `launched`, known to be over; in flight = launched > completed */
  uint64_t last_launch_ns; /* CLOCK_MONOTONIC, brought up to date with `launches` or `launched` */
  uint64_t waited_ns;      /* time spent at the closed gate */
  uint64_t refusals;       /* allocations refused because of the limit */
  uint32_t waiting;        /* threads that wait at the gate now */
  uint32_t imports;        /* memory of other processes that it has open. While there is any in the
                              job, each process counts with at least what NVML attributes to it:
                              memory whose owner let go of it is attributed to an importer */
  uint32_t in_wait;        /* threads that wait for the GPU, in the driver */
  uint32_t busy;           /* thousandths of the time in which the GPU has work of it between two
                              launches; 0: not known */
  uint64_t launch_ns;      /* how long a launch takes by itself, on average; 0: not known */
  uint64_t unattributed;   /* of `charged`: what NVML attributes to nobody (managed memory, memory
                              that only a descriptor holds) */
  uint64_t exported;       /* of `charged`: what a descriptor would keep on the GPU if the process
                              ended now */
  uint64_t room;      /* of `context`: not taken yet, kept for what the driver takes by itself */
  uint64_t looked_ns; /* CLOCK_MONOTONIC: `completed` is as it was then */
};

struct aliquot_slot {
  int32_t pid; /* as the process sees it; 0 = the slot is free. Written last when taking it */
  uint32_t generation; /* counts the takings of this slot */
  uint64_t start_time; /* field 22 of /proc/PID/stat */
  uint64_t pid_ns;     /* inode of /proc/self/ns/pid: the namespace in which `pid` counts */
  uint64_t reserved[5];
  struct aliquot_use gpus[ALIQUOT_MAX_GPUS];
};

/* Sums over processes that are gone, so that a job's totals never fall; and the highest sum seen.
 */
struct aliquot_past {
  uint64_t gpu_ns;
  uint64_t launches;
  uint64_t refusals;
  uint64_t waited_ns;
  uint64_t peak_bytes; /* highest sum of `charged` over all slots */
  uint64_t orphaned; /* bytes that descriptors of processes that are gone may hold; counted against
                        the limit until no process that did not register has one */
  uint64_t reserved[2];
};

struct aliquot_usage {
  uint64_t magic;      /* ALIQUOT_USAGE_MAGIC; written last */
  uint32_t version;    /* ALIQUOT_ABI_VERSION */
  uint32_t size;       /* sizeof(struct aliquot_usage) */
  uint32_t high_water; /* slots [0, high_water) may be in use; never falls */
  uint32_t reserved0;
  uint64_t reserved1[5];
  union {
    pthread_mutex_t mutex; /* robust, process-shared. After EOWNERDEAD nothing needs repair */
    uint8_t bytes[64];
  } lock;
  struct aliquot_past past[ALIQUOT_MAX_GPUS];
  struct aliquot_slot slots[ALIQUOT_USAGE_SLOTS];
};

/* ---- lease board ---------------------------------------------------------------------------- */

struct aliquot_gate {
  uint32_t word; /* futex (shared): 0 = open, 1 = paused. To open: store 0, then FUTEX_WAKE all */
  uint32_t reserved[15]; /* a cache line of its own */
};

struct aliquot_board {
  uint64_t magic;        /* ALIQUOT_BOARD_MAGIC; written last */
  uint32_t version;      /* ALIQUOT_ABI_VERSION */
  uint32_t size;         /* sizeof(struct aliquot_board) */
  uint64_t heartbeat_ns; /* CLOCK_MONOTONIC, by the arbiter; older than ALIQUOT_STALE_NS: gates are
                            open */
  uint32_t contended; /* ALIQUOT_CONTENDED_…: how much the libraries let a job have in flight */
  uint32_t reserved0;
  uint64_t reserved1[4];
  struct aliquot_gate gates[ALIQUOT_BOARD_SLOTS];
};

/* 0: as much as it likes. */
enum {
  ALIQUOT_CONTENDED_WATCHED = 1, /* two jobs use the GPU: a queue of a twentieth of a second */
  ALIQUOT_CONTENDED_TURNS = 2    /* they take turns: a few milliseconds, counted exactly */
};

#define ALIQUOT_STALE_NS 1000000000ull

ALIQUOT_ABI_ASSERT(sizeof(struct aliquot_limit) == 16 + 8 + 8 + 16 + ALIQUOT_PATH_BYTES + 32);
ALIQUOT_ABI_ASSERT(sizeof(struct aliquot_limits) ==
                   32 + 44 * 8 + ALIQUOT_MAX_GPUS * sizeof(struct aliquot_limit));
ALIQUOT_ABI_ASSERT(sizeof(pthread_mutex_t) <= 64);
ALIQUOT_ABI_ASSERT(sizeof(struct aliquot_use) == 128);
ALIQUOT_ABI_ASSERT(sizeof(struct aliquot_slot) == 64 + ALIQUOT_MAX_GPUS * 128);
ALIQUOT_ABI_ASSERT(sizeof(struct aliquot_past) == 64);
ALIQUOT_ABI_ASSERT(sizeof(struct aliquot_usage) ==
                   128 + ALIQUOT_MAX_GPUS * 64 + ALIQUOT_USAGE_SLOTS * sizeof(struct aliquot_slot));
ALIQUOT_ABI_ASSERT(sizeof(struct aliquot_gate) == 64);
ALIQUOT_ABI_ASSERT(sizeof(struct aliquot_board) == 64 + ALIQUOT_BOARD_SLOTS * 64);

/* Makes zeroed memory a usage region. Returns 0, or an error number. */
static inline int aliquot_usage_init(struct aliquot_usage* usage) {
  pthread_mutexattr_t attributes;
  int error = pthread_mutexattr_init(&attributes);
  if (error != 0) return error;
  error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (error == 0) error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  if (error == 0) error = pthread_mutex_init(&usage->lock.mutex, &attributes);
  (void)pthread_mutexattr_destroy(&attributes);
  if (error != 0) return error;
  usage->version = ALIQUOT_ABI_VERSION;
  usage->size = sizeof *usage;
  __atomic_store_n(&usage->magic, ALIQUOT_USAGE_MAGIC, __ATOMIC_RELEASE);
  return 0;
}

#ifdef __cplusplus
}
#endif

#endif
