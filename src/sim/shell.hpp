// A text front end to placement: describe a small cluster, ask for shares, see where they land and
// why not. A line in, text or an error out; nothing is read or written but through the functions
// handed in, time passes only by command, and equal lines give equal answers. Each command either
// happens or changes nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "core/index.hpp"
#include "core/ledger.hpp"
#include "core/policy.hpp"
#include "core/request.hpp"

namespace aliquot::sim {

// Where `save FILE` and `restore FILE` go.
struct ShellFiles {
  std::function<Result<std::string>(const std::string&)> read;
  std::function<Result<void>(const std::string&, std::string_view)> write;
};

class Shell {
 public:
  explicit Shell(ShellFiles files);

  // What the command answers, each line ended; nothing for comments and blank lines.
  Result<std::string> execute(std::string_view line);
  // `quit` was said.
  [[nodiscard]] bool done() const { return done_; }

 private:
  using Words = std::vector<std::string_view>;
  using Action = Result<std::string> (Shell::*)(const Words&);
  struct Command {
    std::string_view name;
    std::string_view syntax;
    std::string_view help;
    Action action;
  };
  static const std::vector<Command>& commands();

  Result<std::string> node(const Words& words);
  Result<std::string> gpu(const Words& words);
  Result<std::string> policy(const Words& words);
  Result<std::string> request(const Words& words);
  Result<std::string> release(const Words& words);
  Result<std::string> resize(const Words& words);
  Result<std::string> sample(const Words& words);
  Result<std::string> clock(const Words& words);
  Result<std::string> health(const Words& words);
  Result<std::string> show(const Words& words);
  Result<std::string> why(const Words& words);
  Result<std::string> save(const Words& words);
  Result<std::string> restore(const Words& words);
  Result<std::string> help(const Words& words);
  Result<std::string> quit(const Words& words);

  static tl::unexpected<Error> misused(const Words& words);
  struct Device {
    core::NodeIndex node = 0;
    core::GpuIndex gpu = 0;
  };
  [[nodiscard]] Result<core::NodeIndex> find_node(std::string_view name) const;
  // A GPU of the node by its number (`1`, `gpu1`) or its id.
  [[nodiscard]] Result<Device> find_gpu(std::string_view node, std::string_view gpu) const;
  [[nodiscard]] Result<core::Use> resized(const core::Use& use, const core::Request& request) const;
  [[nodiscard]] std::string explain(const core::Request& request, const core::Shape& shape,
                                    bool at_length) const;
  Result<void> use_policy(std::string_view name);

  ShellFiles files_;
  ManualClock clock_;
  core::Ledger ledger_;
  std::unique_ptr<core::Policy> policy_;
  std::unique_ptr<core::Index> index_;
  std::map<JobId, core::Request> refused_;  // the last word about jobs that hold nothing
  std::string saved_;
  bool done_ = false;
};

}  // namespace aliquot::sim
