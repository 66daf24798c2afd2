// Futexes: sleeping until another process changes a word of shared memory.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace penstock {

// Sleeps while word == seen, for at_most at most. May also return early: the caller checks the word
// again.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::milliseconds at_most);
// Wakes all threads that sleep on the word.
void futex_wake(std::atomic<uint32_t>& word);

}  // namespace penstock
