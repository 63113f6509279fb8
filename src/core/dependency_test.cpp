#include "core/dependency.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace aliquot::core {
namespace {

const WallTime kNow(1'000'000);

std::string canonical_dependency(std::string_view text) {
  const auto parsed = parse_dependencies(text);
  return parsed ? format_dependencies(*parsed) : "error: " + parsed.error().message;
}

DependencyState judge(std::string_view text, const std::map<std::int64_t, DependencyFacts>& facts) {
  return evaluate(
      *parse_dependencies(text),
      [&](const Dependency& one) -> std::optional<DependencyFacts> {
        const auto found = facts.find(one.job.value());
        if (found == facts.end()) return std::nullopt;
        return found->second;
      },
      kNow);
}

TEST(Dependency, ReadsWhatSlurmReads) {
  const std::map<std::string_view, std::string_view> canonical_texts{
      {"afterok:7:8,singleton", "afterok:7,afterok:8,singleton"},
      {"AfterAny:7_3?afternotok:9", "afterany:7_3?afternotok:9"},
      {"after:7+5:8", "after:7+5,after:8"},
      {"aftercorr:12_*", "aftercorr:12_*"},
      {"7", "afterany:7"},
      {"", ""}};
  for (const auto& [text, canonical] : canonical_texts) {
    EXPECT_EQ(canonical_dependency(text), canonical);
  }
  for (const char* text :
       {"bogus:1", "afterok", "afterok:", "afterok:x", "afterok:0", "afterok:-1", "singleton:3",
        "afterok:1,", "afterok:1?afterany:2,afterany:3", "afterok:1+5", "after:1+x", "after:1_x",
        "afterok:99999999999999999999", "after:1+9999999999"}) {
    EXPECT_FALSE(parse_dependencies(text)) << text;
  }
}

TEST(Dependency, AllOrAny) {
  const std::map<std::int64_t, DependencyFacts> facts{
      {1, {.begun = WallTime(5), .ended = true, .ok = true}},
      {2, {.begun = WallTime(5), .ended = true, .ok = false}},
      {3, {.begun = WallTime(5)}},
      {4, {}},
  };
  using enum DependencyVerdict;
  const std::map<DependencyVerdict, std::vector<std::string_view>> verdicts{
      {fulfilled,
       {"afterok:1", "afternotok:2", "afterany:1:2", "afterok:2?afterok:1", "after:3",
        "afterok:99"}},
      {never, {"afterok:2", "afternotok:1", "afterok:2,afterany:3"}},
      {waiting, {"afterany:1:3", "afterok:2?afterany:3", "after:4"}}};
  for (const auto& [verdict, texts] : verdicts) {
    for (const auto text : texts) EXPECT_EQ(judge(text, facts).verdict, verdict) << text;
  }
  EXPECT_EQ(describe(judge("afterok:1:3", facts)), "afterok:3(unfulfilled)");
  EXPECT_EQ(describe(judge("afterok:2", facts)), "afterok:2(failed)");
}

TEST(Dependency, WaitsSoManyMinutesAfterTheStart) {
  const std::map<std::int64_t, DependencyFacts> facts{{1, {.begun = kNow - minutes(3)}}};
  EXPECT_EQ(judge("after:1+3", facts).verdict, DependencyVerdict::fulfilled);
  const auto state = judge("after:1+5", facts);
  EXPECT_EQ(state.verdict, DependencyVerdict::waiting);
  EXPECT_EQ(state.next, kNow + minutes(2));
}

RC_GTEST_PROP(Dependency, IsReadBack, ()) {
  Dependencies written;
  written.any = *rc::gen::arbitrary<bool>();
  const auto count = *rc::gen::inRange(2, 6);
  for (int i = 0; i < count; ++i) {
    Dependency one{.kind = *rc::gen::element(Dependency::Kind::after, Dependency::Kind::after_ok,
                                             Dependency::Kind::after_corr,
                                             Dependency::Kind::singleton)};
    if (one.kind != Dependency::Kind::singleton) {
      one.job = JobId(*rc::gen::inRange(1, 100'000));
      if (*rc::gen::arbitrary<bool>()) one.task = *rc::gen::inRange(0, 1'000);
    }
    if (one.kind == Dependency::Kind::after) one.delay = minutes(*rc::gen::inRange(0, 60));
    written.all.push_back(one);
  }
  const auto back = parse_dependencies(format_dependencies(written));
  RC_ASSERT(back.has_value());
  RC_ASSERT(*back == written);
}

}  // namespace
}  // namespace aliquot::core
