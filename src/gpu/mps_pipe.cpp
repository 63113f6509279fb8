#include "gpu/mps_pipe.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>

#include "base/result.hpp"
#include "base/text.hpp"
#include "sys/clock.hpp"
#include "sys/fd.hpp"
#include "sys/program.hpp"

namespace aliquot::gpu {
namespace {

constexpr std::size_t kMostGuesses = 48;
constexpr pid_t kNoClient = 201;  // CUDA_ERROR_INVALID_CONTEXT

// Held by its descriptor. After its patience it goes on without the turn: the other one hangs.
sys::Fd take_turn(const MpsPipe& pipe, Millis patience) {
  sys::Fd turn(
      open((pipe.folder + "/turn").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  const std::int64_t until = sys::mono_ms() + patience.value();
  while (turn && flock(turn.get(), LOCK_EX | LOCK_NB) != 0 && sys::mono_ms() < until) {
    sys::sleep_ms(2);
  }
  return turn;
}

}  // namespace

MpsAnswer run_control(const MpsPipe& pipe, const MpsOrder& order) {
  std::vector<std::string> argv = {"nvidia-cuda-mps-control"};
  argv.insert(argv.end(), order.arguments.begin(), order.arguments.end());
  std::vector<std::string> environment = pipe.environment;
  environment.push_back("CUDA_MPS_PIPE_DIRECTORY=" + pipe.folder + "/p");
  environment.push_back("CUDA_MPS_LOG_DIRECTORY=" + pipe.folder + "/l");
  environment.emplace_back("PATH=/usr/local/nvidia/bin:/usr/local/bin:/usr/bin:/bin");
  environment.insert(environment.end(), order.environment.begin(), order.environment.end());
  auto ended = sys::run_program({.file = pipe.program,
                                 .argv = std::move(argv),
                                 .environment = std::move(environment),
                                 .new_session = true},
                                sys::Streams::together, order.input, order.patience);
  return {ended.status, std::move(ended.out)};
}

MpsAnswer tell(const MpsPipe& pipe, const std::string& commands, Millis patience) {
  const sys::Fd turn = take_turn(pipe, patience);
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
      : pipe_(pipe), until_(sys::mono_ms() + patience.value()) {}

  void part(const std::vector<pid_t>& processes) {
    for (const pid_t server : numbers(ask("get_server_list\n"))) {
      const auto listed = numbers(ask(fmt::format("get_client_list {}\n", server)));
      std::vector<pid_t> clients;
      for (const pid_t process : processes) {
        if (listed.empty() || std::ranges::find(listed, process) != listed.end()) {
          clients.push_back(process);
        }
      }
      // An empty list is not trusted. A process that is no client gets the answer kNoClient.
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
    const Millis left(until_ - sys::mono_ms());
    // A server that has not answered is not asked again: each time a program would be left behind.
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
  const sys::Fd turn = take_turn(pipe, patience.turn);
  Parting parting(pipe, patience.answer);
  parting.part(processes);
  return parting.complaint();
}

}  // namespace aliquot::gpu
