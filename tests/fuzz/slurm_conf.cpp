// A site's slurm.conf and gres.conf, whatever they hold: set up twice is once, and undone is as
// before.
#include <map>

#include "fuzz.hpp"
#include "slurm/setup.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(fuzz::as_text(data, size));
  if (!text.empty() && text.back() != '\n') text += '\n';
  if (slurm::has_ours(text) || text.find("# gpus: ") != std::string::npos ||
      text.find("# setup: ") != std::string::npos) {
    return 0;
  }
  // The first half is slurm.conf, the second gres.conf.
  const auto cut = text.find('\n', text.size() / 2);
  const auto half = cut == std::string::npos ? text.size() : cut + 1;
  std::map<std::string, std::string> files{
      {"/s/slurm.conf", "NodeName=n1\n" + text.substr(0, half)},
      {"/s/gres.conf", text.substr(half)}};
  const slurm::ReadFile read = [&](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return fail(Error::Code::not_found, "no such file");
    return found->second;
  };
  const auto carry_out = [&](const slurm::SetupPlan& plan) {
    for (const auto& change : plan.changes) {
      if (change.after) {
        files[change.path] = *change.after;
      } else {
        files.erase(change.path);
      }
    }
  };
  const auto before = files;
  slurm::SetupInput input;
  input.slurm_conf = "/s/slurm.conf";
  input.version = {24, 11, 0};
  input.gpus = {{{"n1"}, "h200", 4, gib(139), "/dev/nvidia[0-3]"}};
  input.plugin = "/p.so";
  const auto plan = slurm::plan_setup(input, read);
  if (!plan) return 0;
  carry_out(*plan);
  const auto again = slurm::plan_setup(input, read);
  fuzz::require(again.has_value() && again->changes.empty());
  const auto undo = slurm::plan_undo("/s/slurm.conf", read);
  fuzz::require(undo.has_value());
  carry_out(*undo);
  fuzz::require(files == before);
  return 0;
}
