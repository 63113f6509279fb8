#include "node/cgroup.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/text.hpp"
#include "node/device_filter.hpp"
#include "node/group_paths.hpp"
#include "sys/file.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPeriodUs = 100'000;
constexpr std::int64_t kLeastQuotaUs = 1'000;

constexpr std::string_view kPrefix = "job_";

std::string relative_folder(const Group& group) {
  auto folder = std::string(kPrefix) + run_name(group.run);
  if (group.step) folder += fmt::format("/step_{}", *group.step);
  return folder;
}

std::int64_t quota_us(CpuMilli cpus) {
  return std::max(cpus.value() * kPeriodUs / kOneCpu.value(), kLeastQuotaUs);
}

Result<void> make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return sys::system_error(errno, "cannot make", path);
  }
  return {};
}

// With the steps inside. The kernel's files in there vanish with their folder.
Result<void> remove_folder(const std::string& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.is_directory(error)) TRY(remove_folder(entry.path().string()));
  }
  if (rmdir(path.c_str()) != 0 && errno != ENOENT) {
    return sys::system_error(errno, "cannot remove", path);
  }
  return {};
}

// What v1 and v2 have in common: all but where things lie and how limits are written.
class KernelCgroups : public Cgroups {
 public:
  // A root for each controller; one, under "", for v2.
  explicit KernelCgroups(std::map<std::string, std::string> roots) : roots_(std::move(roots)) {}
  KernelCgroups(const KernelCgroups&) = delete;
  KernelCgroups& operator=(const KernelCgroups&) = delete;
  // Without a job in it a root is of no use to anyone; with one it cannot be removed.
  ~KernelCgroups() override {
    for (const auto& [controller, root] : roots_) rmdir(root.c_str());
  }

  [[nodiscard]] bool available() const override { return true; }

  [[nodiscard]] GroupPaths paths(const Group& group) const override {
    GroupPaths paths;
    for (const auto& [controller, root] : roots_) {
      paths.folders[controller] = root + "/" + relative_folder({named(group.run), group.step});
    }
    return paths;
  }

  Result<void> add(const Group& group, Pid pid) override {
    for (const auto& [controller, folder] : paths(group).folders) {
      TRY(write_control(folder + "/cgroup.procs", std::to_string(pid.value())));
    }
    return {};
  }

  Result<void> expel(Pid pid) override {
    for (const auto& [controller, root] : roots_) {
      const auto above = fs::path(root).parent_path().string();
      TRY(write_control(above + "/cgroup.procs", std::to_string(pid.value())));
    }
    return {};
  }

  Result<std::vector<Pid>> processes(const Group& group) override {
    return group_processes(paths(group));
  }
  Result<void> freeze(const Group& group, bool frozen) override {
    return freeze_group(paths(group), frozen);
  }
  Result<Killed> kill(const Group& group, Millis patience, const std::set<Pid>& spared) override {
    return kill_group(paths(group), patience, spared);
  }
  Result<GroupUsage> usage(const Group& group) override { return group_usage(paths(group)); }

  Result<void> remove(const Group& group) override {
    for (const auto& [controller, folder] : paths(group).folders) TRY(remove_folder(folder));
    return {};
  }

