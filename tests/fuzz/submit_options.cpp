// The parsers behind single options: moments, signals, job ids, --export, --multi-prog, file names.
#include "base/text.hpp"
#include "cli/slurm/export.hpp"
#include "cli/slurm/file_pattern.hpp"
#include "cli/slurm/job_ids.hpp"
#include "cli/slurm/moment.hpp"
#include "cli/slurm/multi_prog.hpp"
#include "cli/slurm/options.hpp"
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
  fuzz::require_one_line(cli::parse_multi_prog(text, 4));
  cli::FileNames names;
  names.job_name = "a/b";
  const auto path = cli::expand_file_pattern(text, names);
  fuzz::require(path.size() <= text.size() * 12);
  return 0;
}
