// The inboxes of ranks on one host (shm_segment.h), as one of them uses them: it reads its own and writes into the others'.
//
// One thread of the rank. Nothing here waits, apart from sleep().
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
  // `segment` outlives this.
  ShmInboxes(const ShmSegment& segment, int rank)
      : segment_(segment), rank_(rank), sources_(segment.header().n_ranks) {}

  // A record of the message from its byte `done` on, as long as there is room for; counts `done` up. False: there is none, or
  // another rank writes there just now.
  bool write(int to, std::span<const std::byte> message, size_t& done);
  // Takes all that has come out of the own inbox, so that others have room.
  void drain();
  // The next message of that rank, if it has come.
  bool pop(int from, std::vector<std::byte>& message);
  // Returns when something comes, or after `at_most`, or before.
  void sleep(std::chrono::milliseconds at_most);

 private:
  struct Record {
    uint64_t total;       // bytes of the whole message
    uint32_t from, size;  // of this piece, which follows
  };
  struct Source {
    std::vector<std::byte> begun;  // a message of which not all has come
    std::deque<std::vector<std::byte>> messages;
  };
  static size_t padded(size_t n) { return (n + sizeof(Record) - 1) / sizeof(Record) * sizeof(Record); }
  InboxState& state(int rank) const { return segment_.header().inboxes[rank]; }
  void put(int to, uint64_t at, std::span<const std::byte> bytes) const;
  void get(uint64_t at, std::span<std::byte> bytes) const;

  const ShmSegment& segment_;
  const int rank_;
  std::vector<Source> sources_;
};

}  // namespace penstock