  Result<std::vector<Run>> runs() override {
    std::vector<Run> found;
    for (const auto& [controller, root] : roots_) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(root, error)) {
        const auto name = entry.path().filename().string();
        if (!name.starts_with(kPrefix)) continue;
        const auto run = parse_run_name(std::string_view(name).substr(kPrefix.size()));
        if (run) found.push_back(meant(*run));
      }
      if (error) return sys::system_error(error.value(), "cannot list", root);
    }
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  [[nodiscard]] std::optional<Run> run_of(Pid pid) const override {
    const auto text = sys::read_proc(pid, "cgroup").value_or("");
    // In any hierarchy: who is in a job can move in none of them.
    for (const auto& [controller, root] : roots_) {
      const auto ours = fmt::format("/{}/{}", fs::path(root).filename().string(), kPrefix);
      for (const std::string_view line : split(text, '\n')) {  // 4:memory:/aliquot/job_7/step_0
        const auto at = line.find(ours);
        // Below a login's own service its user makes groups, with any name.
        if (at == std::string_view::npos || line.find("/user@") < at) continue;
        const auto rest = line.substr(at + ours.size());
        if (const auto run = parse_run_name(rest.substr(0, rest.find('/')))) return meant(*run);
      }
    }
    return std::nullopt;
  }

  void name_by_job(const Run& run) override { by_job_.insert(run); }

 protected:
  [[nodiscard]] const std::map<std::string, std::string>& roots() const { return roots_; }

 private:
  [[nodiscard]] Run named(const Run& run) const {
    return by_job_.contains(run) ? Run{run.job} : run;
  }
  // The inverse.
  [[nodiscard]] Run meant(const Run& name) const {
    const auto run = std::ranges::find_if(
        by_job_, [&](const Run& one) { return one.job == name.job && name.attempt == 0; });
    return run == by_job_.end() ? name : *run;
  }

  std::set<Run> by_job_;
  std::map<std::string, std::string> roots_;
};

class CgroupsV1 final : public KernelCgroups {
 public:
  using KernelCgroups::KernelCgroups;

  [[nodiscard]] std::string capabilities() const override {
    std::string text = "v1:";
    for (const auto& [controller, root] : roots()) {
      text += (text.ends_with(':') ? " " : ", ") + controller;
    }
    return text;
  }

  [[nodiscard]] bool hides_devices() const override { return roots().contains("devices"); }

  Result<GroupPaths> create(const Group& group, const Limits& limits) override {
    auto where = paths(group);
    for (const auto& [controller, folder] : where.folders) {
      TRY(make_folder(folder));
      if (controller == "cpuset") TRY(inherit_cpuset(folder));
    }
    TRY(update(group, limits));
    return where;
  }

  Result<void> update(const Group& group, const Limits& limits) override {
    const auto where = paths(group).folders;
    const auto folder = [&](const char* controller) -> std::optional<std::string> {
      const auto found = where.find(controller);
      if (found == where.end()) return std::nullopt;
      return found->second;
    };
    if (const auto cpu = folder("cpu"); cpu && limits.cpus) {
      TRY(write_control(*cpu + "/cpu.cfs_period_us", std::to_string(kPeriodUs)));
      TRY(write_control(*cpu + "/cpu.cfs_quota_us", std::to_string(quota_us(*limits.cpus))));
    }
    if (const auto cpuset = folder("cpuset"); cpuset && limits.cpuset) {
      TRY(write_control(*cpuset + "/cpuset.cpus", *limits.cpuset));
    }
    if (const auto memory = folder("memory"); memory && limits.memory) {
      TRY(limit_memory(*memory, std::to_string(limits.memory->value())));
    }
    if (const auto pids = folder("pids"); pids && limits.processes > 0) {
      TRY(write_control(*pids + "/pids.max", std::to_string(limits.processes)));
    }
    if (const auto devices = folder("devices")) {
      for (const auto& device : limits.hidden_devices) {
        TRY(write_control(*devices + "/devices.deny",
                          fmt::format("c {}:{} rwm", device.major, device.minor)));
      }
    }
    return {};
  }

  // A new cpuset is empty and takes nobody.
  static Result<void> inherit_cpuset(const std::string& folder) {
    for (const auto* file : {"/cpuset.cpus", "/cpuset.mems"}) {
      auto value = TRY(sys::read_whole(fs::path(folder).parent_path().string() + file));
      while (value.ends_with('\n')) value.pop_back();
      TRY(write_control(folder + file, value));
    }
    return {};
  }

 private:
  // Memory and swap together are limited to the same, where swap is counted at all. The kernel
  // wants memory <= memory and swap at every moment, so the order depends on the direction.
  static Result<void> limit_memory(const std::string& folder, const std::string& bytes) {
    const auto memory = folder + "/memory.limit_in_bytes";
    const auto both = folder + "/memory.memsw.limit_in_bytes";
    const bool has_both = access(both.c_str(), F_OK) == 0;
    if (write_control(memory, bytes)) {
      if (has_both) TRY(write_control(both, bytes));
      return {};
    }
    if (has_both) TRY(write_control(both, bytes));
    return write_control(memory, bytes);
  }
};

