#include "slurm/admin_comment.hpp"

#include <gtest/gtest.h>

namespace aliquot::slurm {
namespace {

TEST(AdminComment, RemarksLeaveTheWordsAlone) {
  std::string comment = "site: x; aliquot: --gpu-mem=8G";
  EXPECT_EQ(remarked_on(comment, Remark::escape), std::nullopt);
  comment = add_remark(comment, Remark::escape, "n1");
  comment = add_remark(comment, Remark::broken_gpu, "n2");
  EXPECT_EQ(comment, "site: x; aliquot: --gpu-mem=8G; escape on n1; broken GPU on n2");
  EXPECT_EQ(add_remark(comment, Remark::escape, "n3"), comment);
  EXPECT_EQ(remarked_on(comment, Remark::escape), "n1");
  EXPECT_EQ(remarked_on(comment, Remark::broken_gpu), "n2");
  EXPECT_EQ(asked_words(comment), "--gpu-mem=8G");
}

TEST(AdminComment, ASiteMayMentionUs) {
  EXPECT_EQ(asked_words("aliquot: mps:25; see aliquot:123; escape on n1"), "mps:25");
  EXPECT_EQ(asked_words("aliquot: mps:25; ticket about aliquot: none"), "mps:25");
  EXPECT_EQ(asked_words("see aliquot: 123; aliquot: gpu:1"), "gpu:1");
  EXPECT_EQ(asked_words("see aliquot: 123"), std::nullopt);
  EXPECT_EQ(asked_words("aliquot:123"), std::nullopt);
}

TEST(AdminComment, WhatWasUsedStandsOnceForEachNode) {
  std::string comment = "aliquot: mps:25; escape on n1";
  EXPECT_EQ(used_in(comment), std::nullopt);
  comment = set_used(comment, "n1", {Millis(12'340), mib(7'900)});
  EXPECT_EQ(comment, "aliquot: mps:25; escape on n1; used 12.3 s 7900M on n1");
  comment = set_used(comment, "n2", {Millis(1'000), mib(10)});
  comment = set_used(comment, "n1", {Millis(20'000), mib(8'000)});
  EXPECT_EQ(comment,
            "aliquot: mps:25; escape on n1; used 1.0 s 10M on n2; used 20.0 s 8000M on n1");
  EXPECT_EQ(used_in(comment), (Used{Millis(21'000), mib(8'000)}));
  EXPECT_EQ(asked_words(comment), "mps:25");
  EXPECT_EQ(remarked_on(comment, Remark::escape), "n1");
  EXPECT_EQ(set_used("", "n1", {}), "used 0.0 s 0M on n1");
  EXPECT_EQ(used_in("used up; used 1 s on n1; used x s 1M on n1"), std::nullopt);
}

}  // namespace
}  // namespace aliquot::slurm
