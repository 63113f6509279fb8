#include "core/dependency.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"

namespace aliquot::core {
namespace {

using Kind = Dependency::Kind;

constexpr std::array<std::pair<Kind, std::string_view>, 6> kKinds{{
    {Kind::after, "after"},
    {Kind::after_any, "afterany"},
    {Kind::after_ok, "afterok"},
    {Kind::after_not_ok, "afternotok"},
    {Kind::after_corr, "aftercorr"},
    {Kind::singleton, "singleton"},
}};

std::string_view name_of(Kind kind) { return kKinds[static_cast<std::size_t>(kind)].second; }

constexpr std::size_t kMaxDependencies = 1'000;
constexpr std::int64_t kMaxDelayMinutes = 60L * 24 * 366;

// `7`, `7_3` or `7+5`.
Result<Dependency> parse_job(Kind kind, std::string_view text) {
  Dependency dependency{.kind = kind};
  const std::string_view whole = text;
  if (const auto plus = text.find('+'); plus != std::string_view::npos) {
    const auto delay = parse_digits(text.substr(plus + 1));
    if (kind != Kind::after || !delay || *delay > kMaxDelayMinutes) {
      return fail(Error::Code::invalid_argument, "{}: a delay is after:JOB+MINUTES", quote(whole));
    }
    dependency.delay = minutes(*delay);
    text = text.substr(0, plus);
  }
  if (const auto line = text.find('_'); line != std::string_view::npos) {
    // `7_*` is the whole array, as is `7`.
    if (text.substr(line + 1) == "*") {
      dependency.all_tasks = true;
    } else {
      const auto task = parse_digits(text.substr(line + 1));
      if (!task) return fail(Error::Code::invalid_argument, "{} is no job id", quote(whole));
      dependency.task = *task;
    }
    text = text.substr(0, line);
  }
  const auto job = parse_digits(text);
  if (!job || *job == 0)
    return fail(Error::Code::invalid_argument, "{} is no job id", quote(whole));
  dependency.job = JobId(*job);
  return dependency;
}

std::string format_one(const Dependency& dependency) {
  std::string out(name_of(dependency.kind));
  if (dependency.kind == Kind::singleton) return out;
  out += fmt::format(":{}", dependency.job);
  if (dependency.task) out += fmt::format("_{}", *dependency.task);
  if (dependency.all_tasks) out += "_*";
  if (dependency.delay > Millis(0)) out += fmt::format("+{}", dependency.delay / minutes(1));
  return out;
}

DependencyVerdict judge(const Dependency& dependency, const std::optional<DependencyFacts>& facts,
                        WallTime now, std::optional<WallTime>& next) {
  if (!facts) return DependencyVerdict::fulfilled;
  const auto when = [](bool yes) {
    return yes ? DependencyVerdict::fulfilled : DependencyVerdict::waiting;
  };
  switch (dependency.kind) {
    case Kind::after: {
      if (facts->ended && !facts->begun) return DependencyVerdict::fulfilled;  // cancelled
      if (!facts->begun) return DependencyVerdict::waiting;
      const WallTime due = *facts->begun + dependency.delay;
      if (due > now) next = next ? std::min(*next, due) : due;
      return when(due <= now);
    }
    case Kind::after_any:
    case Kind::singleton:
      return when(facts->ended);
    case Kind::after_ok:
    case Kind::after_corr:
      if (facts->ended && !facts->ok) return DependencyVerdict::never;
      return when(facts->ended);
    case Kind::after_not_ok:
      if (facts->ended && facts->ok) return DependencyVerdict::never;
      return when(facts->ended);
  }
  return DependencyVerdict::waiting;
}

}  // namespace

Result<Dependencies> parse_dependencies(std::string_view text) {
  Dependencies result;
  if (text.empty()) return result;
  result.any = text.find('?') != std::string_view::npos;
  if (result.any && text.find(',') != std::string_view::npos) {
    return fail(Error::Code::invalid_argument, "{} mixes ',' (all) and '?' (any): use one of them",
                quote(text));
  }
  for (const std::string_view part : split(text, result.any ? '?' : ',')) {
    const auto words = split(part, ':');
    const auto kind = std::ranges::find_if(
        kKinds, [&](const auto& one) { return equals_ignoring_case(one.second, words[0]); });
    if (kind == kKinds.end() && words.size() == 1 && is_digits(part.substr(0, 1))) {
      result.all.push_back(TRY(parse_job(Kind::after_any, part)));
      continue;
    }
    if (kind == kKinds.end()) {
      return fail(Error::Code::invalid_argument,
                  "{} is no dependency: use after, afterany, afterok, afternotok, aftercorr or "
                  "singleton",
                  quote(words[0]));
    }
    if ((kind->first == Kind::singleton) != (words.size() == 1)) {
      return fail(Error::Code::invalid_argument, "{}: singleton takes no job, all others need one",
                  quote(part));
    }
    if (kind->first == Kind::singleton) result.all.push_back({.kind = Kind::singleton});
    for (std::size_t i = 1; i < words.size(); ++i) {
      result.all.push_back(TRY(parse_job(kind->first, words[i])));
    }
    if (result.all.size() > kMaxDependencies) {
      return fail(Error::Code::out_of_range, "more than {} dependencies", kMaxDependencies);
    }
  }
  return result;
}

std::string format_dependencies(const Dependencies& dependencies) {
  std::string out;
  for (const Dependency& dependency : dependencies.all) {
    if (!out.empty()) out += dependencies.any ? '?' : ',';
    out += format_one(dependency);
  }
  return out;
}

DependencyState evaluate(const Dependencies& dependencies, const DependencyLookup& lookup,
                         WallTime now) {
  DependencyState state;
  state.left.any = dependencies.any;
  bool fulfilled_one = false;
  bool waiting_one = false;
  bool never_one = false;
  for (const Dependency& dependency : dependencies.all) {
    const auto verdict = judge(dependency, lookup(dependency), now, state.next);
    if (verdict == DependencyVerdict::fulfilled) {
      fulfilled_one = true;
      continue;
    }
    (verdict == DependencyVerdict::waiting ? waiting_one : never_one) = true;
    state.left.all.push_back(dependency);
  }
  if (dependencies.any) {
    if (fulfilled_one) return {};
    if (waiting_one) state.verdict = DependencyVerdict::waiting;
    if (!waiting_one && never_one) state.verdict = DependencyVerdict::never;
  } else if (never_one) {
    state.verdict = DependencyVerdict::never;
  } else if (waiting_one) {
    state.verdict = DependencyVerdict::waiting;
  }
  return state;
}

std::string describe(const DependencyState& state) {
  const std::string_view mark =
      state.verdict == DependencyVerdict::never ? "(failed)" : "(unfulfilled)";
  std::string out;
  for (const Dependency& dependency : state.left.all) {
    if (!out.empty()) out += state.left.any ? '?' : ',';
    out += format_one(dependency);
    out += mark;
  }
  return out;
}

}  // namespace aliquot::core
