#include "sim/shell.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/placement.hpp"
#include "sim/shell_words.hpp"

// What the shell answers is in tests/shell, as text. Here is what text cannot show.

namespace aliquot::sim {
namespace {

ShellFiles memory_files(std::map<std::string, std::string>& files) {
  return {.read = [&](const std::string& path) -> Result<std::string> {
            const auto found = files.find(path);
            if (found != files.end()) return found->second;
            return fail(Error::Code::not_found, "no {}", path);
          },
          .write = [&](const std::string& path, std::string_view text) -> Result<void> {
            files[path] = std::string(text);
            return {};
          }};
}

TEST(ShellWords, SplitsAtBlanksAndComments) {
  EXPECT_EQ(split_words("  a  b=1\t# c d"), (std::vector<std::string_view>{"a", "b=1"}));
  EXPECT_EQ(split_words("a#b"), (std::vector<std::string_view>{"a#b"}));
  EXPECT_TRUE(split_words(" \r\n").empty());
}

TEST(ShellWords, ReadsLengths) {
  EXPECT_EQ(parse_length("500ms").value(), Millis(500));
  EXPECT_EQ(parse_length("1.5s").value(), Millis(1500));
  EXPECT_EQ(parse_length("2m").value(), minutes(2));
  EXPECT_EQ(parse_length("1h").value(), hours(1));
  for (const auto* text : {"", "s", "5", "5 s", "-5s", "5d", "9999999h", "1..5s"}) {
    EXPECT_FALSE(parse_length(text).has_value()) << text;
  }
}

// Random histories: restoring what was saved gives the same ledger, however it came about, and
// releasing everything leaves everything free.
RC_GTEST_PROP(Shell, KeepsItsBooks, ()) {
  std::map<std::string, std::string> files;
  Shell shell(memory_files(files));
  RC_ASSERT(shell.execute("node add n1 cpus=16 memory=64G overcommit=1.2").has_value());
  RC_ASSERT(shell.execute("gpu add n1 model=a100 memory=40G count=2").has_value());
  RC_ASSERT(shell.execute("node add n2 cpus=16 memory=64G").has_value());
  RC_ASSERT(shell.execute("gpu add n2 model=h100 memory=80G count=4").has_value());
  const auto empty = shell.execute("show nodes").value();
  const auto policy =
      *rc::gen::element<std::string>("aliquot", "least-occupied", "best-fit", "fgd");
  RC_ASSERT(shell.execute("policy " + policy).has_value());

  const auto steps = *rc::gen::inRange(1, 40);
  for (int i = 0; i < steps; ++i) {
    const auto job = *rc::gen::inRange(1, 12);
    const auto what = *rc::gen::element<std::string>(
        "gpu:1", "gpu:2", "--gpu-mem=8G", "--gpu-share=30%", "mps:50", "gpu:h100:1 --cpus=4",
        "--gpu-mem=1G --gpu-share=60% --mem=9G", "--cpus=3");
    const auto verb = *rc::gen::element<std::string>("request", "request", "release", "resize");
    const auto before = shell.execute("show").value();
    const auto answer = shell.execute(verb == "release" ? fmt::format("release {}", job)
                                                        : fmt::format("{} {} {}", verb, job, what));
    if (!answer) RC_ASSERT(shell.execute("show").value() == before);
  }
  const auto shown = shell.execute("show").value();
  RC_ASSERT(shell.execute("save here").has_value());
  for (int job = 1; job < 12; ++job)
    static_cast<void>(shell.execute(fmt::format("release {}", job)));
  RC_ASSERT(shell.execute("show nodes").value() == empty);
  RC_ASSERT(shell.execute("restore here").has_value());
  RC_ASSERT(shell.execute("show").value() == shown);
}

}  // namespace
}  // namespace aliquot::sim
