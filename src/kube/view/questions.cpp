#include "kube/view/questions.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>

#include "base/counted.hpp"
#include "base/text.hpp"
#include "kube/model/json_read.hpp"
#include "net/http.hpp"

namespace aliquot::kube {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr std::string_view kAgentName = "aliquot-kube-node";
constexpr std::string_view kGroup = "apis/resource.k8s.io/v1";
constexpr int kPage = 500;

// The port on which an agent's pod answers /metrics; 0: none.
std::int64_t metrics_port(const json::object& spec) {
  const auto* containers = find_array(spec, "containers");
  if (containers == nullptr) return 0;
  for (const json::value& value : *containers) {
    const auto* container = value.if_object();
    const auto* ports = container == nullptr ? nullptr : find_array(*container, "ports");
    if (ports == nullptr) continue;
    for (const json::value& one : *ports) {
      const auto* port = one.if_object();
      if (port == nullptr || find_text(*port, "name") != "metrics") continue;
      return find_number(*port, "containerPort").value_or(0);
    }
  }
  return 0;
}

bool is_running(const json::object& pod) {
  const auto* status = find_object(pod, "status");
  return status != nullptr && find_text(*status, "phase") == "Running";
}

std::string_view label(const json::object& object, std::string_view key) {
  const auto* metadata = find_object(object, "metadata");
  const auto* labels = metadata == nullptr ? nullptr : find_object(*metadata, "labels");
  return labels == nullptr ? std::string_view() : find_text(*labels, key);
}

bool forbidden(const Error& error) { return error.code == Error::Code::permission_denied; }

}  // namespace

Result<json::object> Questions::get(const std::string& target) {
  return object_of(get_all({target}).front());
}

std::vector<Result<ApiResponse>> Questions::get_all(const std::vector<std::string>& targets) {
  std::vector<Result<ApiResponse>> answers(
      targets.size(), fail(Error::Code::internal, "the API server was not asked"));
  std::size_t left = targets.size();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    api_.send({.target = targets[i]}, [&answers, &left, i](Result<ApiResponse> answer) {
      answers[i] = std::move(answer);
      --left;
    });
  }
  while (left > 0) {
    context_.restart();
    if (context_.run_one() == 0) break;  // nobody will answer any more
  }
  return answers;
}

Result<void> Questions::list(const std::string& target, const OnObject& on_object) {
  std::string next;
  do {
    const char* joint = target.find('?') == std::string::npos ? "?" : "&";
    const auto page =
        TRY(get(fmt::format("{}{}limit={}{}{}", target, joint, kPage,
                            next.empty() ? "" : "&continue=", net::percent_encode(next))));
    if (const auto* items = find_array(page, "items")) {
      for (const json::value& item : *items) {
        if (const auto* object = item.if_object()) on_object(*object);
      }
    }
    next = meta_text(page, "continue");
  } while (!next.empty());
  return {};
}

Result<void> Questions::see_nodes(ClusterLook& look) {
  const auto listed = list("/api/v1/nodes", [&](const json::object& object) {
    auto facts = read_node(json::value(object), look.names);
    if (!facts || (!facts->gpus && facts->trouble.empty())) return;
    look.nodes.push_back(read_seen_node(object, std::move(*facts)));
  });
  if (!listed && forbidden(listed.error())) {
    look.gaps.emplace_back(
        "You may not list nodes, so their GPUs are not shown: ask your administrator for the "
        "ClusterRole aliquot-view.");
    return {};
  }
  std::ranges::sort(look.nodes, {}, [](const SeenNode& node) { return node.facts.name; });
  return listed;
}

Result<void> Questions::see_pods(const Wanted& wanted, ClusterLook& look) {
  const auto see = [&](const json::object& object) {
    // An agent is asked for what it has measured, where it says by which port.
    if (label(object, "app.kubernetes.io/name") == kAgentName && is_running(object)) {
      const auto* spec = find_object(object, "spec");
      const std::int64_t port = spec == nullptr ? 0 : metrics_port(*spec);
      if (port > 0) {
        agents_.push_back(
            {std::string(find_text(*spec, "nodeName")),
             object_path("api/v1", meta_text(object, "namespace"), "pods",
                         fmt::format("{}:{}", meta_text(object, "name"), port), "proxy") +
                 "/metrics"});
      }
    }
    if (auto seen = read_seen_pod(object, look.names)) look.pods.push_back(std::move(*seen));
  };
  auto listed = list("/api/v1/pods", see);
  pods_of_all_ = listed.has_value();
  if (!listed && forbidden(listed.error()) && !wanted.all_spaces) {
    look.gaps.push_back(fmt::format(
        "You may not list the pods of all namespaces: what pods outside of {} hold is not counted.",
        wanted.name_space));
    look.pods.clear();
    listed = list(object_path("api/v1", wanted.name_space, "pods"), see);
  }
  std::ranges::sort(look.pods, {}, [](const SeenPod& seen) {
    return std::tie(seen.pod.id.space, seen.pod.id.name);
  });
  return listed;
}

