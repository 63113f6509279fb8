// What nvidia-smi shows of a GPU, read once through NVML.
#pragma once

#include <string>
#include <vector>

namespace aliquot::standin {

struct SmiProcess {
  unsigned pid;
  unsigned long long bytes;
  bool client;  // of MPS
  std::string name;
};

struct SmiDevice {
  unsigned index = 0, count = 0;
  bool lost = false;
  std::string name, uuid, bus_id, driver, mig, capability;
  unsigned long long total = 0, used = 0, free = 0, reserved = 0, ecc_uncorrected = 0;
  unsigned utilization = 0, temperature = 0, power_mw = 0, power_limit_mw = 0, clock_mhz = 0;
  int mode = 0;
  std::vector<SmiProcess> processes;

  [[nodiscard]] std::string compute_mode() const;
  [[nodiscard]] std::string watts(unsigned milliwatts) const;
};

// All GPUs, or the one with that index or UUID. A message when there is nothing to show.
[[nodiscard]] const char* read_devices(const std::string& only, std::vector<SmiDevice>* out);

}  // namespace aliquot::standin
