#include "kube/view/why.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/counted.hpp"
#include "base/percent.hpp"
#include "base/text.hpp"
#include "kube/api/moments.hpp"
#include "kube/model/json_read.hpp"
#include "kube/scheduler/pod_placement.hpp"
#include "kube/view/overview.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

// What fits on a screen; the nodes that are nearest to having room come first.
constexpr std::size_t kMostNodes = 6;
constexpr std::size_t kMostHolders = 6;
constexpr std::size_t kMostEvents = 3;

std::string need_text(const ContainerNeed& need) {
  if (need.whole())
    return fmt::format("{} for {}", counted(need.gpus.count, "whole GPU"), need.container);
  const auto& amounts = std::get<core::Amounts>(need.gpus.what);
  std::vector<std::string> parts;
  if (amounts.memory) parts.push_back(size_for_people(*amounts.memory));
  if (amounts.compute) parts.push_back(format_percent(*amounts.compute) + " of the compute");
  return fmt::format(
      "{} of {} for {}", fmt::join(parts, " and "),
      need.gpus.count == 1 ? "one GPU" : fmt::format("each of {} GPUs", need.gpus.count),
      need.container);
}

std::string part_text(const core::GrantedGpu& part) {
  if (part.whole) return "the whole GPU";
  return fmt::format("{}, {}", size_for_people(part.portion.memory),
                     format_percent(part.portion.compute));
}

class Explanation {
 public:
  Explanation(const ClusterLook& look, ClusterState& state)
      : look_(look), state_(state), picture_(state.picture()) {}

  // Nodes that take no pods, or have no room for this one, GPU by GPU.
  std::vector<std::string> of_nodes(const Asked& asked);

 private:
  struct Told {
    const SeenNode* node = nullptr;
    ClusterState::Verdict verdict;
    Bytes largest;  // free on one of its GPUs
  };
  std::string node_sentence(const Told& told) const;
  void tell_gpus(const SeenNode& node, std::vector<std::string>& out) const;
  [[nodiscard]] std::string holders(const std::string& node, const GpuId& gpu) const;

  const ClusterLook& look_;
  ClusterState& state_;
  const std::map<std::string, std::map<GpuId, ClusterState::GpuPicture>> picture_;
};

std::string Explanation::holders(const std::string& node, const GpuId& gpu) const {
  std::vector<std::string> parts;
  std::size_t more = 0;
  for (const SeenPod& pod : look_.pods) {
    const auto holding = state_.holding(pod.pod.id.uid);
    if (holding.node != node) continue;
    const auto held = holding.gpus.find(gpu);
    if (held == holding.gpus.end() && !holding.unknown) continue;
    if (parts.size() == kMostHolders) {
      ++more;
      continue;
    }
    parts.push_back(held == holding.gpus.end()
                        ? fmt::format("{} may be on it", pod.label())
                        : fmt::format("{} has {}", pod.label(), part_text(held->second)));
  }
  if (more > 0) parts.push_back(counted(more, "more pod"));
  return fmt::format("{}", fmt::join(parts, "; "));
}

void Explanation::tell_gpus(const SeenNode& node, std::vector<std::string>& out) const {
  const auto found = picture_.find(node.facts.name);
  if (found == picture_.end() || !node.facts.gpus) return;
  for (const NodeGpu& gpu : node.facts.gpus->gpus) {
    const auto one = found->second.find(gpu.uuid);
    if (one == found->second.end()) continue;
    const ClusterState::GpuPicture& seen = one->second;
    auto line = fmt::format("  GPU {} ({}): ", gpu.index, gpu.mig.empty() ? gpu.model : gpu.mig);
    if (!seen.usable) {
      line += "takes no pods now";
    } else if (seen.whole) {
      line += "held whole";
    } else {
      line += fmt::format("{} of {} and {} of the compute free",
                          size_for_people(std::max(Bytes(0), seen.memory_free - gpu.foreign)),
                          size_for_people(seen.memory), format_percent(seen.compute_free));
    }
    if (gpu.foreign > Bytes(0)) {
      line += fmt::format("; processes of no pod hold {}", size_for_people(gpu.foreign));
    }
    if (auto who = holders(node.facts.name, gpu.uuid); !who.empty()) line += "; " + who;
    out.push_back(std::move(line));
  }
}

