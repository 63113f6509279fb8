#include "sim/expected.hpp"

#include <gtest/gtest.h>

#include <map>

namespace aliquot::sim {
namespace {

constexpr std::string_view kTable =
    "workload,policy,seeds,alloc_100,alloc_130,alloc_sd_100\n"
    "default,06-FGD,10,95.23,95.39,0.10\n"
    "default,02-DotProd,10,90.62,,\n"
    "gpuspec33,05-BestFit,10,80.39,93.09,0.26\n";

TEST(Expected, ReadsPublishedTables) {
  const auto all = parse_expected(kTable, "f").value();
  const auto rows = expected_of(all, "default").value();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].policy, "fgd");
  ASSERT_EQ(rows[0].points.size(), 2U);
  EXPECT_DOUBLE_EQ(rows[0].points[0].allocated, 95.23);
  EXPECT_DOUBLE_EQ(rows[0].points[0].deviation.value(), 0.10);
  EXPECT_FALSE(rows[0].points[1].deviation.has_value());
  EXPECT_EQ(rows[1].policy, "dot-product");
  EXPECT_EQ(rows[1].points.size(), 1U);
  EXPECT_EQ(expected_of(all, "gpuspec33").value().front().policy, "best-fit");
}

TEST(Expected, NamesTheWorkloadsThereAre) {
  const auto all = parse_expected(kTable, "f").value();
  EXPECT_EQ(
      expected_of(all, "gpuspec3").error().message,
      "no published workload 'gpuspec3'; did you mean 'gpuspec33'? (say which with --workload)");
  EXPECT_FALSE(parse_expected("workload,policy,seeds,alloc_100\na,b,0,1\n", "f").has_value());
  EXPECT_FALSE(parse_expected("workload,policy,seeds,alloc_100\na,b,1,x\n", "f").has_value());
}

TEST(Expected, FindsTheWorkloadInTheFilesName) {
  const std::map<std::string_view, std::string_view> names{
      {"../data/openb_pod_list_default.csv", "default"},
      {"pods.csv", "pods"},
      {"a_b", "b"},
      {"", ""}};
  for (const auto& [file, workload] : names) EXPECT_EQ(workload_name(file), workload);
}

}  // namespace
}  // namespace aliquot::sim
