#include "enforce/patience.hpp"

#include <time.h>

#include "enforce/grant.hpp"
#include "enforce/lock.hpp"

namespace aliquot::enforce {
namespace {

constexpr long kPause = 20'000'000;                 // ns
constexpr int kMostTries = 150;                     // three seconds
constexpr std::uint64_t kLongAgo = 10'000'000'000;  // ns
std::uint64_t given_up_at = 0;

}  // namespace

bool worth_another_try(int tries) {
  const KeepErrno keep;
  const std::uint64_t last = __atomic_load_n(&given_up_at, __ATOMIC_RELAXED);
  if (last != 0 && now_ns() - last < kLongAgo) return false;
  if (tries >= kMostTries) {
    __atomic_store_n(&given_up_at, now_ns(), __ATOMIC_RELAXED);
    return false;
  }
  const timespec pause{0, kPause};
  (void)nanosleep(&pause, nullptr);
  return true;
}

}  // namespace aliquot::enforce
