#include "cli/named_call.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/help_text.hpp"

namespace aliquot::cli {

OrStatus<CommandLine> read_line(SlurmCommand command, int argc, char** argv, const Voice& voice) {
  auto line = read_arguments(command, argc, argv);
  if (!line) return tl::make_unexpected(refused(voice, line.error()));
  for (const auto& word : line->words) {
    if (word.name == "help") return tl::make_unexpected(print(help_text(command)));
    if (word.name == "usage") return tl::make_unexpected(print(usage_text(command)));
    if (word.name == "version") return tl::make_unexpected(print(version_text()));
  }
  return std::move(*line);
}

OrStatus<NamedCall> read_call(SlurmCommand command, int argc, char** argv, Voice& voice) {
  auto line = read_line(command, argc, argv, voice);
  if (!line) return tl::make_unexpected(line.error());
  auto options = gather_options(command, *line);
  if (!options) return tl::make_unexpected(refused(voice, options.error()));
  voice.set_level(voice_level(*options));
  std::vector<std::string_view> words(argv + line->rest, argv + argc);
  return NamedCall{std::move(*line), std::move(*options), std::move(words)};
}

bool is_command(std::string_view word, std::string_view name, std::size_t least) {
  return word.size() >= least && word.size() <= name.size() &&
         equals_ignoring_case(word, name.substr(0, word.size()));
}

int voice_level(const OptionSet& options) {
  return options.has("quiet") ? -1 : options.times("verbose");
}

int refused(const Voice& voice, const Misuse& misuse) {
  if (!misuse.plain.empty()) fmt::print(stderr, "{}\n", make_plain(misuse.plain));
  if (!misuse.why.empty()) voice.error(misuse.why);
  if (misuse.fatal) {
    voice.fatal(misuse.message);
  } else if (!misuse.message.empty()) {
    voice.error(misuse.message);
  }
  return misuse.status;
}

int try_help(std::string_view command) {
  fmt::print(stderr, "Try \"{} --help\" for more information\n", command);
  return 1;
}

}  // namespace aliquot::cli
