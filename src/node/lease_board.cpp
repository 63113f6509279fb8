#include "node/lease_board.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>

#include "enforce/abi.h"
#include "sys/fd.hpp"
#include "sys/file.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

// Ours, of the right size, no link.
bool is_usable(const sys::Fd& fd) {
  struct stat info {};
  std::uint64_t magic = 0;
  return fd && fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
         info.st_size == static_cast<off_t>(sizeof(aliquot_board)) &&
         pread(fd.get(), &magic, sizeof magic, 0) == static_cast<ssize_t>(sizeof magic) &&
         magic == ALIQUOT_BOARD_MAGIC;
}

Result<void> make_board(const fs::path& path) {
  aliquot_board fresh{};
  fresh.magic = ALIQUOT_BOARD_MAGIC;
  fresh.version = ALIQUOT_ABI_VERSION;
  fresh.size = sizeof fresh;
  const std::string_view bytes(reinterpret_cast<const char*>(&fresh), sizeof fresh);
  // To be opened for writing once more, by us; everybody else reads.
  return sys::write_whole(path, bytes, 0644, false);
}

}  // namespace

Result<LeaseBoard> LeaseBoard::open(const fs::path& path) {
  const auto open_file = [&] {
    return sys::Fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  };
  sys::Fd fd = open_file();
  if (!is_usable(fd)) {
    TRY(make_board(path));
    fd = open_file();
    if (!is_usable(fd)) return sys::system_error(errno, "cannot use", path);
  }
  void* memory =
      mmap(nullptr, sizeof(aliquot_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return sys::system_error(errno, "cannot map", path);
  LeaseBoard board(static_cast<aliquot_board*>(memory));
  board.open_all();
  return board;
}

LeaseBoard::LeaseBoard(LeaseBoard&& other) noexcept
    : board_(std::exchange(other.board_, nullptr)) {}

LeaseBoard::~LeaseBoard() {
  if (board_ == nullptr) return;
  open_all();
  munmap(board_, sizeof(aliquot_board));
}

void LeaseBoard::set_paused(std::uint32_t slot, bool paused) {
  if (slot >= ALIQUOT_BOARD_SLOTS) return;
  std::uint32_t* word = &board_->gates[slot].word;
  if (__atomic_exchange_n(word, paused ? 1U : 0U, __ATOMIC_SEQ_CST) == 0 || paused) return;
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void LeaseBoard::set_contended(std::uint32_t contended) {
  __atomic_store_n(&board_->contended, contended, __ATOMIC_RELEASE);
}

void LeaseBoard::beat(std::int64_t now_ns) {
  __atomic_store_n(&board_->heartbeat_ns, static_cast<std::uint64_t>(now_ns), __ATOMIC_RELEASE);
}

void LeaseBoard::open_all() {
  set_contended(0);
  for (std::uint32_t slot = 0; slot < ALIQUOT_BOARD_SLOTS; ++slot) set_paused(slot, false);
}

}  // namespace aliquot::node
