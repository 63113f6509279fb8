// Who holds what of which GPU in the whole cluster, as the scheduler knows it: from what the API
// server tells of pods and nodes, and from what is being bound now. core::Cluster does the sums.
//
// The truth is the annotations of living pods. A pod holds what its grant says where that is sealed
// and names the node it is bound to. Bound without such a grant, it may be on any GPU of its node,
// and counts on all of them. Not bound, its grant counts for a while: somebody may be about to bind
// it. What we are binding counts from the moment it was decided.
//
// Nothing is stored and nothing is asked for here. Whoever feeds it every event has, after a
// restart, the same state again.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "core/index.hpp"
#include "kube/model/grant_annotation.hpp"
#include "kube/model/node.hpp"
#include "kube/model/pod.hpp"
#include "kube/scheduler/pod_placement.hpp"

namespace aliquot::kube {

struct StateSettings {
  Names names = {};
  Bytes unit = gib(1);  // of gpu-mem; nodes that count otherwise are not served
  std::string policy = "aliquot";
  core::Profile profile = core::generic_profile();
  // How long a grant counts whose pod is not seen bound.
  Millis patience = minutes(5);
};

// What a pod asks for, with and without `nvidia.com/gpu`, which is not ours on every node.
struct Asked {
  PodRequest ours;
  std::optional<PodRequest> with_nvidia = {};  // where it asks for that

  [[nodiscard]] bool asks() const { return ours.asks() || with_nvidia; }
  [[nodiscard]] const PodRequest& on(bool nvidia) const {
    return nvidia && with_nvidia ? *with_nvidia : ours;
  }
  friend bool operator==(const Asked&, const Asked&) = default;
};

// What is known of a pod beside what it holds.
struct KnownPod {
  PodName id;
  std::string resource_version;
  std::string node;  // bound to
  bool terminating = false;
  bool over = false;
  bool gpushare = false;
  bool binding = false;  // by us, right now or not yet seen
  std::string forged;    // why its grant is none of ours; empty: it is, or there is none
};

struct StateCounts {
  std::size_t nodes = 0;  // with GPUs that we serve
  std::size_t gpus = 0;
  std::size_t pods = 0;     // all that are known
  std::size_t holders = 0;  // that hold or may hold GPUs
  std::size_t unknown = 0;  // bound without a grant of ours
  std::size_t assumed = 0;  // being bound
  Bytes memory;
  Bytes memory_free;
};

class ClusterState {
 public:
  // `clock` outlives it.
  static Result<std::unique_ptr<ClusterState>> create(StateSettings settings, SealKey key,
                                                      const Clock& clock);
  // For people who look and have no key: grants are taken as they stand. Nothing may be decided by
  // it.
  static Result<std::unique_ptr<ClusterState>> create_to_look(StateSettings settings,
                                                              const Clock& clock);

  // What the API server tells. A pod that cannot be read is not there.
  void see_pod(const Pod& pod);
  void lose_pod(const std::string& uid);
  // A pod that has GPUs by claims: those are the cluster's scheduler's to count, and counted here
  // only to be looked at.
  void see_claimed(const PodName& pod, const std::string& node,
                   std::map<GpuId, core::GrantedGpu> gpus);
  // All pods that there are: whatever else was seen has gone. What is being bound stays.
  void keep_only(const std::set<std::string>& uids);
  void see_node(NodeFacts node);
  void lose_node(const std::string& name);
  // What has counted for long enough without being seen bound counts no more. From time to time.
  void expire();

  [[nodiscard]] std::optional<KnownPod> find(const std::string& uid) const;
  [[nodiscard]] const Asked* asked(const std::string& uid) const;  // of one that find() finds
  [[nodiscard]] const StateSettings& settings() const { return settings_; }
  [[nodiscard]] StateCounts counts() const;

  [[nodiscard]] Result<Asked> ask(const Pod& pod) const;
  // The pod is to be placed anew: a grant from an earlier attempt counts no more.
  void start_over(const std::string& uid);

  // Whether the pod can have its GPUs there now; why not. Nodes that are none of ours will do for
  // pods that ask nothing of us there.
  struct Verdict {
    bool fits = false;
    bool curable = false;  // if others went
    std::string why = {};
  };
  std::vector<Verdict> check(const Asked& asked, std::span<const std::string_view> nodes);
  // How good each would be: the higher the better, nothing where it does not fit or is none of
  // ours. A pod that asks for no GPUs is best where they are used up.
  std::vector<std::optional<float>> rank(const Asked& asked,
                                         std::span<const std::string_view> nodes);
  // Which GPUs of this node it gets. No containers: none of ours.
  Result<PodGrant> place(const Asked& asked, const std::string& node);
  // What the node says of its GPUs; nothing: it is none of ours.
  [[nodiscard]] const NodeGpus* gpus_of(const std::string& node) const;

