// `aliquot top`: the GPUs and their jobs, again and again until `q`.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "api/json.hpp"
#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/interrupts.hpp"
#include "cli/own_command.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "cli/view/engine_query.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/top_text.hpp"

namespace aliquot::cli {
namespace {

struct TopOptions {
  double delay_s = 2;
  bool once = false;
  bool json = false;
  bool mine = false;
  std::string sort = "busy";
  std::string filter;
  KubeOptions kube;
};

// Switches the terminal to a screen of its own, and back in the destructor.
class Screen {
 public:
  Screen() {
    if (::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    print("\x1b[?1049h\x1b[?25l");
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    print("\x1b[?25h\x1b[?1049l");
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  // How much fits.
  static void measure(TopView& view) {
    winsize size{};
    ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    view.lines = size.ws_row > 2 ? size.ws_row : 24U;
    view.columns = size.ws_col > 0 ? size.ws_col : 80U;
  }

  // One write, from the top left; what is left of the last page is wiped.
  static bool show(std::string_view text) {
    std::string out = "\x1b[H";
    for (const char c : text) {
      if (c == '\n') out += "\x1b[K\r";
      out += c;
    }
    return print(out + "\x1b[K\x1b[J") == kDone;
  }

 private:
  termios before_{};
  bool changed_ = false;
};

// Waits for keys, a signal, or the delay to pass.
TopWish wait(Interrupts& interrupts, TopView& view, Millis delay) {
  constexpr Millis kSlice(100);
  bool keys = true;
  for (Millis left = delay; left > Millis(0); left -= kSlice) {
    if (interrupts.wait(Millis(0))) return TopWish::quit;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const auto ready =
        ::poll(&input, keys ? 1 : 0, static_cast<int>(std::min(left, kSlice).value()));
    if (ready <= 0) continue;
    std::array<char, 64> typed{};
    const auto count = ::read(STDIN_FILENO, typed.data(), typed.size());
    if (count <= 0) {
      keys = false;  // nobody types
      continue;
    }
    auto wish = TopWish::show;
    std::string_view rest(typed.data(), static_cast<std::size_t>(count));
    while (!rest.empty() && wish != TopWish::quit) {
      wish = std::max(wish, press(view, next_key(rest)));
    }
    return wish;
  }
  return TopWish::look;
}

Reply<api::Overview> ask_top(const TopOptions& options) {
  auto overview = ask_overview(false, options.kube);
  const auto& space = options.kube.name_space;
  if (overview && !space.empty()) {
    // The GPUs of all, the pods of one.
    std::erase_if(overview->jobs,
                  [&](const auto& job) { return is_pending(job) && job.user != space; });
    for (auto& job : overview->jobs) {
      if (job.user != space) job.gpus.clear();
    }
  }
  return overview;
}

std::string page(const api::Overview& overview, TopView& view, const TopHistory& history) {
  const auto uid = ::getuid();
  return format_top(overview, {uid, user_name(Uid(uid)), wall_now()}, view, history,
                    Paint::for_stdout());
}

TopView view_of(const TopOptions& options) {
  return {.sort = parse_top_sort(options.sort).value_or(TopSort::busy),
          .filter = options.filter,
          .mine = options.mine};
}

int watch(const TopOptions& options) {
  Interrupts interrupts;
  const Screen screen;
  TopView view = view_of(options);
  TopHistory history;
  const Millis delay(static_cast<std::int64_t>(options.delay_s * 1'000));
  for (;;) {
    const auto overview = ask_top(options);
    if (overview) history.add(*overview, wall_now());
    const WallTime looked = wall_now();
    for (;;) {
      Screen::measure(view);
      // Whoever watches wants to see it come back.
      const auto text = overview
                            ? page(*overview, view, history)
                            : fmt::format("{}: {}\n", "no answer", error_text(overview.error()));
      if (!Screen::show(text)) return kFailed;
      const Millis left = std::clamp(looked + delay - wall_now(), Millis(1), delay);
      const TopWish wish = wait(interrupts, view, left);
      if (wish == TopWish::quit) return kDone;
      if (wish == TopWish::look) break;
    }
  }
}

int top(const TopOptions& options) {
  if (!options.json && !options.once && ::isatty(STDOUT_FILENO) == 1) {
    const auto first = ask_top(options);
    if (!first) return refused(first.error());  // not behind a screen that goes away again
    return watch(options);
  }
  const auto overview = ask_top(options);
  if (!overview) return refused(overview.error());
  if (options.json) return print(overview_json(*overview));
  TopView view = view_of(options);
  TopHistory history;
  history.add(*overview, wall_now());
  return print(page(*overview, view, history));
}

}  // namespace

void add_top(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, top);
  command.add_option("-d,--delay", options.delay_s, "Seconds between two looks")
      ->check([](const std::string& text) {
        char* end = nullptr;
        const double seconds = std::strtod(text.c_str(), &end);
        const bool right = end != text.c_str() && *end == '\0' && seconds >= 0.1 && seconds <= 3600;
        return right ? "" : quote(text) + " is no number of seconds from 0.1 to 3600";
      })
      ->capture_default_str();
  command
      .add_option("--sort", options.sort, "The order of the jobs: busy, memory, time, job or user")
      ->check([](const std::string& word) {
        return parse_top_sort(word) ? "" : quote(word) + " is not busy, memory, time, job or user";
      })
      ->capture_default_str();
  command.add_option("--filter", options.filter,
                     "Only jobs with these letters in their id, user, name, partition, state or "
                     "GPUs");
  command.add_flag("--mine", options.mine, "Only my jobs");
  command.add_flag("--once", options.once, "Print once, as when the output is no terminal");
  command.add_flag("--json", options.json, "Print one JSON object, once");
  add_kube_options(command, options.kube, true);
}

}  // namespace aliquot::cli
