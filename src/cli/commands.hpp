// Every command of this program: each has a source of its own and a row in the table here. --help,
// completion, the links of `aliquot shims` and those for the jobs' PATH come from the table.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <variant>

namespace CLI {
class App;
}

namespace aliquot::cli {

// What the user asked for. main() runs it once the whole command line has been understood.
struct Invocation {
  std::function<int()> run;  // returns the exit status
};

// `aliquot`'s own commands add their options, and say what is to be run.
using AddCommand = void(CLI::App& command, Invocation& invocation);
AddCommand add_status, add_why, add_gpus, add_top, add_logs, add_doctor, add_up, add_down,
    add_setup, add_shims, add_slurm, add_sim, add_report, add_token, add_page;

// Commands that Slurm has as well are called as `sbatch …` (a link to the one binary) or as
// `aliquot sbatch …`. They read their own command lines, as Slurm's do, and are found before
// anything else of the program is set up, so that they start quickly.
using RunCommand = int(int argc, char** argv);  // argv[0] is the bare name
RunCommand run_sbatch, run_srun, run_salloc, run_scancel, run_squeue, run_sinfo, run_scontrol,
    run_sacct, run_seff, run_sprio, run_sshare, run_sacctmgr, run_sstat, run_sreport, run_sattach,
    run_sdiag;

struct Command {
  std::string_view name;
  std::string_view about;
  std::variant<AddCommand*, RunCommand*> start;  // our own, or one that Slurm has as well

  [[nodiscard]] bool is_slurms() const { return std::holds_alternative<RunCommand*>(start); }
};

// In the order of --help. CMakeLists.txt reads the names in the rows of Slurm's commands.
inline constexpr auto kCommands = std::to_array<Command>({
    {"status", "GPUs used and free, your limits and your jobs", add_status},
    {"why", "Why a job waits, and until when", add_why},
    {"gpus", "Each GPU: memory, compute, jobs, foreign processes", add_gpus},
    {"top", "GPUs and jobs as they are used, refreshed until you press q", add_top},
    {"logs", "Print what a job wrote", add_logs},
    {"report", "GPU hours granted, used and wasted, by user or account", add_report},
    {"token", "The right to act as you on the page", add_token},
    {"page", "Serve the live page of a Slurm or Kubernetes cluster", add_page},
    {"doctor", "What is wrong here, and what to do about it", add_doctor},
    {"up", "Start the daemon, for this machine or for you", add_up},
    {"down", "Stop the daemon; running jobs go on", add_down},
    {"setup", "Change this machine, for administrators", add_setup},
    {"shims", "Make sbatch, squeue, … links to this program", add_shims},
    {"slurm", "Share GPUs on a Slurm cluster: init, setup, check, and a sandbox to try it in",
     add_slurm},
    {"sim", "Try placement without a GPU", add_sim},
    {"sbatch", "Submit a script to the queue", run_sbatch},
    {"srun", "Run a command, or a step of a job", run_srun},
    {"salloc", "Get GPUs and CPUs for a shell", run_salloc},
    {"scancel", "Cancel or signal jobs", run_scancel},
    {"squeue", "The queue", run_squeue},
    {"sinfo", "The machine and its partitions", run_sinfo},
    {"scontrol", "Show, hold, change jobs and the machine", run_scontrol},
    {"sacct", "Jobs that have ended, too", run_sacct},
    {"seff", "What a job used of what it had", run_seff},
    {"sprio", "What waiting jobs' priorities are made of", run_sprio},
    {"sshare", "What users have had, and how that counts for who is next", run_sshare},
    {"sacctmgr", "Accounts, users, and what they may hold", run_sacctmgr},
    {"sstat", "What running steps use", run_sstat},
    {"sreport", "How much the machine was used, by whom", run_sreport},
    {"sattach", "What a running step writes", run_sattach},
    {"sdiag", "What the daemon did, and how long it took", run_sdiag},
});

// Adds those of `commands` that are our own.
void add_commands(CLI::App& parent, Invocation& invocation, std::span<const Command> commands);

// Runs a command that Slurm has as well, if argv names one: by argv[0], or by the first word after
// `aliquot`. False: it names none.
bool run_named_command(int argc, char** argv, int& status);

}  // namespace aliquot::cli
