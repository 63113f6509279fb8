#include "cli/machine/doctor_checks.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.hpp"
#include "cli/machine/paths.hpp"
#include "cli/machine/preload.hpp"
#include "cli/view/json_writer.hpp"

namespace aliquot::cli {
namespace {

namespace fs = std::filesystem;
using Level = Check::Level;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool stand_in_wanted() {
  const char* wanted = std::getenv("ALIQUOT_STANDIN");
  return wanted != nullptr && *wanted != '\0';
}

Check check_driver() {
  const auto version = first_line("/proc/driver/nvidia/version");
  if (!version.empty()) return {"driver", Level::ok, version, ""};
  if (stand_in_wanted()) return {"driver", Level::ok, "simulated GPUs (ALIQUOT_STANDIN)", ""};
  return {"driver", Level::warn, "no NVIDIA driver is loaded: there is no GPU to share",
          "install the driver (Debian: apt install nvidia-driver), or try simulated GPUs: "
          "aliquot up --simulate h200:4"};
}

// The device files that a job needs. Without a driver there are none; check_driver says so.
Check check_devices() {
  std::vector<std::string> closed;
  std::size_t found = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev", error)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with("nvidia") || entry.is_directory(error)) continue;
    ++found;
    if (::access(entry.path().c_str(), R_OK | W_OK) != 0) closed.push_back(name);
  }
  if (found == 0) return {"devices", Level::ok, "no /dev/nvidia* files", ""};
  if (closed.empty()) {
    return {"devices", Level::ok, fmt::format("{} device files, all open to you", found), ""};
  }
  return {"devices", Level::fail,
          fmt::format("you may not open /dev/{}{}", closed.front(),
                      closed.size() > 1 ? fmt::format(" and {} more", closed.size() - 1) : ""),
          "join the group that owns them (often video), or set NVreg_DeviceFileMode=0666 for the "
          "nvidia module"};
}

Check check_nvml() {
  // By name, as the daemon loads it: the machine needs no development files.
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    return {"nvml", Level::warn, "libnvidia-ml.so.1 cannot be loaded",
            "it comes with the driver (Debian: libnvidia-ml1); without it no GPU is found"};
  }
  using Simple = int (*)();
  using Count = int (*)(unsigned*);
  const auto init = reinterpret_cast<Simple>(::dlsym(library, "nvmlInit_v2"));
  const auto count = reinterpret_cast<Count>(::dlsym(library, "nvmlDeviceGetCount_v2"));
  const auto shutdown = reinterpret_cast<Simple>(::dlsym(library, "nvmlShutdown"));
  if (init == nullptr || count == nullptr || shutdown == nullptr) {
    return {"nvml", Level::fail, "libnvidia-ml.so.1 is too old: nvmlInit_v2 is missing",
            "update the driver to 450 or newer"};
  }
  if (const int error = init(); error != 0) {
    return {"nvml", Level::fail, fmt::format("nvmlInit fails with {}", error),
            error == 18 ? "library and kernel module differ: reboot, or reload the nvidia module"
                        : "see dmesg, and whether nvidia-smi works"};
  }
  unsigned gpus = 0;
  const int error = count(&gpus);
  shutdown();
  if (error != 0 || gpus == 0) {
    return {"nvml", Level::warn, "NVML works and finds no GPU", "see whether nvidia-smi lists any"};
  }
  return {"nvml", Level::ok, fmt::format("finds {} GPU{}", gpus, gpus == 1 ? "" : "s"), ""};
}

Check check_mps() {
  if (const auto path = find_program("nvidia-cuda-mps-control"); !path.empty()) {
    return {"mps", Level::ok, path, ""};
  }
  return {"mps", Level::warn,
          "nvidia-cuda-mps-control is not in PATH: shares take turns on the GPU",
          "install it for shares that run side by side (Debian: nvidia-cuda-mps)"};
}

