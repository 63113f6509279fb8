// aliquotd put together: the machine is looked at, the engine made, and everything that happens
// (requests, ends of jobs, time, samples, signals) brought to it on one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "engine/settings.hpp"

namespace aliquot::engine {

struct DaemonOptions {
  Settings settings;
  std::string socket;
  std::filesystem::path state;
  std::filesystem::path run;      // what goes with a reboot: grants, boards, MPS pipes
  std::filesystem::path stepd;    // the program aliquot-stepd
  std::filesystem::path library;  // libaliquot.so; need not be there
  std::filesystem::path standin;  // the folder of the stand-in's libraries
  std::string commands;           // the folder of sbatch, srun, …; empty: there is none
  std::function<Result<Settings>()> reload;  // as they are now, for SIGHUP
};

// Serves until SIGTERM or SIGINT. Jobs go on without it. SIGHUP reads the settings and opens the
// log anew. `ready` is called once it listens.
Result<void> run_daemon(const DaemonOptions& options, const std::function<void()>& ready);

}  // namespace aliquot::engine
