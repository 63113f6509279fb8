// The simulated machine: a file mapped by every process that uses the stand-in. Finds or makes it
// from the environment, serialises access with a robust process-shared mutex, and gives back what
// dead processes held. Each process that uses a GPU owns a slot and a record lock on the byte of
// that number: the kernel drops the lock when the process ends or execs, in whatever way, so that
// death is seen at once, zombies included.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "standin/model/gpu_model.hpp"
#include "standin/state/layout.hpp"

namespace aliquot::standin {

class State {
 public:
  // The machine of ALIQUOT_STANDIN_STATE and ALIQUOT_STANDIN (docs/standin.md). Null and a reason
  // when there is none to be had.
  [[nodiscard]] static std::unique_ptr<State> open(std::string* why);

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // Never unmaps or closes: closing any descriptor of the file would drop the record lock of the
  // process.
  ~State() = default;

  // Held while the state is read or changed.
  class Guard {
   public:
    explicit Guard(State& state, bool patient = true);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    State* state_;
    bool held_;
  };

  [[nodiscard]] Layout& data() { return *layout_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] unsigned gpu_count() const { return layout_->gpu_count; }
  [[nodiscard]] Gpu& gpu(unsigned index) { return layout_->gpus[index]; }
  [[nodiscard]] const GpuModel& model(unsigned index) const {
    return model_at(layout_->gpus[index].model);
  }
  [[nodiscard]] Process& process(int slot) { return layout_->processes[slot]; }
  [[nodiscard]] double now() const;  // simulated nanoseconds
  // Identifies the machine between processes, whatever path each of them names it by.
  [[nodiscard]] std::string identity() const;

  // Takes a slot for this process, or -1 when all are taken. The rest needs the Guard held.
  [[nodiscard]] int enlist(Kind kind);
  void retire(int slot);
  void reap();
  [[nodiscard]] bool alive(int slot);
  // The number that the process has here: in another container it may call itself 1, too. 0 where
  // it cannot be seen from here.
  [[nodiscard]] int pid_of(int slot);
  [[nodiscard]] int find_pid(int pid);
  // Whether its compute mode lets this process, or a server that is none yet (-1), use the GPU: an
  // exclusive one has one process, or one MPS server, whose clients do not count.
  [[nodiscard]] bool admits(unsigned gpu, int slot);
  [[nodiscard]] std::uint64_t used(unsigned gpu);  // by processes
  [[nodiscard]] std::uint64_t free(unsigned gpu);
  // Free as the process sees it: never more than its own MPS limit leaves.
  [[nodiscard]] std::uint64_t free_for(int slot, unsigned gpu);
  // All or nothing; dead processes are reaped before it says no. Managed memory is attributed to
  // nobody.
  [[nodiscard]] bool charge(int slot, unsigned gpu, std::uint64_t bytes, bool managed = false);
  void refund(int slot, unsigned gpu, std::uint64_t bytes, bool managed = false);
  // Ends the work of the process and, if it is a client, of every client of its server.
  void fault(int slot, int error);
  // Ends the work of this process alone, which is told so from then on.
  void end_work(int slot, int error);

  // Memory of the process, charged already, becomes memory that others can hold too (shared.cpp);
  // its number, or 0. It has a file for `size` bytes of content.
  [[nodiscard]] std::uint64_t share(int slot, unsigned gpu, std::uint64_t bytes, std::size_t size);
  [[nodiscard]] std::string shared_file(std::uint64_t number) const;
  [[nodiscard]] Shared* find_shared(std::uint64_t number);
  // A descriptor that keeps the memory on the GPU until it and its copies are closed everywhere, or
  // -1; and one of the content. They need no Guard.
  [[nodiscard]] int hold_shared(std::uint64_t number) const;
  [[nodiscard]] int open_content(std::uint64_t number) const;
  // The number of the memory that a descriptor holds, or 0.
  [[nodiscard]] std::uint64_t shared_of(int fd) const;
  // The process imports it, or holds no import any more.
  void note_import(std::uint64_t number, int slot, bool ends);
  // What NVML shows for the process: its own, and what it imported and nobody owns any more.
  [[nodiscard]] std::uint64_t attributed(int slot, unsigned gpu);
  // The owner holds it no longer; others may.
  void abandon(std::uint64_t number);
  void forget_shared(std::uint64_t number) const;  // its files

 private:
  // A client that is found dead in the middle of a long kernel is a fault of its server's.
  void mourn(int slot);
  [[nodiscard]] std::string holders_of(std::uint64_t number) const;
  void reap_shared();
  [[nodiscard]] bool is_own(int slot);

  State(Layout* layout, int fd, std::string path)
      : layout_(layout), fd_(fd), path_(std::move(path)) {}

  Layout* layout_;
  int fd_;
  std::string path_;
};

// "pid and start time" of this process, and a number that differs after every exec.
[[nodiscard]] std::uint64_t own_start_time();
[[nodiscard]] std::uint64_t own_image();

}  // namespace aliquot::standin
