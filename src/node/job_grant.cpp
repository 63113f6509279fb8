#include "node/job_grant.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace aliquot::node {

core::Grant grant_of(const api::JobInfo& job) {
  core::Grant grant{.holder = holder_of(JobId(job.id)),
                    .attempt = job.restarts,
                    .owner = Uid(job.uid),
                    .group = Gid(job.gid),
                    .processes = std::max<std::int64_t>(job.ntasks, 1)};
  for (const api::GpuHold& held : job.gpus) {
    grant.gpus.push_back(
        {GpuId(held.uuid), {Bytes(held.memory), Compute(held.compute)}, held.whole});
  }
  return grant;
}

std::optional<JobId> job_of(const HolderId& holder) {
  const auto number = parse_digits(holder.value());
  return number ? std::optional(JobId(*number)) : std::nullopt;
}

}  // namespace aliquot::node
