// Layout of the memory that the ranks of one host share: for each rank a state, two buffers (double
// buffering) and an inbox.
//
// Collective operations proceed in turns. In a turn a rank fills its buffer of that turn,
// increments its `turn`, waits until all ranks have incremented theirs as far, and reads their
// buffers. It fills the same buffer again two turns later: by then all ranks have incremented the
// turn between, so they have read the old content.
//
// An inbox is a ring buffer of records that all other ranks write and its owner reads. A message is
// one record or, when it is long, several.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "parallel/communicator.h"

namespace penstock {

// Description of the operation that a rank takes part in in a turn: it must be the same on all
// ranks.
struct ShownMessage {
  uint32_t kind = 0;
  uint32_t root = 0;
  uint64_t bytes = 0;
  bool operator==(const ShownMessage&) const = default;
};

struct alignas(64) RankState {
  // turns that the rank has completed; others sleep on it (futex)
  std::atomic<uint32_t> turn;
  std::atomic<uint32_t> sleepers;  // number of other ranks that sleep on `turn`
  std::atomic<uint32_t> process;   // process id, 0 until the rank joins
  // 1: the rank has ended and takes part no more
  std::atomic<uint32_t> left;
  // heartbeats: incremented as long as the rank lives
  std::atomic<uint32_t> beats;
  ShownMessage shown[2];  // operations of the last two turns
};

// A rank's counters (CommunicatorUse) as of its last heartbeat.
struct alignas(64) RankSaid {
  std::atomic<int64_t> calls, bytes, memory_bytes;
  std::atomic<double> seconds;
};

struct alignas(64) InboxState {
  // bytes ever written; changed by the rank in `writer`
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> read;    // bytes ever read; changed by the owner
  std::atomic<uint32_t> writer;  // 1 + the rank that writes now; 0: none
  // incremented for each record; the owner sleeps on it (futex)
  std::atomic<uint32_t> bell;
  // 1: the owner sleeps on `bell`, or is about to
  std::atomic<uint32_t> asleep;
};

struct ShmHeader {
  uint64_t magic;
  uint32_t n_ranks;
  uint64_t buffer_bytes;
  enum Failure : uint32_t { kNone, kBeingSaid, kSaid };
  std::atomic<uint32_t> failure;
  char reason[476];  // message of the failure, zero-terminated
  ErrorCode code;    // code of the failure
  // Ranks that have formed groups: they read no other group's buffers any more.
  std::atomic<uint32_t> n_grouped;
  RankState ranks[kMaxRanks];
  RankSaid said[kMaxRanks];
  InboxState inboxes[kMaxRanks];
};

inline constexpr size_t kInboxBuffers = 4;  // size of an inbox, in buffers

class ShmSegment {
 public:
  // Maps the memory of a file descriptor from make_shm_segment(), which may be closed afterwards.
  // Errors: kInvalidArgument, kIo.
  static Result<ShmSegment> map(int fd);
  ShmHeader& header() const { return *static_cast<ShmHeader*>(memory_.get()); }
  size_t buffer_bytes() const { return buffer_bytes_; }
  std::byte* buffer(int rank, uint32_t turn) const;
  // The rank's ring buffer, inbox_bytes() long.
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
