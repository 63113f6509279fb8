#include "cli/option_set.hpp"

#include <getopt.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace aliquot::cli {
namespace {

Parsed<CommandLine> read(SlurmCommand command, std::vector<std::string> words) {
  words.insert(words.begin(), std::string(command_name(command)));
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return read_arguments(command, static_cast<int>(words.size()), argv.data(), true);
}

TEST(OptionTable, IsInAlphabeticalOrder) {
  std::string_view before;
  for (const auto& row : option_rows()) {
    EXPECT_LE(before, std::string_view(row.name));
    before = row.name;
  }
}

TEST(OptionTable, GivesALetterToOneOptionPerCommand) {
  using enum SlurmCommand;
  for (const auto command :
       {sbatch, srun, salloc, scancel, squeue, sinfo, sacct, scontrol, seff, sprio, sshare}) {
    std::string seen;
    for (const auto& row : option_rows()) {
      if ((row.commands & bit(command)) == 0 || row.letter == 0) continue;
      if (row.same_as != nullptr) continue;
      EXPECT_EQ(seen.find(row.letter), seen.npos) << row.name;
      seen += row.letter;
    }
  }
}

TEST(OptionTable, GivesAFlagNoArgument) {
  for (const auto& row : option_rows()) {
    EXPECT_EQ(row.kind == ValueKind::flag, row.argument == no_argument) << row.name;
  }
}

TEST(ReadArguments, StopsAtTheScript) {
  const auto line = read(SlurmCommand::sbatch, {"-n2", "--time", "5", "job.sh", "--array=1"});
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->rest, 4U);
  ASSERT_EQ(line->words.size(), 2U);
  EXPECT_EQ(line->words[0].name, "ntasks");
  EXPECT_EQ(line->words[1].value, "5");
}

TEST(ReadArguments, KnowsAbbreviations) {
  const auto line =
      read(SlurmCommand::sbatch, {"--wr", "true", "--err=/dev/null", "--cpus-per-t=2"});
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->words[0].name, "wrap");
  EXPECT_EQ(line->words[1].name, "error");
  EXPECT_EQ(line->words[2].name, "cpus-per-task");
}

TEST(ReadArguments, RefusesWhatItDoesNotKnowWith255) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--frobnicate"},
                                                {"--gr=gpu:1"},
                                                {"-t"},
                                                {"--pty"},
                                                {"--mem-p=3"}}) {
    const auto line = read(SlurmCommand::sbatch, words);
    ASSERT_FALSE(line.has_value()) << words[0];
    EXPECT_EQ(line.error().status, 255);
  }
}

TEST(ReadArguments, ReadsTheSameLetterAsEachCommandDoes) {
  EXPECT_EQ(read(SlurmCommand::sbatch, {"-W", "x"})->rest, 2U);
  EXPECT_EQ(read(SlurmCommand::srun, {"-W", "5", "x"})->rest, 3U);
  EXPECT_EQ(read(SlurmCommand::srun, {"-K", "x"})->words[0].name, "kill-on-bad-exit");
  EXPECT_EQ(read(SlurmCommand::salloc, {"-K", "x"})->words[0].name, "kill-command");
}

TEST(ReadArguments, GivesAnotherSpellingItsFirstName) {
  EXPECT_EQ(read(SlurmCommand::sbatch, {"--tasks-per-node=2"})->words[0].name, "ntasks-per-node");
  EXPECT_EQ(read(SlurmCommand::sbatch, {"--cluster=a"})->words[0].name, "clusters");
}

TEST(ReadArguments, MovesTheOptionsOfListsToTheFront) {
  const auto line = read(SlurmCommand::scontrol, {"show", "partition", "-o"});
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->words[0].name, "oneliner");
  EXPECT_EQ(line->rest, 2U);
  EXPECT_EQ(read(SlurmCommand::squeue, {"--frobnicate"}).error().status, 1);
}

TEST(ReadArguments, StopsAtAQuestionAboutTheCommand) {
  const auto line = read(SlurmCommand::squeue, {"--help", "--frobnicate"});
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->words.back().name, "help");
}

TEST(OptionSet, AddsUpLists) {
  OptionSet options(SlurmCommand::squeue);
  ASSERT_TRUE(options.set("user", "ann", Source::environment).has_value());
  ASSERT_TRUE(options.set("user", "bob", Source::command_line).has_value());
  ASSERT_TRUE(options.set("users", "cleo,dan", Source::command_line).has_value());
  EXPECT_EQ(options.words("user"), (std::vector<std::string>{"bob", "cleo", "dan"}));
  EXPECT_TRUE(options.words("name").empty());
}

TEST(OptionSet, LetsTheCommandLineWin) {
  OptionSet options(SlurmCommand::sbatch);
  ASSERT_TRUE(options.set("time", "3", Source::command_line).has_value());
  ASSERT_TRUE(options.set("time", "2", Source::environment).has_value());
  ASSERT_TRUE(options.set("time", "1", Source::script).has_value());
  EXPECT_EQ(options.text("time"), "3");
}

