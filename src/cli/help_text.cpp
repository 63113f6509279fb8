#include "cli/help_text.hpp"

#include <fmt/format.h>
#include <getopt.h>

#include <array>

namespace aliquot::cli {
namespace {

constexpr std::string_view kScancelHelp =
    R"(Usage: scancel [OPTIONS] [JOBID[_TASK|_[TASKS]][.STEP]…]

Options:
  -A, --account=…      jobs of this account
  -b, --batch          signal the batch shell only
  -f, --full           signal the batch shell and all steps
  -i, --interactive    ask before each job
      --me             my jobs
  -n, --name=…         jobs of this name
  -p, --partition=…    jobs in this partition
  -q, --qos=…          jobs of this quality of service
  -Q, --quiet          no complaint about jobs that are not there
  -s, --signal=…       send this signal instead of ending the job
  -t, --state=…        PENDING, RUNNING or SUSPENDED jobs
  -u, --user=…         jobs of this user
  -v, --verbose        say what is done
  -w, --nodelist=…     jobs on this node
)";

constexpr std::string_view kSqueueHelp = R"(Usage: squeue [OPTIONS]
  -A, --account=account(s)        comma separated list of accounts
  -a, --all                       all partitions
  -h, --noheader                  no headers
  -i, --iterate=seconds           repeat every so many seconds
  -j, --job=job(s)                comma separated list of jobs, 'last' being your latest
      --json, --yaml              JSON, which is YAML, too
  -l, --long                      long report
      --me                        equivalent to --user=<my username>
  -n, --name=job_name(s)          comma separated list of job names
      --noconvert                 don't convert units from their original type
  -o, --format=format             format specification
  -O, --Format=format             format specification by names
  -p, --partition=partition(s)    comma separated list of partitions
  -q, --qos=qos(s)                comma separated list of qos's
  -r, --array                     one line for each job array element
  -S, --sort=fields               comma separated list of fields to sort on
  -s, --steps                     job steps
      --start                     expected start times of pending jobs
  -t, --states=states             comma separated list of states, or 'all'
  -u, --user=user_name(s)         comma separated list of users
  -V, --version                   version information
      --help, --usage             this text
)";

constexpr std::string_view kSinfoHelp = R"(Usage: sinfo [OPTIONS]
  -a, --all                  all partitions
  -h, --noheader             no headers
  -i, --iterate=seconds      repeat every so many seconds
      --json, --yaml         JSON, which is YAML, too
  -l, --long                 long output
  -N, --Node                 node-centric format
  -n, --nodes=NODES          only these nodes
  -o, --format=format        format specification
  -O, --Format=format        format specification by names
  -p, --partition=PARTITION  only these partitions
  -R, --list-reasons         why nodes are down or drained
  -s, --summarize            partition state only
  -t, --states=STATES        only nodes in these states
  -T, --reservation          reservations
  -V, --version              version information
      --help, --usage        this text
)";

constexpr std::string_view kSacctHelp = R"(sacct [<OPTION>]
  -a, --allusers             jobs of all users
  -A, --accounts=list        only these accounts
  -b, --brief                jobid, state and exit code
  -D, --duplicates           each run of jobs that were requeued
  -e, --helpformat           list the fields of --format
  -E, --endtime=time         only jobs in some state before this
  -j, --jobs=list            only these jobs, 'last' being your latest
      --json, --yaml         JSON, which is YAML, too
      --delimiter=characters for -p and -P
  -l, --long                 all the fields there are
  -n, --noheader             no header
      --name=list            only jobs of these names
      --noconvert            don't convert units from their original type
  -N, --nodelist=list        only jobs that ran there
  -o, --format=list          fields, each name[%width]
  -p, --parsable             '|' after every field
  -P, --parsable2            '|' between fields
  -q, --qos=list             only these qos
  -r, --partition=list       only these partitions
  -s, --state=list           only jobs in these states
  -S, --starttime=time       only jobs in some state after this; default 00:00 today
  -u, --user=list            only jobs of these users
      --units=[KMGTP]        sizes in this unit
  -X, --allocations          without steps
  -V, --version              version information
)";

constexpr std::string_view kScontrolHelp = R"(scontrol [<OPTION>] [<COMMAND>]
    Valid <OPTION> values are:
     -d or --details: more details in "show"
     -o or --oneliner: report output one record per line
     -a or --all, -Q or --quiet, -v or --verbose
     --json, --yaml: for "show job" and "show node"
     -V or --version
    Valid <COMMAND> values are:
     hold <job_list>, release <job_list>, requeue <job_list>, requeuehold <job_list>
     suspend <job_list>, resume <job_list>, top <job_list>
     ping, version, reconfigure
     listpids [<id>], pidinfo <pid>
     show config
     show hostnames [<hostlist>], show hostlist <hosts>, show hostlistsorted <hosts>
     show reservation [<name>]
     create reservation Users=<names> Duration=<time> TRES=gres/gpu=<n> [<Key>=<value> ...]
     update reservation=<name> <Key>=<value> ...
     delete reservation=<name>
     show job [<id>], show node [<name>], show partition [<name>], show step [<id>]
     update JobId=<id> <Key>=<value> ...
     update NodeName=<name> [Gpu=<list>] State=DRAIN|DOWN|RESUME Reason=<text>
     wait_job <job_id>
     write batch_script <job_id> [<file>|-]
    A job id is 7, 7_3 for an element of an array, or last.
)";

