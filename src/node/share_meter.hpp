// What each job does on each GPU that it holds: its memory, and its part of the time as the library
// in it has measured, so that it is right under MPS, too. Where no library tells, it is what the
// driver says of its processes, and one that is alone on a GPU does what the GPU does. Belongs to
// the thread that looks at the GPUs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"

namespace aliquot::node {

struct ShareUse {
  HolderId job;
  GpuId gpu;
  Bytes memory = Bytes(0);
  Bytes memory_peak = Bytes(0);
  std::optional<Compute> utilisation = {};  // lately
  std::optional<Millis> gpu_time = {};
  Millis waited = Millis(0);
  std::int64_t refusals = 0;
};

class ShareMeter {
 public:
  // Of the views' holders and of those that told of themselves. now: when they were seen.
  std::vector<ShareUse> look(const std::vector<GpuView>& views,
                             const std::vector<Enforcer::Told>& told, MonoTime now);

 private:
  using Place = std::pair<HolderId, GpuId>;
  struct Seen {
    std::int64_t gpu_ns = 0;
    MonoTime when = {};
    std::optional<Compute> utilisation = {};
    Bytes peak = Bytes(0);
    bool timed = false;
  };
  static void note_time(Seen& seen, std::int64_t gpu_ns, MonoTime now);

  std::map<Place, Seen> seen_;
};

}  // namespace aliquot::node
