#include "core/request_words.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "base/size.hpp"
#include "core/request_parse.hpp"

namespace aliquot::core {
namespace {

std::string message(std::string_view words) {
  const auto parsed = parse_request(words);
  if (!parsed) return parsed.error().message;
  return fmt::format("{}; {} CPUs; {}", format_gpu_request(parsed->gpus),
                     static_cast<double>(parsed->cpus.value()) / kOneCpu.value(),
                     format_size(parsed->memory));
}

TEST(RequestWords, ReadsACommandLine) {
  const std::map<std::string_view, std::string_view> meanings{
      {"", "none; 0 CPUs; 0"},
      {"gpu:2", "gpu:2; 0 CPUs; 0"},
      {"--gres=gpu:2 --cpus-per-task=4 --mem=8G", "gpu:2; 4 CPUs; 8G"},
      {"  -G 2\t-c4 --mem 512", "gpu:2; 4 CPUs; 512M"},
      {"-Gtitanrtx:1 -c 0.5", "gpu:titanrtx:1; 0.5 CPUs; 0"},
      {"--gpus-per-task=1 -n 4 -N 2 -c 3", "gpu:2; 6 CPUs; 0"},
      {"--gpu-mem 8G --gpu-share=50% --gpus 2", "--gpu-mem=8G --gpu-share=50% --gpus=2; 0 CPUs; 0"},
      {"gpu:1 -C a100|h100", "gpu:1 --constraint=a100|h100; 0 CPUs; 0"}};
  for (const auto& [words, meaning] : meanings) EXPECT_EQ(message(words), meaning);
}

TEST(RequestWords, RefusesNonsense) {
  EXPECT_EQ(message("--frobnicate=1"),
            "'--frobnicate=1' is no option of a request: write words such as gpu:1, --gpu-mem=8G "
            "or --cpus-per-task=2");
  EXPECT_EQ(message("gpu:1 --mem"), "--mem wants a value: write it after the option");
  EXPECT_EQ(message("gpu:1 mps:2"),
            "--gres is given as 'gpu:1' and as 'mps:2': write only one of them");
  EXPECT_EQ(message("-n 0"), "--ntasks='0' is not a number we can use: write at least 1");
  EXPECT_EQ(message("-c 0"),
            "--cpus-per-task='0' is not a number of CPUs: write one such as 2 or 0.5");
  EXPECT_EQ(message("-c 1 -n 3 -N 2"),
            "--ntasks=3 do not spread evenly over 2 nodes: write a multiple of 2");
  EXPECT_EQ(message("-c 9000000000000000 -n 9000000000000000"),
            "--cpus-per-task='9000000000000000' times 9000000000000000 tasks is more than we can "
            "count");
  EXPECT_EQ(message("--mem=0"),
            "--mem='0' says nothing here: write a size such as 8G, or leave it out");
  EXPECT_EQ(message("-"),
            "'-' is no option of a request: write words such as gpu:1, --gpu-mem=8G "
            "or --cpus-per-task=2");
}

RC_GTEST_PROP(RequestWordsProperty, ReadsAnyAmounts, ()) {
  const auto milli = *rc::gen::inRange<std::int64_t>(1, 1'000'000);
  const auto memory = Bytes(*rc::gen::inRange<std::int64_t>(1, 1'000'000'000'000));
  const GpuRequest gpus{*rc::gen::inRange<std::int64_t>(1, 65),
                        Tickets{Tickets::Kind::shard, *rc::gen::inRange<std::int64_t>(1, 99)},
                        {"a100", "h100"}};
  const auto words = fmt::format("{} -c {}.{:03} --mem={}", format_gpu_request(gpus), milli / 1'000,
                                 milli % 1'000, format_size(memory));
  RC_LOG() << words << '\n';
  RC_ASSERT((parse_request(words) == Request{gpus, CpuMilli(milli), memory}));
}

}  // namespace
}  // namespace aliquot::core
