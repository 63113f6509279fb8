#include "node/exclusive_gpus.hpp"

#include <spdlog/spdlog.h>

#include <system_error>

#include "sys/file.hpp"
#include "sys/folder.hpp"

namespace aliquot::node {

namespace fs = std::filesystem;

Result<ExclusiveGpus> ExclusiveGpus::create(gpu::Devices& devices, fs::path notes) {
  TRY(sys::make_own_folder(notes, 0700));
  ExclusiveGpus gpus(devices, std::move(notes));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(gpus.notes_, error)) {
    gpus.made_.emplace(entry.path().filename().string());
  }
  return gpus;
}

bool ExclusiveGpus::make(const GpuId& gpu) {
  if (made_.contains(gpu)) return true;
  // Noted before it is done: a daemon that dies in between leaves nothing behind.
  const fs::path note = notes_ / gpu.value();
  Result<void> done = sys::write_whole(note, "EXCLUSIVE_PROCESS\n", 0600, false);
  if (done) done = devices_->set_exclusive(gpu, true);
  if (!done) {
    std::error_code ignored;
    fs::remove(note, ignored);
    spdlog::info("GPU {} is not kept for its MPS server alone: {}", gpu, done.error().message);
    return false;
  }
  made_.insert(gpu);
  return true;
}

void ExclusiveGpus::restore(const GpuId& gpu) {
  if (!made_.contains(gpu)) return;
  if (const auto done = devices_->set_exclusive(gpu, false); !done) {
    if (complained_.insert(gpu).second) {
      spdlog::warn("GPU {} stays in EXCLUSIVE_PROCESS: {}", gpu, done.error().message);
    }
    return;
  }
  complained_.erase(gpu);
  made_.erase(gpu);
  std::error_code ignored;
  fs::remove(notes_ / gpu.value(), ignored);
}

void ExclusiveGpus::restore_others(const std::set<GpuId>& served) {
  const std::set<GpuId> made = made_;
  for (const GpuId& gpu : made) {
    if (!served.contains(gpu)) restore(gpu);
  }
}

}  // namespace aliquot::node
