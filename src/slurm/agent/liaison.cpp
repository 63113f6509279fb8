#include "slurm/agent/liaison.hpp"

#include <fmt/format.h>

#include "slurm/view/snapshot.hpp"

namespace aliquot::slurm {
namespace {

// A GPU that was lost before we came is in no list of the driver's, and those after it would be
// taken for others.
std::string missing_gpus(const SlurmNode& node, std::size_t here) {
  const std::size_t booked = gpus_of(node, SiteSettings()).size();
  if (here == 0 || here >= booked) return "";
  return fmt::format("slurm.conf gives it {} GPUs, the driver shows {}", booked, here);
}

}  // namespace

Liaison::Liaison(SlurmClient& slurm, const NodeGpus& node, Clock& clock)
    : slurm_(slurm),
      remarks_(slurm, node.node, clock),
      drain_(slurm, node.node, clock, [here = node.devices.size()](const SlurmNode& one) {
        return missing_gpus(one, here);
      }) {}

void Liaison::tell(const News& news) {
  for (const auto& [id, used] : news.used) remarks_.tell_used(id, used);
  for (const auto& [id, remark] : news.remarks) remarks_.tell(id, remark);
  remarks_.catch_up();
  drain_.keep_away(news.keep_away);
  drain_.round(news.fit);
}

}  // namespace aliquot::slurm
