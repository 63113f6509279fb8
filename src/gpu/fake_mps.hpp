// Control daemons for tests: none runs, but it is remembered which would. What a test looks at
// itself it looks at when nobody else does.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "gpu/mps.hpp"

namespace aliquot::gpu {

class FakeMps final : public MpsControl {
 public:
  struct Daemon {
    GpuId gpu;
    bool all_users = false;
    Bytes limit = Bytes(0);
    bool has_server = false;
  };

  Result<void> start(const std::filesystem::path& folder, const GpuId& gpu,
                     bool all_users) override {
    if (before_start) before_start(gpu);
    const std::lock_guard lock(mutex_);
    if (broken) return fail(Error::Code::unavailable, "{}", *broken);
    ++starts;
    daemons[folder] = {.gpu = gpu, .all_users = all_users};
    return {};
  }
  Result<void> limit(const std::filesystem::path& folder, Bytes each) override {
    const std::lock_guard lock(mutex_);
    if (broken) return fail(Error::Code::unavailable, "{}", *broken);
    daemons.at(folder).limit = each;
    return {};
  }
  Result<void> start_server(const std::filesystem::path& folder) override {
    const std::lock_guard lock(mutex_);
    daemons.at(folder).has_server = true;
    return {};
  }
  [[nodiscard]] MpsPipe pipe(const std::filesystem::path& folder) const override {
    return {program, {}, folder.string()};
  }
  bool alive(const std::filesystem::path& folder) override {
    const std::lock_guard lock(mutex_);
    return daemons.contains(folder);
  }
  void stop(const std::filesystem::path& folder) override {
    if (before_stop) before_stop();
    const std::lock_guard lock(mutex_);
    daemons.erase(folder);
  }

  std::map<std::filesystem::path, Daemon> daemons;
  std::optional<std::string> broken;   // from now on nothing starts or obeys
  std::string program = "/bin/false";  // to speak to them
  int starts = 0;
  std::function<void(const GpuId&)> before_start;
  std::function<void()> before_stop;

 private:
  std::mutex mutex_;
};

}  // namespace aliquot::gpu
