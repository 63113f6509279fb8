#include "kube/scheduler/extender.hpp"

#include <algorithm>

#include "kube/scheduler/extender_json.hpp"

namespace aliquot::kube {

Extender::Extender(ClusterState& state, Api& api, const SealKey& key, const Clock& clock,
                   ExtenderHooks hooks)
    : host_(std::make_shared<BindingHost>(BindingHost{state, api, key, clock, std::move(hooks)})) {}

Extender::~Extender() { host_->closed = true; }

const ExtenderCounts& Extender::counts() const { return host_->counts; }

std::string Extender::filter(std::string_view body) {
  BindingHost& all = *host_;
  ++all.counts.filters;
  if (all.hooks.not_ready) {
    if (const std::string why = all.hooks.not_ready(); !why.empty()) return write_filter_error(why);
  }
  const auto args = read_filter_args(body, all.state.settings().names);
  if (!args) return write_filter_error(args.error().message);

  const auto refuse_all = [&](const std::string& why) {
    std::vector<FailedNode> failed;
    for (const std::string_view node : args->nodes) failed.push_back({node, why, false});
    return write_filter_result(*args, {}, failed);
  };
  const auto asked = all.state.ask(args->pod);
  if (!asked) return refuse_all(asked.error().message);
  const auto known = all.state.find(args->pod.id.uid);
  // Two answers for one pod would be two places: the one under way comes first. An error, as it is
  // to be tried again soon and not when something has changed.
  if (known && known->binding) return write_filter_error("it is being bound already");
  all.state.start_over(args->pod.id.uid);

  std::vector<std::string_view> fitting;
  std::vector<FailedNode> failed;
  auto verdicts = all.state.check(*asked, args->nodes);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i].fits) {
      fitting.push_back(args->nodes[i]);
    } else {
      failed.push_back({args->nodes[i], std::move(verdicts[i].why), verdicts[i].curable});
    }
  }
  return write_filter_result(*args, fitting, failed);
}

std::string Extender::prioritize(std::string_view body) {
  BindingHost& all = *host_;
  ++all.counts.priorities;
  const auto args = read_filter_args(body, all.state.settings().names);
  // It has no words for an error: whatever it says counts as a score.
  if (!args) return write_priorities({});
  std::vector<HostPriority> priorities;
  for (const std::string_view node : args->nodes) priorities.push_back({node, 0});
  const auto asked = all.state.ask(args->pod);
  if (!asked) return write_priorities(priorities);

  const auto ranks = all.state.rank(*asked, args->nodes);
  std::optional<float> best;
  std::optional<float> worst;
  for (const auto& rank : ranks) {
    if (!rank) continue;
    best = std::max(best.value_or(*rank), *rank);
    worst = std::min(worst.value_or(*rank), *rank);
  }
  // Who asks for no GPUs is best where there are none.
  const auto none = [&](std::size_t i) {
    return !asked->asks() && all.state.gpus_of(std::string(args->nodes[i])) == nullptr;
  };
  std::int64_t most = kMostPriority;
  for (std::size_t i = 0; i < ranks.size() && !asked->asks(); ++i) {
    if (!none(i)) continue;
    priorities[i].score = kMostPriority;
    most = kMostPriority - 1;
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i]) continue;
    // The best alone has the most: however near the next one is, it is not it.
    if (*ranks[i] == *best) {
      priorities[i].score = most;
      continue;
    }
    const float part = (*ranks[i] - *worst) / (*best - *worst);
    const auto score = static_cast<std::int64_t>(part * static_cast<float>(most));
    priorities[i].score = std::clamp<std::int64_t>(score, 1, most - 1);
  }
  return write_priorities(priorities);
}

void Extender::bind(std::string_view body, Answer answer) {
  auto args = read_bind_args(body);
  if (!args) {
    ++host_->counts.bind_failures;
    return answer(write_bind_result(args.error().message));
  }
  Binding::start(
      host_, std::move(args->pod), std::move(args->node),
      [answer = std::move(answer)](const std::string& error) { answer(write_bind_result(error)); });
}

}  // namespace aliquot::kube
