// What a simulated GPU of each model looks like from outside: names, sizes, capabilities, and what
// a process costs on it. Figures of the H200 are measured, those of the others are the published
// ones. Also reads the setting that says which GPUs a machine has ("h200:2,p100:2").
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aliquot::standin {

inline constexpr std::uint64_t kMiB = 1ULL << 20;
inline constexpr std::uint64_t kGiB = 1ULL << 30;

struct GpuModel {
  std::string_view key;
  std::string_view name;
  std::uint64_t memory;        // all of it, as NVML's total
  std::uint64_t reserved;      // kept by the driver: CUDA's total is memory - reserved
  std::uint64_t context_cost;  // what a context takes before it allocates anything
  int major, minor;            // compute capability
  int multiprocessors;
  int clock_mhz;
  int power_limit_w;
  std::uint32_t pci_device;

  [[nodiscard]] std::uint64_t usable() const { return memory - reserved; }
  // Before Volta an MPS server has 16 clients, and neither thread percentages nor memory limits.
  [[nodiscard]] bool volta_mps() const { return major >= 7; }
};

[[nodiscard]] std::span<const GpuModel> models();
[[nodiscard]] const GpuModel* find_model(std::string_view key);
[[nodiscard]] const GpuModel& model_at(std::size_t index);
[[nodiscard]] std::size_t index_of(const GpuModel& model);

// One entry per GPU, in PCI order. Nothing when the text is not a list of model[:count].
[[nodiscard]] std::optional<std::vector<const GpuModel*>> parse_machine(std::string_view text,
                                                                        std::string* why);

// The same model at the same place always has the same UUID: "GPU-" and 36 characters.
[[nodiscard]] std::array<unsigned char, 16> uuid_bytes(const GpuModel& model, unsigned index);
[[nodiscard]] std::string uuid_text(const std::array<unsigned char, 16>& uuid);

}  // namespace aliquot::standin
