// In slurmstepd: the hooks of a step, with what the step is to them handed in.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "slurm/plugins/spank/agent_socket.hpp"
#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {
namespace {

constexpr std::size_t kLongestValue = 1UL << 20U;  // of a variable

class SpankHost final : public StepHost {
 public:
  explicit SpankHost(spank_t handle) : handle_(handle) {}

  Numbers numbers() override {
    Numbers step{.job = item(S_JOB_ID),
                 .step = item(S_JOB_STEPID),
                 .tasks = item(S_JOB_LOCAL_TASK_COUNT),
                 .restarts = item(S_SLURM_RESTART_COUNT)};
    spank_get_item(handle_, S_JOB_UID, &step.uid);
    spank_get_item(handle_, S_JOB_GID, &step.gid);
    return step;
  }
  // A line is a line, whatever the user wrote.
  std::string words() override {
    std::string words;
    for (const char* option : {"gpu-mem", "gpu-share"}) {
      const std::string& value = value_of(option);
      if (value.empty() || value.find_first_of(" \n") != std::string::npos) continue;
      words += (words.empty() ? "--" : " --") + std::string(option) + "=" + value;
    }
    return words;
  }
  std::string variable(const std::string& name) override {
    for (std::string value(4096, '\0');; value.resize(2 * value.size())) {
      const auto got =
          spank_getenv(handle_, name.c_str(), value.data(), static_cast<int>(value.size()));
      if (got == ESPANK_SUCCESS) return value.c_str();
      if (got != ESPANK_NOSPACE || value.size() > kLongestValue) return "";
    }
  }
  bool set(const std::string& name, const std::string& value) override {
    return spank_setenv(handle_, name.c_str(), value.c_str(), 1) == ESPANK_SUCCESS;
  }
  void unset(const std::string& name) override { spank_unsetenv(handle_, name.c_str()); }

 private:
  [[nodiscard]] std::uint32_t item(spank_item what) const {
    std::uint32_t value = 0;
    return spank_get_item(handle_, what, &value) == ESPANK_SUCCESS ? value : 0;
  }

  spank_t handle_;
};

// From slurmd's own environment, where several run on one machine; nothing of the user's.
std::string node_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const char* name = std::getenv("SLURMD_NODENAME");
  const std::string node = name != nullptr ? name : host;
  return node.substr(0, node.find('.'));
}

// slurmstepd serves one step, and its tasks are its forks.
struct ThisStep {
  AgentSocket agent;
  SlurmController controller;
  Step step;

  ThisStep(const PluginOptions& options, const std::string& node)
      : agent(options.socket, real_clock()),
        step({options, node, agent, controller, real_clock(),
              [](const std::string& text) { say("%s", text.c_str()); }}) {}
};
std::optional<ThisStep> this_step;

}  // namespace

void enter_step(spank_t handle, PluginOptions options) {
  const std::string node = node_name();
  const auto at = options.socket.find("%n");
  if (at != std::string::npos) options.socket.replace(at, 2, node);
  SpankHost host(handle);
  this_step.emplace(options, node).step.enter(host);
}

void go_on(spank_t handle, void (Step::*hook)(StepHost&)) {
  SpankHost host(handle);
  if (this_step) (this_step->step.*hook)(host);
}

void enter_task(spank_t handle) {
  SpankHost host(handle);
  const std::string refusal = this_step ? this_step->step.enter_task(host) : "";
  if (refusal.empty()) return;
  // An error here would be Slurm's to deal with, and it ignores what an optional plugin says.
  dprintf(STDERR_FILENO, "aliquot: %s\n", refusal.c_str());
  _exit(1);
}
}  // namespace aliquot::spank
