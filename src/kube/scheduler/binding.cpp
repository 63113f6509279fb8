#include "kube/scheduler/binding.hpp"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <boost/json.hpp>

#include "base/percent.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

// Somebody else may write to the pod as often as that between our looks at it.
constexpr int kMostConflicts = 5;

// Whether the API server surely did not do what it was asked for.
bool refused(const Error& error) {
  return error.code != Error::Code::unavailable && error.code != Error::Code::internal;
}

KnownPod known_from(const Pod& pod) {
  KnownPod known;
  known.id = pod.id;
  known.resource_version = pod.resource_version;
  known.node = pod.node;
  known.terminating = pod.terminating;
  known.over = pod.over();
  return known;
}

std::string in_words(const PodGrant& grant, const NodeGpus* gpus) {
  std::vector<std::string> parts;
  for (const auto& [container, held] : grant.containers) {
    for (const core::GrantedGpu& part : held) {
      std::string gpu = part.gpu.value();
      if (gpus != nullptr) {
        const auto found = std::ranges::find(gpus->gpus, part.gpu, &NodeGpu::uuid);
        if (found != gpus->gpus.end()) gpu = std::to_string(found->index);
      }
      parts.push_back(part.whole ? fmt::format("{} has GPU {}", container, gpu)
                                 : fmt::format("{} has {} and {} of GPU {}", container,
                                               size_for_people(part.portion.memory),
                                               format_percent(part.portion.compute), gpu));
    }
  }
  return fmt::format("on node {}: {}", grant.node, fmt::join(parts, ", "));
}

}  // namespace

void Binding::start(std::shared_ptr<BindingHost> host, PodName pod, std::string node,
                    Answer answer) {
  std::make_shared<Binding>(std::move(host), std::move(pod), std::move(node), std::move(answer))
      ->begin();
}

Binding::Binding(std::shared_ptr<BindingHost> host, PodName pod, std::string node, Answer answer)
    : host_(std::move(host)),
      pod_(std::move(pod)),
      node_(std::move(node)),
      answer_(std::move(answer)) {
  ++host_->counts.binding;
}

std::string Binding::pod_path(std::string_view subresource) const {
  return object_path("api/v1", pod_.space, "pods", pod_.name, subresource);
}

void Binding::send(ApiRequest request, Next next) {
  host_->api.send(std::move(request),
                  [self = shared_from_this(), next](const Result<ApiResponse>& response) {
                    // What the state knows of it ends with the process.
                    if (self->host_->closed) return;
                    ((*self).*next)(object_of(response));
                  });
}

void Binding::get(Next next) { send({.method = "GET", .target = pod_path()}, next); }

void Binding::begin() {
  for (const auto& hook : {host_->hooks.not_ready, host_->hooks.not_leading}) {
    if (!hook) continue;
    if (const std::string why = hook(); !why.empty()) return finish(why);
  }
  const auto known = host_->state.find(pod_.uid);
  if (!known) return get(&Binding::decide_new);
  known_ = *known;
  asked_ = *host_->state.asked(pod_.uid);
  decide();
}

// We had not heard of it yet.
void Binding::decide_new(Object answered) {
  if (!answered) return finish(answered.error().message);
  const auto pod = read_pod(json::value(std::move(*answered)), host_->state.settings().names);
  if (!pod) return finish(pod.error().message);
  auto asked = host_->state.ask(*pod);
  if (!asked) return finish(asked.error().message);
  known_ = known_from(*pod);
  asked_ = std::move(*asked);
  // By now it may be known, and on its way.
  if (const auto now = host_->state.find(pod_.uid); now && now->binding) known_.binding = true;
  decide();
}

std::string Binding::why_not(const KnownPod& pod) const {
  if (pod.id.uid != pod_.uid) return "the pod is another one by now";
  if (pod.id.space != pod_.space || pod.id.name != pod_.name) return "its uid is another pod's";
  if (pod.over) return "the pod has ended";
  if (pod.terminating) return "the pod is being deleted";
  if (!pod.node.empty()) return fmt::format("somebody else bound it to node {}", pod.node);
  return {};
}

void Binding::decide() {
  // kube-scheduler did not wait for our answer, and asks again.
  if (known_.id.uid == pod_.uid && known_.node == node_) return finish({});
  if (known_.binding) return finish("it is being bound already");
  if (const std::string why = why_not(known_); !why.empty()) return finish(why);
  if (asked_.ours.odd) return finish("its containers ask for what cannot be");
  host_->state.start_over(pod_.uid);
  auto grant = host_->state.place(asked_, node_);
  if (!grant) return finish(grant.error().message);
  grant_ = std::move(*grant);
  host_->state.assume(pod_.uid, asked_, grant_);
  if (grant_.containers.empty()) return bind();
  write_grant();
}

