#include "fuzz.hpp"
#include "sim/expected.hpp"
#include "sim/trace.hpp"

using namespace aliquot;

// What is read is written and read back the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  const auto nodes = sim::parse_nodes(text, "file");
  fuzz::require_one_line(nodes);
  const auto pods = sim::parse_pods(text, "file");
  fuzz::require_one_line(pods);
  fuzz::require_one_line(sim::parse_expected(text, "file"));
  for (const auto c : text) {
    // Names with quotes and commas are read, but not written.
    if (c == '"') return 0;
  }
  if (nodes) fuzz::require(sim::parse_nodes(sim::format_nodes(*nodes), "file") == *nodes);
  if (pods) fuzz::require(sim::parse_pods(sim::format_pods(*pods), "file") == *pods);
  return 0;
}
