// api_walk: random walks over the daemon's API (world.hpp), for ALIQUOT_WALK_SECONDS (60), or until
// ALIQUOT_WALK_COMMANDS requests were made. Walks run in a child, so that an abort is found as
// well; what fails is made short and printed. ALIQUOT_WALK_SEED=N takes the one walk of that
// number, and tells every step of it.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "engine/walk/world.hpp"

namespace {

using aliquot::engine::walk::Deed;
using aliquot::engine::walk::Deeds;
using aliquot::engine::walk::Dice;
using aliquot::engine::walk::kDeeds;
using aliquot::engine::walk::Violation;
using aliquot::engine::walk::World;

constexpr int kSteps = 250;
constexpr int kWalksPerChild = 25;
constexpr unsigned kPatience = 300;  // seconds for one walk, however busy the machine is

struct Shared {
  std::uint64_t seed = 0;
  std::uint64_t walks = 0;
  Deeds deeds;

  // All but what nobody asked for.
  [[nodiscard]] std::uint64_t commands() {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : deeds.all) sum += count;
    return sum - deeds[Deed::preemption] - deeds[Deed::kill];
  }
};

std::string in_words(const Deeds& deeds) {
  constexpr std::array<const char*, kDeeds> kWords{
      "submissions",       "cancels",         "holds and releases",
      "updates",           "requeues",        "suspends and resumes",
      "changes of limits", "of reservations", "GPUs drained and resumed",
      "questions",         "others",          "jobs were preempted",
      "daemons killed"};
  std::string text;
  for (std::size_t i = 0; i < kDeeds; ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", deeds.all[i], kWords[i]);
  }
  return text;
}

std::vector<Dice> throw_dice(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Dice> steps(kSteps);
  for (Dice& dice : steps) {
    for (std::uint32_t& die : dice) die = static_cast<std::uint32_t>(random());
  }
  return steps;
}

std::string folder() {
  const std::string base =
      access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path().string();
  return fmt::format("{}/aliquot-walk-{}", base, getpid());
}

// The violation in words, or nothing.
std::string walk(const std::vector<Dice>& steps, bool aloud, Deeds* done = nullptr) {
  alarm(kPatience);
  try {
    World world(folder());
    if (aloud) {
      world.told = [](const std::string& what) {
        fmt::print("  {}\n", aliquot::make_plain(what));
        std::fflush(stdout);
      };
    }
    for (const Dice& dice : steps) world.step(dice);
    world.wind_up();
    for (std::size_t i = 0; done != nullptr && i < kDeeds; ++i) {
      done->all[i] += world.deeds.all[i];
    }
  } catch (const Violation& violation) {
    return violation.what();
  }
  return "";
}

// In a child of its own: 0 if all went well.
template <class Body>
int in_child(bool aloud, Body body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    if (!aloud) {
      (void)!std::freopen("/dev/null", "w", stdout);
      (void)!std::freopen("/dev/null", "w", stderr);
    }
    const int status = body();
    std::fflush(stdout);
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::remove_all(fmt::format("/dev/shm/aliquot-walk-{}", child));
  return status;
}

bool fails(const std::vector<Dice>& steps) {
  return in_child(false, [&] { return walk(steps, false).empty() ? 0 : 1; }) != 0;
}

// Leaves out what is not needed for it to fail, halves first and single steps last.
std::vector<Dice> shorten(std::vector<Dice> steps) {
  for (std::size_t size = steps.size() / 2; size > 0; size /= 2) {
    for (std::size_t at = 0; at < steps.size();) {
      std::vector<Dice> fewer(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(at));
      fewer.insert(fewer.end(),
                   steps.begin() + static_cast<std::ptrdiff_t>(std::min(at + size, steps.size())),
                   steps.end());
      if (fails(fewer)) {
        steps = std::move(fewer);
      } else {
        at += size;
      }
    }
  }
  return steps;
}

int tell(std::uint64_t seed, const std::vector<Dice>& steps) {
  fmt::print("seed {}, {} steps:\n", seed, steps.size());
  return in_child(true, [&] {
    const std::string violation = walk(steps, true);
    fmt::print("{}\n", violation.empty() ? "  all is well" : "VIOLATION: " + violation);
    return violation.empty() ? 0 : 1;
  });
}

std::optional<std::int64_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::nullopt : aliquot::parse_digits(text);
}

}  // namespace

int main() {
  spdlog::set_level(spdlog::level::off);
  if (const auto seed = number_in("ALIQUOT_WALK_SEED")) {
    const auto number = static_cast<std::uint64_t>(*seed);
    const auto steps = throw_dice(number);
    return tell(number, fails(steps) ? shorten(steps) : steps) == 0 ? 0 : 1;
  }
  const auto commands = number_in("ALIQUOT_WALK_COMMANDS");
  const std::chrono::seconds length(
      number_in("ALIQUOT_WALK_SECONDS").value_or(commands ? 24 * 3'600 : 60));
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) return 2;
  new (shared) Shared();
  shared->seed = std::random_device()();
  const std::uint64_t first = shared->seed;
  const auto until = std::chrono::steady_clock::now() + length;
  const auto enough = [&] {
    return std::chrono::steady_clock::now() >= until ||
           (commands && shared->commands() >= static_cast<std::uint64_t>(*commands));
  };
  do {
    const int status = in_child(true, [&] {
      for (int i = 0; i < kWalksPerChild && !enough(); ++i) {
        const std::string violation = walk(throw_dice(shared->seed), false, &shared->deeds);
        if (!violation.empty()) {
          fmt::print("VIOLATION: {}\n", violation);
          return 1;
        }
        ++shared->seed;
        ++shared->walks;
      }
      return 0;
    });
    if (status == 0) continue;
    if (WIFSIGNALED(status)) fmt::print("VIOLATION: ended by signal {}\n", WTERMSIG(status));
    tell(shared->seed, shorten(throw_dice(shared->seed)));
    return 1;
  } while (!enough());
  fmt::print("{} walks of {} steps, from seed {}, {} commands: {}: no violation\n", shared->walks,
             kSteps, first, shared->commands(), in_words(shared->deeds));
  return 0;
}
