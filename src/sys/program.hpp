// Starting programs that are not a user's job (those are node/spawn.hpp's): by posix_spawn, because
// forking a large daemon takes longer than most of what it starts. A program has default signals,
// and of our descriptors only the three it is given.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::sys {

struct Program {
  std::string file;               // without a slash it is looked for on our PATH
  std::vector<std::string> argv;  // the first is its name
  std::optional<std::vector<std::string>> environment = {};  // K=V; absent: ours
  int in = -1;                                               // -1: /dev/null
  int out = -1;
  int err = -1;
  std::string directory = {};  // empty: ours
  bool new_session = false;
};

// The file that this program was started from.
std::filesystem::path own_program();

// The regular file of that name in the first of these folders ("/usr/bin:/bin") where we may
// execute it, or read it with R_OK. Empty: there is none.
std::string find_in_path(std::string_view name, std::string_view path, int access = X_OK);

// The caller waits for it.
Result<Pid> start_program(const Program& program);

struct Ended {
  int status = -1;  // what it exited with; -1: it did not start, or not end in time or by itself
  std::string out = {};
  std::string err = {};
};
enum class Streams { apart, together };  // together: err goes where out goes
// Runs it to its end; without patience as long as it takes. Then it is killed, and where even that
// does not end it, because it hangs in the kernel, it is left behind. input is small: it fits into
// a pipe. A daemon that the program starts may keep its files open: nobody waits for that.
Ended run_program(Program program, Streams streams, std::string_view input = "",
                  std::optional<Millis> patience = {});
// For a child that is left behind: whenever it ends, no zombie of it stays.
void wait_in_background(Pid child);

}  // namespace aliquot::sys
