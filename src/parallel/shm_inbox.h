// One rank's access to the inboxes in shared memory (shm_segment.h): it reads its own and writes
// into the others'.
//
// Used by one thread. No call waits, except sleep().
#pragma once
#include <chrono>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "parallel/shm_segment.h"

namespace penstock {

class ShmInboxes {
 public:
  // `segment` must outlive this.
  ShmInboxes(const ShmSegment& segment, int rank)
      : segment_(segment), rank_(rank), sources_(segment.header().n_ranks) {}

  // Writes a record with as much of the message from byte `done` on as fits, and adds its size to
  // `done`. False: the inbox is full, or another rank is writing to it.
  bool write(int to, std::span<const std::byte> message, size_t& done);
  // Moves all records out of this rank's inbox, so that others have room to write.
  void drain();
  // Takes the next complete message of rank `from`; false when there is none.
  bool pop(int from, std::vector<std::byte>& message);
  // Sleeps until something arrives, for at_most at most. May return early.
  void sleep(std::chrono::milliseconds at_most);

 private:
  struct Record {
    uint64_t total;  // bytes of the whole message
    // sending rank; bytes of this piece of the message, which follow
    uint32_t from, size;
  };
  struct Source {
    std::vector<std::byte> begun;                 // a message that has come in part
    std::deque<std::vector<std::byte>> messages;  // complete messages
  };
  static size_t padded(size_t n) {
    return (n + sizeof(Record) - 1) / sizeof(Record) * sizeof(Record);
  }
  InboxState& state(int rank) const { return segment_.header().inboxes[rank]; }
  void put(int to, uint64_t at, std::span<const std::byte> bytes) const;
  void get(uint64_t at, std::span<std::byte> bytes) const;

  const ShmSegment& segment_;
  const int rank_;
  std::vector<Source> sources_;
};

}  // namespace penstock