  // Counts from now on, whatever else is heard, until confirmed and seen, or undone.
  void assume(const std::string& uid, const Asked& asked, PodGrant grant);
  // It is bound, and will be seen so.
  void confirm(const std::string& uid);
  void undo(const std::string& uid);
  // It may be bound: it counts until we hear of it, but not for ever.
  void doubt(const std::string& uid);

  // What a pod takes, and where.
  struct Holding {
    std::string node;  // empty: nothing anywhere
    CpuMilli cpus;
    std::map<GpuId, core::GrantedGpu> gpus = {};
    bool unknown = false;  // on all GPUs, as much as it asks for
    friend bool operator==(const Holding&, const Holding&) = default;
  };
  [[nodiscard]] Holding holding(const std::string& uid) const;

  // Of every GPU by node and UUID: for tests and for people.
  struct GpuPicture {
    Bytes memory;
    Bytes memory_free;
    Compute compute_free;
    std::uint32_t pods = 0;
    bool whole = false;
    bool usable = false;
    friend bool operator==(const GpuPicture&, const GpuPicture&) = default;
  };
  [[nodiscard]] std::map<std::string, std::map<GpuId, GpuPicture>> picture();

 private:
  struct Assumption {
    PodGrant grant;
    // Nothing of ours is under way for it any more; it is only to be seen.
    bool settled = false;
    bool doubtful = false;  // and it may be seen not bound
    MonoTime until;         // once settled
  };
  struct PodEntry {
    KnownPod known;
    Asked asked = {};
    std::string grant_text = {};  // and seal, as last verified
    std::optional<PodGrant> grant = {};
    std::string started_over = {};  // the grant that is not to count while it is not bound
    std::optional<Assumption> assumed = {};
    std::optional<std::map<GpuId, core::GrantedGpu>> claimed = {};
    Holding holding = {};
    std::optional<core::Use> booked = {};
  };
  struct NodeEntry {
    std::optional<NodeFacts> facts = {};
    std::string trouble = {};
    std::optional<core::NodeIndex> at = {};
    std::set<std::string> pods = {};  // that hold something there, by uid
    // Pods are in each other's way, or may be on any GPU: with each change all are booked anew.
    bool tangled = false;
  };
  // What decides, made anew when nodes or GPUs come, go or change their sizes.
  struct Decisions {
    Decisions(core::Cluster all, std::unique_ptr<core::Policy> ranking)
        : cluster(std::move(all)), policy(std::move(ranking)), index(cluster, *policy) {}
    core::Cluster cluster;
    std::unique_ptr<core::Policy> policy;
    core::Index index;
  };
  struct AskedShapes {
    Result<PodShapes> ours;
    std::optional<Result<PodShapes>> with_nvidia;
  };

  ClusterState(StateSettings settings, std::optional<SealKey> key, const Clock& clock)
      : settings_(std::move(settings)), key_(std::move(key)), clock_(clock) {}
  void read_grant_of(const Pod& pod, PodEntry& entry) const;
  [[nodiscard]] Holding holding_of(const PodEntry& entry) const;
  [[nodiscard]] bool timed(const PodEntry& entry) const;
  void settle(const std::string& uid, PodEntry& entry);
  void enter(const std::string& uid, PodEntry& entry);
  void leave(const std::string& uid, PodEntry& entry);
  void book(PodEntry& entry, NodeEntry& node);
  void book_again(NodeEntry& node);
  void apply_health(const NodeEntry& node);
  [[nodiscard]] std::vector<core::GpuUse> uses_of(const PodEntry& entry, const NodeEntry& node,
                                                  std::vector<core::GpuIndex>& closed) const;
  void refresh();
  void rebuild();
  [[nodiscard]] AskedShapes shapes(const Asked& asked) const;
  [[nodiscard]] const NodeEntry* find_node(std::string_view name) const;
  [[nodiscard]] std::string why_not_ours(const NodeEntry* node) const;

  const StateSettings settings_;
  const std::optional<SealKey> key_;  // none: to look only
  const Clock& clock_;
  std::map<std::string, NodeEntry, std::less<>> nodes_;
  std::unordered_map<std::string, PodEntry> pods_;  // by uid
  std::set<std::string> timed_;                     // pods whose holding may run out
  MonoTime expired_;                                // when they were last looked at
  std::unique_ptr<Decisions> decisions_;
  bool outdated_ = true;
};

}  // namespace aliquot::kube
