// The files that tell NVIDIA's dcgm-exporter which jobs are on which GPU (--hpc-job-mapping-dir):
// one for each GPU, named by its index, with a job in each line. So its dashboards know our jobs.
// Slices are left out: it names them by the number of their GPU instance, which we do not know.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace aliquot::node {

class JobMapping {
 public:
  using Jobs = std::map<std::int64_t, std::vector<std::string>>;  // by the GPU's index

  explicit JobMapping(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Each file appears whole. Files of GPUs without a job stay, empty. What is as it was is not
  // written again.
  Result<void> write(const Jobs& jobs);

 private:
  std::filesystem::path folder_;
  Jobs written_;
};

}  // namespace aliquot::node
