// The parsers behind single options: moments, GPU bindings, signals, job ids, --export,
// --multi-prog, file names.
#include "base/output_path.hpp"
#include "base/text.hpp"
#include "cli/jobs/export.hpp"
#include "cli/jobs/gpu_binding.hpp"
#include "cli/jobs/job_ids.hpp"
#include "cli/jobs/multi_prog.hpp"
#include "cli/moment.hpp"
#include "cli/option_set.hpp"
#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  const WallTime now(days(20'000));
  const auto moment = cli::parse_moment(text, now);
  fuzz::require_one_line(moment);
  if (moment) fuzz::require(moment->ms() >= 0);

  if (const auto signal = cli::parse_signal_option(text)) {
    fuzz::require(signal->number > 0 && signal->seconds >= 0);
  }
  for (const auto part : split_outside_brackets(text)) {
    if (const auto pattern = cli::parse_job_pattern(part)) {
      fuzz::require(!pattern->targets().empty());
    }
  }
  cli::Environment environment;
  environment.set("A=1");
  const auto exported = cli::export_environment(environment, std::string(text));
  for (const auto& variable : exported.environment.variables()) {
    fuzz::require(variable.find('=') != variable.npos);
  }
  // What Slurm says of such a file may be two lines.
  const auto programs = cli::parse_multi_prog(text, 4, "prog");
  fuzz::require(programs.has_value() || !programs.error().message.empty());
  const auto binding = cli::parse_gpu_binding(text);
  fuzz::require_one_line(binding);
  if (binding) {
    for (std::size_t task = 0; task < 9; ++task) {
      const auto gpus = binding->gpus_of(task, 2);
      fuzz::require(!gpus || !gpus->empty());
    }
  }
  const auto path = expand_pattern(text, {.job = JobId(7), .job_name = "a/b", .step = 0});
  fuzz::require(path.size() <= text.size() * 12);
  return 0;
}
