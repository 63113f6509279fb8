// A GPU's lease board (enforce/abi.h): one gate for each job, written by the daemon alone, mapped
// read-only by the library in the jobs. It outlives the daemon, so that jobs that have mapped it
// find it in use again. core/lease decides which gates are open.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.hpp"

struct aliquot_board;

namespace aliquot::node {

class LeaseBoard {
 public:
  // The one that is there, with all gates opened, or a new one. The folder is ours.
  static Result<LeaseBoard> open(const std::filesystem::path& path);
  LeaseBoard(LeaseBoard&& other) noexcept;
  LeaseBoard& operator=(LeaseBoard&&) = delete;
  ~LeaseBoard();

  void set_paused(std::uint32_t slot, bool paused);  // opening it wakes who waits there
  void set_contended(std::uint32_t contended);       // ALIQUOT_CONTENDED_…, or 0
  void beat(std::int64_t now_ns);                    // CLOCK_MONOTONIC
  void open_all();

 private:
  explicit LeaseBoard(aliquot_board* board) : board_(board) {}
  aliquot_board* board_;
};

}  // namespace aliquot::node
