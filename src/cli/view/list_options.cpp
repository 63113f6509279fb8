#include "cli/view/list_options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/console.hpp"

namespace aliquot::cli {

ColumnChoice chosen_columns(const OptionSet& options, bool use_environment) {
  const auto find = [&](std::string_view name) {
    const auto* value = options.find(name);
    const bool counts =
        value != nullptr && (use_environment || value->source != Source::environment);
    return counts ? value : nullptr;
  };
  const auto* letters = find("format");
  const auto* names = find("Format");
  if (names == nullptr) return {letters == nullptr ? "" : letters->text, false, letters != nullptr};
  // In the environment SQUEUE_FORMAT2 comes before SQUEUE_FORMAT.
  const bool later = letters != nullptr && letters->source == Source::command_line &&
                     (names->source < letters->source || names->place < letters->place);
  return later ? ColumnChoice{letters->text, false, true} : ColumnChoice{names->text, true, true};
}

int show_every(const OptionSet& options, const Voice& voice, const std::function<int()>& show) {
  if (!options.has("iterate")) return show();
  const auto seconds = options.number("iterate");
  if (!seconds || *seconds < 1 || *seconds > 1'000'000) {
    const bool nodes = voice.name() == "sinfo";
    voice.error(fmt::format("{}--iterate={}", nodes ? "Error: invalid entry for " : "",
                            options.text("iterate")));
    if (!nodes) fmt::print(stderr, "\n");
    return 1;
  }
  while (true) {
    show();
    ::sleep(static_cast<unsigned>(*seconds));
    print("\n");
  }
}

}  // namespace aliquot::cli
