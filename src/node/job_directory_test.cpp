#include "node/job_directory.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "node/testing.hpp"

namespace aliquot::node {
namespace {

// Once the folders of all runs of a job were named alike; a run of then is where it was started.
TEST(JobDirectory, OfARunOfAnEarlierVersionIsFound) {
  const test::Folder jobs;
  const node::Run run{JobId(7), 1};
  EXPECT_EQ(JobDirectory(jobs.path(), run).path(), jobs.path() / "7.1");
  std::filesystem::create_directory(jobs.path() / "7");
  EXPECT_EQ(JobDirectory(jobs.path(), run).path(), jobs.path() / "7.1");
  Launch launch;
  launch.job_id = 7;
  launch.attempt = 1;
  launch.script = "/script";
  std::ofstream(jobs.path() / "7" / "launch.json") << to_json(launch);
  EXPECT_EQ(JobDirectory(jobs.path(), run).path(), jobs.path() / "7");
  EXPECT_EQ(JobDirectory(jobs.path(), {JobId(7), 2}).path(), jobs.path() / "7.2");
  std::filesystem::create_directory(jobs.path() / "7.1");
  EXPECT_EQ(JobDirectory(jobs.path(), run).path(), jobs.path() / "7.1");
}

}  // namespace
}  // namespace aliquot::node
