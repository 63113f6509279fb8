#include "kube/model/node.hpp"

#include <boost/json.hpp>

#include "base/text.hpp"
#include "kube/model/json_read.hpp"
#include "kube/model/limits.hpp"
#include "kube/model/quantity.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

}  // namespace

Result<NodeFacts> read_node(const json::value& value, const Names& names) {
  const json::object* object = value.if_object();
  const json::object* metadata = object == nullptr ? nullptr : find_object(*object, "metadata");
  if (metadata == nullptr) {
    return fail(Error::Code::invalid_argument, "a node has no metadata");
  }
  NodeFacts node;
  node.name = find_text(*metadata, "name");
  if (node.name.empty()) return fail(Error::Code::invalid_argument, "a node has no name");
  if (const json::object* status = find_object(*object, "status")) {
    const json::object* amounts = find_object(*status, "allocatable");
    if (amounts == nullptr) amounts = find_object(*status, "capacity");
    const auto read = [&](std::string_view what, std::int64_t denominator) -> std::int64_t {
      const json::value* found = amounts == nullptr ? nullptr : find_value(*amounts, what);
      // It only ranks nodes: the scheduler itself counts CPUs and memory.
      return found == nullptr ? 0 : read_quantity(*found, denominator).value_or(0);
    };
    node.cpus = std::min(CpuMilli(read("cpu", 1'000)), kMostCpus);
    node.memory = std::min(Bytes(read("memory", 1)), kMostMemory);
  }
  const json::object* annotations = find_object(*metadata, "annotations");
  const std::string_view text =
      annotations == nullptr ? std::string_view() : find_text(*annotations, names.gpus());
  if (text.empty()) return node;
  auto gpus = read_node_gpus(text);
  if (gpus) {
    node.gpus = std::move(*gpus);
  } else {
    node.trouble = fmt::format("cannot read its annotation {}: {}", names.gpus(), gpus.error());
  }
  return node;
}

}  // namespace aliquot::kube