constexpr std::string_view kSeffHelp = R"(Usage: seff [Options] <Jobid>
       Options:
       -h    Help menu
       -v    Version
       -d    Debug mode: display raw data
       --json
)";

constexpr std::string_view kSprioHelp = R"(Usage: sprio [OPTIONS]
  -h, --noheader              no headers
  -j, --jobs[=job_list]       only these jobs, as -j7,8; default: all that wait
  -l, --long                  long report
  -n, --norm                  the factors, from 0 to 1
  -o, --format=format         format specification
  -p, --partition=list        only these partitions
  -S, --sort=fields           letters of --format, with '-' before: descending
  -u, --users=user_list       only jobs of these users
  -w, --weights               the weight of each factor
  -M, --cluster=cluster       only if this cluster is named
  -v, --verbose               say what is done
  -V, --version               version information
      --help, --usage         this text
)";

constexpr std::string_view kSshareHelp = R"(Usage: sshare [OPTIONS]
  -A, --accounts=list         only these accounts
  -a, --all                   all users
  -e, --helpformat            list the fields of --format
  -l, --long                  long report
  -M, --clusters=cluster      only if this cluster is named
  -m, --partition             partitions of associations: there are none
  -n, --noheader              no header
  -o, --format=list           fields, each name[%width]
  -p, --parsable              '|' after every field
  -P, --parsable2             '|' between fields
  -u, --users=list            only these users
  -U, --Users                 users alone, without the accounts above them
  -v, --verbose               say what is done
  -V, --version               version information
      --help, --usage         this text
)";

constexpr std::string_view kSacctmgrHelp = R"(sacctmgr [<OPTION>] [<COMMAND>]
    Valid <OPTION> values are:
     -i or --immediate: commit changes without asking
     -n or --noheader: no header
     -p or --parsable: '|' after every field, -P or --parsable2: '|' between fields
     -Q or --quiet: print no changes
     -s or --associations: with "show account" and "show user"
     -V or --version
    Valid <COMMAND> values are:
     show account [<names>], show association, show cluster, show qos [<names>], show tres
     show user [<names>]
     add account <names> [<Key>=<value> ...]
     add qos <names> [<Key>=<value> ...]
     add user <names> Account=<names> [<Key>=<value> ...]
     modify account|qos|user [where] <names> [<Key>=<value> ...] set <Key>=<value> ...
     delete account|qos|user [where] <names> [Account=<names>]
    Shown may be less: Account=, User=, format=<fields>, each <field>[%<width>]; withassoc, tree.
    Of a QOS: Description, Flags=DenyOnLimit, GraceTime, GrpJobs, GrpSubmitJobs, GrpTRES,
      MaxJobsPerUser, MaxSubmitJobsPerUser, MaxTRESPerJob, MaxTRESPerUser, MaxWall, PreemptMode,
      Priority.
    Of an account or a user: DefaultQOS, Fairshare, GrpJobs, GrpSubmitJobs, GrpTRES, MaxJobs,
      MaxSubmitJobs, MaxTRES, MaxWall, QOS; Description, Organization, Parent; DefaultAccount.
    TRES are written as gres/gpu=4,cpu=8,mem=64G; a share counts as its part: gres/gpu=0.5.
)";

constexpr std::string_view kSstatHelp = R"(sstat [<OPTION>] -j <job(.stepid)>
    Valid <OPTION> values are:
      -a, --allsteps    all running steps of a job, not the first one alone
      -e, --helpformat  list the fields of --format
      -h, --help        this text
      -i, --pidformat   the processes of each step
      -j, --jobs=list   these jobs or steps: 7, 7.0, 7.batch
      -n, --noheader    no header
          --noconvert   don't convert units from their original type
      -o, --format=list fields, each name[%width]; --fields is the same
      -p, --parsable    '|' after every field
      -P, --parsable2   '|' between fields
          --usage       the same in short
      -v, --verbose     say what is done
      -V, --version     version information
)";

constexpr std::string_view kSreportHelp = R"(sreport [<OPTION>] [<COMMAND>]
    Valid <OPTION> values are:
     -a or --all_clusters, --federation, --local, -M or --cluster=<name>: there is one cluster
     -n or --noheader: no header
     -p or --parsable: '|' after every field, -P or --parsable2: '|' between fields
     -Q or --quiet, -v or --verbose
     -t <time_format>: Seconds, Minutes, Hours, Percent, SecPer, MinPer, HourPer
     -T or --tres=<list>: cpu, mem, node, billing, gres/gpu, or ALL
     -V or --version
    Valid <COMMAND> values are:
     cluster Utilization <OPTIONS>
     cluster AccountUtilizationByUser <OPTIONS>
     cluster UserUtilizationByAccount <OPTIONS>
     user TopUsage <OPTIONS>
     help, quit
    <OPTIONS> are Start=<time>, End=<time> (whole hours; yesterday), Format=<fields>, Clusters=<name>,
     Accounts=<names>, Users=<names>; Tree for AccountUtilizationByUser, Group and TopCount=<n> for
     TopUsage.
    Without a command they are read from the standard input, a line each.
)";

