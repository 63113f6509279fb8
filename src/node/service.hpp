// What every daemon of ours does at its start: finding its parts, going to the background, opening
// its log, and saying what went wrong.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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
  const char* help;
};
// --config, --foreground, --log, --log-level, --help and --version, for daemons that take no
// others. The exit status where the command line is all there is to do.
std::optional<int> read_service_options(int argc, char** argv, const Program& program,
                                        ServiceOptions& options);

// The log's file anew, after something has moved it away, and its level. From any thread.
Result<void> reopen_log(const std::string& level);

// Calls serve, in the background unless told otherwise; the parent waits until serve calls the
// function it is given, or has ended. An error is said on stderr and in the log. The exit status.
int run_service(const std::string& name, const ServiceOptions& options,
                const std::function<Result<void>(const std::function<void()>& ready)>& serve);

}  // namespace aliquot::node
