#include "standin/mps/server.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace aliquot::standin {
namespace {

constexpr std::uint64_t kServerCost = 66 * kMiB;

bool become(uid_t uid) {
  if (uid == geteuid()) return true;
  const passwd* user = getpwuid(uid);
  const gid_t gid = user != nullptr ? user->pw_gid : static_cast<gid_t>(uid);
  return setgroups(0, nullptr) == 0 && setgid(gid) == 0 && setuid(uid) == 0;
}

}  // namespace

ServerPlace launch_server(const State& state, uid_t uid, const std::vector<unsigned>& gpus) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return {};
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nvidia-cuda-mps-server";
  std::vector<std::string> words{"nvidia-cuda-mps-server", std::to_string(report[1])};
  for (const unsigned g : gpus) words.push_back(std::to_string(g));
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t child = fork();
  if (child == 0) {
    fcntl(report[1], F_SETFD, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    // The default place of the state depends on the user: the server uses the daemon's.
    setenv("ALIQUOT_STANDIN_STATE", state.path().c_str(), 1);
    unsetenv("ALIQUOT_STANDIN");
    if (become(uid)) execv(program.c_str(), argv.data());
    _exit(127);
  }
  close(report[1]);
  ServerPlace place;
  std::FILE* answer = fdopen(report[0], "r");
  if (child < 0 || answer == nullptr ||
      std::fscanf(answer, "%d %u", &place.slot, &place.generation) != 2) {
    if (child > 0) waitpid(child, nullptr, 0);
  } else {
    place.pid = child;
  }
  if (answer != nullptr) std::fclose(answer);
  return place;
}

int server_main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "nvidia-cuda-mps-server: started by nvidia-cuda-mps-control only\n");
    return 1;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string why;
  // Leaked on purpose: the place is held until the process ends.
  State* state = State::open(&why).release();
  const int slot = state == nullptr ? -1 : state->enlist(Kind::server);
  if (slot < 0) {
    std::printf("no place on the simulated machine: %s\n", why.c_str());
    return 1;
  }
  {
    const State::Guard guard(*state);
    std::snprintf(state->process(slot).name, sizeof state->process(slot).name,
                  "nvidia-cuda-mps-server");
    for (int i = 2; i < argc; ++i) {
      const auto gpu = static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10));
      // A full GPU does not keep the server from starting: its clients will be told.
      if (gpu < state->gpu_count()) static_cast<void>(state->charge(slot, gpu, kServerCost));
    }
  }
  dprintf(std::atoi(argv[1]), "%d %u\n", slot, state->process(slot).generation);
  close(std::atoi(argv[1]));
  for (;;) pause();
}

}  // namespace aliquot::standin
