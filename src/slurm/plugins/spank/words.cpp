// In srun, sbatch and salloc: hands words about GPUs to job_submit.lua in the job's SPANK
// environment (handed_words.hpp). SPANK has no call to take an option back: it is done as Slurm's
// cli_filter plugins do it, with functions and a variable that the commands export. Where those are
// missing nothing changes.
#include <dlfcn.h>
#include <slurm/slurm.h>
#include <slurm/slurm_version.h>
#include <strings.h>

#include <cstdlib>
#include <optional>

#include "slurm/plugins/job_number.hpp"
#include "slurm/plugins/spank/handed_words.hpp"
#include "slurm/plugins/spank/plugin.hpp"
#include "slurm/plugins/spank/step_part.hpp"
#include "slurm/slurm_version.hpp"

namespace aliquot::spank {
namespace {

// That the job's words were handed over, for the srun of a shell that salloc gives.
constexpr const char* kHanded = "ALIQUOT_HANDED";
// Where job_submit.lua books a whole GPU as all of its shards. If it does not, it hands the words
// back to Slurm.
constexpr bool kWholeAsShards =
    SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(slurm::kMixingFixed.major, slurm::kMixingFixed.minor,
                                             slurm::kMixingFixed.patch);

// The command's own options.
class SlurmOptions final : public CommandOptions {
 public:
  SlurmOptions()
      : all_(dlsym(RTLD_DEFAULT, "opt")),
        is_set_(find<IsSet>("slurm_option_isset")),
        get_(find<Get>("slurm_option_get")),
        reset_(find<Reset>("slurm_option_reset")),
        set_(find<Set>("slurm_option_set")) {}

  [[nodiscard]] bool known() const {
    return all_ != nullptr && is_set_ != nullptr && get_ != nullptr && reset_ != nullptr;
  }
  [[nodiscard]] bool has(const char* name) const override { return is_set_(all_, name); }
  [[nodiscard]] std::string get(const char* name) const override {
    const char* text = has(name) ? get_(all_, name) : nullptr;
    return text == nullptr ? std::string() : text;
  }
  void reset(const char* name) const { reset_(all_, name); }
  [[nodiscard]] bool can_set() const { return set_ != nullptr; }
  void set(const char* name, const std::string& value) const {
    set_(all_, name, value.c_str(), false);
  }

 private:
  using IsSet = bool (*)(void*, const char*);
  using Get = char* (*)(void*, const char*);
  using Reset = bool (*)(void*, const char*);
  using Set = int (*)(void*, const char*, const char*, bool);
  template <class Function>
  static Function find(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }

  void* all_;
  IsSet is_set_;
  Get get_;
  Reset reset_;
  Set set_;
};

// What Slurm repeats to every srun of a job from the job's own options.
std::string repeated(const char* option) {
  // Without the first SLURM_SPANK_ it is what this srun hands on.
  const char* value =
      std::getenv((std::string("SLURM_SPANK__SLURM_SPANK_OPTION_aliquot_") + option).c_str());
  return value == nullptr ? "" : value;
}

StepWords step_words(const SlurmOptions& command) {
  StepWords words;
  if (value_of("gpu-mem") != repeated("gpu_mem")) words.gpu_mem = value_of("gpu-mem");
  if (value_of("gpu-share") != repeated("gpu_share")) words.gpu_share = value_of("gpu-share");
  words.gres = command.get("gres");
  for (const char* name : {"gpus", "gpus-per-node", "gpus-per-task"}) {
    const std::string text = command.get(name);
    if (!text.empty()) words.gres += (words.gres.empty() ? "gpu:" : ",gpu:") + text;
  }
  return words;
}

// Nothing: slurmctld does not say.
std::optional<JobShare> load_share(std::uint32_t job) {
  job_info_msg_t* message = nullptr;
  if (slurm_load_job(&message, slurm_plugin::JobNumber{job}, SHOW_DETAIL) != SLURM_SUCCESS) {
    return std::nullopt;
  }
  std::optional<JobShare> share;
  const auto text = [](const char* value) { return std::string(value == nullptr ? "" : value); };
  for (std::uint32_t i = 0; i < message->record_count; ++i) {
    const slurm_job_info_t& each = message->job_array[i];
    if (each.job_id != job) continue;
    share = read_share(text(each.admin_comment), text(each.tres_per_node));
    share->partition = text(each.partition);
  }
  slurm_free_job_info_msg(message);
  return share;
}

// The job of whose shell this is; 0: of none.
std::uint32_t job_around() {
  const char* id = std::getenv("SLURM_JOB_ID");
  return id == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(id, nullptr, 10));
}

// The job that srun begins a step of: --jobid's, or the one around it; 0: it submits its own.
std::uint32_t job_of_step(const SlurmOptions& command) {
  const std::string told = command.get("jobid");
  if (told.empty() || told.find_first_not_of("0123456789") != std::string::npos)
    return job_around();
  return static_cast<std::uint32_t>(std::strtoul(told.c_str(), nullptr, 10));
}

// A step of a job that holds shards has what the job has, or the part of it that it asks for.
void settle_step(const SlurmOptions& command, const PluginOptions& plugin, std::uint32_t id) {
  // What stands in the environment is of the job around.
  const bool around = id == job_around();
  const char* partition = around ? std::getenv("SLURM_JOB_PARTITION") : nullptr;
  if (partition != nullptr && all_in(plugin.foreign, partition)) return;
  if (strcasecmp(command.get("gres").c_str(), "none") == 0) return;
  StepPart part;
  if (const StepWords words = step_words(command); !words.empty() || !around) {
    const auto job = load_share(id);
    if (!job || all_in(plugin.foreign, job->partition)) return;
    part = step_part(*job, words);
    if (part.refusal.empty() && part.shards > 0 && !command.can_set()) {
      part.refusal = "this srun takes no part of a share: leave the words about GPUs away";
    }
    if (!part.refusal.empty()) {
      say("%s", part.refusal.c_str());
      std::exit(1);
    }
    if (job->shards == 0) return;  // Slurm's own affair
  } else if (std::getenv("SLURM_SHARDS_ON_NODE") == nullptr && std::getenv(kHanded) == nullptr) {
    return;
  }
  for (const auto& option : kHandedOptions) {
    if (command.has(option.name)) command.reset(option.name);
  }
  if (part.shards > 0) command.set("gres", "shard:" + std::to_string(part.shards));
}

}  // namespace

void hand_over_words(spank_t handle, const PluginOptions& plugin) {
  const SlurmOptions command;
  if (!command.known()) return;
  if (const auto job = job_of_step(command); spank_context() == S_CTX_LOCAL && job != 0) {
    return settle_step(command, plugin, job);
  }
  if (!books_shards(command, plugin, asked_for_a_share(), kWholeAsShards)) {
    unsetenv(kHanded);
    return;
  }
  for (const auto& option : kHandedOptions) {
    const auto text = command.get(option.name);
    if (text.empty()) continue;
    if (spank_job_control_setenv(handle, option.word, text.c_str(), 1) != ESPANK_SUCCESS) return;
    command.reset(option.name);
  }
  setenv(kHanded, "1", 1);
}

}  // namespace aliquot::spank