TEST(OptionSet, TakesTheLastOfTheSameSource) {
  OptionSet options(SlurmCommand::sbatch);
  ASSERT_TRUE(options.set("time", "1", Source::script).has_value());
  ASSERT_TRUE(options.set("time", "2", Source::script).has_value());
  EXPECT_EQ(options.text("time"), "2");
}

TEST(OptionSet, RefusesBadValuesInSlurmsWords) {
  struct Case {
    const char* name;
    const char* value;
    int status;
    const char* message;
  };
  for (const auto& bad : {
           Case{"time", "banana", 255, "Invalid --time specification"},
           Case{"mem", "lots", 255, "Invalid --mem specification"},
           Case{"begin", "someday", 255, "Invalid --begin specification"},
           Case{"signal", "NOPE@5", 255, "Invalid --signal specification"},
           Case{"open-mode", "x", 255, "Invalid --open-mode specification"},
           Case{"gpu-share", "0", 255,
                "Invalid --gpu-share specification: above 0 and up to 100%, as 25%"},
           Case{"gpu-mem", "0", 255,
                "Invalid --gpu-mem specification: more than a program's context takes, as 8G"},
           Case{"gpu-mem", "8", 255,
                "Invalid --gpu-mem specification: more than a program's context takes, as 8G"},
           Case{"mail-type", "END,FOO", 255, "Invalid --mail-type specification"},
           Case{"nodes", "a", 255, "\"a\" is not a valid node count"},
           Case{"ntasks", "0", 1, "Invalid numeric value \"0\" for --ntasks."},
           // Of no effect here, and refused all the same.
           Case{"acctg-freq", "word", 255, "Invalid --acctg-freq specification: word"},
           Case{"acctg-freq", "task=-1", 255, "Invalid --acctg-freq specification: task=-1"},
           Case{"cores-per-socket", "word", 1,
                "Invalid numeric value \"word\" for --cores-per-socket."},
           Case{"delay-boot", "word", 255, "Invalid --delay-boot specification"},
           Case{"distribution", "", 255, "Invalid --distribution specification"},
           Case{"distribution", "plane", 255, "Invalid --distribution specification"},
           Case{"distribution", "block:arbitrary", 255, "Invalid --distribution specification"},
           Case{"extra-node-info", "2:x", 1, "Invalid numeric value \"x\" for second arg of -B."},
           Case{"get-user-env", "word", 255, "Invalid --get-user-env specification"},
           Case{"gres-flags", "word", 255, "Invalid --gres-flags specification"},
           Case{"hint", "word", 1, "unrecognized --hint argument \"word\", see --hint=help"},
           Case{"mem-bind", "local,word", 255, "unrecognized --mem-bind argument \"local,word\""},
           Case{"no-kill", "word", 255, "Invalid --no-kill specification"},
           Case{"switches", "word", 1, "Invalid numeric value \"word\" for --switches."},
           Case{"switches", "1@word", 1, "Invalid numeric value \"1@word\" for --switches."},
           Case{"exclusive", "word", 255, "Invalid --exclusive specification"},
           Case{"profile", "word", 255, "invalid --profile=word option"},
           Case{"tmp", "word", 255, "Invalid --tmp specification"},
           Case{"wait-all-nodes", "2", 255, "Invalid --wait-all-nodes specification"},
           Case{"wait-all-nodes", "-1", 1, "Invalid numeric value \"-1\" for --wait-all-nodes."},
       }) {
    OptionSet options(SlurmCommand::sbatch);
    const auto set = options.set(bad.name, bad.value, Source::command_line);
    ASSERT_FALSE(set.has_value()) << bad.name;
    EXPECT_EQ(set.error().status, bad.status);
    EXPECT_EQ(set.error().message, bad.message);
  }
}

TEST(OptionSet, AcceptsHintsThatSlurmKnows) {
  OptionSet options(SlurmCommand::sbatch);
  for (const auto& [name, value] : std::to_array<std::pair<const char*, const char*>>({
           {"acctg-freq", "30"},
           {"acctg-freq", "task=30,energy=0"},
           {"delay-boot", "10:00"},
           {"distribution", "block:cyclic:fcyclic,Pack"},
           {"distribution", "plane=4"},
           {"distribution", "arbitrary"},
           {"distribution", "*:block"},
           {"extra-node-info", "2:4:1"},
           {"extra-node-info", "2:*"},
           {"extra-node-info", ""},
           {"get-user-env", "10L"},
           {"get-user-env", ""},
           {"gres-flags", "enforce-binding"},
           {"hint", "nomultithread"},
           {"mem-bind", "verbose,local"},
           {"mem-bind", "map_mem:0x1,2"},
           {"no-kill", "off"},
           {"no-kill", ""},
           {"propagate", "no-such-thing"},
           {"reservation", "no-such-thing"},
           {"switches", "1@10:00"},
           {"exclusive", "user"},
           {"profile", "energy,task"},
           {"tmp", "8G"},
           {"wait-all-nodes", "0"},
       })) {
    EXPECT_TRUE(options.set(name, value, Source::script).has_value()) << name << "=" << value;
  }
}

