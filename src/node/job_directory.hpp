// The daemon's side of aliquot-stepd: the folder of one run of a job, jobs/ID/ or jobs/ID.ATTEMPT/,
// from before its start to after its end. Files in it: script, launch.json, stepd.pid, control (a
// fifo), exit.json, lock.
//
// Started once: stepd reads launch.json and writes stepd.pid under the lock. A daemon that
// finds neither stepd.pid nor exit.json takes launch.json away under the same lock, and a stepd
// that comes late finds nothing to run. So inspect() is right at any instant, also
// while a stepd of a dead daemon is still on its way.
#pragma once

#include <filesystem>
#include <string>
#include <variant>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "node/launch.hpp"
#include "node/process_tree.hpp"
#include "node/run_name.hpp"

namespace aliquot::node {

class JobDirectory {
 public:
  // jobs is <state>/jobs; the folder need not exist. A run that was started when folders were named
  // by the job alone is found there.
  JobDirectory(const std::filesystem::path& jobs, const Run& run);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path script() const { return path_ / "script"; }

  // Before a start: the folder, and the script as only this user can read and run it. It stays
  // ours, or it would be a file of the user's in our folder that can grow; where the file system
  // has no access control lists it is given away. Users must be able to walk through, so the
  // folders up to here need mode 0711 when we are root.
  [[nodiscard]] Result<void> write_script(std::string_view text, Uid user, Gid group) const;

  // Before each start, the first or a requeue: forgets the last run and writes launch.json.
  [[nodiscard]] Result<void> prepare(const Launch& launch) const;

  // Starts program (aliquot-stepd) on this folder: not our child, its own session. Returns when it
  // has written stepd.pid, typically within 2 ms; on a worker all the same.
  [[nodiscard]] Result<sys::ProcessRef> start(const std::filesystem::path& program,
                                              Millis patience = seconds(10)) const;

  // failed_state if no stepd listens (any more), unavailable if it is behind with listening.
  [[nodiscard]] Result<void> send(const Command& command) const;

  struct NeverStarted {};  // and will not be: start over with prepare()
  struct Lost {            // stepd died without a word (killed, or the machine went down)
    sys::ProcessRef stepd;
  };
  using Status = std::variant<NeverStarted, sys::ProcessRef, ExitRecord, Lost>;
  // What became of it: still running (watch it with open_process), ended, lost, or never started.
  [[nodiscard]] Result<Status> inspect(Millis patience = seconds(5)) const;

  // launch.json; not_found where nothing is to be run, or was.
  [[nodiscard]] Result<Launch> read_launch() const;

  // exit.json alone; not_found while there is none.
  [[nodiscard]] Result<ExitRecord> read_exit() const;

  [[nodiscard]] Result<void> remove() const;

 private:
  std::filesystem::path path_;
};

}  // namespace aliquot::node
