#include "gpu/nvml_devices.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "gpu/trouble.hpp"

namespace aliquot::gpu {
namespace {

constexpr bool is_lost(nvml::Return code) {
  return code == nvml::kGpuLost || code == nvml::kResetRequired;
}

std::int64_t to_integer(unsigned long long n) {
  return static_cast<std::int64_t>(std::min<unsigned long long>(n, INT64_MAX));
}
Bytes to_bytes(unsigned long long n) { return Bytes(to_integer(n)); }

}  // namespace

Result<std::unique_ptr<Devices>> NvmlDevices::create(const NvmlLibrary& library, bool simulated) {
  std::unique_ptr<NvmlDevices> devices(new NvmlDevices(library, simulated));
  if (const auto code = library.init(); code != nvml::kSuccess) {
    const std::string why = library.error_string(code);
    devices->library_.shutdown = nullptr;  // nothing to shut down
    return fail(Error::Code::unsupported, "NVML does not start: {}", why);
  }
  std::array<char, nvml::kTextSize> text{};
  if (library.driver_version(text.data(), text.size()) == nvml::kSuccess) {
    devices->driver_version_ = text.data();
  }
  devices->health_.emplace(devices->library_);
  TRY(devices->discover());
  return std::unique_ptr<Devices>(std::move(devices));
}

NvmlDevices::~NvmlDevices() {
  health_.reset();
  if (library_.shutdown != nullptr) library_.shutdown();
}

tl::unexpected<Error> NvmlDevices::error(std::string_view what, nvml::Return code) const {
  return fail(Error::Code::unavailable, "{}: NVML says: {}", what, library_.error_string(code));
}

std::string NvmlDevices::description() const {
  return fmt::format("NVML, driver {}{}", driver_version_, simulated_ ? " (simulated)" : "");
}

Result<NvmlDevices::Amounts> NvmlDevices::amounts(nvml::Device device) const {
  // What the driver keeps for itself can be granted to nobody.
  if (library_.memory_v2 != nullptr) {
    nvml::MemoryV2 memory{};
    memory.version = nvml::kMemoryV2;
    if (library_.memory_v2(device, &memory) == nvml::kSuccess && memory.total >= memory.reserved) {
      return Amounts{to_bytes(memory.total - memory.reserved), to_bytes(memory.used)};
    }
  }
  nvml::Memory memory{};
  if (const auto code = library_.memory(device, &memory); code != nvml::kSuccess) {
    return error("memory of a GPU", code);
  }
  return Amounts{to_bytes(memory.total), to_bytes(memory.used)};
}

bool NvmlDevices::is_sliced(nvml::Device gpu) const {
  unsigned now = 0;
  unsigned after_reset = 0;
  return library_.mig_mode != nullptr &&
         library_.mig_mode(gpu, &now, &after_reset) == nvml::kSuccess && now == 1;
}

// Nothing: there is no such slice.
Result<std::optional<Device>> NvmlDevices::describe_slice(const Device& parent, nvml::Device gpu,
                                                          unsigned slice) const {
  nvml::Device handle = nullptr;
  auto code = library_.slice_handle(gpu, slice, &handle);
  if (code == nvml::kNotFound) return std::nullopt;
  std::array<char, nvml::kTextSize> uuid{};
  std::array<char, nvml::kTextSize> name{};
  if (code == nvml::kSuccess) code = library_.uuid(handle, uuid.data(), uuid.size());
  if (code == nvml::kSuccess) code = library_.name(handle, name.data(), name.size());
  if (code != nvml::kSuccess) {
    return error(fmt::format("slice {} of GPU {}", slice, parent.index), code);
  }
  Device device = parent;
  device.gpu.id = GpuId(uuid.data());
  device.name = name.data();
  device.slice = slice;
  auto profile = mig_profile(device.name);
  if (profile.empty()) profile = "mig";
  device.gpu.mig_profile = device.gpu.model + "_" + profile;
  device.gpu.memory = TRY(amounts(handle)).total;
  return device;
}

Result<std::optional<std::vector<Device>>> NvmlDevices::describe(unsigned index) {
  nvml::Device handle = nullptr;
  std::array<char, nvml::kTextSize> uuid{};
  std::array<char, nvml::kTextSize> name{};
  auto code = library_.handle(index, &handle);
  if (code == nvml::kSuccess) code = library_.uuid(handle, uuid.data(), uuid.size());
  if (code == nvml::kSuccess) code = library_.name(handle, name.data(), name.size());
  if (is_lost(code)) return std::nullopt;
  if (code != nvml::kSuccess) return error(fmt::format("GPU {}", index), code);
  health_->watch(index, handle);

  Device device;
  device.gpu.id = GpuId(uuid.data());
  device.name = name.data();
  device.gpu.model = short_model(device.name);
  device.gpu.memory = TRY(amounts(handle)).total;
  device.index = index;
  // The stand-in loaded some other way than by our setting says who it is, too.
  device.simulated = simulated_ || device.name.find("(simulated)") != std::string::npos;
  nvml::PciInfo pci{};
  if (library_.pci(handle, &pci) == nvml::kSuccess) device.pci_bus = pci.bus_id;
  int major = 0;
  int below = 0;
  if (library_.capability != nullptr &&
      library_.capability(handle, &major, &below) == nvml::kSuccess) {
    device.capability = major;
  }
  unsigned minor = 0;
  if (!device.simulated && library_.minor(handle, &minor) == nvml::kSuccess) {
    device.minor = static_cast<int>(minor);
  }
  if (!is_sliced(handle)) return std::vector{std::move(device)};
  // A GPU in MIG mode runs nothing itself.
  std::vector<Device> slices;
  unsigned most = 0;
  if (library_.most_slices(handle, &most) != nvml::kSuccess) most = 0;
  for (unsigned slice = 0; slice < most; ++slice) {
    if (auto found = TRY(describe_slice(device, handle, slice))) {
      slices.push_back(std::move(*found));
    }
  }
  return slices;
}

Result<void> NvmlDevices::discover() {
  unsigned count = 0;
  if (const auto code = library_.count(&count); code != nvml::kSuccess) {
    return error("counting the GPUs", code);
  }
  std::vector<Device> found;
  for (unsigned index = 0; index < count; ++index) {
    const auto devices = TRY(describe(index));
    if (!devices) continue;
    for (const Device& device : *devices) {
      simulated_ = simulated_ || device.simulated;
      found.push_back(device);
    }
  }
  for (auto& before : known_) {
    const auto same = [&](const Device& device) { return device.gpu.id == before.gpu.id; };
    if (std::ranges::none_of(found, same)) {
      before.gpu.health = core::Health::lost;
      found.push_back(std::move(before));
    }
  }
  std::ranges::stable_sort(found, {}, &Device::index);
  known_ = std::move(found);
  return {};
}

Result<std::vector<Device>> NvmlDevices::list() {
  TRY(discover());
  return known_;
}

Result<std::vector<Process>> NvmlDevices::processes(nvml::Device device) const {
  std::vector<Process> all;
  for (const auto get : {library_.compute_processes, library_.mps_processes}) {
    if (get == nullptr) continue;
    std::vector<nvml::ProcessInfo> infos(64);
    auto count = static_cast<unsigned>(infos.size());
    auto code = get(device, &count, infos.data());
    // The list grows while we look.
    for (int tries = 0; code == nvml::kInsufficientSize && tries < 4; ++tries) {
      infos.resize(count + 64);
      count = static_cast<unsigned>(infos.size());
      code = get(device, &count, infos.data());
    }
    if (code == nvml::kNotSupported) continue;
    if (code != nvml::kSuccess) return error("processes of a GPU", code);
    infos.resize(std::min<std::size_t>(count, infos.size()));
    for (const auto& info : infos) {
      const Process process{info.pid, info.used_memory == nvml::kMemoryUnknown
                                          ? Bytes(0)
                                          : to_bytes(info.used_memory)};
      const auto same = std::ranges::find(all, process.pid, &Process::pid);
      if (same == all.end()) {
        all.push_back(process);
      } else {
        same->memory = std::max(same->memory, process.memory);
      }
    }
  }
  std::ranges::sort(all, {}, &Process::pid);
  return all;
}

// Nothing: it is lost.
Result<std::optional<Sample>> NvmlDevices::sample_one(const Device& device) {
  nvml::Device handle = nullptr;
  if (const auto code = library_.handle(static_cast<unsigned>(device.index), &handle);
      code != nvml::kSuccess) {
    if (is_lost(code)) return std::nullopt;
    return error(fmt::format("GPU {}", device.index), code);
  }
  const std::string trouble = health_->look(device.index, handle);
  if (device.slice) {
    const auto code = library_.slice_handle(handle, *device.slice, &handle);
    if (code == nvml::kNotFound || is_lost(code)) return std::nullopt;
    if (code != nvml::kSuccess) return error(fmt::format("a slice of GPU {}", device.index), code);
  }
  nvml::Utilization utilization{};
  const auto code = library_.utilization(handle, &utilization);
  if (is_lost(code)) return std::nullopt;
  // A slice has none, as far as this driver says.
  if (code != nvml::kSuccess && code != nvml::kNotSupported) {
    return error(fmt::format("utilisation of GPU {}", device.index), code);
  }
  Sample sample{.id = device.gpu.id, .trouble = trouble};
  if (!trouble.empty()) sample.health = core::Health::lost;
  sample.utilisation = Compute(100) * std::min(utilization.gpu, 100U);
  sample.memory_used = TRY(amounts(handle)).used;
  sample.processes = TRY(processes(handle));
  if (!device.slice) add_warmth(handle, sample);
  return sample;
}

void NvmlDevices::add_warmth(nvml::Device gpu, Sample& sample) const {
  unsigned number = 0;
  if (library_.power != nullptr && library_.power(gpu, &number) == nvml::kSuccess) {
    sample.power_mw = number;
  }
  if (library_.temperature != nullptr &&
      library_.temperature(gpu, nvml::kGpuSensor, &number) == nvml::kSuccess) {
    sample.temperature = number;
  }
  unsigned long long energy = 0;
  if (library_.energy != nullptr && library_.energy(gpu, &energy) == nvml::kSuccess) {
    sample.energy_mj = to_integer(energy);
  }
}

// One that answers nothing of use for some looks is as good as lost, and keeps nobody from seeing
// the others.
Result<Sample> NvmlDevices::sample_or_lost(const Device& device) {
  constexpr int kPatience = 5;
  auto sample = sample_one(device);
  int& failures = failures_[device.gpu.id];
  failures = sample ? 0 : failures + 1;
  if (!sample && failures < kPatience) return tl::make_unexpected(sample.error());
  if (sample && *sample) return std::move(**sample);
  return Sample{.id = device.gpu.id,
                .health = core::Health::lost,
                .trouble = health_->lost(device.index, sample ? kTroubleLost : kTroubleSilent)};
}

Result<std::vector<Sample>> NvmlDevices::sample() {
  health_->collect();
  std::vector<Sample> samples;
  for (auto& device : known_) {
    samples.push_back(TRY(sample_or_lost(device)));
    device.gpu.health = samples.back().health;
  }
  return samples;
}

Result<nvml::Device> NvmlDevices::find(const GpuId& gpu) const {
  nvml::Device device = nullptr;
  if (library_.by_uuid == nullptr) {
    return fail(Error::Code::unsupported, "this NVML knows no compute modes");
  }
  if (const auto code = library_.by_uuid(gpu.value().c_str(), &device); code != nvml::kSuccess) {
    return error(fmt::format("GPU {}", gpu), code);
  }
  return device;
}

Result<int> NvmlDevices::mode_of(nvml::Device device, const GpuId& gpu) const {
  int mode = 0;
  if (const auto code = library_.mode(device, &mode); code != nvml::kSuccess) {
    return error(fmt::format("compute mode of {}", gpu), code);
  }
  return mode;
}

Result<void> NvmlDevices::set_exclusive(const GpuId& gpu, bool on) {
  const nvml::Device device = TRY(find(gpu));
  if (on && TRY(mode_of(device, gpu)) != nvml::kDefaultMode) {
    return fail(Error::Code::failed_state, "{} is not in the default compute mode", gpu);
  }
  if (on) {
    const auto there = TRY(processes(device));
    if (!there.empty()) {
      return fail(Error::Code::unavailable, "process {} is on it", there.front().pid);
    }
  }
  const int mode = on ? nvml::kExclusiveProcess : nvml::kDefaultMode;
  if (const auto code = library_.set_mode(device, mode); code != nvml::kSuccess) {
    return error(fmt::format("compute mode of {}", gpu), code);
  }
  return {};
}

}  // namespace aliquot::gpu
