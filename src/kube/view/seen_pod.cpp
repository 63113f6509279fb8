#include "kube/view/seen_pod.hpp"

#include <boost/json.hpp>

#include "base/text.hpp"
#include "kube/api/moments.hpp"
#include "kube/model/json_read.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

// Why it is not bound.
void read_conditions(const json::object& status, SeenPod& seen) {
  const auto* conditions = find_array(status, "conditions");
  if (conditions == nullptr) return;
  for (const json::value& value : *conditions) {
    const auto* one = value.if_object();
    if (one == nullptr || find_text(*one, "type") != "PodScheduled") continue;
    if (find_text(*one, "status") == "True") continue;
    seen.reason = find_text(*one, "reason");
    seen.message = find_text(*one, "message");
  }
}

// What keeps its containers from running; that they are being made is no trouble.
void read_troubles(const json::object& status, SeenPod& seen) {
  for (const std::string_view list : {"initContainerStatuses", "containerStatuses"}) {
    const auto* containers = find_array(status, list);
    if (containers == nullptr) continue;
    for (const json::value& value : *containers) {
      const auto* one = value.if_object();
      const auto* state = one == nullptr ? nullptr : find_object(*one, "state");
      const auto* waiting = state == nullptr ? nullptr : find_object(*state, "waiting");
      if (waiting == nullptr) continue;
      const std::string_view reason = find_text(*waiting, "reason");
      if (reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing") continue;
      const std::string_view message = find_text(*waiting, "message");
      seen.troubles.push_back(fmt::format("{}: {}{}{}", find_text(*one, "name"), reason,
                                          message.empty() ? "" : ": ", message));
    }
  }
}

}  // namespace

Result<SeenPod> read_seen_pod(const json::object& object, const Names& names) {
  SeenPod seen{.pod = TRY(read_pod(json::value(object), names)), .created = {}};
  seen.created = parse_moment(meta_text(object, "creationTimestamp")).value_or(WallTime());
  if (const auto* spec = find_object(object, "spec")) {
    seen.scheduler = find_text(*spec, "schedulerName");
  }
  if (const auto* status = find_object(object, "status")) {
    seen.started = parse_moment(find_text(*status, "startTime"));
    read_conditions(*status, seen);
    read_troubles(*status, seen);
    // Of a pod that the kubelet refused: UnexpectedAdmissionError.
    if (seen.pod.over() && seen.reason.empty()) {
      seen.reason = find_text(*status, "reason");
      seen.message = find_text(*status, "message");
    }
  }
  seen.claims = claims_of(object);
  if (const std::string* text = seen.pod.annotation(names.grant())) {
    if (auto grant = read_grant(*text)) seen.grant = std::move(*grant);
  }
  return seen;
}

}  // namespace aliquot::kube
