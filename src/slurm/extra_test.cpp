#include "slurm/extra.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot::slurm {
namespace {

TEST(Extra, IsReadable) {
  const std::vector<GpuLoad> gpus{{0, Compute(3'500), mib(12'000), gib(140)},
                                  {1, Compute(49), Bytes(0), gib(140)}};
  EXPECT_EQ(format_extra(gpus), "aliquot:0=35%/12000M/143360M,1=0%/0M/143360M");
  EXPECT_EQ(format_extra({}), "aliquot:");
  EXPECT_EQ(parse_extra("aliquot:0=35%/12000M/143360M,1=0%/0M/143360M").value(),
            (std::vector<ExtraGpu>{{0, 35, 12'000, 143'360}, {1, 0, 0, 143'360}}));
  EXPECT_TRUE(parse_extra("aliquot:").value().empty());
}

TEST(Extra, WhatIsNotOursIsNothing) {
  for (const std::string_view text :
       {"", "rack 7", "aliquot:?", "aliquot:0", "aliquot:0=35%", "aliquot:0=35%/12000M",
        "aliquot:0=101%/0M/1M", "aliquot:0=35%/1M/12000", "aliquot:0=/%0M", "aliquot:0=1%/1M/1M,",
        "aliquot:x=1%/1M/1M"}) {
    EXPECT_FALSE(parse_extra(text)) << text;
  }
  EXPECT_TRUE(extra_is_ours(""));
  EXPECT_TRUE(extra_is_ours("aliquot:?"));
  EXPECT_FALSE(extra_is_ours("rack 7"));
}

TEST(Extra, OnlyWhatPeopleWouldNoticeDiffers) {
  EXPECT_FALSE(extra_differs("aliquot:0=35%/12000M/9M", "aliquot:0=39%/12100M/9M"));
  EXPECT_TRUE(extra_differs("aliquot:0=35%/12000M/9M", "aliquot:0=40%/12000M/9M"));
  EXPECT_TRUE(extra_differs("aliquot:0=35%/12000M/9M", "aliquot:0=35%/13000M/9M"));
  EXPECT_TRUE(extra_differs("aliquot:0=1%/0M/9M", "aliquot:0=0%/0M/9M"));
  EXPECT_TRUE(extra_differs("aliquot:0=1%/0M/9M", "aliquot:0=1%/0M/9M,1=0%/0M/9M"));
  EXPECT_TRUE(extra_differs("", "aliquot:0=1%/0M/9M"));
  EXPECT_TRUE(extra_differs("aliquot:0=1%/0M/9M", "aliquot:?"));
  EXPECT_FALSE(extra_differs("aliquot:?", "aliquot:?"));
}

RC_GTEST_PROP(Extra, ComesBack, ()) {
  std::vector<GpuLoad> gpus;
  const auto count = *rc::gen::inRange<std::int64_t>(0, 17);
  for (std::int64_t i = 0; i < count; ++i) {
    gpus.push_back({i, Compute(*rc::gen::inRange<std::int64_t>(0, 10'001)),
                    mib(*rc::gen::inRange<std::int64_t>(0, 200'000)), gib(200)});
  }
  const auto text = format_extra(gpus);
  const auto parsed = parse_extra(text);
  RC_ASSERT(parsed && parsed->size() == gpus.size());
  RC_ASSERT(!extra_differs(text, text));
}

}  // namespace
}  // namespace aliquot::slurm
