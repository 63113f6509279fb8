// How a process that lost its environment finds its grant: by the control group it is in.
#include "enforce/find_grant.hpp"

#include <gtest/gtest.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "enforce/abi.h"
#include "enforce/uuid.hpp"

namespace aliquot::enforce::test {
namespace {

namespace fs = std::filesystem;

TEST(Uuid, NvmlFindsASliceByItsOwnName) {
  const unsigned char bytes[16] = {0x81, 0x78, 0xb5, 0x5f, 0x61, 0x26, 0x8f, 0x32,
                                   0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0xff};
  char text[kUuidText];
  uuid_text(bytes, false, text);
  EXPECT_STREQ(text, "GPU-8178b55f-6126-8f32-0102-0304050607ff");
  uuid_text(bytes, true, text);
  EXPECT_STREQ(text, "MIG-8178b55f-6126-8f32-0102-0304050607ff");
}

TEST(FindGrant, TheJobOfAGroup) {
  // v2, v1, with steps and systemd around it.
  EXPECT_EQ(job_in_groups("0::/aliquot/job_7\n", "/aliquot"), 7U);
  EXPECT_EQ(job_in_groups("0::/aliquot/job_7.12/step_0\n", "/aliquot"), 7U) << "requeued";
  EXPECT_EQ(
      job_in_groups("5:cpu,cpuacct:/user.slice\n4:memory:/aliquot/job_12/step_0\n", "/aliquot"),
      12U);
  EXPECT_EQ(
      job_in_groups("0::/system.slice/slurmstepd.scope/job_345/step_batch/user/task_0\n", "slurm"),
      345U);
  EXPECT_EQ(job_in_groups("1:freezer:/slurm_n1/uid_1000/job_9/step_0", "slurm"), 9U);
  // Not ours, or not a job's.
  for (const char* text :
       {"", "\n\n", "0::/\n", "0::/aliquot\n", "0::/aliquot/job_\n", "0::/aliquot/job_x\n",
        "0::/aliquot/job_7x\n", "0::/job_7/aliquot\n", "0::/user.slice/job_7\n", "/aliquot/job_7\n",
        "0::/aliquot/job_0\n", "::::\n", "0:/aliquot/job_7\n"}) {
    EXPECT_EQ(job_in_groups(text, "/aliquot"), 0U) << text;
  }
  EXPECT_EQ(
      job_in_groups(("0::/" + std::string(100'000, 'a') + "/aliquot/job_7\n").c_str(), "/aliquot"),
      0U);
}

class FindGrantTest : public testing::Test {
 protected:
  FindGrantTest() {
    std::string pattern = testing::TempDir() + "places-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    fs::create_directories(root_ / "places");
    fs::create_directories(root_ / "grants" / "7");
    write(root_ / "cgroup", "0::/aliquot/job_7\n");
    write(place(), "/aliquot\n" + (root_ / "grants").string() + "\n");
  }
  ~FindGrantTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  fs::path place() const { return root_ / "places" / ALIQUOT_PLACE_ENGINE; }
  std::string find(uid_t owner = ::geteuid()) const {
    char folder[ALIQUOT_PATH_BYTES] = {};
    const bool found = find_grant_by_group((root_ / "places").c_str(), owner,
                                           (root_ / "cgroup").c_str(), folder, sizeof folder);
    return found ? folder : "";
  }
  fs::path root_;
};

TEST_F(FindGrantTest, IsTheFolderOfItsJob) {
  EXPECT_EQ(find(), (root_ / "grants" / "7").string());
  fs::remove(root_ / "grants" / "7");  // a job without shares
  EXPECT_EQ(find(), "");
}

TEST_F(FindGrantTest, WhatCannotBeReadMeansNothing) {
  fs::remove(root_ / "cgroup");
  EXPECT_EQ(find(), "");
  write(root_ / "cgroup", "0::/aliquot/job_7\n");
  for (const std::string text :
       {"", "\n", "/aliquot", "/aliquot\n", "/aliquot\nrelative\n", "\n/x\n"}) {
    write(place(), text);
    EXPECT_EQ(find(), "") << text;
  }
  write(place(), std::string(100'000, '/'));
  EXPECT_EQ(find(), "");
  fs::remove(place());
  fs::create_directory(place());
  EXPECT_EQ(find(), "");
}

TEST_F(FindGrantTest, OnlyItsOwnersWordCounts) {
  EXPECT_EQ(find(::geteuid() + 1), "");
  ASSERT_EQ(::chmod(place().c_str(), 0666), 0);
  EXPECT_EQ(find(), "");
  fs::rename(place(), root_ / "elsewhere");
  ASSERT_EQ(::chmod((root_ / "elsewhere").c_str(), 0644), 0);
  fs::create_symlink(root_ / "elsewhere", place());
  EXPECT_EQ(find(), "");
}

TEST_F(FindGrantTest, AContainerHasItsGrantAtAFixedPlace) {
  const auto here = [&](uid_t owner = ::geteuid()) {
    char folder[ALIQUOT_PATH_BYTES] = {};
    return find_grant_here((root_ / "grant").c_str(), owner, folder, sizeof folder)
               ? std::string(folder)
               : std::string();
  };
  EXPECT_EQ(here(), "");
  fs::create_directory(root_ / "grant");
  ASSERT_EQ(::chmod((root_ / "grant").c_str(), 0755), 0);
  EXPECT_EQ(here(), (root_ / "grant").string());
  EXPECT_EQ(here(::geteuid() + 1), "");
  ASSERT_EQ(::chmod((root_ / "grant").c_str(), 0777), 0);
  EXPECT_EQ(here(), "");
}

}  // namespace
}  // namespace aliquot::enforce::test
