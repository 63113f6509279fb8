#include "enforce/job.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace aliquot::enforce::test {
namespace {

template <class T>
T* make_file(const std::string& path, mode_t mode, int* keep = nullptr) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  EXPECT_GE(fd, 0) << path;
  EXPECT_EQ(ftruncate(fd, sizeof(T)), 0);
  EXPECT_EQ(fchmod(fd, mode), 0);
  void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT_NE(memory, MAP_FAILED);
  if (keep != nullptr)
    *keep = fd;
  else
    close(fd);
  return static_cast<T*>(memory);
}

// How long their threads have been ready to run and did not, in nanoseconds.
double waited_for_cpu(const std::vector<pid_t>& processes) {
  double sum = 0;
  for (const pid_t pid : processes) {
    std::error_code gone;
    const auto tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
      std::ifstream file(task.path() / "schedstat");
      double ran = 0;
      double waited = 0;
      if (file >> ran >> waited) sum += waited;
    }
  }
  return sum;
}

}  // namespace

bool in_calm(std::vector<pid_t> processes, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  constexpr double kCalm = 0.02;  // of the time
  processes.push_back(getpid());
  const auto from = Clock::now();
  const double before = waited_for_cpu(processes);
  work();
  const double took = std::chrono::duration<double, std::nano>(Clock::now() - from).count();
  return waited_for_cpu(processes) - before < kCalm * took;
}

bool holds_in_calm(const std::vector<pid_t>& processes, const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  bool held = false;
  bool calm = false;
  while (!held && !calm && std::chrono::steady_clock::now() < until) {
    calm = in_calm(processes, [&] { held = holds(); });
  }
  return held;
}

Job::Job(standin::test::Machine& machine, std::vector<Share> shares, bool lease)
    : shares_(std::move(shares)) {
  char name[] = "/tmp/aliquot-grant-XXXXXX";
  folder_ = mkdtemp(name);
  limits_ = make_file<aliquot_limits>(folder_ + "/limits", 0444);
  usage_ = make_file<aliquot_usage>(folder_ + "/usage", 0600, &fd_);
  board_ = make_file<aliquot_board>(folder_ + "/board", 0444);
  limits_->magic = ALIQUOT_LIMITS_MAGIC;
  limits_->version = ALIQUOT_ABI_VERSION;
  limits_->size = sizeof *limits_;
  limits_->job = 7;
  limits_->gpu_count = static_cast<std::uint32_t>(shares_.size());
  limits_->flags = ALIQUOT_FLAG_METER;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    aliquot_limit& limit = limits_->gpus[i];
    std::memcpy(limit.uuid, machine.state().gpu(shares_[i].gpu).uuid, 16);
    limit.memory_bytes = shares_[i].bytes;
    limit.lease = lease ? 1 : 0;
    limit.lease_slot = 5;
    std::strncpy(limit.board, (folder_ + "/board").c_str(), sizeof limit.board - 1);
  }
  EXPECT_EQ(aliquot_usage_init(usage_), 0);
  board_->version = ALIQUOT_ABI_VERSION;
  board_->size = sizeof *board_;
  board_->magic = ALIQUOT_BOARD_MAGIC;
  beat();
}

Job::~Job() {
  munmap(limits_, sizeof *limits_);
  munmap(usage_, sizeof *usage_);
  munmap(board_, sizeof *board_);
  close(fd_);
  std::filesystem::remove_all(folder_);
}

void Job::beat() { beat_at(0); }

void Job::keep_beating() { beat_at(3'600); }

void Job::beat_at(std::uint64_t seconds_ahead) {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const std::uint64_t seconds = static_cast<std::uint64_t>(t.tv_sec) + seconds_ahead;
  __atomic_store_n(&board_->heartbeat_ns,
                   seconds * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec),
                   __ATOMIC_RELEASE);
}

std::uint64_t Job::charged(unsigned index) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < usage_->high_water; ++i) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(i);
    lock.l_len = 1;
    EXPECT_EQ(fcntl(fd_, F_GETLK, &lock), 0);
    const aliquot_use& use = usage_->slots[i].gpus[index];
    if (lock.l_type != F_UNLCK) sum += use.charged - use.room;
  }
  return sum;
}

