#include "base/exposition.hpp"

#include <gtest/gtest.h>

namespace aliquot {
namespace {

TEST(ExpositionTest, WritesFamiliesWithTheirSamples) {
  Exposition out;
  out.family("a_bytes", Exposition::Kind::gauge, "what is\nthere");
  out.sample({{"gpu", "0"}, {"user", ""}, {"name", "a\"b\\c\nd"}}, 85'899'345'920);
  out.sample({}, 0.25);
  out.single("b_total", Exposition::Kind::counter, "so many", 3);
  EXPECT_EQ(out.take(),
            "# HELP a_bytes what is\\nthere\n# TYPE a_bytes gauge\n"
            "a_bytes{gpu=\"0\",name=\"a\\\"b\\\\c\\nd\"} 85899345920\na_bytes 0.25\n"
            "# HELP b_total so many\n# TYPE b_total counter\nb_total 3\n");
}

TEST(ExpositionTest, BucketsHaveWhatIsBelowThem) {
  Histogram times({0.5, 2});
  times.add(0.25);
  times.add(1);
  times.add(10);
  Exposition out;
  out.family("t_seconds", Exposition::Kind::histogram, "t");
  out.sample(times, {{"handler", "bind"}});
  EXPECT_EQ(out.take(),
            "# HELP t_seconds t\n# TYPE t_seconds histogram\n"
            "t_seconds_bucket{handler=\"bind\",le=\"0.5\"} 1\n"
            "t_seconds_bucket{handler=\"bind\",le=\"2\"} 2\n"
            "t_seconds_bucket{handler=\"bind\",le=\"+Inf\"} 3\n"
            "t_seconds_sum{handler=\"bind\"} 11.25\nt_seconds_count{handler=\"bind\"} 3\n");
}

}  // namespace
}  // namespace aliquot
