// `aliquot top`: the GPUs and their jobs, again and again until `q`.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
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
#include "cli/view/top_text.hpp"

namespace aliquot::cli {
namespace {

struct TopOptions {
  double delay_s = 2;
  bool once = false;
  bool json = false;
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

  // One write, from the top left; what is left of the last page is wiped.
  static bool show(std::string_view text) {
    winsize size{};
    ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    const std::size_t lines = size.ws_row > 2 ? size.ws_row - 1U : 23U;
    const std::size_t columns = size.ws_col > 0 ? size.ws_col : 80U;
    std::string out = "\x1b[H";
    for (const char c : clip(text, lines, columns)) {
      if (c == '\n') out += "\x1b[K";
      out += c;
    }
    return print(out + "\x1b[J\x1b[2mq: quit · any key: look again\x1b[0m") == kDone;
  }

 private:
  termios before_{};
  bool changed_ = false;
};

enum class Wish { go_on, quit };

// Waits for a key, a signal, or the delay to pass.
Wish wait(Interrupts& interrupts, Millis delay) {
  constexpr Millis kSlice(100);
  bool keys = true;
  for (Millis left = delay; left > Millis(0); left -= kSlice) {
    if (interrupts.wait(Millis(0))) return Wish::quit;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const auto ready =
        ::poll(&input, keys ? 1 : 0, static_cast<int>(std::min(left, kSlice).value()));
    if (ready <= 0) continue;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) != 1) {
      keys = false;  // nobody types
      continue;
    }
    return key == 'q' || key == 'Q' ? Wish::quit : Wish::go_on;
  }
  return Wish::go_on;
}

Reply<api::Overview> ask(const TopOptions& options) {
  auto overview = ask_overview(false, options.kube);
  const auto& space = options.kube.name_space;
  if (overview && !space.empty()) {
    // The GPUs of all, the pods of one.
    for (auto& job : overview->jobs) {
      if (job.user != space) job.gpus.clear();
    }
  }
  return overview;
}

std::string page(const api::Overview& overview) {
  const auto uid = ::getuid();
  return format_top(overview, {uid, user_name(Uid(uid)), wall_now()}, Paint::for_stdout());
}

int watch(const TopOptions& options) {
  Interrupts interrupts;
  const Screen screen;
  for (;;) {
    const auto overview = ask(options);
    // Whoever watches wants to see it come back.
    const auto text = overview ? page(*overview)
                               : fmt::format("{}: {}\n", "no answer", error_text(overview.error()));
    if (!Screen::show(text)) return kFailed;
    const Millis delay(static_cast<std::int64_t>(options.delay_s * 1'000));
    if (wait(interrupts, delay) == Wish::quit) return kDone;
  }
}

int top(const TopOptions& options) {
  if (!options.json && !options.once && ::isatty(STDOUT_FILENO) == 1) {
    const auto first = ask(options);
    if (!first) return refused(first.error());  // not behind a screen that goes away again
    return watch(options);
  }
  const auto overview = ask(options);
  if (!overview) return refused(overview.error());
  return print(options.json ? overview_json(*overview) : page(*overview));
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
  command.add_flag("--once", options.once, "Print once, as when the output is no terminal");
  command.add_flag("--json", options.json, "Print one JSON object, once");
  add_kube_options(command, options.kube, true);
}

}  // namespace aliquot::cli
