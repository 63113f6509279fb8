// What whoever watches `aliquot top` has chosen: the order, whose jobs, how far down; and the keys
// that choose. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aliquot::cli {

enum class TopSort : std::uint8_t { busy, memory, time, job, user };
std::string_view to_string(TopSort sort);
std::optional<TopSort> parse_top_sort(std::string_view word);

enum class TopGpus : std::uint8_t { some, all, none };

struct TopView {
  TopSort sort = TopSort::busy;
  bool reversed = false;
  std::string filter = {};  // a part of a job's id, user, name, partition, state or GPUs
  bool mine = false;
  bool waiting = true;  // those that wait are shown, too
  TopGpus gpus = TopGpus::some;
  std::size_t first = 0;  // of the jobs that are listed
  bool typing = false;    // the filter
  bool help = false;

  // Of the screen; 0: as much as there is.
  std::size_t lines = 0;
  std::size_t columns = 0;
};

enum class TopWish : std::uint8_t { show, look, quit };

// One key, as terminals send it: a letter, or what begins with ESC.
TopWish press(TopView& view, std::string_view key);
// Takes the first key off what was read.
std::string_view next_key(std::string_view& input);

}  // namespace aliquot::cli
