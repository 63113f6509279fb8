#include "slurm/plugins/spank/handed_words.hpp"

#include <strings.h>

#include <algorithm>
#include <cstdlib>

namespace aliquot::spank {
namespace {

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

// The number that a text begins with, and what stands for none.
long leading_number(std::string_view text, long none) {
  const auto end = std::min(text.find_first_not_of("0123456789"), text.size());
  return end == 0 || end > 9 ? none
                             : std::strtol(std::string(text.substr(0, end)).c_str(), nullptr, 10);
}

// `2`, `h200`, `h200:2`
long count_of(std::string_view text) {
  const auto last = text.substr(text.find_last_of(":=") + 1);
  return last.find_first_not_of("0123456789") != last.npos ? 1 : leading_number(last, 1);
}

enum class Asked { nothing, share, one_gpu, gpus, other };

Asked asked_in_gres(std::string_view text) {
  Asked asked = Asked::nothing;
  for (const auto each : split(text, ',')) {
    const auto entry = bare(each);
    if (begins(entry, "mps") || begins(entry, "shard")) return Asked::share;
    if (!begins(entry, "gpu")) continue;
    const bool one = entry.size() <= 4 || count_of(entry.substr(4)) == 1;
    asked = asked != Asked::nothing ? Asked::other : one ? Asked::one_gpu : Asked::gpus;
  }
  return asked;
}

Asked asked(const CommandOptions& options, bool asked_for_share) {
  // Slurm makes GPUs of these by itself; job_submit.lua leaves them to it, or refuses.
  if (options.has("ntasks-per-gpu") || options.has("gpus-per-socket")) return Asked::other;
  // Nor are these ours: several tasks of a node with a GPU each, the whole node, and what Slurm
  // refuses.
  const long nodes = leading_number(options.get("nodes"), 1);
  const long tasks = leading_number(options.get("ntasks"), nodes);
  if (options.has("gpus-per-task") && tasks != nodes) return Asked::other;
  if (options.has("exclusive")) return Asked::other;
  if (options.has("cpus-per-gpu") && options.has("cpus-per-task")) return Asked::other;
  if (asked_for_share) return Asked::share;
  auto result = asked_in_gres(options.get("gres"));
  for (const auto& option : kHandedOptions) {
    const auto text = options.get(option.name);
    if (!option.counts_gpus || text.empty() || std::string_view(option.name) == "gres") continue;
    if (result == Asked::share) return result;
    // As job_submit.lua counts them: so many for the job, or for each of its nodes.
    const long times = std::string_view(option.name) == "gpus" ? nodes : 1;
    const bool even = times > 0 && count_of(text) % times == 0;
    const Asked now = !even ? Asked::other : count_of(text) == times ? Asked::one_gpu : Asked::gpus;
    result = result == Asked::nothing || result == now ? now : Asked::other;
  }
  return result;
}

}  // namespace

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

bool books_shards(const CommandOptions& command, const PluginOptions& plugin, bool asked_for_share,
                  bool whole_as_shards) {
  const std::string partitions = command.get("partition");
  if (all_in(plugin.foreign, partitions)) return false;
  const Asked what = asked(command, asked_for_share);
  const bool whole = what == Asked::one_gpu || (what == Asked::gpus && plugin.several);
  return what == Asked::share || (whole && whole_as_shards && !all_in(plugin.whole, partitions));
}

}  // namespace aliquot::spank
