// Sleeping on a word that other processes change.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace penstock {

// Early, late or not at all: the caller looks again.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::milliseconds at_most);
// All who sleep on it.
void futex_wake(std::atomic<uint32_t>& word);

}  // namespace penstock