class CgroupsV2 final : public KernelCgroups {
 public:
  // without_devices: why none can be hidden; empty: they can.
  CgroupsV2(const std::string& root, std::string controllers, std::string without_devices)
      : KernelCgroups({{"", root}}),
        controllers_(std::move(controllers)),
        without_devices_(std::move(without_devices)) {}

  [[nodiscard]] std::string capabilities() const override {
    if (without_devices_.empty()) return fmt::format("v2: {}, devices, freezer", controllers_);
    return fmt::format("v2: {}, freezer; devices not: {}", controllers_, without_devices_);
  }

  [[nodiscard]] bool hides_devices() const override { return without_devices_.empty(); }

  // Limits are the job's: no controller is handed on to the steps, which also spares us v2's rule
  // that a group with limited groups inside holds no processes of its own.
  Result<GroupPaths> create(const Group& group, const Limits& limits) override {
    auto where = paths(group);
    TRY(make_folder(where.folders[""]));
    TRY(update(group, limits));
    return where;
  }

  Result<void> update(const Group& group, const Limits& limits) override {
    const auto folder = paths(group).folders[""];
    if (!limits.hidden_devices.empty() && without_devices_.empty()) {
      TRY(hide_devices(folder, limits.hidden_devices));
    }
    if (group.step) return {};
    if (limits.cpus && has("cpu")) {
      TRY(write_control(folder + "/cpu.max",
                        fmt::format("{} {}", quota_us(*limits.cpus), kPeriodUs)));
    }
    if (limits.cpuset && has("cpuset")) {
      TRY(write_control(folder + "/cpuset.cpus", *limits.cpuset));
    }
    if (limits.memory && has("memory")) {
      TRY(write_control(folder + "/memory.max", std::to_string(limits.memory->value())));
      static_cast<void>(write_control(folder + "/memory.swap.max", "0"));  // no swap: no such file
    }
    if (limits.processes > 0 && has("pids")) {
      TRY(write_control(folder + "/pids.max", std::to_string(limits.processes)));
    }
    return {};
  }

 private:
  [[nodiscard]] bool has(std::string_view controller) const {
    const auto all = split(controllers_, ' ');
    return std::ranges::any_of(all, [&](std::string_view word) {
      return word == controller || word == std::string(controller) + ",";
    });
  }

  std::string controllers_;  // "cpu, memory"
  std::string without_devices_;
};

class NoCgroups final : public Cgroups {
 public:
  explicit NoCgroups(std::string why) : why_(std::move(why)) {}

  [[nodiscard]] std::string capabilities() const override { return "none: " + why_; }
  [[nodiscard]] bool available() const override { return false; }
  Result<GroupPaths> create(const Group&, const Limits&) override { return GroupPaths{}; }
  Result<void> update(const Group&, const Limits&) override { return {}; }
  [[nodiscard]] GroupPaths paths(const Group&) const override { return {}; }
  Result<void> add(const Group&, Pid) override { return {}; }
  Result<void> expel(Pid) override { return {}; }
  Result<std::vector<Pid>> processes(const Group&) override { return std::vector<Pid>{}; }
  Result<void> freeze(const Group&, bool) override {
    return fail(Error::Code::unsupported, "no freezer: {}", why_);
  }
  Result<Killed> kill(const Group&, Millis, const std::set<Pid>&) override { return Killed{}; }
  Result<GroupUsage> usage(const Group&) override { return GroupUsage{}; }
  Result<void> remove(const Group&) override { return {}; }
  Result<std::vector<Run>> runs() override { return std::vector<Run>{}; }
  [[nodiscard]] std::optional<Run> run_of(Pid) const override { return std::nullopt; }

 private:
  std::string why_;
};

struct Mounts {
  std::map<std::string, std::string> v1;  // controller → mount point
  std::optional<std::string> v2;
};

constexpr std::array kControllers = {"cpu",     "cpuacct", "cpuset", "devices",
                                     "freezer", "memory",  "pids"};

