// What ranks on one host share: a state for each, two buffers of each, used in turn, and an inbox of each.
//
// A message is shown in turns. In a turn a rank fills the buffer of that turn, counts its `turn` up, waits until all have
// counted theirs up as far, and reads their buffers. It fills the same buffer again two turns later: by then all have counted
// up the turn between, so they have read what was there.
//
// An inbox is a ring of records, which all others write and its owner reads. A message is one record or, where it is long, several.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "parallel/communicator.h"

namespace penstock {

// What a rank shows in a turn: all ranks must show the same.
struct ShownMessage {
  uint32_t kind = 0;
  uint32_t root = 0;
  uint64_t bytes = 0;
  bool operator==(const ShownMessage&) const = default;
};

struct alignas(64) RankState {
  std::atomic<uint32_t> turn;      // how many it has shown; others sleep on it (futex)
  std::atomic<uint32_t> sleepers;  // of the others
  std::atomic<uint32_t> process;   // its id, 0 until it joins
  std::atomic<uint32_t> left;      // 1: it has ended and shows no more
  std::atomic<uint32_t> beats;     // counts up as long as it lives
  ShownMessage shown[2];           // of the last two turns
};

// What it has said of itself.
struct alignas(64) RankSaid {
  std::atomic<int64_t> calls, bytes, memory_bytes;
  std::atomic<double> seconds;
};

struct alignas(64) InboxState {
  std::atomic<uint64_t> written;  // bytes, ever; by whoever has the turn
  std::atomic<uint64_t> read;     // by the owner
  std::atomic<uint32_t> writer;   // 1 + the rank that writes now; 0: none
  std::atomic<uint32_t> bell;     // counts records up; the owner sleeps on it (futex)
  std::atomic<uint32_t> asleep;   // 1: it does, or is about to
};

struct ShmHeader {
  uint64_t magic;
  uint32_t n_ranks;
  uint64_t buffer_bytes;
  enum Failure : uint32_t { kNone, kBeingSaid, kSaid };
  std::atomic<uint32_t> failure;
  char reason[476];                 // of the failure, with a zero behind it
  ErrorCode code;                   // of the failure
  std::atomic<uint32_t> n_grouped;  // ranks that read nothing any more that was shown to all
  RankState ranks[kMaxRanks];
  RankSaid said[kMaxRanks];
  InboxState inboxes[kMaxRanks];
};

inline constexpr size_t kInboxBuffers = 4;  // an inbox is as large as so many buffers

class ShmSegment {
 public:
  // Of a file descriptor from make_shm_segment(), which may be closed then. Errors: kInvalidArgument, kIo.
  static Result<ShmSegment> map(int fd);
  ShmHeader& header() const { return *static_cast<ShmHeader*>(memory_.get()); }
  size_t buffer_bytes() const { return buffer_bytes_; }
  std::byte* buffer(int rank, uint32_t turn) const;
  // Its ring, of inbox_bytes().
  std::byte* inbox(int rank) const;
  size_t inbox_bytes() const { return kInboxBuffers * buffer_bytes_; }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Unmap> memory_;
  size_t buffer_bytes_ = 0;
};

}  // namespace penstock
