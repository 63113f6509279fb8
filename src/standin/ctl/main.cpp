// aliquot-standin-ctl: looks at the simulated machine from outside and breaks it on purpose, for
// tests.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "standin/state/compute_model.hpp"
#include "standin/state/state.hpp"

namespace aliquot::standin {
namespace {

constexpr char kUsage[] =
    "usage: aliquot-standin-ctl COMMAND\n"
    "  models                 what can be simulated: name, memory and what jobs can have of it, in "
    "MiB\n"
    "  show                   GPUs and processes, one line each, as key=value\n"
    "  reset                  remove the state file; fails while a process uses it\n"
    "  xid GPU NUMBER         report an error to NVML's events; 48, 74, 79 and 95 lose the GPU\n"
    "  lose GPU | heal GPU    the GPU stops answering, or is whole again\n"
    "  ecc GPU CORRECTED UNCORRECTED\n"
    "  temperature GPU CELSIUS\n"
    "  compute-mode GPU MODE  0 default, 2 prohibited, 3 exclusive process\n"
    "The machine is that of ALIQUOT_STANDIN_STATE.\n";

constexpr const char* kKinds[] = {"free", "plain", "client", "server"};  // as Kind has them

int show(State& state) {
  const State::Guard guard(state);
  state.reap();
  for (unsigned g = 0; g < state.gpu_count(); ++g) {
    Gpu& gpu = state.gpu(g);
    advance(gpu.compute, state.now());
    std::printf(
        "gpu=%u model=%s uuid=%s total=%lu free=%lu used=%lu busy_ms=%.0f util=%.0f lost=%d "
        "xid=%u\n",
        g, std::string(state.model(g).key).c_str(),
        uuid_text(uuid_bytes(state.model(g), g)).c_str(), state.model(g).usable(), state.free(g),
        state.used(g), gpu.compute.busy / 1e6, 100 * gpu.compute.utilized, gpu.lost ? 1 : 0,
        gpu.xid);
  }
  for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
    const Process& p = state.data().processes[slot];
    if (p.kind == Kind::free) continue;
    for (unsigned g = 0; g < state.gpu_count(); ++g) {
      if (p.bytes[g] == 0 && p.parked[g] == 0) continue;
      const ClientUse& use = state.gpu(g).compute.use[slot];
      const int server = p.kind == Kind::client ? state.pid_of(p.server) : 0;
      std::printf(
          "pid=%d gpu=%u kind=%s uid=%u server=%d bytes=%lu gpu_ms=%.1f sm_ms=%.1f fault=%d "
          "name=%s\n",
          state.pid_of(static_cast<int>(slot)), g, kKinds[static_cast<unsigned>(p.kind)], p.uid,
          server, p.bytes[g], use.busy / 1e6, use.sm / 1e6, p.fault, p.name);
    }
  }
  return 0;
}

int list_models() {
  for (const GpuModel& model : models()) {
    std::printf("%s %lu %lu\n", std::string(model.key).c_str(), model.memory / kMiB,
                model.usable() / kMiB);
  }
  return 0;
}

int reset(State& state) {
  {
    const State::Guard guard(state);
    state.reap();
    for (const Process& p : state.data().processes)
      if (p.kind != Kind::free) {
        std::fprintf(stderr, "aliquot-standin-ctl: process %d still uses the machine\n", p.pid);
        return 1;
      }
  }
  return unlink(state.path().c_str()) == 0 ? 0 : 1;
}

// What a driver reports together with the loss of the device.
bool loses_gpu(unsigned long xid) { return xid == 48 || xid == 74 || xid == 79 || xid == 95; }

int change(State& state, const std::vector<std::string>& words) {
  const auto number = [&](std::size_t i) { return std::strtoul(words[i].c_str(), nullptr, 10); };
  const std::string& command = words[0];
  if (words.size() < 2 || number(1) >= state.gpu_count()) {
    std::fprintf(stderr, "aliquot-standin-ctl: there are GPUs 0 to %u\n", state.gpu_count() - 1);
    return 2;
  }
  const State::Guard guard(state);
  Gpu& gpu = state.gpu(static_cast<unsigned>(number(1)));
  if (command == "xid" && words.size() == 3) {
    gpu.xid = static_cast<std::uint32_t>(number(2));
    ++gpu.xid_count;
    gpu.lost |= loses_gpu(number(2));
  } else if (command == "lose") {
    gpu.lost = true;
  } else if (command == "heal") {
    gpu.lost = false;
    gpu.xid = 0;
    gpu.ecc_corrected = gpu.ecc_uncorrected = 0;
  } else if (command == "ecc" && words.size() == 4) {
    gpu.ecc_corrected = number(2);
    gpu.ecc_uncorrected = number(3);
  } else if (command == "temperature" && words.size() == 3) {
    gpu.temperature = static_cast<std::uint32_t>(number(2));
  } else if (command == "compute-mode" && words.size() == 3) {
    gpu.compute_mode = static_cast<std::uint32_t>(number(2));
  } else {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return 0;
}

int run(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    std::fputs(kUsage, words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "models") return list_models();
  std::string why;
  const auto state = State::open(&why);
  if (!state) {
    std::fprintf(stderr, "aliquot-standin-ctl: %s\n", why.c_str());
    return 1;
  }
  if (words[0] == "show") return show(*state);
  if (words[0] == "reset") return reset(*state);
  return change(*state, words);
}

}  // namespace
}  // namespace aliquot::standin

int main(int argc, char** argv) { return aliquot::standin::run({argv + 1, argv + argc}); }
