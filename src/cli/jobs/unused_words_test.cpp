#include "cli/jobs/unused_words.hpp"

#include <getopt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "api/json.hpp"
#include "cli/jobs/job_request.hpp"

namespace aliquot::cli {
namespace {

constexpr WallTime kWordsNow{days(20'000)};

// Carried out by the command itself: each has its own tests.
const std::set<std::string_view> kOfTheCommand = {
    "bell",
    "chdir",
    "clusters",
    "disable-status",
    "exclude",
    "help",
    "immediate",
    "input",
    "job-name",
    "jobid",
    "kill-on-bad-exit",
    "label",
    "mpi",
    "multi-prog",
    "no-bell",
    "no-shell",
    "nodelist",
    "overlap",
    "parsable",
    "preserve-env",
    "pty",
    "quiet",
    "quit-on-interrupt",
    "test-only",
    "uid",
    "usage",
    "verbose",
    "version",
    "wait",
    "wrap",
    "error",
    "output",
    "kill-command",
};

// What an option is given to see whether the job differs by it; others have one by their kind.
const std::map<std::string_view, std::string> kSamples = {
    {"constraint", "h100"},
    {"dependency", "singleton"},
    {"gres", "gpu:2"},
    {"mail-type", "END"},
    {"gpus", "2"},
    {"gpus-per-node", "2"},
    {"gpus-per-task", "2"},
    {"nodes", "2"},
    {"profile", "task"},
    {"propagate", "NONE"},
    {"relative", "1"},
    {"tmp", "8G"},
    {"umask", "077"},
    {"export", "NONE"},
    {"kill-on-invalid-dep", "yes"},
    {"open-mode", "append"},
    {"nice", "7"},
    {"priority", "7"},
    {"get-user-env", ""},
    {"exclusive", ""},
    {"signal", "USR1@30"},
    {"gpu-bind", "none"},
    {"gpu-share", "25%"},
    {"gpu-mem", "8G"},
    {"begin", "2030-01-01"},
    {"deadline", "2030-01-01"},
};

std::string sample_of(const OptionRow& row) {
  if (const auto found = kSamples.find(row.name); found != kSamples.end()) return found->second;
  switch (row.kind) {
    case ValueKind::flag:
      return "";
    case ValueKind::count:
    case ValueKind::whole:
    case ValueKind::duration:
      return "3";
    case ValueKind::memory:
      return "8G";
    default:
      return "word";
  }
}

std::optional<std::string> job_with(SlurmCommand command, const OptionRow* row) {
  OptionSet options(command);
  EXPECT_TRUE(options.set("gpus", "1", Source::script));
  EXPECT_TRUE(options.set("ntasks", "1", Source::script));
  if (row != nullptr && std::string_view(row->name) == "ntasks-per-gpu") {
    options = OptionSet(command);
    EXPECT_TRUE(options.set("gpus", "2", Source::script));
  }
  if (row != nullptr) {
    const auto set = options.set(row->name, sample_of(*row), Source::command_line);
    EXPECT_TRUE(set.has_value()) << row->name << ": " << set.error().message;
  }
  const auto job = make_job(options, {.environment = {}, .folder = "/", .host = "h"}, kWordsNow);
  if (!job) return std::nullopt;
  return api::to_json(*job);
}

TEST(UnusedWords, EveryOptionIsInEffectOrRefusedOrCannotMatter) {
  using enum SlurmCommand;
  for (const auto command : {sbatch, srun, salloc}) {
    const auto plain = job_with(command, nullptr);
    for (const auto& row : option_rows()) {
      if ((row.commands & bit(command)) == 0 || row.same_as != nullptr) continue;
      const std::string_view name = row.name;
      const bool idle = std::ranges::find(idle_options(), name) != idle_options().end();
      const bool refused = std::ranges::any_of(
          refused_options(), [&](const RefusedOption& one) { return one.name == name; });
      // The values that are not refused of --signal and --exclusive are in effect.
      const bool some = name == "signal" || name == "exclusive";
      const bool elsewhere = kOfTheCommand.contains(name);
      if (idle || elsewhere) {
        EXPECT_FALSE(refused) << name;
        EXPECT_NE(idle, elsewhere) << name;
        continue;
      }
      if (refused && !some) {
        OptionSet options(command);
        ASSERT_TRUE(options.set(name, sample_of(row), Source::command_line)) << name;
        EXPECT_FALSE(check_words(options)) << name;
        continue;
      }
      if (name == "requeue") continue;  // the default; --no-requeue is another
      const auto with = job_with(command, &row);
      ASSERT_TRUE(with) << command_name(command) << " --" << name;
      EXPECT_NE(*with, *plain) << command_name(command) << " --" << name << " is swallowed";
    }
  }
}

TEST(UnusedWords, NamesOnlyOptionsThatThereAre) {
  const auto known = [](std::string_view name) {
    return std::ranges::any_of(option_rows(),
                               [&](const OptionRow& row) { return row.name == name; });
  };
  for (const auto name : idle_options()) EXPECT_TRUE(known(name)) << name;
  for (const auto& refused : refused_options()) EXPECT_TRUE(known(refused.name)) << refused.name;
}

TEST(UnusedWords, ARefusalSaysWhatToDo) {
  OptionSet options(SlurmCommand::sbatch);
  ASSERT_TRUE(options.set("container", "foo", Source::command_line));
  const auto refused = check_words(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 1);
  EXPECT_EQ(refused.error().message,
            "--container=foo: OCI bundles are not run: start the container in the script, as "
            "podman run …");
}

TEST(UnusedWords, AValueThatAsksForNothingIsFine) {
  for (const auto& [name, value] : std::to_array<std::pair<const char*, const char*>>(
           {{"profile", "none"}, {"exclusive", ""}, {"core-spec", "0"}, {"signal", "B:USR1@60"}})) {
    OptionSet options(SlurmCommand::sbatch);
    ASSERT_TRUE(options.set(name, value, Source::command_line)) << name;
    EXPECT_TRUE(check_words(options)) << name;
  }
}

}  // namespace
}  // namespace aliquot::cli
