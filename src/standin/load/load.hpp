// One run of the load program: open the device, take memory, compute, verify, fault, in that order,
// each as asked.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "standin/load/driver_api.hpp"
#include "standin/load/options.hpp"

namespace aliquot::standin {

struct Report {
  std::string device;
  std::uint64_t total = 0;  // as the driver says at the start
  std::uint64_t free_before = 0;
  std::uint64_t allocated = 0;
  unsigned pieces = 0;
  std::uint64_t kernels = 0;
  std::uint64_t iterations = 0;  // of all kernels together
  double gpu_seconds = 0;  // between events around them; with a fixed amount, waiting included
  double wall_seconds = 0;
  std::string verified = "no";
  std::string error;
};

class Load {
 public:
  Load(const DriverApi& api, const Options& options) : api_(api), options_(options) {}
  [[nodiscard]] ExitCode run();
  [[nodiscard]] const Report& report() const { return report_; }

 private:
  ExitCode open();
  ExitCode take_memory();
  ExitCode compute();
  ExitCode compute_fixed();
  ExitCode verify();
  ExitCode fault();

  CUresult allocate(std::size_t size);
  CUresult allocate_vmm(std::size_t size, CUdeviceptr* out);
  CUresult spin(std::uint64_t iterations);
  CUresult calibrate();
  ExitCode failed(const char* what, CUresult code);

  const DriverApi& api_;
  Options options_;
  Report report_;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr;
  CUdeviceptr scratch_ = 0;
  int processors_ = 1;
  std::vector<std::pair<CUdeviceptr, std::size_t>> pieces_;  // those with an address
};

}  // namespace aliquot::standin
