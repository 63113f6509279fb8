#include "cli/view/top_view.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace aliquot::cli {
namespace {

constexpr std::array<std::string_view, 5> kTopSorts{"busy", "memory", "time", "job", "user"};
constexpr std::size_t kJobsPerPage = 10;
constexpr std::size_t kLongestFilter = 40;

TopWish type_filter(TopView& view, std::string_view key) {
  if (key == "\r" || key == "\n") {
    view.typing = false;
  } else if (key == "\x1b") {
    view.typing = false;
    view.filter.clear();
  } else if (key == "\x7f" || key == "\b") {
    // A letter of UTF-8 goes as a whole.
    while (!view.filter.empty()) {
      const char last = view.filter.back();
      view.filter.pop_back();
      if ((static_cast<unsigned char>(last) & 0xc0U) != 0x80U) break;
    }
  } else if (key == "\x15") {
    view.filter.clear();
  } else if (static_cast<unsigned char>(key[0]) >= ' ' && view.filter.size() < kLongestFilter) {
    view.filter += key;
  }
  view.first = 0;
  return TopWish::show;
}

void scroll_jobs(TopView& view, bool down, std::size_t by) {
  view.first = down ? view.first + by : view.first - std::min(view.first, by);
}

}  // namespace

std::string_view to_string(TopSort sort) { return kTopSorts[static_cast<std::size_t>(sort)]; }

std::optional<TopSort> parse_top_sort(std::string_view word) {
  const auto found = std::ranges::find(kTopSorts, word);
  if (found == kTopSorts.end()) return std::nullopt;
  return static_cast<TopSort>(found - kTopSorts.begin());
}

TopWish press(TopView& view, std::string_view key) {
  if (key.empty()) return TopWish::show;
  if (view.typing) return type_filter(view, key);
  if (std::exchange(view.help, false) && key != "q" && key != "Q") return TopWish::show;
  if (key == "\x1b[A" || key == "\x1bOA" || key == "k") {
    scroll_jobs(view, false, 1);
  } else if (key == "\x1b[B" || key == "\x1bOB" || key == "j") {
    scroll_jobs(view, true, 1);
  } else if (key == "\x1b[5~") {
    scroll_jobs(view, false, kJobsPerPage);
  } else if (key == "\x1b[6~") {
    scroll_jobs(view, true, kJobsPerPage);
  } else if (key == "\x1b[H" || key == "\x1b[1~" || key == "\x1bOH") {
    view.first = 0;
  } else if (key == "\x1b[F" || key == "\x1b[4~" || key == "\x1bOF") {
    view.first = SIZE_MAX / 2;
  } else if (key == "\x1b") {
    view.filter.clear();
  } else if (key == "s" || key == ">") {
    view.sort = static_cast<TopSort>((static_cast<std::size_t>(view.sort) + 1) % kTopSorts.size());
  } else if (key == "<") {
    view.sort = static_cast<TopSort>((static_cast<std::size_t>(view.sort) + kTopSorts.size() - 1) %
                                     kTopSorts.size());
  } else if (key == "r") {
    view.reversed = !view.reversed;
  } else if (key == "u") {
    view.mine = !view.mine;
  } else if (key == "p") {
    view.waiting = !view.waiting;
  } else if (key == "g") {
    view.gpus = view.gpus == TopGpus::some  ? TopGpus::all
                : view.gpus == TopGpus::all ? TopGpus::none
                                            : TopGpus::some;
  } else if (key == "/") {
    view.typing = true;
  } else if (key == "?" || key == "h") {
    view.help = true;
  } else if (key == "q" || key == "Q") {
    return TopWish::quit;
  } else {
    return TopWish::look;
  }
  return TopWish::show;
}

std::string_view next_key(std::string_view& input) {
  std::size_t length = input.empty() ? 0 : 1;
  if (input.size() > 2 && input[0] == '\x1b' && (input[1] == '[' || input[1] == 'O')) {
    length = 2;
    while (length < input.size() && (input[length] < '@' || input[length] > '~')) ++length;
    length = std::min(length + 1, input.size());
  } else {
    while (length > 0 && length < input.size() &&
           (static_cast<unsigned char>(input[length]) & 0xc0U) == 0x80U) {
      ++length;
    }
  }
  const auto key = input.substr(0, length);
  input.remove_prefix(length);
  return key;
}

}  // namespace aliquot::cli
