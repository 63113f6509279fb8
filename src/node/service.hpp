// What every daemon of ours does at its start: finding its parts, going to the background, opening
// its log, and saying what went wrong.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"

namespace aliquot::node {

// Beside the program in the build tree, or where a package puts it.
std::filesystem::path find_part(const std::vector<std::filesystem::path>& places,
                                const std::filesystem::path& fallback);

// "NAME: TEXT" on stderr; the exit status that goes with it.
int complain(const std::string& name, std::string_view text);

struct ServiceOptions {
  std::string config = {};
  std::string log = {};  // empty: stderr, and in the background /var/log/NAME.log
  std::string level = "info";
  bool foreground = false;
};

struct Program {
  std::string name;
  std::string version;
  std::string purpose;  // for --help, a line
  std::string config;   // where the settings are by default
  std::string remarks;  // for --help, after the options
};
// An option of the command line, which is also a line of --help.
struct ProgramOption {
  const char* name;
  const char* value;  // how --help calls it; empty: it has none
  std::string help;
  std::variant<std::string*, bool*> into;
};
// Reads them, and --help and --version. The exit status where that is all there is to do.
std::optional<int> read_options(int argc, char** argv, const Program& program,
                                const std::vector<ProgramOption>& rows);

// main() of a daemon that takes --config, --foreground, --log and --log-level: reads them and calls
// run. The exit status.
int service_main(int argc, char** argv, const Program& program,
                 const std::function<int(const ServiceOptions&)>& run);

// The log's file anew, after something has moved it away, and its level. From any thread.
Result<void> reopen_log(const std::string& level);

// Calls serve, in the background unless told otherwise; the parent waits until serve calls the
// function it is given, or has ended. An error is said on stderr and in the log. The exit status.
int run_service(const std::string& name, const ServiceOptions& options,
                const std::function<Result<void>(const std::function<void()>& ready)>& serve);

}  // namespace aliquot::node