// The entry is optional: without it the daemon's watchdog limits a process that has lost its
// environment. But an entry for a missing file makes every program of the machine complain.
Check check_preload() {
  std::ifstream file(kPreloadFile);
  std::ostringstream text;
  text << file.rdbuf();
  const auto library = find_in_preload(text.str());
  if (library.empty()) {
    return {"preload", Level::ok,
            fmt::format("the library is not in {}: a process without its job's environment is held "
                        "by the watchdog; 'aliquot setup preload on' has it in every process",
                        kPreloadFile),
            ""};
  }
  if (::access(library.c_str(), R_OK) != 0) {
    return {"preload", Level::fail,
            fmt::format("{} names {}, which is not there", kPreloadFile, library),
            "aliquot setup preload off, or install it again"};
  }
  return {"preload", Level::ok, fmt::format("every process has {} ({})", library, kPreloadFile),
          ""};
}

Check check_cgroup() {
  const auto controllers = first_line("/sys/fs/cgroup/cgroup.controllers");
  if (!controllers.empty()) {
    const auto words = split(controllers, ' ');
    std::string missing;
    for (const std::string_view wanted : {"cpu", "memory", "pids"}) {
      if (std::ranges::find(words, wanted) == words.end()) missing += fmt::format(" {}", wanted);
    }
    if (!missing.empty()) {
      return {"cgroups", Level::warn, fmt::format("v2, without the controllers{}", missing),
              "a job's limit of that kind is not held; in a container, have them delegated"};
    }
    if (::access("/sys/fs/cgroup/cgroup.procs", W_OK) != 0) {
      return {"cgroups", Level::warn, "v2, but you may not make groups",
              "run the daemon as root, or have a subtree delegated to you "
              "(systemd-run --user --scope -p Delegate=yes)"};
    }
    return {"cgroups", Level::ok, "v2, with cpu, memory and pids", ""};
  }
  std::error_code error;
  if (fs::is_directory("/sys/fs/cgroup/memory", error)) {
    if (::access("/sys/fs/cgroup/memory", W_OK) != 0) {
      return {"cgroups", Level::warn, "v1, but you may not make groups", "run the daemon as root"};
    }
    return {"cgroups", Level::ok, "v1, with memory", ""};
  }
  return {"cgroups", Level::warn, "no cgroups here: CPU and memory limits of jobs are not held",
          "mount cgroup2 on /sys/fs/cgroup, or run outside of this container"};
}

Check check_namespaces() {
  const auto most = parse_digits(first_line("/proc/sys/user/max_user_namespaces"));
  const auto clone = first_line("/proc/sys/kernel/unprivileged_userns_clone");
  if (::getuid() == 0) return {"namespaces", Level::ok, "root needs no user namespaces", ""};
  if (most.value_or(1) == 0 || clone == "0") {
    return {"namespaces", Level::warn, "user namespaces are switched off: rootless containers fail",
            "sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1"};
  }
  return {"namespaces", Level::ok, "user namespaces are available", ""};
}

Check check_disk(const std::string& state) {
  fs::path folder = state.empty() ? state_folder() : state;
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0) {
    return {"disk", Level::fail, fmt::format("cannot look at {}", folder.string()),
            "make it, and give it to the daemon's user"};
  }
  const auto free_mib = space.f_bavail * space.f_frsize / 1'048'576;
  const auto finding =
      fmt::format("{} MiB free for the queue's state in {}", free_mib, folder.string());
  if (free_mib < 64) return {"disk", Level::fail, finding, "free some: no job can be accepted"};
  if (free_mib < 1'024) return {"disk", Level::warn, finding, "free some before it fills up"};
  if (state.empty() && ::access(folder.c_str(), W_OK) != 0) {
    return {"disk", Level::fail, fmt::format("{} is not writable for you", folder.string()),
            "give it to the daemon's user"};
  }
  return {"disk", Level::ok, finding, ""};
}

Check check_program() {
  if (const auto path = find_beside_or_in_path("aliquotd"); !path.empty()) {
    return {"aliquotd", Level::ok, path, ""};
  }
  return {"aliquotd", Level::fail, "the daemon's program is neither beside this one nor in PATH",
          "install the whole package"};
}

Check check_slurm() {
  const auto path = find_program("sbatch");
  std::error_code error;
  if (path.empty()) {
    return {"commands", Level::ok,
            "no sbatch in PATH: write 'aliquot sbatch', or make links with 'aliquot shims DIR'",
            ""};
  }
  if (fs::canonical(path, error).filename() == "aliquot") {
    return {"commands", Level::ok, fmt::format("{} is ours", path), ""};
  }
  return {"commands", Level::ok,
          fmt::format("{} is a real Slurm's: ours is 'aliquot sbatch'", path), ""};
}

}  // namespace