std::uint64_t Job::total(unsigned index) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < usage_->high_water; ++i)
    if (usage_->slots[i].pid != 0)
      sum += __atomic_load_n(&usage_->slots[i].gpus[index].charged, __ATOMIC_ACQUIRE);
  return sum;
}

aliquot_use Job::use(unsigned index) {
  aliquot_use sum{};
  for (std::uint32_t i = 0; i < usage_->high_water; ++i) {
    const aliquot_use& use = usage_->slots[i].gpus[index];
    sum.charged += use.charged;
    sum.context += use.context - use.room;
    sum.room += use.room;
    sum.imports += use.imports;
    sum.exported += use.exported;
    sum.unattributed += use.unattributed;
    sum.gpu_ns += use.gpu_ns;
    sum.launches += use.launches;
    sum.launched += use.launched;
    sum.completed += use.completed;
    sum.refusals += use.refusals;
    sum.waited_ns += use.waited_ns;
    sum.waiting += use.waiting;
    sum.in_wait += use.in_wait;
  }
  return sum;
}

Victim::Victim(Job* job, const std::string& how, const Settings& environment, bool linked) {
  int to[2];
  int from[2];
  EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
  const std::string program =
      std::string(ALIQUOT_VICTIM_DIR) + (linked ? "/victim_linked" : "/victim");
  Settings settings{{"LD_LIBRARY_PATH", ALIQUOT_STANDIN_DIR},
                    {"ALIQUOT_LIBCUDA", ALIQUOT_STANDIN_DIR "/libcuda.so.1"},
                    {"LD_PRELOAD", ALIQUOT_LIBRARY}};
  if (job != nullptr) settings[ALIQUOT_GRANT_VARIABLE] = job->folder();
  for (const auto& [name, value] : environment) settings[name] = value;
  std::vector<std::string> texts;
  for (char** each = environ; *each != nullptr; ++each)
    if (!settings.contains(std::string(*each, std::strcspn(*each, "=")))) texts.emplace_back(*each);
  for (const auto& [name, value] : settings) texts.push_back(name + "=" + value);
  std::vector<char*> variables;
  for (std::string& text : texts) variables.push_back(text.data());
  variables.push_back(nullptr);
  std::string arguments[] = {program, how};
  char* argv[] = {arguments[0].data(), arguments[1].data(), nullptr};
  // Not fork: of a process with sanitizers that takes longer than the test.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, variables.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  in_ = to[1];
  out_ = from[0];
}

Victim::~Victim() {
  if (pid_ > 0) kill();
  close(in_);
  close(out_);
}

void Victim::send(const std::string& line) {
  const std::string text = line + "\n";
  (void)!write(in_, text.data(), text.size());
}

int Victim::answer() {
  text_.clear();
  for (char c = 0; c != '\n';) {
    pollfd wait{out_, POLLIN, 0};
    if (poll(&wait, 1, 120'000) != 1 || read(out_, &c, 1) != 1) {
      text_ += " (no answer)";
      return -99;
    }
    if (c != '\n') text_ += c;
  }
  return static_cast<int>(std::strtol(text_.c_str() + 2, nullptr, 10));
}

int Victim::tell(const std::string& line) {
  send(line);
  return answer();
}

std::uint64_t Victim::number(const std::string& key) const {
  const auto at = text_.find(" " + key + "=");
  EXPECT_NE(at, std::string::npos) << key << " in: " << text_;
  if (at == std::string::npos) return 0;
  return std::strtoull(text_.c_str() + at + key.size() + 2, nullptr, 10);
}

void Victim::kill(bool reap) {
  ::kill(pid_, SIGKILL);
  if (!reap) {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    return;
  }
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int Victim::finish() {
  send("quit");
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Victim::begin(int device) {
  const int r = tell("init");
  return r != 0 ? r : tell("ctx " + std::to_string(device));
}

}  // namespace aliquot::enforce::test
