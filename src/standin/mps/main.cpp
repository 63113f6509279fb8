// nvidia-cuda-mps-control and, under its other name, nvidia-cuda-mps-server. Without options it
// reads commands from standard input, one a line, and hands them to the daemon of
// CUDA_MPS_PIPE_DIRECTORY.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "standin/mps/daemon.hpp"
#include "standin/mps/server.hpp"
#include "standin/mps/wire.hpp"

namespace aliquot::standin {
namespace {

constexpr char kUsage[] =
    "usage: nvidia-cuda-mps-control [-d | -f] [--multiuser-server]\n"
    "  -d                  start the control daemon in the background\n"
    "  -f                  start it in the foreground\n"
    "  --multiuser-server  serve all users at once with one server\n"
    "Without options: read commands from standard input and send them to the daemon.\n"
    "This is the stand-in for machines without a GPU.\n";

std::string log_directory() {
  const char* directory = std::getenv("CUDA_MPS_LOG_DIRECTORY");
  return directory != nullptr && *directory != '\0' ? directory : "/var/log/nvidia-mps";
}

int send_commands() {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const int fd = connect_to_control(pipe_directory());
    if (fd < 0 || !send_line(fd, "command " + line)) {
      std::fprintf(stderr, "Cannot find MPS control daemon process\n");
      return 1;
    }
    for (std::string answer; receive_line(fd, &answer);) std::cout << answer << '\n';
    std::cout.flush();
    close(fd);
  }
  return 0;
}

// Output of the daemon goes to its log; nothing of the caller's terminal is kept.
void detach_output(const std::string& log) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  int out = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0) out = null;
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
}

void write_pid(const std::string& path) {
  if (std::FILE* file = std::fopen(path.c_str(), "we")) {
    std::fprintf(file, "%d\n", getpid());
    std::fclose(file);
  }
}

int serve(bool multiuser, int ready) {
  const std::string directory = pipe_directory();
  mkdir(directory.c_str(), 0755);
  mkdir(log_directory().c_str(), 0755);
  const int lock = open((directory + "/control_lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (lock < 0) {
    std::fprintf(stderr, "Cannot use the pipe directory %s: %s\n", directory.c_str(),
                 std::strerror(errno));
    return 1;
  }
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    std::fprintf(stderr, "An instance of this daemon is already running\n");
    return 1;
  }
  std::string why;
  State* state = State::open(&why).release();
  if (state == nullptr) {
    std::fprintf(stderr, "nvidia-cuda-mps-control: no simulated GPUs: %s\n", why.c_str());
    return 1;
  }
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&watched, signal);
  sigprocmask(SIG_BLOCK, &watched, nullptr);
  const int signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  const int listener = listen_at_control(directory);
  if (listener < 0) {
    std::fprintf(stderr, "Cannot listen in %s: %s\n", directory.c_str(), std::strerror(errno));
    return 1;
  }
  const std::string pid_file = directory + "/nvidia-cuda-mps-control.pid";
  write_pid(pid_file);
  if (ready >= 0) {
    detach_output(log_directory() + "/control.log");
    if (write(ready, "1", 1) != 1) return 1;
    close(ready);
  }
  MpsDaemon(*state, multiuser, listener, signals).run();
  unlink(pid_file.c_str());
  return 0;
}

// The caller returns when the daemon listens, or has said why it does not.
int serve_in_background(bool multiuser) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return 1;
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    close(ready[0]);
    setsid();
    _exit(serve(multiuser, ready[1]));
  }
  close(ready[1]);
  char byte = 0;
  if (read(ready[0], &byte, 1) == 1) return 0;
  waitpid(child, nullptr, 0);
  return 1;
}

int control_main(int argc, char** argv) {
  bool background = false;
  bool foreground = false;
  bool multiuser = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "-d")
      background = true;
    else if (option == "-f")
      foreground = true;
    else if (option == "-multiuser-server" || option == "--multiuser-server")
      multiuser = true;
    else {
      const bool help = option == "-h" || option == "--help";
      std::fputs(kUsage, help ? stdout : stderr);
      return help ? 0 : 1;
    }
  }
  if (background) return serve_in_background(multiuser);
  return foreground ? serve(multiuser, -1) : send_commands();
}

}  // namespace
}  // namespace aliquot::standin

int main(int argc, char** argv) {
  const std::string name = argv[0];
  return name.ends_with("nvidia-cuda-mps-server") ? aliquot::standin::server_main(argc, argv)
                                                  : aliquot::standin::control_main(argc, argv);
}