std::vector<Check> check_machine(const std::string& state) {
  return {check_driver(), check_devices(),    check_nvml(),      check_mps(),     check_preload(),
          check_cgroup(), check_namespaces(), check_disk(state), check_program(), check_slurm()};
}

std::vector<Check> check_daemon(const Reply<api::ClusterInfo>& cluster) {
  if (!cluster) {
    if (cluster.error().code == kUnreachable) {
      return {{"daemon", Level::fail, "no daemon answers", "start it: aliquot up"}};
    }
    return {{"daemon", Level::fail, error_text(cluster.error()), "see the daemon's log"}};
  }
  std::vector<Check> checks;
  checks.push_back({"daemon", Level::ok,
                    fmt::format("aliquotd {} serves {}{}", cluster->daemon_version,
                                cluster->one_user ? "one user" : "this machine",
                                cluster->simulated ? ", with simulated GPUs" : ""),
                    ""});
  if (cluster->version != api::kVersion) {
    checks.push_back({"version", Level::warn,
                      fmt::format("the daemon speaks version {} and this command {}",
                                  cluster->version, api::kVersion),
                      "restart the daemon: aliquot down; aliquot up"});
  }
  if (cluster->cgroup.starts_with("none")) {
    checks.push_back({"job limits", Level::warn,
                      fmt::format("the daemon has no cgroups ({})", cluster->cgroup),
                      "CPU and memory limits of jobs are not held: see cgroups above"});
  }
  if (cluster->cgroup.find("devices not") != cluster->cgroup.npos) {
    checks.push_back({"device fence", Level::warn,
                      fmt::format("jobs can open GPUs that are not theirs ({})", cluster->cgroup),
                      "let the daemon load BPF programs: run it as root, outside of a container"});
  }
  for (const auto& backend : cluster->enforcement) {
    // A missing backend is no fault: the next one takes over. Only without the library are memory
    // limits less exact.
    const bool weak = backend.name == "library" && !backend.used;
    checks.push_back({"holds: " + backend.name, weak ? Level::warn : Level::ok,
                      (backend.used ? "" : "not used: ") + backend.detail,
                      weak ? "shares are held by MPS and the watchdog alone" : ""});
  }
  std::size_t foreign = 0;
  std::string example;
  for (const auto& gpu : cluster->node.gpus) {
    for (const auto& process : gpu.processes) {
      if (process.job_id) continue;
      if (foreign++ == 0) {
        example = fmt::format("pid {} of {} on gpu{}", process.pid, process.user, gpu.index);
      }
    }
    if (!gpu.health.empty() && gpu.health != "ok") {
      checks.push_back({fmt::format("gpu{}", gpu.index), Level::fail, gpu.health,
                        "see nvidia-smi -q and dmesg; a lost GPU usually wants a reboot"});
    }
  }
  checks.push_back(
      foreign == 0
          ? Check{"foreign processes", Level::ok, "no process uses a GPU outside the queue", ""}
          : Check{"foreign processes", Level::warn,
                  fmt::format("{} on GPUs outside the queue, such as {}", foreign, example),
                  "jobs are placed around them; ask their owners to submit them instead"});
  if (cluster->node.state == "drained" || cluster->node.state == "draining") {
    checks.push_back({"node", Level::warn,
                      fmt::format("{}: {}", cluster->node.state, cluster->node.reason),
                      fmt::format("scontrol update NodeName={} State=RESUME", cluster->node.name)});
  }
  return checks;
}

std::string format_checks(const std::vector<Check>& checks, const Paint& paint) {
  return aliquot::format_checks(checks, [&](Level level) {
    const auto word = fmt::format("{:<5}", to_string(level));
    return level == Level::ok     ? paint.green(word)
           : level == Level::warn ? paint.yellow(word)
                                  : paint.red(word);
  });
}

std::string checks_json(const std::vector<Check>& checks) {
  JsonWriter json;
  json.begin_object().field("well", all_well(checks)).key("checks").begin_array();
  for (const auto& check : checks) {
    json.begin_object().field("name", check.name).field("level", to_string(check.level));
    json.field("finding", check.finding).field("cure", check.cure).end_object();
  }
  return json.end_array().end_object().text();
}

}  // namespace aliquot::cli
