// Slurm's hooks: nothing but a switch on the context.
#include "slurm/plugins/spank/plugin.hpp"

#include <slurm/slurm_version.h>

// const has internal linkage in C++, and Slurm would not find them.
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(aliquot, 1)
}

using namespace aliquot::spank;

extern "C" int slurm_spank_init(spank_t handle, int, char**) {
  switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
    case S_CTX_REMOTE:
      register_options(handle);
      break;
    default:
      break;
  }
  return ESPANK_SUCCESS;
}

extern "C" int slurm_spank_init_post_opt(spank_t handle, int argc, char** argv) {
  switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
      hand_over_words(handle, read_options(argc, argv));
      break;
    case S_CTX_REMOTE:
      enter_step(handle, read_options(argc, argv));
      break;
    default:
      break;
  }
  return ESPANK_SUCCESS;
}

extern "C" int slurm_spank_user_init(spank_t handle, int, char**) {
  if (spank_context() == S_CTX_REMOTE) go_on(handle, &Step::begin_tasks);
  return ESPANK_SUCCESS;
}

extern "C" int slurm_spank_task_post_fork(spank_t handle, int, char**) {
  if (spank_context() == S_CTX_REMOTE) go_on(handle, &Step::settle_tasks);
  return ESPANK_SUCCESS;
}

extern "C" int slurm_spank_task_init(spank_t handle, int, char**) {
  if (spank_context() == S_CTX_REMOTE) enter_task(handle);
  return ESPANK_SUCCESS;
}

extern "C" int slurm_spank_exit(spank_t handle, int, char**) {
  if (spank_context() == S_CTX_REMOTE) go_on(handle, &Step::leave);
  return ESPANK_SUCCESS;
}
