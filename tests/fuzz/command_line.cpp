// Whole command lines of the commands that Slurm has too: a letter for the command, then one word
// for each line. They are read or refused, and what is refused says why.
#include <array>

#include "base/text.hpp"
#include "cli/jobs/unused_words.hpp"
#include "cli/option_set.hpp"
#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostWords = 64;
  const auto text = fuzz::as_text(data, size);
  if (text.empty()) return 0;
  const auto command = static_cast<cli::SlurmCommand>(
      static_cast<unsigned char>(text[0]) % (static_cast<unsigned>(cli::SlurmCommand::sdiag) + 1));
  std::vector<std::string> words{std::string(cli::command_name(command))};
  for (const std::string_view word : split(text.substr(1), '\n')) {
    if (words.size() == kMostWords) break;
    words.emplace_back(word.substr(0, word.find('\0')));  // a word ends there
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int argc = static_cast<int>(words.size());

  const auto line = cli::read_arguments(command, argc, argv.data(), true);
  if (!line) {
    fuzz::require(line.error().status > 0 && line.error().status < 256);
    return 0;
  }
  fuzz::require(line->rest <= words.size());
  const auto options = cli::gather_options(command, *line);
  if (!options) {
    fuzz::require(!options.error().message.empty() && options.error().status > 0);
    return 0;
  }
  for (const auto& word : line->words) fuzz::require(options->has(word.name));
  if (command > cli::SlurmCommand::salloc) return 0;
  const auto taken = cli::check_words(*options);
  fuzz::require(taken.has_value() || !taken.error().message.empty());
  return 0;
}
