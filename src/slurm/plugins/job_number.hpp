// A job's number, as Slurm's calls and descriptions take it: since 26.05 it is part of what names a
// step as well.
#pragma once

#include <slurm/slurm.h>

#include <cstdint>

namespace aliquot::slurm_plugin {

struct JobNumber {
  std::uint32_t number;

  operator std::uint32_t() const { return number; }
  operator slurm_step_id_t() const {
    slurm_step_id_t all{};
    all.job_id = number;
    all.step_id = all.step_het_comp = NO_VAL;
    return all;
  }
};

template <class Description>
void set_job_number(Description* description, std::uint32_t job) {
  if constexpr (requires { description->job_id; }) {
    description->job_id = job;
  } else {
    description->step_id.job_id = job;
  }
}

}  // namespace aliquot::slurm_plugin
