// The options, and what plugstack.conf says.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {
namespace {

// Slurm hands the values on by itself, as _SLURM_SPANK_OPTION_aliquot_gpu_mem: job_submit.lua reads
// them there. Here they only have to be there at all.
bool asked = false;
std::string values[2];  // of --gpu-mem and --gpu-share

int take(int option, const char* value, int remote) {
  asked |= remote == 0;
  if (value != nullptr) values[option] = value;
  if (value != nullptr && *value != '\0') return ESPANK_SUCCESS;
  say("the option wants a value, such as --gpu-mem=8G or --gpu-share=25%%");
  return ESPANK_BAD_ARG;
}

// Slurm's structure wants pointers to char that it never writes to.
char gpu_mem_name[] = "gpu-mem";
char gpu_mem_argument[] = "size";
char gpu_mem_usage[] = "memory of one GPU for the job, such as 8G; compute in proportion";
char gpu_share_name[] = "gpu-share";
char gpu_share_argument[] = "percent";
char gpu_share_usage[] = "part of one GPU's compute for the job, such as 25%; memory in proportion";

spank_option options[] = {
    {gpu_mem_name, gpu_mem_argument, gpu_mem_usage, 1, 0, take},
    {gpu_share_name, gpu_share_argument, gpu_share_usage, 1, 1, take},
};

}  // namespace

void register_options(spank_t handle) {
  for (spank_option& option : options) {
    if (spank_option_register(handle, &option) != ESPANK_SUCCESS) {
      say("cannot register --%s", option.name);
    }
  }
}

bool asked_for_a_share() { return asked; }

const std::string& value_of(std::string_view option) {
  return values[option == gpu_share_name ? 1 : 0];
}

PluginOptions read_options(int argc, char** argv) {
  PluginOptions read;
  for (int i = 0; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("socket=")) {
      read.socket = word.substr(7);
    } else if (word == "without=refuse" || word == "without=run") {
      read.refuse = word == "without=refuse";
    } else if (word.starts_with("timeout=")) {
      const int timeout = std::atoi(argv[i] + 8);
      if (timeout > 0) {
        read.timeout_ms = timeout;
      } else {
        say("plugstack.conf: '%s' is no time: write so many milliseconds, such as timeout=15000",
            argv[i]);
      }
    } else if (word.starts_with("whole=")) {
      read.whole = word.substr(6);
    } else if (word.starts_with("foreign=")) {
      read.foreign = word.substr(8);
    } else if (word == "several=shards") {
      read.several = true;
    } else {
      say("plugstack.conf: what is '%s'? Use socket=, without=, timeout=, whole=, foreign= and "
          "several=",
          argv[i]);
    }
  }
  return read;
}

void say(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  slurm_error("aliquot: %s", text);
}

}  // namespace aliquot::spank
