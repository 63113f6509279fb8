// Jobs held to their shares, through the real daemon, the real library and the stand-in's driver.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/daemon_fixture.hpp"

namespace aliquot::engine {
namespace {

constexpr const char* kLoad = ALIQUOT_BIN_DIR "/aliquot-load";

class EnforceTest : public DaemonTest {
 protected:
  explicit EnforceTest(const std::string& settings = "", const std::string& gpus = "h200:1")
      : DaemonTest(settings, gpus) {
    fs::create_directory(out());
    fs::permissions(out(), fs::perms::all);
  }

  std::string out() const { return folder_ + "/out"; }
  api::JobSpec share(const std::string& memory, const std::string& script) const {
    auto wanted = spec(script);
    wanted.gpu_mem = memory;
    wanted.gpu_share = "20%";
    wanted.work_dir = out();
    return wanted;
  }
  std::string output(std::int64_t job) const {
    return read(out() + "/slurm-" + std::to_string(job) + ".out");
  }
  // The number behind a key of aliquot-load's JSON; -1: it is not there.
  static double field(const std::string& text, const std::string& key) {
    const auto at = text.find("\"" + key + "\":");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + key.size() + 3);
  }
  template <class Condition>
  static bool eventually(Condition condition, int seconds = 120) {
    for (int i = 0; i < seconds * 20; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(50ms);
    }
    return false;
  }
  bool runs(std::int64_t job) {
    const auto info = get<api::JobInfo>("/v1/jobs/" + std::to_string(job));
    return info && info->state == "RUNNING";
  }
  std::size_t servers() const {
    std::error_code error;
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_ + "/state/run/mps", error)) {
      if (fs::exists(entry.path() / "p" / "control")) ++count;
    }
    return count;
  }
  std::int64_t submit_as(uid_t uid, const api::JobSpec& wanted) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0) ::_exit(1);
      const auto response = post("/v1/jobs", api::to_json(wanted));
      const auto submitted = api::from_json<api::Submitted>(response.body);
      const std::int64_t id = submitted ? submitted->job_id : 0;
      ::_exit(::write(pipe[1], &id, sizeof id) == sizeof id ? 0 : 1);
    }
    ::close(pipe[1]);
    std::int64_t id = 0;
    EXPECT_EQ(::read(pipe[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
    ::close(pipe[0]);
    ::waitpid(child, nullptr, 0);
    return id;
  }
};

constexpr double kGiB = 1073741824.0;

TEST_F(EnforceTest, AShareIsHeldToItsMemory) {
  const auto grows = submit(share("10G", std::string(kLoad) + " --grow --json"));
  const auto greedy = submit(share("10G", std::string(kLoad) + " --mem 20G --json; echo rc=$?"));
  const auto info = wait(grows);
  EXPECT_EQ(info.state, "COMPLETED") << output(grows);
  EXPECT_EQ(info.enforcement, "mps(user)+library+leases+watchdog");
  EXPECT_GT(field(output(grows), "allocated"), 9 * kGiB) << output(grows);
  EXPECT_LE(field(output(grows), "allocated"), 10 * kGiB);
  EXPECT_EQ(field(output(grows), "total"), 10 * kGiB);
  EXPECT_GT(info.gpu_memory_peak, static_cast<std::int64_t>(9 * kGiB));
  wait(greedy);
  EXPECT_NE(output(greedy).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << output(greedy);
  EXPECT_NE(output(greedy).find("rc=4"), std::string::npos);
}

TEST_F(EnforceTest, TheNeighboursOfAGreedyJobKeepTheirs) {
  const std::string quiet = std::string(kLoad) + " --mem 9G --verify --seconds 3 --busy 20% --json";
  const auto first = submit(share("10G", quiet));
  const auto second = submit(share("10G", quiet));
  const auto greedy = submit(share("30G", std::string(kLoad) + " --grow --seconds 2 --json"));
  for (const auto id : {first, second, greedy}) {
    const auto info = wait(id);
    EXPECT_EQ(info.state, "COMPLETED") << info.reason << ' ' << info.reason_detail << output(id);
  }
  EXPECT_NE(output(first).find("\"verified\":\"yes\""), std::string::npos) << output(first);
  EXPECT_LE(field(output(greedy), "allocated"), 30 * kGiB) << output(greedy);
}

TEST_F(EnforceTest, AWholeGpuIsLeftAlone) {
  auto wanted = share("10G", "env; " + std::string(kLoad) + " --mem 100G --json");
  wanted.gpu_mem.reset();
  wanted.gpu_share.reset();
  wanted.gres = "gpu:1";
  wanted.environment = {"PATH=/usr/bin:/bin", "ALIQUOT_GRANT=/outer",
                        "CUDA_MPS_PIPE_DIRECTORY=/outer"};
  const auto id = submit(wanted);
  const auto info = wait(id);
  EXPECT_EQ(info.state, "COMPLETED") << output(id);
  EXPECT_EQ(info.enforcement, "exclusive");
  EXPECT_EQ(output(id).find("libaliquot"), std::string::npos);
  EXPECT_EQ(output(id).find("/outer"), std::string::npos);
  EXPECT_EQ(servers(), 0U);
}

TEST_F(EnforceTest, TheServerStopsWhenItIsEmpty) {
  const auto id = submit(share("10G", std::string(kLoad) + " --mem 1G --seconds 1"));
  ASSERT_TRUE(eventually([&] { return servers() == 1; }));
  wait(id);
  EXPECT_TRUE(eventually([&] { return servers() == 0; }));
  EXPECT_TRUE(fs::is_empty(folder_ + "/state/run/grants"));
}

TEST_F(EnforceTest, LimitsSurviveAKilledDaemon) {
  const std::string go = out() + "/go";
  const auto id =
      submit(share("10G", "for i in {1..4000}; do [[ -e " + go +
                              " ]] && break; sleep 0.05; done; " + kLoad + " --grow --json"));
  ASSERT_TRUE(eventually([&] { return runs(id) && servers() == 1; }));
  stop(SIGKILL);
  start();
  std::ofstream(go) << "go\n";
  const auto info = wait(id);
  EXPECT_EQ(info.state, "COMPLETED") << output(id);
  EXPECT_EQ(info.enforcement, "mps(user)+library+leases+watchdog");
  EXPECT_GT(field(output(id), "allocated"), 9 * kGiB) << output(id);
  EXPECT_LE(field(output(id), "allocated"), 10 * kGiB);
  // The new daemon knows the old one's server.
  EXPECT_TRUE(eventually([&] { return servers() == 0; }));
}

TEST_F(EnforceTest, StepsHaveWhatTheJobHas) {
  const auto id = submit(share("10G", "sleep 600"));
  ASSERT_TRUE(eventually([&] { return runs(id) && servers() == 1; }));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto target = "/v1/jobs/" + std::to_string(id) + "/steps";
    // A job counts as running a moment before it is prepared; until then there are no steps, and
    // never one without the limits.
    const bool there = eventually([&] {
      const auto response = post(target, R"({"name":"x"})");
      if (response.status != 200) return false;
      for (const char* part : {"libaliquot.so", "ALIQUOT_GRANT=", "CUDA_MPS_PIPE_DIRECTORY="}) {
        if (response.body.find(part) == std::string::npos) ::_exit(2);
      }
      return true;
    });
    ::_exit(there ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(EnforceTest, AFaultStaysWithItsUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const auto load = [](int seconds) {
    return fmt::format("{} --mem 1G --seconds {} --busy 30% --json", kLoad, seconds);
  };
  const auto mine = submit_as(65534, share("10G", load(600)));
  // It works until it is told to stop, and notices in between when it was hit.
  const auto other =
      submit_as(2, share("10G", "until [[ -e go ]]; do " + load(1) + " || exit 1; done"));
  ASSERT_GT(mine, 0);
  ASSERT_GT(other, 0);
  ASSERT_TRUE(eventually([&] { return runs(mine) && runs(other) && servers() == 2; }))
      << read(folder_ + "/log") << output(mine) << output(other) << servers();
  // The first may come before the load has reached its server.
  EXPECT_TRUE(eventually([&] {
    wait(submit_as(65534, share("10G", std::string(kLoad) + " --mem 64M --fault")));
    return !runs(mine);
  }));
  EXPECT_EQ(wait(mine).state, "FAILED") << output(mine);
  std::ofstream(out() + "/go") << "go\n";
  EXPECT_EQ(wait(other).state, "COMPLETED") << output(other);
}

// Who is within the limit is left alone, library or not, but it is said.
TEST_F(EnforceTest, AProcessWithoutTheLibraryIsReported) {
  const auto id = submit(share(
      "10G", "env -u LD_PRELOAD " + std::string(kLoad) + " --mem 5G --seconds 12; echo rc=$?"));
  const auto target = "/v1/jobs/" + std::to_string(id) + "/why";
  EXPECT_TRUE(eventually([&] {
    const auto why = get<api::WhyInfo>(target);
    return why && why->state == "RUNNING" && why->sentences.size() >= 2 &&
           why->sentences[1].find("without the library") != std::string::npos;
  }));
  wait(id);
  EXPECT_NE(output(id).find("rc=0"), std::string::npos) << output(id);
}

// With nothing of its environment, but for the stand-in's own.
const std::string kEscape =
    "env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH ALIQUOT_STANDIN_STATE=$ALIQUOT_STANDIN_STATE " +
    std::string(kLoad) + " --mem 60G --seconds 30 --busy 0%";

TEST_F(EnforceTest, WhatHoldsMoreThanItsJobWasGrantedIsEndedEveryTime) {
  const auto honest = submit(share("10G", std::string(kLoad) + " --mem 8G --seconds 6 --json"));
  const auto id = submit(share("10G", std::string(kLoad) + " --mem 4G --seconds 5 --json & " +
                                          kEscape + "; echo first=$?; " + kEscape +
                                          " 2>/dev/null; echo second=$?; wait"));
  wait(id);
  EXPECT_NE(output(id).find("first=137"), std::string::npos) << output(id);
  EXPECT_NE(output(id).find("second=137"), std::string::npos) << output(id);
  // Its honest sibling went on; the job was told on its own standard error, also by the process
  // that does not listen.
  EXPECT_NE(output(id).find("\"allocated\""), std::string::npos) << output(id);
  EXPECT_NE(output(id).find("held 60."), std::string::npos) << output(id);
  EXPECT_NE(output(id).find("killed (2 times now)"), std::string::npos) << output(id);
  const auto why = get<api::WhyInfo>("/v1/jobs/" + std::to_string(id) + "/why");
  ASSERT_TRUE(why);
  ASSERT_EQ(why->sentences.size(), 2U);
  EXPECT_NE(why->sentences[1].find("was granted 10.0 GiB; killed"), std::string::npos);
  EXPECT_EQ(wait(honest).state, "COMPLETED") << output(honest);
}

class OneServerTest : public EnforceTest {
 protected:
  OneServerTest() : EnforceTest("[enforce]\nfault_domain = \"gpu\"\n") {}
};

TEST_F(OneServerTest, SeveralUsersShareIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const auto load = [](int seconds) {
    return fmt::format(
        "echo percent=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; {} --mem 1G --seconds {} --json", kLoad,
        seconds);
  };
  const auto first = submit_as(65534, share("10G", load(600)));
  ASSERT_TRUE(eventually([&] { return runs(first) && servers() == 1; }));
  const auto second = submit_as(2, share("10G", load(1)));
  const auto info = wait(second);
  EXPECT_EQ(info.state, "COMPLETED") << output(second);
  EXPECT_EQ(info.enforcement, "mps(gpu)+library+leases+watchdog");
  EXPECT_NE(output(second).find("percent=\n"), std::string::npos) << output(second);
  // At the same time: it did not wait for the other's server to end.
  EXPECT_TRUE(runs(first)) << output(first);
  EXPECT_EQ(servers(), 1U);
}

// Nothing goes past the server: a process outside of it gets no context, and so holds nothing.
TEST_F(OneServerTest, NobodyElseIsOnTheGpu) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to change the compute mode";
  const std::string mode =
      "env LD_LIBRARY_PATH=" ALIQUOT_BIN_DIR "/../standin ALIQUOT_STANDIN_STATE=" + folder_ +
      "/state/standin " ALIQUOT_BIN_DIR
      "/../standin/nvidia-smi "
      "--query-gpu=compute_mode --format=csv,noheader | grep -q Exclusive";
  const auto exclusive = [&] { return std::system(mode.c_str()) == 0; };
  const auto until = [](const std::string& name) {
    return "until [[ -e " + name + " ]]; do sleep 0.05; done; ";
  };
  const auto tell = [&](const std::string& name) { std::ofstream(out() + "/" + name) << "go\n"; };
  const auto id = submit(share(
      "10G", until("go") + kEscape + "; echo rc=$?; " + kLoad + " --mem 2G --seconds 1 --json"));
  EXPECT_TRUE(eventually(exclusive));
  tell("go");
  EXPECT_EQ(wait(id).state, "COMPLETED") << output(id);
  EXPECT_EQ(output(id).find("rc=0"), std::string::npos) << output(id);
  EXPECT_EQ(output(id).find("rc=137"), std::string::npos) << output(id);
  EXPECT_NE(output(id).find("\"allocated\""), std::string::npos) << output(id);
  // A whole GPU is its job's, also in the moment in which the server is still there.
  auto whole =
      share("10G", "env -u CUDA_MPS_PIPE_DIRECTORY " + std::string(kLoad) + " --mem 64G --json");
  whole.gpu_mem.reset();
  whole.gpu_share.reset();
  whole.gres = "gpu:1";
  const auto next = submit(whole);
  EXPECT_EQ(wait(next).state, "COMPLETED") << output(next);
  EXPECT_TRUE(eventually([&] { return !exclusive(); }));
  // And after a daemon that could not. A server that is still there keeps the mode it has.
  ASSERT_TRUE(eventually([&] { return servers() == 0; }));
  const auto last = submit(share("10G", until("end")));
  ASSERT_TRUE(eventually(exclusive));
  stop(SIGKILL);
  start();
  tell("end");
  wait(last);
  EXPECT_TRUE(eventually([&] { return !exclusive(); }));
}

class PascalTest : public EnforceTest {
 protected:
  PascalTest() : EnforceTest("", "p100:1") {}
};

TEST_F(PascalTest, HasNoMps) {
  const auto id = submit(share("4G", std::string(kLoad) + " --grow --json"));
  const auto info = wait(id);
  EXPECT_EQ(info.enforcement, "library+leases+watchdog");
  EXPECT_LE(field(output(id), "allocated"), 4 * kGiB) << output(id);
  EXPECT_GT(field(output(id), "allocated"), 3 * kGiB) << output(id);
  EXPECT_EQ(servers(), 0U);
}

class ReportEscapesTest : public EnforceTest {
 protected:
  ReportEscapesTest() : EnforceTest("[enforce]\nescape = \"report\"\n") {}
};

TEST_F(ReportEscapesTest, LeavesItAlone) {
  const std::string script = kEscape.substr(0, kEscape.find("--seconds")) + "--seconds 3";
  const auto id = submit(share("10G", script + "; echo rc=$?"));
  const auto target = "/v1/jobs/" + std::to_string(id) + "/why";
  EXPECT_TRUE(eventually([&] {
    const auto why = get<api::WhyInfo>(target);
    return why && why->sentences.size() >= 2 &&
           why->sentences[1].find("left alone") != std::string::npos;
  }));
  wait(id);
  EXPECT_NE(output(id).find("rc=0"), std::string::npos) << output(id);
}

class TakingTurnsTest : public EnforceTest {
 protected:
  TakingTurnsTest() : EnforceTest("[enforce]\nfault_domain = \"job\"\n") {}
};

TEST_F(TakingTurnsTest, SharesOfComputeAreHeld) {
  const std::string load = std::string(kLoad) + " --mem 1G --seconds 6 --json";
  auto small = share("10G", load);
  small.gpu_share = "25%";
  auto large = share("10G", load);
  large.gpu_share = "75%";
  const auto first = submit(small);
  const auto second = submit(large);
  EXPECT_EQ(wait(first).enforcement, "library+leases+watchdog");
  EXPECT_EQ(wait(second).state, "COMPLETED") << output(second);
  EXPECT_EQ(servers(), 0U);
  const double one = field(output(first), "iterations");
  const double three = field(output(second), "iterations");
  // Equal slices would be 1; a busy machine of two cores is no place for more than this.
  EXPECT_GT(three / one, 1.6) << one << " " << three;
  EXPECT_LT(three / one, 5) << one << " " << three;
}

}  // namespace
}  // namespace aliquot::engine
