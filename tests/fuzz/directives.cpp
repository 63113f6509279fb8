// #SBATCH lines: whatever the script holds, they are read or refused, and what is read is an
// option.
#include "cli/jobs/script.hpp"
#include "cli/option_set.hpp"
#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  if (!cli::check_script(text)) return 0;
  const auto words = cli::read_directives(text, true);
  if (!words) {
    fuzz::require(words.error().status == 255 || !words.error().message.empty());
    return 0;
  }
  cli::OptionSet options(cli::SlurmCommand::sbatch);
  for (const auto& word : *words) {
    const auto set = options.set(word.name, word.value, cli::Source::script);
    if (set) {
      fuzz::require(options.has(word.name));
    } else {
      fuzz::require(!set.error().message.empty() && set.error().status != 0);
    }
  }
  return 0;
}
