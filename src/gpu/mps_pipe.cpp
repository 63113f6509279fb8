#include "gpu/mps_pipe.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>

#include "base/result.hpp"
#include "base/text.hpp"
#include "gpu/own_fd.hpp"

namespace aliquot::gpu {
namespace {

constexpr int kKillMs = 500;
constexpr std::size_t kMostGuesses = 48;
constexpr pid_t kNoClient = 201;  // CUDA_ERROR_INVALID_CONTEXT

std::int64_t mono_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

std::string read_all(const OwnFd& file) {
  std::string text;
  std::array<char, 4096> buffer{};
  ssize_t n = 0;
  while ((n = pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) >
         0) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return text;
}

// Held by its descriptor. Who waits in vain goes without: the other hangs.
OwnFd take_turn(const MpsPipe& pipe, Millis patience) {
  OwnFd turn(
      open((pipe.folder + "/turn").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  const std::int64_t until = mono_ms() + patience.value();
  while (turn && flock(turn.get(), LOCK_EX | LOCK_NB) != 0 && mono_ms() < until) {
    usleep(2000);
  }
  return turn;
}

pid_t spawn(const MpsPipe& pipe, const MpsOrder& order, int in, int out) {
  std::vector<std::string> arguments = {"nvidia-cuda-mps-control"};
  arguments.insert(arguments.end(), order.arguments.begin(), order.arguments.end());
  std::vector<std::string> environment = pipe.environment;
  environment.push_back("CUDA_MPS_PIPE_DIRECTORY=" + pipe.folder + "/p");
  environment.push_back("CUDA_MPS_LOG_DIRECTORY=" + pipe.folder + "/l");
  environment.emplace_back("PATH=/usr/local/nvidia/bin:/usr/local/bin:/usr/bin:/bin");
  environment.insert(environment.end(), order.environment.begin(), order.environment.end());
  const auto pointers = [](std::vector<std::string>& words) {
    std::vector<char*> list;
    list.reserve(words.size() + 1);
    for (auto& word : words) list.push_back(word.data());
    list.push_back(nullptr);
    return list;
  };
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, in, 0);
  posix_spawn_file_actions_adddup2(&files, out, 1);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID));
  pid_t child = -1;
  const int error = posix_spawn(&child, pipe.program.c_str(), &files, &attributes,
                                pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error == 0 ? child : -1;
}

}  // namespace

MpsAnswer run_control(const MpsPipe& pipe, const MpsOrder& order) {
  MpsAnswer answer;
  // Not a pipe: a daemon that it starts may keep it open.
  const OwnFd out(memfd_create("mps", MFD_CLOEXEC));
  std::array<int, 2> ends{};
  if (!out || pipe2(ends.data(), O_CLOEXEC) != 0) return answer;
  const OwnFd reading(ends[0]);
  OwnFd writing(ends[1]);
  const pid_t child = spawn(pipe, order, reading.get(), out.get());
  if (child < 0) return answer;
  // A few bytes: they fit into the pipe, read or not.
  [[maybe_unused]] const auto n = write(writing.get(), order.input.data(), order.input.size());
  writing = OwnFd();
  const OwnFd process = open_pid(child);
  if (!process || !ended(process, static_cast<int>(order.patience.value()))) {
    kill(child, SIGKILL);
    // What hangs in the driver is left behind rather than waited for.
    if (process && !ended(process, kKillMs)) return answer;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return answer;
  return {WEXITSTATUS(status), read_all(out)};
}

MpsAnswer tell(const MpsPipe& pipe, const std::string& commands, Millis patience) {
  const OwnFd turn = take_turn(pipe, patience);
  return run_control(pipe, {.input = commands, .patience = patience});
}

std::vector<pid_t> numbers(const std::string& text) {
  std::vector<pid_t> all;
  for (const auto line : split(text, '\n')) {
    for (const auto word : split(line, ' ')) {
      if (const auto number = parse_digits(word)) all.push_back(static_cast<pid_t>(*number));
    }
  }
  return all;
}

namespace {

// One conversation, until it goes wrong or its time is over.
class Parting {
 public:
  Parting(const MpsPipe& pipe, Millis patience)
      : pipe_(pipe), until_(mono_ms() + patience.value()) {}

  void part(const std::vector<pid_t>& processes) {
    for (const pid_t server : numbers(ask("get_server_list\n"))) {
      const auto listed = numbers(ask(fmt::format("get_client_list {}\n", server)));
      std::vector<pid_t> clients;
      for (const pid_t process : processes) {
        if (listed.empty() || std::ranges::find(listed, process) != listed.end()) {
          clients.push_back(process);
        }
      }
      // A list that says nothing is not trusted: who is no client is answered so.
      if (clients.size() > kMostGuesses && listed.empty()) clients.resize(kMostGuesses);
      if (!clients.empty()) terminate(server, clients, listed.empty());
    }
  }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  void terminate(pid_t server, const std::vector<pid_t>& clients, bool guessed) {
    std::string orders;
    for (const pid_t client : clients) {
      orders += fmt::format("terminate_client {} {}\n", server, client);
    }
    const std::string said = ask(orders);
    // 0 for each: it is done.
    const auto answers = numbers(said);
    if (answers.size() != clients.size() || std::ranges::any_of(answers, [&](pid_t answer) {
          return answer != 0 && (!guessed || answer != kNoClient);
        })) {
      complain(orders, said);
    }
  }
  std::string ask(const std::string& commands) {
    const Millis left(until_ - mono_ms());
    // Who has not answered is asked no more: what hangs would be left behind each time.
    const auto answer =
        left > Millis(0) ? run_control(pipe_, {.input = commands, .patience = left}) : MpsAnswer{};
    if (answer.status != 0) {
      complain(commands, answer.status < 0 ? "no answer in time" : answer.text);
    }
    return answer.text;
  }
  void complain(const std::string& commands, const std::string& said) {
    if (!complaint_.empty()) return;
    complaint_ = fmt::format("MPS at {}: '{}' was answered '{}'", pipe_.folder,
                             commands.substr(0, commands.find('\n')), said.substr(0, 200));
    std::ranges::replace(complaint_, '\n', ' ');
  }

  const MpsPipe& pipe_;
  std::int64_t until_;
  std::string complaint_;
};

}  // namespace

std::string part_clients(const MpsPipe& pipe, const std::vector<pid_t>& processes,
                         const MpsPatience& patience) {
  if (processes.empty()) return "";
  const OwnFd turn = take_turn(pipe, patience.turn);
  Parting parting(pipe, patience.answer);
  parting.part(processes);
  return parting.complaint();
}

}  // namespace aliquot::gpu