std::string Explanation::node_sentence(const Told& told) const {
  const std::string& name = told.node->facts.name;
  if (!told.node->ready) return fmt::format("{}: its kubelet is not ready", name);
  std::string text = told.verdict.fits ? "its GPUs have room" : told.verdict.why;
  if (told.node->cordoned) text += "; it is cordoned and takes no pods";
  return fmt::format("{}: {}", name, text);
}

std::vector<std::string> Explanation::of_nodes(const Asked& asked) {
  std::vector<std::string_view> names;
  for (const SeenNode& node : look_.nodes) names.emplace_back(node.facts.name);
  auto verdicts = state_.check(asked, names);
  std::vector<Told> all;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    Told told{.node = &look_.nodes[i], .verdict = std::move(verdicts[i]), .largest = Bytes(0)};
    if (const auto gpus = picture_.find(told.node->facts.name); gpus != picture_.end()) {
      for (const auto& [id, gpu] : gpus->second) {
        if (gpu.usable && !gpu.whole) told.largest = std::max(told.largest, gpu.memory_free);
      }
    }
    all.push_back(std::move(told));
  }
  std::ranges::stable_sort(all, [](const Told& a, const Told& b) {
    return std::pair(a.verdict.fits, a.largest) > std::pair(b.verdict.fits, b.largest);
  });
  std::vector<std::string> out;
  if (all.empty()) out.emplace_back("No node that can be seen shares its GPUs by Aliquot.");
  for (std::size_t i = 0; i < all.size() && i < kMostNodes; ++i) {
    out.push_back(node_sentence(all[i]));
    tell_gpus(*all[i].node, out);
  }
  if (all.size() > kMostNodes) {
    const auto room = std::ranges::count_if(all.begin() + kMostNodes, all.end(),
                                            [](const Told& told) { return told.verdict.fits; });
    out.push_back(fmt::format("{} {}, {} of them with room",
                              counted(all.size() - kMostNodes, "more node"),
                              all.size() - kMostNodes == 1 ? "shares GPUs" : "share GPUs", room));
  }
  return out;
}

void tell_has(const ClusterLook& look, const SeenPod& pod, const ClusterState::Holding& holding,
              std::vector<std::string>& out) {
  if (holding.unknown) {
    out.push_back(fmt::format(
        "It is on node {}, which has not said yet which GPU it has: aliquot-kube-node writes that.",
        pod.pod.node));
    return;
  }
  if (!pod.grant || holding.gpus.empty()) return;
  const auto figures = look.figures.find(pod.grant->node);
  for (const auto& [container, parts] : pod.grant->containers) {
    std::vector<std::string> texts;
    for (const core::GrantedGpu& part : parts) {
      std::string gpu = part.gpu.value();
      for (const SeenNode& node : look.nodes) {
        if (node.facts.name != pod.grant->node || !node.facts.gpus) continue;
        const auto found = std::ranges::find(node.facts.gpus->gpus, part.gpu, &NodeGpu::uuid);
        if (found != node.facts.gpus->gpus.end()) gpu = std::to_string(found->index);
      }
      texts.push_back(part.whole ? fmt::format("GPU {}, whole", gpu)
                                 : fmt::format("{} of GPU {}", part_text(part), gpu));
    }
    auto line = fmt::format("{} has {} on {}", container, fmt::join(texts, "; "), pod.grant->node);
    if (figures != look.figures.end()) {
      const auto used =
          figures->second.containers.find({pod.pod.id.space, pod.pod.id.name, container});
      if (used != figures->second.containers.end() && used->second.used) {
        line += fmt::format(", and uses {}", size_for_people(*used->second.used));
      }
    }
    out.push_back(line + ".");
  }
}

