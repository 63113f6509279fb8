#include "core/request_words.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot::core {
namespace {

std::string message(std::string_view words) {
  const auto parsed = parse_request(words);
  return parsed ? "accepted: " + format_request(*parsed) : parsed.error().message;
}

TEST(RequestWords, ReadsACommandLine) {
  EXPECT_EQ(message(""), "accepted: none");
  EXPECT_EQ(message("gpu:2"), "accepted: gpu:2");
  EXPECT_EQ(message("--gres=gpu:2 --cpus-per-task=4 --mem=8G"),
            "accepted: gpu:2 --cpus-per-task=4 --mem=8G");
  EXPECT_EQ(message("  -G 2\t-c4 --mem 512"), "accepted: gpu:2 --cpus-per-task=4 --mem=512M");
  EXPECT_EQ(message("-Gtitanrtx:1 -c 0.5"), "accepted: gpu:titanrtx:1 --cpus-per-task=0.5");
  EXPECT_EQ(message("--gpus-per-task=1 -n 4 -N 2 -c 3"), "accepted: gpu:2 --cpus-per-task=6");
  EXPECT_EQ(message("--gpu-mem 8G --gpu-share=50% --gpus 2"),
            "accepted: --gpu-mem=8G --gpu-share=50% --gpus=2");
  EXPECT_EQ(message("gpu:1 -C a100|h100"), "accepted: gpu:1 --constraint=a100|h100");
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

RC_GTEST_PROP(RequestWordsProperty, WhatIsPrintedReadsBack, ()) {
  Request request;
  request.cpus = CpuMilli(*rc::gen::inRange<std::int64_t>(0, 1'000'000));
  request.memory = Bytes(*rc::gen::inRange<std::int64_t>(0, 1'000'000'000'000));
  if (*rc::gen::arbitrary<bool>()) {
    request.gpus = GpuRequest{*rc::gen::inRange<std::int64_t>(1, 65),
                              Tickets{Tickets::Kind::shard, *rc::gen::inRange<std::int64_t>(1, 99)},
                              {"a100", "h100"}};
  }
  RC_ASSERT((parse_request(format_request(request)) == request));
}

}  // namespace
}  // namespace aliquot::core
