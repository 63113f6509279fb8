// The words after `scontrol update`, a line each, and the times of sacct -S.
#include "cli/control/scontrol_update.hpp"

#include "api/json.hpp"
#include "base/text.hpp"
#include "cli/moment.hpp"
#include "cli/view/job_text.hpp"
#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  const WallTime now(1'794'725'075'000);
  const auto update = cli::parse_update(split(text, '\n'), now);
  if (update) {
    fuzz::require(update->jobs.size() + update->nodes.size() == 1);
    for (const auto& job : update->jobs) {
      fuzz::require(!job.ids.empty() && api::from_json<api::JobSpec>(job.body).has_value());
      const auto body = job.body_for(minutes(30));
      fuzz::require(!body || api::from_json<api::JobSpec>(*body).has_value());
    }
  } else {
    fuzz::require(!update.error().message.empty());
  }
  fuzz::require_one_line(cli::parse_moment(text, now, cli::Tense::past));
  cli::array_elements(text);
  return 0;
}