void tell_events(std::vector<SeenEvent> events, std::vector<std::string>& out) {
  std::erase_if(events, [](const SeenEvent& event) {
    // What kube-scheduler says stands in the condition of a pod that waits, as new as it can be.
    return !event.warning || event.reason == "FailedScheduling";
  });
  std::ranges::stable_sort(events, std::greater(), &SeenEvent::last);
  if (events.size() > kMostEvents) events.resize(kMostEvents);
  for (const SeenEvent& event : events) {
    out.push_back(fmt::format("{}: {}", event.reason, event.message));
  }
}

void tell_wait(const ClusterLook& look, ClusterState& state, const SeenPod& pod,
               std::vector<std::string>& out) {
  const auto asked = asked_of(look, state, pod);
  if (!asked) {
    out.push_back(asked.error().message + ".");
    return;
  }
  const PodRequest& request = asked->with_nvidia ? *asked->with_nvidia : asked->ours;
  if (!request.asks()) {
    out.emplace_back(pod.claims.empty()
                         ? "It asks for no GPU that Aliquot shares."
                         : "Its claims ask for no GPU that Aliquot shares, or are not made yet.");
  } else {
    std::vector<std::string> needs;
    for (const ContainerNeed& need : request.needs) needs.push_back(need_text(need));
    out.push_back(fmt::format("It asks for {}.", fmt::join(needs, ", ")));
  }
  if (pod.reason == "SchedulingGated") {
    out.emplace_back("It has scheduling gates: nobody looks for a node before they are gone.");
    return;
  }
  if (request.asks()) {
    for (auto& line : Explanation(look, state).of_nodes(*asked)) out.push_back(std::move(line));
  }
  const std::string scheduler = pod.scheduler.empty() ? "default-scheduler" : pod.scheduler;
  if (!pod.message.empty()) {
    out.push_back(fmt::format("{} says: {}", scheduler, pod.message));
  } else if (pod.reason.empty()) {
    out.push_back(fmt::format("{} has not looked at it yet: is it running?", scheduler));
  }
}

}  // namespace

bool is_name(std::string_view text, bool dots) {
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  constexpr std::size_t kLongest = 253;
  return !text.empty() && text.size() <= kLongest && is_plain(text.front()) &&
         std::ranges::all_of(text,
                             [&](char c) { return is_plain(c) || c == '-' || (dots && c == '.'); });
}

SeenEvent read_seen_event(const json::object& object) {
  SeenEvent event;
  event.warning = find_text(object, "type") == "Warning";
  event.reason = find_text(object, "reason");
  event.message = find_text(object, "message");
  for (const std::string_view key : {"lastTimestamp", "eventTime", "firstTimestamp"}) {
    if (const auto at = parse_moment(find_text(object, key))) {
      event.last = *at;
      break;
    }
  }
  return event;
}

Result<api::WhyInfo> why_of(const ClusterLook& look, const SeenPod& pod,
                            const std::vector<SeenEvent>& events, const Clock& clock) {
  const auto state = TRY(count_holdings(look, clock));
  api::WhyInfo why;
  why.pod = pod.label();
  why.state = pod_state(pod.pod);
  why.reason = pod.reason.empty() ? "None" : pod.reason;
  if (pod.pod.over()) {
    why.sentences.push_back(pod.message.empty() ? "It has ended, and holds nothing any more."
                                                : pod.message);
  } else if (pod.waits()) {
    tell_wait(look, *state, pod, why.sentences);
  } else {
    tell_has(look, pod, state->holding(pod.pod.id.uid), why.sentences);
    for (const std::string& trouble : pod.troubles) why.sentences.push_back(trouble);
  }
  tell_events(events, why.sentences);
  for (const std::string& gap : look.gaps) why.sentences.push_back(gap);
  return why;
}

std::optional<PodWord> parse_pod_word(std::string_view word) {
  PodWord parsed;
  if (const auto slash = word.find('/'); slash != std::string_view::npos) {
    const std::string_view before = word.substr(0, slash);
    word.remove_prefix(slash + 1);
    if (before != "pod" && before != "pods" && before != "po") parsed.space = before;
    if (before.empty()) return std::nullopt;
  }
  if (!is_name(word, true) || (!parsed.space.empty() && !is_name(parsed.space, false))) {
    return std::nullopt;
  }
  parsed.name = word;
  return parsed;
}

}  // namespace aliquot::kube
