// Control groups for tests: remembers what was asked for.
#pragma once

#include <map>
#include <set>

#include "node/cgroup.hpp"

namespace aliquot::node {

class FakeCgroups final : public Cgroups {
 public:
  struct State {
    Limits limits = {};
    std::set<Pid> processes = {};
    bool frozen = false;
    GroupUsage usage = {};
  };
  std::map<Group, State> groups;

  [[nodiscard]] std::string capabilities() const override { return "fake"; }
  [[nodiscard]] bool available() const override { return true; }
  Result<GroupPaths> create(const Group& group, const Limits& limits) override {
    if (group.step && !groups.contains({group.run})) return missing(group);
    groups[group].limits = limits;
    return GroupPaths{};
  }
  Result<void> update(const Group& group, const Limits& limits) override {
    TRY(find(group))->limits = limits;
    return {};
  }
  [[nodiscard]] GroupPaths paths(const Group&) const override { return {}; }
  Result<void> add(const Group& group, Pid pid) override {
    TRY(find(group))->processes.insert(pid);
    return {};
  }
  Result<void> expel(Pid pid) override {
    for (auto& [group, state] : groups) state.processes.erase(pid);
    return {};
  }
  Result<std::vector<Pid>> processes(const Group& group) override {
    const auto* state = TRY(find(group));
    return std::vector<Pid>(state->processes.begin(), state->processes.end());
  }
  Result<void> freeze(const Group& group, bool frozen) override {
    TRY(find(group))->frozen = frozen;
    return {};
  }
  Result<Killed> kill(const Group& group, Millis, const std::set<Pid>& spared) override {
    auto* state = TRY(find(group));
    Killed killed;
    killed.count = static_cast<int>(
        std::erase_if(state->processes, [&](Pid pid) { return !spared.contains(pid); }));
    return killed;
  }
  Result<GroupUsage> usage(const Group& group) override { return TRY(find(group))->usage; }
  Result<void> remove(const Group& group) override {
    if (const auto found = groups.find(group);
        found != groups.end() && !found->second.processes.empty()) {
      return fail(Error::Code::unavailable, "job {} has processes", group.run.job);
    }
    std::erase_if(groups, [&](const auto& item) {
      return item.first == group || (!group.step && item.first.run == group.run);
    });
    return {};
  }
  [[nodiscard]] std::optional<Run> run_of(Pid pid) const override {
    for (const auto& [group, state] : groups) {
      if (state.processes.contains(pid)) return group.run;
    }
    return std::nullopt;
  }
  Result<std::vector<Run>> runs() override {
    std::vector<Run> found;
    for (const auto& [group, state] : groups) {
      if (!group.step) found.push_back(group.run);
    }
    return found;
  }

 private:
  static tl::unexpected<Error> missing(const Group& group) {
    return fail(Error::Code::not_found, "no group of job {}", group.run.job);
  }
  Result<State*> find(const Group& group) {
    const auto found = groups.find(group);
    if (found == groups.end()) return missing(group);
    return &found->second;
  }
};

}  // namespace aliquot::node
