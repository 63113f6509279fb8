#include "sim/ledger_text.hpp"

#include "fuzz.hpp"

using namespace aliquot;
using namespace aliquot::core;

namespace {

Gpu gpu(const char* id) { return {.id = GpuId(id), .model = "a10", .memory = gib(24)}; }

Cluster cluster() {
  Node large{.id = NodeId("n0"), .cpus = kOneCpu * 64, .memory = gib(256)};
  large.gpus = {gpu("GPU-0"), gpu("GPU-1")};
  large.compute_limit = Compute(15'000);
  Node small{.id = NodeId("n1"), .cpus = kOneCpu, .memory = gib(1), .gpus = {gpu("GPU-0")}};
  return Cluster::create({large, small}).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto ledger = sim::parse_ledger(cluster(), fuzz::as_text(data, size));
  fuzz::require_one_line(ledger);
  if (!ledger) return 0;

  const std::string text = sim::format_ledger(*ledger);
  const auto again = sim::parse_ledger(cluster(), text);
  fuzz::require(again.has_value() && sim::format_ledger(*again) == text);
  for (NodeIndex node = 0; node < ledger->cluster().size(); ++node) {
    for (const GpuState& state : ledger->cluster().gpus(node)) {
      fuzz::require(state.memory_free >= Bytes(0) && state.compute_free >= Compute(0));
      fuzz::require(!state.whole || state.jobs == 1);
    }
  }
  for (const JobId job : ledger->jobs()) fuzz::require(ledger->release(job).has_value());
  fuzz::require(ledger->cluster().compute_free() == ledger->cluster().compute_total());
  return 0;
}
