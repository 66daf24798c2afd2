// How much memory the machine has and what this process may still take of it.
//
// What a part of the process was promised and has not touched yet is free for the system, but not for the others here: it
// is entered in the process' ledger. Any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock {

// Bytes of the machine.
int64_t total_memory();

// Bytes of this process that are in memory now.
int64_t resident_memory();

// Bytes that the process may still take: of what the system and its control groups have free, less what is promised.
int64_t available_memory();

// Bytes that were promised in this process and are not touched yet.
int64_t promised_memory();

// An anonymous mapping that will be touched bit by bit. Its untouched part counts as taken as long as this lives.
class PromisedMemory {
 public:
  PromisedMemory() = default;
  PromisedMemory(const void* begin, size_t bytes);
  ~PromisedMemory();
  PromisedMemory(PromisedMemory&& other) noexcept : begin_(std::exchange(other.begin_, nullptr)) {}
  PromisedMemory& operator=(PromisedMemory&& other) noexcept {
    std::swap(begin_, other.begin_);
    return *this;
  }

 private:
  const void* begin_ = nullptr;  // its name in the ledger
};

}  // namespace penstock
