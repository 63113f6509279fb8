// In srun, sbatch and salloc: the job asks by `--gres=mps:25` or `-G 1` and books shards, but Slurm
// repeats the words for each step, and a step that asks for what its job does not hold is refused.
// So the words that become shards travel beside Slurm's, in the job's SPANK environment, where
// job_submit.lua reads them; a step then simply has what its job has. SPANK has no call to take an
// option back: it is done as Slurm's cli_filter plugins do it, with functions and a variable that
// the commands export. Where those are missing nothing changes.
#include <dlfcn.h>
#include <slurm/slurm_version.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "slurm/plugins/spank/plugin.hpp"
#include "slurm/slurm_version.hpp"

namespace aliquot::spank {
namespace {

struct Option {
  const char* name;
  const char* word;  // in the job's environment
  bool counts_gpus;
};
constexpr std::array kOptions{
    Option{"gres", "ALIQUOT_GRES", true},
    Option{"gpus", "ALIQUOT_GPUS", true},
    Option{"gpus-per-node", "ALIQUOT_GPUS_PER_NODE", true},
    Option{"gpus-per-task", "ALIQUOT_GPUS_PER_TASK", true},
    Option{"cpus-per-gpu", "ALIQUOT_CPUS_PER_GPU", false},
    Option{"mem-per-gpu", "ALIQUOT_MEM_PER_GPU", false},
};
// That the job's words were handed over, for the srun of a shell that salloc gives.
constexpr const char* kHanded = "ALIQUOT_HANDED";
// Where job_submit.lua books a whole GPU as all of its shards. If it does not, it hands the words
// back to Slurm.
constexpr bool kWholeAsShards =
    SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(slurm::kMixingFixed.major, slurm::kMixingFixed.minor,
                                             slurm::kMixingFixed.patch);

// The command's own options.
class Options {
 public:
  Options()
      : all_(dlsym(RTLD_DEFAULT, "opt")),
        is_set_(find<IsSet>("slurm_option_isset")),
        get_(find<Get>("slurm_option_get")),
        reset_(find<Reset>("slurm_option_reset")) {}

  [[nodiscard]] bool known() const {
    return all_ != nullptr && is_set_ != nullptr && get_ != nullptr && reset_ != nullptr;
  }
  [[nodiscard]] bool has(const char* name) const { return is_set_(all_, name); }
  [[nodiscard]] std::string get(const char* name) const {
    const char* text = has(name) ? get_(all_, name) : nullptr;
    return text == nullptr ? std::string() : text;
  }
  void reset(const char* name) const { reset_(all_, name); }

 private:
  using IsSet = bool (*)(void*, const char*);
  using Get = char* (*)(void*, const char*);
  using Reset = bool (*)(void*, const char*);
  template <class Function>
  static Function find(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }

  void* all_;
  IsSet is_set_;
  Get get_;
  Reset reset_;
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string_view bare(std::string_view entry) {
  for (const std::string_view prefix : {"gres/", "gres:"}) {
    if (entry.starts_with(prefix)) entry.remove_prefix(prefix.size());
  }
  return entry;
}

bool begins(std::string_view entry, std::string_view name) {
  return entry.size() >= name.size() && strncasecmp(entry.data(), name.data(), name.size()) == 0 &&
         (entry.size() == name.size() || entry[name.size()] == ':' || entry[name.size()] == '=');
}

// `1`, `h200`, `h200:1`
bool is_one(std::string_view count) {
  const auto last = count.substr(count.find_last_of(":=") + 1);
  return last == "1" || last.find_first_not_of("0123456789") != last.npos;
}

enum class Asked { nothing, share, one_gpu, other };

Asked asked_in_gres(std::string_view text) {
  Asked asked = Asked::nothing;
  for (const auto each : split(text, ',')) {
    const auto entry = bare(each);
    if (begins(entry, "mps") || begins(entry, "shard")) return Asked::share;
    if (!begins(entry, "gpu")) continue;
    const bool one = entry.size() <= 4 || is_one(entry.substr(4));
    asked = one && asked == Asked::nothing ? Asked::one_gpu : Asked::other;
  }
  return asked;
}

Asked asked(const Options& options) {
  // Slurm makes GPUs of these by itself; job_submit.lua leaves them to it, or refuses.
  if (options.has("ntasks-per-gpu") || options.has("gpus-per-socket")) return Asked::other;
  // Nor are these ours: each task's own GPU, the whole node, and what Slurm refuses.
  const std::string tasks = options.get("ntasks");
  if (options.has("gpus-per-task") && !tasks.empty() && tasks != "1") return Asked::other;
  if (options.has("exclusive")) return Asked::other;
  if (options.has("cpus-per-gpu") && options.has("cpus-per-task")) return Asked::other;
  if (asked_for_a_share()) return Asked::share;
  auto result = asked_in_gres(options.get("gres"));
  for (const auto& option : kOptions) {
    const auto text = options.get(option.name);
    if (!option.counts_gpus || text.empty() || &option == &kOptions[0]) continue;
    if (result == Asked::share) return result;
    result = is_one(text) && result != Asked::other ? Asked::one_gpu : Asked::other;
  }
  return result;
}

// Whether all of the partitions are in the list; none named is the default one, which has a star.
bool all_in(std::string_view list, std::string_view partitions) {
  const auto names = split(list, ',');
  return std::ranges::all_of(split(partitions, ','), [&](std::string_view partition) {
    return std::ranges::any_of(names, [&](std::string_view name) {
      const bool is_default = name.ends_with('*');
      if (is_default) name.remove_suffix(1);
      return !name.empty() && (partition.empty() ? is_default : name == partition);
    });
  });
}

// A step of a job that holds shards has what the job has, whatever it repeats.
void take_back_words(const Options& options, const Settings& settings) {
  const char* partition = std::getenv("SLURM_JOB_PARTITION");
  if (partition != nullptr && all_in(settings.foreign, partition)) return;
  if (std::getenv("SLURM_SHARDS_ON_NODE") == nullptr && std::getenv(kHanded) == nullptr) return;
  if (strcasecmp(options.get("gres").c_str(), "none") == 0) return;
  for (const auto& option : kOptions) {
    if (options.has(option.name)) options.reset(option.name);
  }
}

}  // namespace

void hand_over_words(spank_t handle, const Settings& settings) {
  const Options options;
  if (!options.known()) return;
  if (spank_context() == S_CTX_LOCAL && std::getenv("SLURM_JOB_ID") != nullptr) {
    take_back_words(options, settings);
    return;
  }
  const auto what = asked(options);
  const std::string partitions = options.get("partition");
  const bool as_shards = kWholeAsShards && !all_in(settings.whole, partitions);
  if (all_in(settings.foreign, partitions) ||
      (what != Asked::share && !(what == Asked::one_gpu && as_shards))) {
    unsetenv(kHanded);
    return;
  }
  for (const auto& option : kOptions) {
    const auto text = options.get(option.name);
    if (text.empty()) continue;
    if (spank_job_control_setenv(handle, option.word, text.c_str(), 1) != ESPANK_SUCCESS) return;
    options.reset(option.name);
  }
  setenv(kHanded, "1", 1);
}

}  // namespace aliquot::spank
