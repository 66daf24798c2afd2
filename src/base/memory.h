// Memory of the machine, and what this process may still take of it.
//
// Memory that a part of the process has reserved and not touched yet is free for the system, but
// not for the other parts: it is registered as promised. Any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock {

// Bytes of memory that the machine has, or the limit of this process' control groups if that is
// less.
int64_t total_memory();

// Bytes of this process that are in memory now.
int64_t resident_memory();

// Bytes that the process may still take: the free memory of the system and of its control groups,
// less promised_memory().
int64_t available_memory();

// Bytes that are promised in this process and not touched yet.
int64_t promised_memory();

// Registers an anonymous mapping that will be touched gradually: its untouched part counts as
// promised while this lives.
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
  const void* begin_ = nullptr;  // key of the mapping among those registered
};

}  // namespace penstock
