// Slurm 26.05 moved a job's number in a description into its step_id.
#pragma once

#include <cstdint>

namespace aliquot::slurm_plugin {

template <class Description>
void set_job_number(Description* description, std::uint32_t job) {
  if constexpr (requires { description->job_id; }) {
    description->job_id = job;
  } else {
    description->step_id.job_id = job;
  }
}

}  // namespace aliquot::slurm_plugin
