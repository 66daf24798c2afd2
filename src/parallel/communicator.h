// Collective operations and messages among the ranks of one run.
//
// Every rank has one Communicator and calls the same operations in the same order with the same
// sizes; each returns when this rank has its result. Sums are computed in the order of the ranks:
// the same inputs give the same bits, on every rank and in every run. One thread calls the
// operations; fail() and status() are for any thread.
//
// After form_groups() the collective operations (sums, gathers, broadcasts, barriers) are within
// this rank's group; messages still go to any rank.
//
// A rank that dies, stops or fails ends the run: every operation of the others returns the same
// error, at once or within CommunicatorConfig::timeout, and so do all that follow.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "parallel/shard.h"
#include "parallel/wire.h"

namespace penstock {

inline constexpr int kMaxRanks = 64;  // most ranks on one host

// Counters of a rank's operations so far, and the memory of its process.
struct CommunicatorUse {
  int64_t calls = 0;
  int64_t bytes = 0;  // bytes that this rank has sent
  // time in the operations, waiting for other ranks included
  double seconds = 0;
  int64_t memory_bytes = 0;  // resident memory of the process
};

// A strided matrix of floats that one rank contributes to a gather: n rows of `width` floats,
// `stride` floats apart.
struct PartRows {
  PartRows(std::span<float> row) : first(row.data()), width(row.size()) {}
  PartRows(float* first, size_t width, size_t n, size_t stride)
      : first(first), width(width), n(n), stride(stride) {}
  size_t size() const { return width * n; }
  // Copies floats out of or into the rows, which count as one sequence; begin: index of the first
  // float. REQUIRES: begin + the span's size <= size().
  void read(size_t begin, std::span<float> out) const;
  void write(size_t begin, std::span<const float> from) const;

  float* first;
  size_t width, n = 1, stride = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // This rank's index in its group and the group's size; without groups rank() and size().
  Shard shard() const {
    return group_size_ == 0 ? Shard{rank(), size()} : Shard{rank() % group_size_, group_size_};
  }

  // All-reduce: x becomes the sum of all ranks' x.
  Status all_reduce(std::span<float> x, WireType wire = WireType::kF32);
  // Reduce-scatter: this rank's part of x, shard().range(x.size()), becomes the sum of all ranks';
  // the rest of x is unspecified.
  Status reduce_scatter(std::span<float> x, WireType wire = WireType::kF32);
  // All-gather: rank r has parts[r] and receives the others. Parts are disjoint and have the same
  // sizes on every rank.
  Status all_gather(std::span<const PartRows> parts);
  // x becomes the root's x.
  Status broadcast(std::span<std::byte> x, int root);
  // Returns when all ranks have called it.
  Status barrier();
  // Divides the ranks into groups of consecutive ranks with the same quotient rank / group_size.
  // Collective operations are within a group from now on, and `root` is a rank's index in its
  // group. All ranks call it, once. REQUIRES: group_size divides size().
  Status form_groups(int group_size);

  // Sends a message to one other rank, which receives one rank's messages in the order in which
  // they were sent. The message may change when this returns. Returns before the message is
  // received, unless the receiver is many messages behind.
  Status send_to(std::span<const std::byte> message, int to);
  // Waits for the next message of rank `from`.
  Status receive_from(int from, std::vector<std::byte>& message);
  // Suspends the counters of `ranks` while it lives: for a rank that waits to be told what to do
  // next.
  class Uncounted {
   public:
    explicit Uncounted(Communicator& ranks) : ranks_(ranks) { ranks_.counts_ = false; }
    ~Uncounted() { ranks_.counts_ = true; }
    Uncounted(const Uncounted&) = delete;

   private:
    Communicator& ranks_;
  };

  // Counters of this rank. Any thread.
  CommunicatorUse use() const;
  // Counters of all ranks, by rank; for other ranks as of their last heartbeat, zeros for ranks
  // whose heartbeats do not reach this one.
  virtual std::vector<CommunicatorUse> uses() const { return {use()}; }

  // Ends the run for all ranks; status() becomes this error on each of them.
  virtual void fail(std::string_view reason, ErrorCode code) = 0;
  void fail(std::string_view reason) { fail(reason, ErrorCode::kInternal); }
  // Ok, or the error for which the run has ended. Never waits.
  virtual Status status() const = 0;

 private:
  virtual Status sum(std::span<float> x, WireType wire) = 0;
  virtual Status sum_part(std::span<float> x, WireType wire) = 0;
  virtual Status gather(std::span<const PartRows> parts) = 0;
  virtual Status send(std::span<std::byte> x, int root) = 0;
  virtual Status meet() = 0;
  virtual Status split(int group_size) = 0;
  virtual Status post(std::span<const std::byte> message, int to) = 0;
  virtual Status take(int from, std::vector<std::byte>& message) = 0;

  template <class Operation>
  Status counted(size_t bytes, const Operation& operation);
  std::atomic<int64_t> calls_ = 0, bytes_ = 0;
  std::atomic<double> seconds_ = 0;
  bool counts_ = true;
  int group_size_ = 0;  // 0: no groups were formed
};

struct CommunicatorConfig {
  int rank = 0, size = 1;
  // shm: the file descriptor from make_shm_segment()
  int segment = -1;
  // mpi: rank and size are those of mpi_place().

  // Time without a heartbeat after which a rank counts as dead. Time in which this machine was
  // suspended does not count.
  std::chrono::milliseconds timeout{5000};
  // Time that a rank may take to join.
  std::chrono::milliseconds join_timeout{60000};
};

// Makes the communicator of this name, a row of THE list in communicators.cc. Errors:
// kInvalidArgument, kIo.
Result<std::unique_ptr<Communicator>> make_communicator(std::string_view name,
                                                        const CommunicatorConfig& config);
std::string communicator_names();  // "self, …"

// Broadcasts a message whose length only the root knows: `message` becomes the root's.
Status broadcast_message(Communicator& ranks, std::vector<std::byte>& message, int root);

// Makes unnamed memory for the ranks of one host to share; returns its file descriptor, which
// threads of a process use together and child processes inherit (it is closed by exec unless the
// caller clears FD_CLOEXEC). The memory is freed when its last user ends in any way; /dev/shm is
// not needed. buffer_bytes: size of a rank's buffer; larger messages take several turns
// (shm_segment.h). Errors: kInvalidArgument; kResourceExhausted when there is not enough memory.
inline constexpr size_t kShmBufferBytes = size_t{1} << 20;
Result<int> make_shm_segment(int n_ranks, size_t buffer_bytes = kShmBufferBytes);

}  // namespace penstock
