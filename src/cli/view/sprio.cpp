// sprio: what the priorities of waiting jobs are made of.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/help_text.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "cli/view/sprio_text.hpp"

namespace aliquot::cli {
namespace {

OrStatus<std::vector<std::int64_t>> read_priority_ids(const std::vector<std::string>& words,
                                                      const Voice& voice) {
  std::vector<std::int64_t> ids;
  for (const auto& word : words) {
    if (word.empty()) continue;
    const auto id = parse_digits(word);
    if (!id || *id < 1) {
      voice.error(fmt::format("Invalid job id: {}", word));
      return tl::make_unexpected(1);
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

int run_sprio(int argc, char** argv) {
  constexpr std::uint32_t kNobody = UINT32_MAX;
  constexpr std::string_view kPrefix = "slurm_load_jobs error";
  Voice voice("sprio");
  const auto call = read_call(SlurmCommand::sprio, argc, argv, voice);
  if (!call) return call.error();
  const OptionSet& options = call->options;
  // `-j 7`: what follows -j is its list, although it is not in the same word.
  const bool follows =
      call->words.size() == 1 && options.has("jobs") && options.text("jobs").empty();
  if (!call->words.empty() && !follows) {
    voice.error(fmt::format("Unrecognized option: {}", call->words.front()));
    print(usage_text(SlurmCommand::sprio));
    return 1;
  }
  auto list_of_ids = options.words("jobs");
  if (follows) {
    for (const auto word : split(call->words.front(), ',')) list_of_ids.emplace_back(word);
  }
  const auto ids = read_priority_ids(list_of_ids, voice);
  if (!ids) return ids.error();
  std::vector<std::uint32_t> uids;
  if (options.has("users")) {
    const auto found = resolve_users(options.text("users"));
    if (!found) {
      // Said, and then nobody's jobs are shown.
      voice.error(fmt::format("Invalid user: {}", found.error()));
      fmt::print(stderr, "\n");
    }
    uids = found.value_or(std::vector<std::uint32_t>{kNobody});
  }
  auto daemon = open_daemon(options, voice, kPrefix);
  if (!daemon) return daemon.error();
  auto list = daemon->get<api::PriorityList>("/v1/priorities");
  if (!list) return load_failed(kPrefix, list.error());

  SprioView view;
  view.header = !options.has("noheader");
  view.weights = options.has("weights");
  view.sort = options.text("sort");
  view.format = options.text("format");
  if (view.format.empty()) {
    view.format = sprio_format(list->weights, {.longer = options.has("long"),
                                               .normal = options.has("norm"),
                                               .users = options.has("users")});
  }
  const auto partitions = options.words("partition");
  std::erase_if(list->jobs, [&](const api::PriorityInfo& job) {
    const auto left_out = [](const auto& wanted, const auto& value) {
      return !wanted.empty() && std::ranges::find(wanted, value) == wanted.end();
    };
    return left_out(*ids, job.job_id) || left_out(uids, job.uid) ||
           left_out(partitions, job.partition);
  });
  if (!view.weights && list->jobs.empty() && !ids->empty()) {
    return print("Unable to find jobs matching user/id(s) specified\n");
  }
  const auto text = format_sprio(*list, view);
  for (const auto& complaint : text.complaints) voice.error(complaint);
  const int status = print(text.out);
  if (text.error.empty()) return status;
  voice.error(text.error);
  return 1;
}

}  // namespace aliquot::cli