// 36 35 0:31 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
Mounts parse_mounts(std::string_view text) {
  Mounts mounts;
  for (const auto line : split(text, '\n')) {
    const auto middle = line.find(" - ");
    if (middle == std::string_view::npos) continue;
    const auto before = split(line.substr(0, middle), ' ');
    const auto after = split(line.substr(middle + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    if (after[0] == "cgroup2" && !mounts.v2) mounts.v2 = std::string(before[4]);
    if (after[0] != "cgroup") continue;
    for (const auto option : split(after[2], ',')) {
      if (std::ranges::find(kControllers, option) != kControllers.end()) {
        mounts.v1.emplace(option, before[4]);
      }
    }
  }
  return mounts;
}

Result<std::unique_ptr<Cgroups>> open_v1(const Mounts& mounts, const std::string& name) {
  std::map<std::string, std::string> roots;
  for (const auto& [controller, mount] : mounts.v1) {
    auto root = mount + "/" + name;
    TRY(make_folder(root));
    if (controller == "cpuset") TRY(CgroupsV1::inherit_cpuset(root));
    if (controller == "memory") {
      static_cast<void>(
          write_control(root + "/memory.use_hierarchy", "1"));  // always so since 5.11
    }
    roots.emplace(controller, std::move(root));
  }
  return std::make_unique<CgroupsV1>(std::move(roots));
}

Result<std::unique_ptr<Cgroups>> open_v2(const std::string& mount, const std::string& name) {
  const auto root = mount + "/" + name;
  TRY(make_folder(root));
  std::string usable;
  for (const auto* controller : {"cpu", "cpuset", "memory", "pids"}) {
    const auto order = std::string("+") + controller;
    if (write_control(mount + "/cgroup.subtree_control", order) &&
        write_control(root + "/cgroup.subtree_control", order)) {
      usable += usable.empty() ? "" : ", ";
      usable += controller;
    }
  }
  if (usable.empty()) {
    static_cast<void>(remove_folder(root));
    return fail(Error::Code::unsupported, "{} hands on no controller", mount);
  }
  const auto probe = load_device_program(device_program({{195, 0}}));
  return std::make_unique<CgroupsV2>(root, std::move(usable), probe ? "" : probe.error().message);
}

// A v2 hierarchy beside v1 has none of the controllers we want.
bool is_useful_v2(const std::string& mount) {
  const auto controllers = sys::read_whole(mount + "/cgroup.controllers");
  return controllers && controllers->find("memory") != std::string::npos;
}

}  // namespace

std::unique_ptr<Cgroups> no_cgroups(std::string why) {
  return std::make_unique<NoCgroups>(std::move(why));
}

std::unique_ptr<Cgroups> open_cgroups(const std::string& name, const fs::path& mounts_file) {
  if (geteuid() != 0) return no_cgroups("not root; jobs are tracked by their processes");
  const auto text = sys::read_whole(mounts_file);
  if (!text) return no_cgroups(text.error().message);
  const auto mounts = parse_mounts(*text);
  const auto opened = [&]() -> Result<std::unique_ptr<Cgroups>> {
    if (mounts.v2 && is_useful_v2(*mounts.v2)) return open_v2(*mounts.v2, name);
    if (!mounts.v1.empty()) return open_v1(mounts, name);
    return fail(Error::Code::unsupported, "no cgroup file system is mounted");
  };
  auto cgroups = opened();
  if (!cgroups) return no_cgroups(cgroups.error().message);
  return std::move(*cgroups);
}

std::vector<DeviceNumber> nvidia_devices(const std::vector<int>& minors, bool all,
                                         const fs::path& dev) {
  std::vector<std::string> names;
  for (const int minor : minors) names.push_back(fmt::format("nvidia{}", minor));
  if (all) {
    for (const auto* name : {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}) {
      names.emplace_back(name);
    }
  }
  std::vector<DeviceNumber> numbers;
  for (const auto& name : names) {
    struct stat info {};
    if (stat((dev / name).c_str(), &info) == 0 && S_ISCHR(info.st_mode)) {
      numbers.push_back({major(info.st_rdev), minor(info.st_rdev)});
    }
  }
  return numbers;
}

}  // namespace aliquot::node