void Binding::write_grant() {
  const NodeGpus* gpus = host_->state.gpus_of(node_);
  if (gpus == nullptr) return fail_with(fmt::format("node {} has gone", node_));
  const Names& names = host_->state.settings().names;
  const auto annotations =
      grant_annotations(pod_, asked_.on(gpus->nvidia), grant_, *gpus, names, host_->key);
  written_ = true;
  send({.method = "PATCH",
        .target = pod_path(),
        .body = annotation_patch(annotations, pod_.uid, known_.resource_version),
        .content_type = std::string(kMergePatch)},
       &Binding::grant_written);
}

void Binding::grant_written(Object answered) {
  if (answered) return bind();
  const Error& error = answered.error();
  if (error.code == Error::Code::failed_state && ++conflicts_ <= kMostConflicts) {
    // Somebody wrote to the pod, or it is another one: we look which.
    ++host_->counts.conflicts;
    return get(&Binding::look_again);
  }
  if (error.code == Error::Code::not_found) return fail_with("the pod has gone");
  if (refused(error)) return fail_with(error.message);
  withdraw(error.message);
}

void Binding::look_again(Object answered) {
  if (!answered) {
    if (answered.error().code == Error::Code::not_found) return fail_with("the pod has gone");
    return fail_with(answered.error().message);
  }
  const auto pod = read_pod(json::value(std::move(*answered)), host_->state.settings().names);
  if (!pod) return fail_with(pod.error().message);
  const auto asked = host_->state.ask(*pod);
  if (const std::string why = why_not(known_from(*pod)); !why.empty()) return fail_with(why);
  if (!asked || *asked != asked_) return fail_with("the pod asks for something else by now");
  known_.resource_version = pod->resource_version;
  write_grant();
}

void Binding::bind() {
  if (host_->hooks.not_leading) {
    // Another one may be placing pods by now, and know nothing of this one.
    if (const std::string why = host_->hooks.not_leading(); !why.empty()) return withdraw(why);
  }
  json::object binding{
      {"apiVersion", "v1"},
      {"kind", "Binding"},
      {"metadata", json::object{{"name", pod_.name}, {"namespace", pod_.space}, {"uid", pod_.uid}}},
      {"target", json::object{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node_}}}};
  send({.method = "POST", .target = pod_path("binding"), .body = json::serialize(binding)},
       &Binding::bound);
}

void Binding::bound(Object answered) {
  if (answered) return succeed();
  const Error& error = answered.error();
  if (error.code == Error::Code::not_found) return fail_with("the pod has gone");
  const bool taken =
      error.code == Error::Code::failed_state || error.code == Error::Code::already_exists;
  if (refused(error) && !taken) return withdraw(error.message);
  why_ = error.message;
  get(&Binding::find_out);
}

void Binding::find_out(Object answered) {
  if (!answered) {
    if (answered.error().code == Error::Code::not_found) return fail_with("the pod has gone");
    // It may be bound: it counts until we hear of it.
    host_->state.doubt(pod_.uid);
    return finish(fmt::format("cannot tell whether it is bound: {}", answered.error().message));
  }
  const auto pod = read_pod(json::value(std::move(*answered)), host_->state.settings().names);
  if (!pod) return fail_with(pod.error().message);
  if (pod->id.uid != pod_.uid) return fail_with("the pod is another one by now");
  if (pod->node == node_) return succeed();
  std::string why = why_not(known_from(*pod));
  if (why.empty()) why = why_;
  const std::string* grant = pod->annotation(host_->state.settings().names.grant());
  // What stands there may be somebody else's by now: of the node where it is.
  if (grant == nullptr || *grant != kube::write_grant(grant_)) return fail_with(why);
  withdraw(std::move(why));
}

void Binding::withdraw(std::string why) {
  why_ = std::move(why);
  if (!written_) return fail_with(why_);
  const auto nothing = no_grant_annotations(host_->state.settings().names, asked_.ours.gpushare);
  send({.method = "PATCH",
        .target = pod_path(),
        .body = annotation_patch(nothing, pod_.uid, {}),
        .content_type = std::string(kMergePatch)},
       &Binding::withdrawn);
}

void Binding::withdrawn(Object answered) {
  if (!answered && answered.error().code != Error::Code::not_found) {
    // It counts for a while, as long as it is on the pod.
    spdlog::warn("pod {}/{}: its grant could not be taken off: {}", pod_.space, pod_.name,
                 answered.error().message);
  }
  fail_with(why_);
}

void Binding::succeed() {
  host_->state.confirm(pod_.uid);
  if (host_->hooks.tell && !grant_.containers.empty()) {
    host_->hooks.tell(pod_, false, "GpuAssigned", in_words(grant_, host_->state.gpus_of(node_)));
  }
  finish({});
}

void Binding::fail_with(const std::string& why) {
  host_->state.undo(pod_.uid);
  finish(why);
}

void Binding::finish(const std::string& error) {
  --host_->counts.binding;
  if (error.empty()) {
    ++host_->counts.bound;
  } else {
    ++host_->counts.bind_failures;
    spdlog::info("pod {}/{} is not bound to node {}: {}", pod_.space, pod_.name, node_, error);
  }
  answer_(error);
}

}  // namespace aliquot::kube
