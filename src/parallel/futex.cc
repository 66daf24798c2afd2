#include "parallel/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace penstock {

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::milliseconds at_most) {
  const timespec time = {at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace penstock