TEST(OptionSet, ListsWhatIsSet) {
  OptionSet options(SlurmCommand::sbatch);
  ASSERT_TRUE(options.set("wrap", "true", Source::command_line).has_value());
  ASSERT_TRUE(options.set("verbose", "", Source::command_line).has_value());
  const auto given = options.given();
  ASSERT_EQ(given.size(), 2U);
  EXPECT_EQ(given[0].first, "verbose");
  EXPECT_EQ(given[0].second, "1");
  EXPECT_EQ(given[1].second, "true");
}

TEST(ReadVariables, ReadsTheCommandsOwn) {
  ::setenv("SBATCH_TIMELIMIT", "7", 1);
  ::setenv("SLURM_NTASKS", "3", 1);
  bool time = false;
  for (const auto& word : read_variables(SlurmCommand::sbatch)) {
    if (word.name == "time") time = word.value == "7";
    EXPECT_NE(word.name, "ntasks");
  }
  EXPECT_TRUE(time);
  bool tasks = false;
  for (const auto& word : read_variables(SlurmCommand::srun)) {
    if (word.name == "ntasks") tasks = word.value == "3";
    EXPECT_NE(word.name, "time");
  }
  EXPECT_TRUE(tasks);
  ::unsetenv("SBATCH_TIMELIMIT");
  ::unsetenv("SLURM_NTASKS");
}

TEST(SignalOption, ReadsSlurmsForms) {
  const auto plain = parse_signal_option("USR1");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->number, SIGUSR1);
  EXPECT_EQ(plain->seconds, 60);
  EXPECT_FALSE(plain->batch);
  const auto batch = parse_signal_option("B:SIGUSR2@30");
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->number, SIGUSR2);
  EXPECT_EQ(batch->seconds, 30);
  EXPECT_TRUE(batch->batch);
  EXPECT_EQ(parse_signal_option("10@5")->number, 10);
  for (const auto* bad : {"", "@5", "X:USR1", "USR1@", "USR1@x", "999", "0"}) {
    EXPECT_FALSE(parse_signal_option(bad).has_value()) << bad;
  }
}

// What the manual lists, but for what is about Slurm's own insides, about what srun does with its
// allocation's size in a job, and about exit codes and formats that are always the usual ones.
TEST(Variables, OfTheManualAreAllKnown) {
  const std::set<std::string> kOthers = {"PMI_FANOUT",
                                         "PMI_FANOUT_OFF_HOST",
                                         "PMI_TIME",
                                         "SLURMD_DEBUG",
                                         "SLURM_BITSTR_LEN",
                                         "SLURM_CONF",
                                         "SLURM_CPU_FREQ_REQ",
                                         "SLURM_DEBUG_FLAGS",
                                         "SLURM_DIST_PLANESIZE",
                                         "SLURM_EXIT_ERROR",
                                         "SLURM_EXIT_IMMEDIATE",
                                         "SLURM_JOB_ID",
                                         "SLURM_JOB_NUM_NODES",
                                         "SLURM_NNODES",
                                         "SLURM_PMI_KVS_NO_DUP_KEYS",
                                         "SLURM_REMOTE_CWD",
                                         "SLURM_SRUN_REDUCE_TASK_EXIT_MSG",
                                         "SLURM_STEP_GRES",
                                         "SLURM_STEP_KILLED_MSG_NODE_ID",
                                         "SLURM_TEST_EXEC",
                                         "SLURM_TIME_FORMAT"};
  const auto list =
      std::filesystem::path(__FILE__).parent_path() / "../../tests/conformance/fields-22.05.txt";
  std::ifstream file(list);
  ASSERT_TRUE(file) << list;
  using enum SlurmCommand;
  int tried = 0;
  for (std::string name, kind, variable; file >> name >> kind >> variable;) {
    if (kind != "variable" || kOthers.contains(variable)) continue;
    // srun's umask is that of who calls it: its tasks are its children.
    if (name == "srun" && variable == "SLURM_UMASK") continue;
    for (const auto command : {sbatch, srun, salloc, scancel, squeue, sinfo, sacct}) {
      if (command_name(command) != name) continue;
      const auto before = read_variables(command).size();
      ::setenv(variable.c_str(), "1", 1);
      EXPECT_EQ(read_variables(command).size(), before + 1) << name << " " << variable;
      ::unsetenv(variable.c_str());
      ++tried;
    }
  }
  EXPECT_GT(tried, 180);
}

TEST(Variables, SayHowVerbose) {
  ::setenv("SBATCH_DEBUG", "2", 1);
  const auto options = gather_options(SlurmCommand::sbatch, {});
  ::unsetenv("SBATCH_DEBUG");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->times("verbose"), 2);
}

}  // namespace
}  // namespace aliquot::cli