Result<void> Questions::see_claims(const Wanted& wanted, ClusterLook& look) {
  if (std::ranges::all_of(look.pods, [](const SeenPod& pod) { return pod.claims.empty(); })) {
    return {};
  }
  const auto listed =
      list(object_path(kGroup, pods_of_all_ ? "" : wanted.name_space, "resourceclaims"),
           [&](const json::object& object) {
             look.claims[{std::string(meta_text(object, "namespace")),
                          std::string(meta_text(object, "name"))}] =
                 read_wanted_parts(object, look.names);
           });
  if (!listed && (forbidden(listed.error()) || listed.error().code == Error::Code::not_found)) {
    look.gaps.emplace_back(
        "You may not list resource claims: what pods ask for by them is not shown.");
    return {};
  }
  return listed;
}

void Questions::see_quota(ClusterLook& look) {
  std::vector<std::string> parts;
  const auto listed = list(
      object_path("api/v1", look.name_space, "resourcequotas"), [&](const json::object& object) {
        const auto* status = find_object(object, "status");
        const auto* hard = status == nullptr ? nullptr : find_object(*status, "hard");
        const auto* used = status == nullptr ? nullptr : find_object(*status, "used");
        if (hard == nullptr || used == nullptr) return;
        for (const auto& entry : *hard) {
          const std::string_view key(entry.key().data(), entry.key().size());
          if (key.find(look.names.domain + "/") == key.npos &&
              key.find(look.names.domain + ".deviceclass") == key.npos) {
            continue;
          }
          parts.push_back(fmt::format("{} of {} {}", find_text(*used, key), find_text(*hard, key),
                                      key.starts_with("requests.") ? key.substr(9) : key));
        }
      });
  if (!listed) {
    look.quota = "its quota is not yours to see";
    return;
  }
  for (const std::string& part : parts)
    look.quota += (look.quota.empty() ? "quota: " : ", ") + part;
}

void Questions::see_figures(ClusterLook& look) {
  std::vector<std::string> targets;
  for (const Agent& agent : agents_) targets.push_back(agent.target);
  const auto answers = get_all(targets);
  std::size_t refused = 0;
  std::string why;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i] && answers[i]->status == 200) {
      look.figures[agents_[i].node] = read_figures(answers[i]->body);
      continue;
    }
    ++refused;
    if (!answers[i]) {
      why = answers[i].error().message;
    } else if (answers[i]->status == 403) {
      why = "you may not ask them: ask your administrator for the Role aliquot-view";
    } else {
      why = fmt::format("the API server answered with {}", answers[i]->status);
    }
  }
  if (refused > 0) {
    look.gaps.push_back(
        fmt::format("What is in use is not known of {}: {}.", counted(refused, "node"), why));
  }
}

Result<ClusterLook> Questions::look(const Wanted& wanted) {
  ClusterLook look{.names = wanted.names};
  if (!wanted.all_spaces) look.name_space = wanted.name_space;
  TRY(see_nodes(look));
  TRY(see_pods(wanted, look));
  TRY(see_claims(wanted, look));
  if (wanted.quota && !wanted.all_spaces) see_quota(look);
  if (wanted.figures) see_figures(look);
  return look;
}

Result<std::vector<SeenEvent>> Questions::events_of(const PodName& pod) {
  std::vector<SeenEvent> events;
  TRY(list(object_path("api/v1", pod.space, "events") +
               "?fieldSelector=" + net::percent_encode("involvedObject.uid=" + pod.uid),
           [&](const json::object& object) { events.push_back(read_seen_event(object)); }));
  return events;
}

}  // namespace aliquot::kube