constexpr std::string_view kSattachHelp = R"(Usage: sattach [options] <jobid.stepid>
      --input-filter=taskid, --output-filter=taskid, --error-filter=taskid, --pty
                     are refused: tasks are told apart by srun --label
  -l, --label        the same
      --layout       print where the tasks of the step are, and no more
  -Q, --quiet        errors only
  -v, --verbose      say what is done
  -V, --version      version information

Help options:
  -h, --help         this text
  -u, --usage        the same in short
)";

constexpr std::string_view kSdiagHelp = R"(Usage: sdiag [OPTIONS]
  -a, --all           all statistics
  -r, --reset         reset statistics
  -M, --cluster       only if this cluster is named
  -i, --sort-by-id    sort requests by their number in Slurm
  -t, --sort-by-time  sort requests by total time
  -T, --sort-by-time2 sort requests by average time
  -V, --version       version information

Help options:
  --help              this text
  --usage             the same in short
)";

std::string submitter_usage(SlurmCommand command) {
  const auto* rest = command == SlurmCommand::sbatch ? "[SCRIPT [ARGUMENTS]] | --wrap=COMMAND"
                     : command == SlurmCommand::srun ? "COMMAND [ARGUMENTS]"
                                                     : "[COMMAND [ARGUMENTS]]";
  return fmt::format("Usage: {} [OPTIONS] {}\n", command_name(command), rest);
}

// From the table of options.
std::string submitter_help(SlurmCommand command) {
  std::string help = submitter_usage(command) + "\nOptions:\n";
  for (const auto& row : option_rows()) {
    if (row.help == nullptr || (row.commands & bit(command)) == 0) continue;
    const std::string letter = row.letter == 0 ? "    " : fmt::format("-{}, ", row.letter);
    const auto* value = row.argument == no_argument         ? ""
                        : row.argument == required_argument ? "=…"
                                                            : "[=…]";
    // The ellipsis is three bytes and one column.
    const std::string option = fmt::format("{}--{}{}", letter, row.name, value);
    const std::size_t columns = option.size() - (*value == '\0' ? 0 : 2);
    help += fmt::format("  {}{} {}\n", option, std::string(columns < 27 ? 27 - columns : 0, ' '),
                        row.help);
  }
  help += "\nSlurm's other options cannot matter on one machine, or are refused: see aliquot-" +
          std::string(command_name(command)) + "(1).\n";
  return help;
}

}  // namespace

std::string help_text(SlurmCommand command) {
  if (command <= SlurmCommand::salloc) return submitter_help(command);
  constexpr auto kHelp = std::to_array<std::string_view>(
      {kScancelHelp, kSqueueHelp, kSinfoHelp, kSacctHelp, kScontrolHelp, kSeffHelp, kSprioHelp,
       kSshareHelp, kSacctmgrHelp, kSstatHelp, kSreportHelp, kSattachHelp, kSdiagHelp});
  const auto first = static_cast<std::size_t>(SlurmCommand::scancel);
  return std::string(kHelp.at(static_cast<std::size_t>(command) - first));
}

std::string usage_text(SlurmCommand command) {
  if (command == SlurmCommand::scancel) {
    return "Usage: scancel [-bfiQv] [-A account] [-n name] [-p partition] [-q qos] [-s signal] "
           "[-t state] [-u user] [--me] [JOBID…]\n";
  }
  if (command == SlurmCommand::sstat) {
    return "Usage: sstat [options] -j <job(.stepid)>\n\tUse --help for help\n";
  }
  if (command == SlurmCommand::sattach) return "Usage: sattach [options] <jobid.stepid>\n";
  if (command == SlurmCommand::sdiag) return "Usage: sdiag [-M cluster] [-aritT]\n";
  if (command == SlurmCommand::squeue) {
    return "Usage: squeue [-A account] [--clusters names] [-i seconds] [--job jobid]\n"
           "              [-n name] [-o format] [-p partitions] [--qos qos]\n"
           "              [--reservation reservation] [--sort fields] [--start]\n"
           "              [--step step_id] [-t states] [-u user_name] [--usage]\n"
           "              [-L licenses] [-w nodes] [--federation] [--local] [--sibling]\n"
           "\t      [-ahjlrsv]\n";
  }
  if (command == SlurmCommand::sprio) {
    return "Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]\n"
           "   [--federation] [--local] [--sibling] [--usage] [-hlnvVw]\n";
  }
  return command <= SlurmCommand::salloc ? submitter_usage(command) : help_text(command);
}

std::string version_text() { return "aliquot " ALIQUOT_VERSION " (speaks Slurm 22.05)\n"; }

}  // namespace aliquot::cli
