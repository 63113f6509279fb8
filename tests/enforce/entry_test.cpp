// Getting in: whichever way a program finds the driver, it finds the limit. And what is loaded with
// the library: libc, and nothing else.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "enforce/job.hpp"

namespace aliquot::enforce::test {
namespace {

using standin::test::Machine;

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (pipe != nullptr && std::fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
  if (pipe != nullptr) pclose(pipe);
  return text;
}

class Way : public testing::TestWithParam<const char*> {};

TEST_P(Way, leads_to_the_limit) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  const bool linked = std::string(GetParam()) == "linked";
  Victim victim(&job, GetParam(), {}, linked);
  ASSERT_EQ(victim.begin(), 0) << victim.text();
  EXPECT_EQ(victim.tell("alloc " + std::to_string(400 * kMiB)), 0);
  for (const char* kind : {"alloc 209715200", "async 209715200", "vmm 209715200 0",
                           "managed 209715200", "array 8192 8192"})
    EXPECT_EQ(victim.tell(kind), 2) << kind;
  ASSERT_EQ(victim.tell("info"), 0);
  EXPECT_EQ(victim.number("total"), kGiB);
  EXPECT_EQ(victim.tell("launch 40 1000"), 0);
  EXPECT_EQ(victim.tell("sync"), 0);
  EXPECT_GE(job.use().launches, 30U);
  EXPECT_EQ(job.charged(), machine.used(0));
}

INSTANTIATE_TEST_SUITE_P(Entry, Way,
                         testing::Values("linked", "dlsym", "proc", "deepbind", "path", "default"),
                         [](const auto& each) { return std::string(each.param); });

TEST(Entry, a_libcuda_by_another_name) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  // Without the name inside as well: only the handle leads to it.
  const std::string copy = job.folder() + "/driver-580.so";
  std::ifstream from(ALIQUOT_STANDIN_DIR "/libcuda.so.1", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(from), {}};
  for (auto at = bytes.find("libcuda.so.1"); at != std::string::npos;
       at = bytes.find("libcuda.so.1"))
    bytes[at + 3] = 'X';
  std::ofstream(copy, std::ios::binary) << bytes;
  Victim victim(&job, "path", {{"ALIQUOT_LIBCUDA", copy}});
  ASSERT_EQ(victim.begin(), 0) << victim.text();
  EXPECT_EQ(victim.tell("alloc " + std::to_string(400 * kMiB)), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(400 * kMiB)), 2);
}

TEST(Entry, dlerror_is_the_programs_own) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  const std::string text = output_of(
      "LD_LIBRARY_PATH=" ALIQUOT_STANDIN_DIR " LD_PRELOAD=" ALIQUOT_LIBRARY " ALIQUOT_GRANT=" +
      job.folder() + " " ALIQUOT_VICTIM_DIR "/proc_addresses dlerror 2>&1");
  EXPECT_EQ(text, "quiet\n");
}

TEST(Entry, python_ctypes) {
  if (output_of("command -v python3").empty()) GTEST_SKIP() << "there is no python3";
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  const std::string script =
      "import ctypes as c\n"
      "d = c.CDLL('libcuda.so.1')\n"
      "x = c.c_void_p(); p = c.c_uint64()\n"
      "print(d.cuInit(0), d.cuDevicePrimaryCtxRetain(c.byref(x), 0), d.cuCtxSetCurrent(x),\n"
      "      d.cuMemAlloc_v2(c.byref(p), c.c_size_t(400 << 20)),\n"
      "      d.cuMemAlloc_v2(c.byref(p), c.c_size_t(200 << 20)))\n";
  const std::string path = job.folder() + "/script.py";
  std::ofstream(path) << script;
  const std::string text = output_of("LD_LIBRARY_PATH=" ALIQUOT_STANDIN_DIR
                                     " LD_PRELOAD=" ALIQUOT_LIBRARY " ALIQUOT_GRANT=" +
                                     job.folder() + " python3 " + path + " 2>&1");
  EXPECT_EQ(text, "0 0 0 0 2\n");
}

// The driver's own table says which function each name is at each version, with and without the
// per-thread flag; the wrapped answer must stand for the same one.
TEST(Entry, proc_addresses_of_all_versions_and_flags) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  const std::string environment = "LD_LIBRARY_PATH=" ALIQUOT_STANDIN_DIR " ";
  const std::string program = ALIQUOT_VICTIM_DIR "/proc_addresses";
  const std::string bare = output_of(environment + program + " 2>&1");
  const std::string wrapped =
      output_of(environment + "LD_PRELOAD=" ALIQUOT_LIBRARY " ALIQUOT_GRANT=" + job.folder() + " " +
                program + " 2>&1");
  std::istringstream before(bare);
  std::istringstream after(wrapped);
  std::string one;
  std::string other;
  int lines = 0;
  int ours = 0;
  while (std::getline(before, one) && std::getline(after, other)) {
    ++lines;
    // "name version flags symbol library"
    std::istringstream a(one);
    std::istringstream b(other);
    std::string name, version, flags, symbol, library, symbol2, library2;
    a >> name >> version >> flags >> symbol >> library;
    b >> name >> version >> flags >> symbol2 >> library2;
    EXPECT_EQ(symbol, symbol2) << one;
    if (library2 == "libaliquot.so") ++ours;
  }
  EXPECT_GT(lines, 1000);
  EXPECT_GT(ours, 300);
}

TEST(Entry, the_library_needs_only_libc) {
  const std::string needed = output_of("readelf -dW " ALIQUOT_LIBRARY
                                       " | sed -n 's/.*NEEDED.*\\[\\(.*\\)\\]/\\1/p' | sort");
  // The latter two have been part of libc since 2.34; on older systems dlopen and robust mutexes
  // are in there.
  EXPECT_EQ(needed, "libc.so.6\nlibdl.so.2\nlibpthread.so.0\n");
  EXPECT_EQ(output_of("nm -DC " ALIQUOT_LIBRARY " | grep -E 'std::|__cxa_throw|operator new'"), "");
  EXPECT_NE(output_of("readelf -dW " ALIQUOT_LIBRARY).find("NOW"), std::string::npos);
}

TEST(Entry, the_library_exports_its_list_and_nothing_else) {
  std::set<std::string> expected{"dlsym", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"};
  std::ifstream list(ALIQUOT_ENTRIES);
  std::string line;
  while (std::getline(list, line))
    if (line.rfind("HOOK(", 0) == 0) expected.insert(line.substr(5, line.find(',') - 5));
  EXPECT_GT(expected.size(), 70U);
  std::istringstream found(output_of("nm -D --defined-only " ALIQUOT_LIBRARY " | cut -d' ' -f3"));
  std::set<std::string> exported;
  while (std::getline(found, line)) exported.insert(line);
  EXPECT_EQ(exported, expected);
}

TEST(Entry, programs_without_cuda_run_as_before) {
  const std::string preload = "LD_PRELOAD=" ALIQUOT_LIBRARY " ALIQUOT_GRANT=/nonexistent ";
  EXPECT_EQ(output_of(preload + "sh -c 'echo fine; exit 0' 2>&1"), "fine\n");
  EXPECT_EQ(output_of(preload + "ls -d / 2>&1"), "/\n");
  // A name of ours in a program without a driver is not there.
  EXPECT_EQ(output_of(preload + ALIQUOT_VICTIM_DIR "/proc_addresses absent 2>&1"), "absent\n");
}

}  // namespace
}  // namespace aliquot::enforce::test
