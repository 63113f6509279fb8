#include "slurm/setup_advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "slurm/admin_comment.hpp"
#include "slurm/conf_text.hpp"
#include "slurm/job_state.hpp"
#include "slurm/text_diff.hpp"

namespace aliquot::slurm {
namespace {

// Of aliquot_submit.lua: up to the end of the site's table.
std::string_view table_of(std::string_view lua) {
  constexpr std::string_view kTableEnd = "\n}\n";
  const auto end = lua.find(kTableEnd);
  return end == lua.npos ? lua : lua.substr(0, end + kTableEnd.size());
}

// Without lines about partitions: what slurmctld does not take over by a reconfigure.
std::string without_partitions(std::string_view conf) {
  const auto lines = lines_of_text(conf);
  std::string rest;
  for (const ConfLine& line : parse_conf_lines(lines)) {
    if (!line.is_about("PartitionName")) rest += logical_text(lines, line) + "\n";
  }
  return rest;
}

bool is_shared(const SlurmJob& job) {
  return asked_words(job.admin_comment).has_value() ||
         job.tres_per_node.find("shard") != std::string::npos;
}

}  // namespace

std::string preview(const SetupPlan& plan, bool all) {
  std::string text;
  for (const FileChange& change : plan.changes) {
    const std::string before = change.before.value_or("");
    const std::string after = change.after.value_or("");
    const std::string from = change.before ? change.path : "/dev/null";
    const std::string to = change.after ? change.path : "/dev/null";
    if (all || !change.path.ends_with("/aliquot_submit.lua")) {
      text += unified_diff(before, after, from, to);
      continue;
    }
    text += unified_diff(table_of(before), table_of(after), from, to);
    const auto code =
        std::max(before.size() - table_of(before).size(), after.size() - table_of(after).size());
    if (before.substr(table_of(before).size()) != after.substr(table_of(after).size()) &&
        code > 0) {
      const std::string& longer = before.size() > after.size() ? before : after;
      text += fmt::format("({}: and {} lines of code, the same on every site: --all shows them)\n",
                          change.path,
                          std::ranges::count(longer.substr(table_of(longer).size()), '\n'));
    }
  }
  return text;
}

std::string what_to_restart(const SetupPlan& plan) {
  bool restart = false;
  bool reconfigure = false;
  bool plugstack = false;
  bool lua = false;
  for (const FileChange& change : plan.changes) {
    if (change.path.ends_with(".lua")) {
      lua = true;
    } else if (change.path.ends_with("/plugstack.conf")) {
      // Read by each command and each step anew.
      plugstack = true;
    } else if (change.before && change.after &&
               without_partitions(*change.before) == without_partitions(*change.after)) {
      // In gres.conf only what setup remembers: comments.
      reconfigure = reconfigure || !change.path.ends_with("/gres.conf");
    } else {
      restart = true;
    }
  }
  if (restart) {
    return "Now copy them to every node, restart slurmctld and then every slurmd (reconfigure is "
           "not "
           "enough for Gres), and run 'aliquot slurm check'.";
  }
  std::string text;
  if (reconfigure) {
    text =
        "Now copy them to every node and run 'scontrol reconfigure': nothing is to be restarted.";
  } else if (plugstack) {
    text =
        "Now copy plugstack.conf to every node (configless: 'scontrol reconfigure'): nothing is to "
        "be restarted.";
  } else {
    text = "Nothing is to be restarted.";
  }
  if (lua) text += " slurmctld reads the Lua with the next job.";
  return text;
}

std::optional<std::string> hit_by_undo(const std::vector<SlurmJob>& jobs) {
  std::vector<std::int64_t> waiting;
  std::vector<std::int64_t> running;
  for (const SlurmJob& job : jobs) {
    if (!is_shared(job)) continue;
    if (job.state == "PENDING") waiting.push_back(job.id);
    if (is_on_its_nodes(job.state)) running.push_back(job.id);
  }
  if (waiting.empty() && running.empty()) return std::nullopt;
  const auto some = [](const std::vector<std::int64_t>& ids) {
    constexpr std::size_t kMost = 5;
    const std::vector<std::int64_t> first(
        ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), kMost)));
    return fmt::format("{}{}", fmt::join(first, ","), ids.size() > kMost ? ",…" : "");
  };
  std::string text;
  if (!waiting.empty()) {
    text = fmt::format(
        "{} waiting job(s) with a part of a GPU ({}) would start without one, or never: scancel "
        "them first, to be submitted again",
        waiting.size(), some(waiting));
  }
  if (!running.empty()) {
    text += fmt::format(
        "{}{} running job(s) ({}) would no longer be held to their part: let them end first",
        text.empty() ? "" : "; ", running.size(), some(running));
  }
  return text;
}

}  // namespace aliquot::slurm
