#include "base/table.hpp"
#include "cli/console.hpp"
#include "cli/sim/sim.hpp"
#include "sim/experiment.hpp"

namespace aliquot::cli {
namespace {

int list_policies() {
  std::vector<Row> rows;
  for (const auto& policy : sim::known_policies()) rows.push_back({policy.name, policy.summary});
  return print(render_table({{"POLICY", 16}, {"WHAT IT PREFERS", 0, Align::left, ""}}, rows));
}

}  // namespace

void add_sim_policies(CLI::App& command, Invocation& invocation) {
  command.callback([&invocation] { invocation.run = list_policies; });
}

}  // namespace aliquot::cli
