// For tests of the real thing end to end: aliquotd, aliquot-stepd and the stand-in's GPUs, spoken
// to through net::Client as the commands do. Each test has a daemon and a folder of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "api/json.hpp"
#include "net/client.hpp"

namespace aliquot::engine {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class DaemonTest : public testing::Test {
 protected:
  DaemonTest() : DaemonTest("", "h200:4") {}
  // More settings, and the GPUs.
  DaemonTest(const std::string& settings, std::string gpus) : gpus_(std::move(gpus)) {
    std::string pattern = testing::TempDir() + "aqd-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    fs::permissions(folder_, fs::perms(0711));
    std::ofstream(folder_ + "/aliquot.toml")
        << "[jobs]\nkill_wait = 1\n[monitor]\ninterval = 1\n[schedule]\npolicy = "
           "\"least-occupied\"\n[node]\ncpus = 256\n"
        << settings;
    start();
  }
  ~DaemonTest() override {
    if (daemon_ > 0) {
      // Nothing of a test survives it.
      if (const auto list = get<api::JobList>("/v1/jobs")) {
        for (const auto& job : list->jobs) {
          post("/v1/jobs/" + std::to_string(job.id) + "/cancel");
        }
        for (int i = 0; i < 2000 && busy(); ++i) std::this_thread::sleep_for(50ms);
      }
      stop(SIGTERM);
    }
    std::error_code error;
    fs::remove_all(folder_, error);
  }

  bool busy() {
    const auto list = get<api::JobList>("/v1/jobs");
    if (!list) return false;
    for (const auto& job : list->jobs) {
      if (job.state == "RUNNING" || job.state == "COMPLETING") return true;
    }
    return false;
  }

  void start() {
    daemon_ = ::fork();
    if (daemon_ == 0) {
      const std::string program = ALIQUOT_BIN_DIR "/aliquotd";
      const std::string socket = folder_ + "/s";
      const std::string state = folder_ + "/state";
      const std::string config = folder_ + "/aliquot.toml";
      const std::string log = folder_ + "/log";
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      ::dup2(fd, 2);
      ::execl(program.c_str(), "aliquotd", "--foreground", "--socket", socket.c_str(),
              "--state-dir", state.c_str(), "--config", config.c_str(), "--simulate", gpus_.c_str(),
              nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 4000; ++i) {
      if (net::Client::connect(folder_ + "/s")) return;
      std::this_thread::sleep_for(25ms);
    }
    FAIL() << "the daemon does not come up: " << read(folder_ + "/log");
  }
  int stop(int signal) {
    ::kill(daemon_, signal);
    int status = 0;
    ::waitpid(daemon_, &status, 0);
    daemon_ = -1;
    return status;
  }

  static std::string read(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  template <class T>
  Result<T> get(const std::string& target) {
    auto client = TRY(net::Client::connect(folder_ + "/s"));
    const auto response = TRY(client.send("GET", target));
    if (response.status != 200) return fail(Error::Code::not_found, "{}", response.body);
    return api::from_json<T>(response.body);
  }
  net::Response post(const std::string& target, const std::string& body = "") {
    auto client = net::Client::connect(folder_ + "/s");
    if (!client) return {0, ""};
    const auto response = client->send("POST", target, body);
    return response ? *response : net::Response{0, ""};
  }

  api::JobSpec spec(const std::string& script) const {
    api::JobSpec spec;
    spec.name = "job";
    spec.script = "#!/bin/bash\n" + script + "\n";
    spec.work_dir = folder_;
    spec.environment = {"PATH=/usr/bin:/bin", "SPECIAL=value"};
    return spec;
  }
  std::int64_t submit(const api::JobSpec& wanted) {
    const auto response = post("/v1/jobs", api::to_json(wanted));
    EXPECT_EQ(response.status, 200) << response.body;
    const auto submitted = api::from_json<api::Submitted>(response.body);
    return submitted ? submitted->job_id : 0;
  }
  api::JobInfo wait(std::int64_t id) {
    const auto info = get<api::JobInfo>("/v1/jobs/" + std::to_string(id) + "/wait");
    EXPECT_TRUE(info) << info.error().message;
    return info ? *info : api::JobInfo{};
  }

  std::string folder_;
  std::string gpus_;
  pid_t daemon_ = -1;
};

}  // namespace aliquot::engine
