// The GPUs of this machine: which there are, and what they are doing now. Devices is handed in:
// open_devices() gives the real one (NVML), no_devices() a machine without GPUs, FakeDevices
// (fake_devices.hpp) is for tests. It grants nothing and knows no jobs.
//
// NVML is loaded at run time, so that one build runs with any driver and with none. Calls may block
// for as long as the driver likes: make them on a worker, one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/units.hpp"
#include "core/device.hpp"

namespace aliquot::gpu {

struct Device {
  core::Gpu gpu;                  // gpu.model is the short name that requests use: "h200"
  std::string name = {};          // as the driver says it: "NVIDIA H200"
  std::int64_t index = 0;         // as nvidia-smi counts
  std::optional<int> minor = {};  // of /dev/nvidia<minor>; none for simulated GPUs
  // A MIG slice: which of its GPU's, whose index and minor the others are.
  std::optional<unsigned> slice = {};
  std::string pci_bus = {};            // "00000000:18:00.0"
  std::optional<int> capability = {};  // compute capability, its major number: 7 is Volta
  bool simulated = false;
};

struct Process {
  std::int64_t pid = 0;
  Bytes memory;  // 0 where the driver does not say
  friend bool operator==(const Process&, const Process&) = default;
};

struct Sample {
  GpuId id;
  core::Health health = core::Health::ok;
  Compute utilisation = Compute(0);  // time with a kernel running, of kWholeGpu
  Bytes memory_used = Bytes(0);
  std::vector<Process> processes = {};  // compute processes, each pid once
  std::string trouble = {};             // what is wrong with it (trouble.hpp); empty: nothing
  // Of the whole GPU; nothing where the driver does not say, as of slices.
  std::optional<std::int64_t> power_mw = {};
  std::optional<std::int64_t> temperature = {};  // degrees Celsius
  std::optional<std::int64_t> energy_mj = {};    // since the driver was loaded
};

class Devices {
 public:
  Devices() = default;
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;
  virtual ~Devices() = default;

  // In the order of their index. A GPU that is lost stays in the list, with that health.
  virtual Result<std::vector<Device>> list() = 0;
  // One for each GPU of the list. One that is not to be used any more has the health `lost` and its
  // trouble; where the driver does not reach it, nothing else.
  virtual Result<std::vector<Sample>> sample() = 0;
  // EXCLUSIVE_PROCESS: a GPU for one process, or for one MPS server and its clients. Whoever makes
  // a context first after it is set has the GPU; so it fails where a process is on it. May be
  // called from any thread.
  virtual Result<void> set_exclusive(const GpuId& gpu, bool on);
  [[nodiscard]] virtual std::string driver_version() const = 0;  // empty: no driver
  [[nodiscard]] virtual bool simulated() const = 0;
  // For `doctor`: "NVML, driver 580.159.04" or "no GPUs: libnvidia-ml.so.1 is not installed".
  [[nodiscard]] virtual std::string description() const = 0;
};

// The stand-in of docs/standin.md. Used only where a setting names it.
struct StandIn {
  std::filesystem::path directory;  // with libcuda.so.1 and libnvidia-ml.so.1
  std::string spec;                 // "h200:4"
  std::filesystem::path state;      // the file that is the machine
  bool shared = false;              // for jobs of several users
};

// What a process needs in its environment to see the stand-in's GPUs, besides LD_LIBRARY_PATH.
std::vector<std::string> environment(const StandIn& standin);

// Through NVML: the stand-in's where given, else the driver's. A stand-in is told its settings by
// this process's environment, so open it before there are threads. Without a driver: unsupported.
Result<std::unique_ptr<Devices>> open_devices(const std::optional<StandIn>& standin);

// A machine without GPUs; why is for people.
std::unique_ptr<Devices> no_devices(std::string why);

// "NVIDIA A100-SXM4-80GB MIG 1g.10gb" is "1g.10gb"; empty for what is no slice.
std::string mig_profile(std::string_view name);

// "NVIDIA A100-SXM4-80GB" is "a100", "NVIDIA TITAN RTX" is "titanrtx": what users write in
// --gres=gpu:a100:1.
std::string short_model(std::string_view name);

}  // namespace aliquot::gpu
