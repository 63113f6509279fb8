#include "kube/scheduler/service.hpp"

#include <spdlog/spdlog.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <set>

#include "base/exposition.hpp"
#include "kube/api/events.hpp"
#include "kube/api/reflector.hpp"
#include "kube/scheduler/extender.hpp"
#include "kube/scheduler/webhook.hpp"

namespace aliquot::kube {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kExpireAfter{5};

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

net::Response plain(int status, std::string text) {
  return {status, std::move(text) + "\n", "text/plain"};
}

}  // namespace

struct SchedulerService::Parts {
  Parts(asio::io_context& context_, Api& api_, const Clock& clock_, SealKey key_,
        ServiceSettings settings_, std::unique_ptr<ClusterState> state_)
      : context(context_),
        api(api_),
        clock(clock_),
        key(std::move(key_)),
        settings(std::move(settings_)),
        state(std::move(state_)),
        events(context, api, clock, {.component = "aliquot-kube-scheduler"}),
        extender(
            *state, api, key, clock,
            {.not_ready = [this] { return not_ready(); },
             .not_leading = [this] { return not_leading(); },
             .tell =
                 [this](const PodName& pod, bool warning, std::string reason, std::string message) {
                   tell(pod, warning, std::move(reason), std::move(message));
                 }}),
        expiring(context) {
    if (settings.webhook) {
      webhook = std::make_unique<Webhook>(api, settings.state.names, settings.state.unit);
    }
  }

  void start() {
    nodes = std::make_unique<Reflector>(
        context, api, ReflectorOptions{.target = "/api/v1/nodes"},
        [this](EventType type, const json::object& object) { node_event(type, object); },
        [this] {
          nodes_listed = true;
          spdlog::info("all nodes are known: {}", nodes->size());
        });
    nodes->start();
    follow_pods();
    if (settings.lease) {
      lease = std::make_unique<Lease>(
          context, api, clock, *settings.lease,
          [this] {
            spdlog::info("leading: the pods are listed anew");
            listed_as_leader = false;
            follow_pods();
          },
          [this] { spdlog::warn("no longer the leader"); });
      lease->start();
    }
    expire();
  }

  // From the beginning. What was seen before stays until all is seen again.
  void follow_pods() {
    seen.clear();
    listing = true;
    pods = std::make_unique<Reflector>(
        context, api, ReflectorOptions{.target = "/api/v1/pods"},
        [this](EventType type, const json::object& object) { pod_event(type, object); },
        [this] {
          listing = false;
          pods_listed = true;
          state->keep_only(seen);
          seen.clear();
          listed_as_leader = lease == nullptr || lease->leading();
          spdlog::info("all pods are known: {}", pods->size());
        });
    pods->start();
  }

  void node_event(EventType type, const json::object& object) {
    if (type == EventType::deleted) {
      return state->lose_node(std::string(meta_text(object, "name")));
    }
    auto node = read_node(json::value(object), state->settings().names);
    if (node) {
      state->see_node(std::move(*node));
    } else {
      spdlog::warn("{}", node.error().message);
    }
  }

  void pod_event(EventType type, const json::object& object) {
    const std::string uid(meta_text(object, "uid"));
    if (type == EventType::deleted) {
      seen.erase(uid);
      return state->lose_pod(uid);
    }
    const auto pod = read_pod(json::value(object), state->settings().names);
    if (!pod) return spdlog::warn("{}", pod.error().message);
    if (listing) seen.insert(uid);
    const auto before = state->find(uid);
    state->see_pod(*pod);
    const auto now = state->find(uid);
    if (now && !now->forged.empty() && (!before || before->forged != now->forged)) {
      tell(pod->id, true, "GrantNotOurs", now->forged + ": it does not count");
    }
  }

  void tell(const PodName& pod, bool warning, std::string reason, std::string message) {
    events.tell({.kind = "Pod", .name_space = pod.space, .name = pod.name, .uid = pod.uid},
                warning ? Severity::warning : Severity::normal, std::move(reason),
                std::move(message));
  }

  void expire() {
    state->expire();
    expiring.expires_after(kExpireAfter);
    expiring.async_wait([this](boost::system::error_code error) {
      if (!error) expire();
    });
  }

  [[nodiscard]] std::string not_ready() const {
    for (const auto& [what, listed, reflector] : {std::tuple("nodes", nodes_listed, nodes.get()),
                                                  std::tuple("pods", pods_listed, pods.get())}) {
      if (listed) continue;
      const std::string why = reflector == nullptr ? "" : reflector->trouble();
      return fmt::format("aliquot-kube-scheduler has not listed all {} yet{}{}", what,
                         why.empty() ? "" : ": ", why);
    }
    return {};
  }

  [[nodiscard]] std::string not_leading() const {
    if (lease == nullptr) return {};
    if (!lease->leading()) {
      return fmt::format("not the leader{}: try again",
                         lease->holder().empty() ? "" : fmt::format(" ({} is)", lease->holder()));
    }
    return listed_as_leader ? "" : "the leader since a moment ago: try again";
  }

  [[nodiscard]] std::string metrics() const;

