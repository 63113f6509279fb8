// What a job waits for: `afterok:7:8_3,singleton`. The text in and out, and whether it is
// fulfilled, from facts about the jobs named that the engine looks up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::core {

struct Dependency {
  enum class Kind : std::uint8_t {
    after,         // it has begun, or was cancelled; `+min` later where said
    after_any,     // it has ended
    after_ok,      // it has ended well
    after_not_ok,  // it has ended badly
    after_corr,    // the same element of that array has ended well
    singleton,     // no earlier job of this name and user is left
  };
  Kind kind = Kind::after_any;
  JobId job = {};                         // none for singleton
  std::optional<std::int64_t> task = {};  // one element; without it an array counts as a whole
  Millis delay = Millis(0);               // after
  bool all_tasks = false;                 // said of an array as a whole: `7_*`

  friend bool operator==(const Dependency&, const Dependency&) = default;
};

struct Dependencies {
  std::vector<Dependency> all;
  bool any = false;  // `?`: one is enough

  [[nodiscard]] bool empty() const { return all.empty(); }
  friend bool operator==(const Dependencies&, const Dependencies&) = default;
};

// `,` means all of them, `?` any; both in one text is an error. The empty text is no dependency. A
// job alone, `7`, is afterany.
Result<Dependencies> parse_dependencies(std::string_view text);
// parse_dependencies reads it back.
std::string format_dependencies(const Dependencies& dependencies);

// What is known of a job, or of all elements of an array together.
struct DependencyFacts {
  std::optional<WallTime> begun = {};  // all have: the last one's start
  bool ended = false;                  // all have
  bool ok = false;                     // ended, each with exit code 0
};

enum class DependencyVerdict : std::uint8_t { fulfilled, waiting, never };

struct DependencyState {
  DependencyVerdict verdict = DependencyVerdict::fulfilled;
  Dependencies left;                  // what is still waited for, or can never be
  std::optional<WallTime> next = {};  // when time alone may change the answer
};

// Facts of a job that nobody knows (any more) are absent: such a dependency counts as fulfilled,
// since unknown jobs are refused at submission.
using DependencyLookup = std::function<std::optional<DependencyFacts>(const Dependency&)>;
DependencyState evaluate(const Dependencies& dependencies, const DependencyLookup& lookup,
                         WallTime now);

// As squeue shows it: `afterok:7(unfulfilled),singleton(unfulfilled)`; `(failed)` where it never
// will be.
std::string describe(const DependencyState& state);

}  // namespace aliquot::core
