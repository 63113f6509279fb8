// A job as the API shows it, and as the store writes it down: the record of a job is the JSON of
// its JobInfo and its JobSpec, so that a record of any version can be read.
#pragma once

#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "engine/job.hpp"

namespace aliquot::engine {

// As its owner sees it, without its steps.
api::JobInfo to_info(const Job& job);
// The same into one that is there, whose texts keep their memory: for long lists.
void write_info(const Job& job, api::JobInfo& info);

std::vector<api::GpuHold> to_holds(const std::vector<HeldGpu>& gpus);

// Back from the record. What is read from `spec` is not filled in.
Result<Job> from_record(const api::JobInfo& info, api::JobSpec spec);

}  // namespace aliquot::engine