  asio::io_context& context;
  Api& api;
  const Clock& clock;
  const SealKey key;
  const ServiceSettings settings;
  const std::unique_ptr<ClusterState> state;
  Events events;
  Extender extender;
  asio::steady_timer expiring;
  std::unique_ptr<Reflector> nodes;
  std::unique_ptr<Reflector> pods;
  std::unique_ptr<Lease> lease;
  std::unique_ptr<Webhook> webhook;
  bool nodes_listed = false;
  bool pods_listed = false;
  bool listing = false;
  bool listed_as_leader = false;
  std::set<std::string> seen;  // while listing
  Histogram filter_times = quick_histogram();
  Histogram prioritize_times = quick_histogram();
  std::shared_ptr<Histogram> bind_times = std::make_shared<Histogram>(quick_histogram());
};

std::string SchedulerService::Parts::metrics() const {
  Exposition out;
  const auto value = [&out](std::string_view name, std::string_view type, std::string_view help,
                            auto number) {
    out.single(fmt::format("aliquot_kube_{}", name),
               type == "counter" ? Exposition::Kind::counter : Exposition::Kind::gauge, help,
               static_cast<double>(number));
  };
  const StateCounts counts = state->counts();
  const ExtenderCounts& calls = extender.counts();
  value("nodes", "gauge", "Nodes whose GPUs are shared.", counts.nodes);
  value("gpus", "gauge", "GPUs of these nodes.", counts.gpus);
  value("gpu_memory_bytes", "gauge", "Memory of these GPUs.", counts.memory.value());
  value("gpu_memory_free_bytes", "gauge", "Of it what no pod holds.", counts.memory_free.value());
  value("pods", "gauge", "Pods that are known.", counts.pods);
  value("pods_holding", "gauge", "Pods that hold GPUs.", counts.holders);
  value("pods_unknown", "gauge", "Bound pods that ask for GPUs and have no grant.", counts.unknown);
  value("pods_assumed", "gauge", "Pods that are being bound.", counts.assumed);
  value("binds_total", "counter", "Pods that were bound.", calls.bound);
  value("bind_failures_total", "counter", "Binds that failed.", calls.bind_failures);
  value("bind_conflicts_total", "counter", "Grants written anew as the pod had changed.",
        calls.conflicts);
  value("events_dropped_total", "counter", "Events that could not be told.", events.dropped());
  value("in_sync", "gauge", "Whether all pods and nodes are known.", not_ready().empty() ? 1 : 0);
  value("leading", "gauge", "Whether this one binds pods.", not_leading().empty() ? 1 : 0);
  out.family("aliquot_kube_request_duration_seconds", Exposition::Kind::histogram,
             "How long requests of kube-scheduler took.");
  out.sample(filter_times, {{"handler", "filter"}});
  out.sample(prioritize_times, {{"handler", "prioritize"}});
  out.sample(*bind_times, {{"handler", "bind"}});
  return out.take();
}

Result<std::unique_ptr<SchedulerService>> SchedulerService::create(asio::io_context& context,
                                                                   Api& api, const Clock& clock,
                                                                   SealKey key,
                                                                   ServiceSettings settings) {
  auto state = TRY(ClusterState::create(settings.state, key, clock));
  return std::unique_ptr<SchedulerService>(new SchedulerService(std::make_unique<Parts>(
      context, api, clock, std::move(key), std::move(settings), std::move(state))));
}

SchedulerService::SchedulerService(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

SchedulerService::~SchedulerService() = default;

void SchedulerService::start() { parts_->start(); }

void SchedulerService::stop(std::function<void()> done) {
  if (parts_->lease == nullptr) return done();
  parts_->lease->release(std::move(done));
}

std::string SchedulerService::not_ready() const { return parts_->not_ready(); }

std::string SchedulerService::not_leading() const { return parts_->not_leading(); }

ClusterState& SchedulerService::state() { return *parts_->state; }

void SchedulerService::handle(const net::Request& request, Answer answer) {
  const auto start = SteadyClock::now();
  Parts& parts = *parts_;
  if (request.method == "POST" && request.path == "/filter") {
    std::string body = parts.extender.filter(request.body);
    parts.filter_times.add(seconds_since(start));
    return answer({200, std::move(body)});
  }
  if (request.method == "POST" && request.path == "/prioritize") {
    std::string body = parts.extender.prioritize(request.body);
    parts.prioritize_times.add(seconds_since(start));
    return answer({200, std::move(body)});
  }
  if (request.method == "POST" && request.path == "/bind") {
    return parts.extender.bind(request.body, [answer = std::move(answer), start,
                                              times = parts.bind_times](std::string body) {
      times->add(seconds_since(start));
      answer({200, std::move(body)});
    });
  }
  if (request.method == "POST" && request.path == "/admit" && parts.webhook) {
    return parts.webhook->admit(request.body, [answer = std::move(answer)](std::string body) {
      answer({200, std::move(body)});
    });
  }
  if (request.method != "GET") return answer(plain(404, "there is nothing under this path"));
  const auto health = [&](const std::string& why) {
    answer(why.empty() ? plain(200, "ok") : plain(503, why));
  };
  if (request.path == "/healthz") return health("");
  if (request.path == "/readyz") return health(parts.not_ready());
  if (request.path == "/leadz") {
    const std::string why = parts.not_ready();
    return health(why.empty() ? parts.not_leading() : why);
  }
  if (request.path == "/metrics") {
    return answer({200, parts.metrics(), "text/plain; version=0.0.4"});
  }
  answer(plain(404, "there is nothing under this path"));
}

}  // namespace aliquot::kube
