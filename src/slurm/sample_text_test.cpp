#include "slurm/sample_text.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot::slurm {
namespace {

TEST(SampleText, IsReadable) {
  const std::vector<GpuLoad> gpus{
      {0, Compute(3'500), mib(12'000), gib(140), {{4'711, "eve", gib(2)}, {12, "bob", mib(1)}}},
      {1, Compute(49), Bytes(0), gib(140)}};
  const std::string text =
      "aliquot:0=35%/12000M/143360M/4711:eve:2048M/12:bob:1M,1=0.49%/0M/143360M";
  EXPECT_EQ(format_sample_text(gpus), text);
  EXPECT_EQ(parse_sample_text(text).value(), gpus);
  EXPECT_EQ(format_sample_text({}), "aliquot:");
  EXPECT_TRUE(parse_sample_text("aliquot:").value().empty());
}

TEST(SampleText, SaysWhatIsWrongAndWhatJobsDo) {
  const std::vector<GpuLoad> gpus{
      {.index = 0,
       .memory = gib(140),
       .foreign = {{7, "eve", gib(1)}},
       .trouble = "xid79",
       .jobs = {{4'711, Compute(1'200), gib(2)}, {12, Compute(0), {}}}}};
  const std::string text = "aliquot:0=0%/0M/143360M/7:eve:1024M/!xid79/@4711:12%:2048M/@12:0%:0M";
  EXPECT_EQ(format_sample_text(gpus), text);
  EXPECT_EQ(parse_sample_text(text).value(), gpus);
  EXPECT_TRUE(sample_texts_differ("aliquot:0=0%/0M/9M", "aliquot:0=0%/0M/9M/!lost"));
  EXPECT_TRUE(sample_texts_differ("aliquot:0=0%/0M/9M/@7:9%:1M", "aliquot:0=0%/0M/9M/@7:19%:1M"));
  EXPECT_TRUE(sample_texts_differ("aliquot:0=0%/0M/9M/@7:9%:1M", "aliquot:0=0%/0M/9M/@8:9%:1M"));
  EXPECT_FALSE(sample_texts_differ("aliquot:0=0%/0M/9M/@7:9%:1M", "aliquot:0=0%/0M/9M/@7:8%:2M"));
}

TEST(SampleText, NamesAnotherVersion) {
  const std::vector<GpuLoad> gpus{{1, Compute(0), Bytes(0), gib(140)}};
  EXPECT_EQ(format_sample_text(gpus, own_version()), format_sample_text(gpus));
  EXPECT_EQ(sample_version(format_sample_text(gpus)), "");
  const auto text = format_sample_text(gpus, "0.0.7-old");
  EXPECT_EQ(text, "aliquot:1=0%/0M/143360M,v=0.0.7-old");
  EXPECT_EQ(sample_version(text), "0.0.7-old");
  EXPECT_EQ(parse_sample_text(text).value(), gpus);
  EXPECT_TRUE(sample_texts_differ(format_sample_text(gpus), text));
  EXPECT_EQ(sample_version("rack 7,v=2"), "");
}

TEST(SampleText, WhatIsNotOursIsNothing) {
  for (const std::string_view text : {"",
                                      "rack 7",
                                      "aliquot:?",
                                      "aliquot:0",
                                      "aliquot:0=35%",
                                      "aliquot:0=35%/12000M",
                                      "aliquot:0=101%/0M/1M",
                                      "aliquot:0=35%/1M/12000",
                                      "aliquot:0=/%0M",
                                      "aliquot:0=1%/1M/1M,",
                                      "aliquot:x=1%/1M/1M",
                                      "aliquot:0=1.234%/1M/1M/",
                                      "aliquot:0=1%/1M/1M/7:eve",
                                      "aliquot:0=1%/1M/1M/7:e e:1M",
                                      "aliquot:0=1%/1M/1M/!",
                                      "aliquot:0=1%/1M/1M/!a b",
                                      "aliquot:0=1%/1M/1M/@7",
                                      "aliquot:0=1%/1M/1M/@7:1%:1",
                                      "aliquot:0=1%/1M/1M/@x:1%:1M",
                                      "aliquot:0=1%/1M/1M/1:a:1M/2:a:1M/3:a:1M/4:a:1M/5:a:1M"}) {
    EXPECT_FALSE(parse_sample_text(text)) << text;
  }
  EXPECT_TRUE(may_hold_samples(""));
  EXPECT_TRUE(may_hold_samples("aliquot:?"));
  EXPECT_FALSE(may_hold_samples("rack 7"));
}

TEST(SampleText, OnlyWhatPeopleWouldNoticeDiffers) {
  EXPECT_FALSE(sample_texts_differ("aliquot:0=35%/12000M/9M", "aliquot:0=39%/12100M/9M"));
  EXPECT_TRUE(sample_texts_differ("aliquot:0=35%/12000M/9M", "aliquot:0=40%/12000M/9M"));
  EXPECT_TRUE(sample_texts_differ("aliquot:0=35%/12000M/9M", "aliquot:0=35%/13000M/9M"));
  EXPECT_TRUE(sample_texts_differ("aliquot:0=1%/0M/9M", "aliquot:0=0%/0M/9M"));
  EXPECT_TRUE(sample_texts_differ("aliquot:0=1%/0M/9M", "aliquot:0=1%/0M/9M,1=0%/0M/9M"));
  EXPECT_TRUE(sample_texts_differ("", "aliquot:0=1%/0M/9M"));
  EXPECT_TRUE(sample_texts_differ("aliquot:0=1%/0M/9M", "aliquot:?"));
  EXPECT_FALSE(sample_texts_differ("aliquot:?", "aliquot:?"));
  EXPECT_TRUE(sample_texts_differ("aliquot:0=1%/1M/9M", "aliquot:0=1%/1M/9M/7:eve:1M"));
  EXPECT_FALSE(sample_texts_differ("aliquot:0=1%/1M/9M/7:eve:2M", "aliquot:0=1%/1M/9M/7:eve:1M"));
}

RC_GTEST_PROP(SampleText, ComesBack, ()) {
  std::vector<GpuLoad> gpus;
  const auto count = *rc::gen::inRange<std::int64_t>(0, 17);
  for (std::int64_t i = 0; i < count; ++i) {
    gpus.push_back({i, Compute(*rc::gen::inRange<std::int64_t>(0, 10'001)),
                    mib(*rc::gen::inRange<std::int64_t>(0, 200'000)), gib(200)});
  }
  const auto text = format_sample_text(gpus);
  RC_ASSERT(parse_sample_text(text) == gpus);
  RC_ASSERT(!sample_texts_differ(text, text));
}

}  // namespace
}  // namespace aliquot::slurm
