// What the ranks of one run give each other: sums, parts of rows, a batch to compute.
//
// Every rank has one Communicator and calls the same operations in the same order with the same sizes; each returns when
// this rank has what it asked for. Sums are taken in the order of the ranks: the same inputs give the same bits, on every
// rank and in every run. One thread calls the operations; fail() and status() are for any thread.
//
// After form_groups() sums, gathers, broadcasts and barriers are those of this rank's group; messages go to any rank still.
//
// A rank that dies, stops or fails ends the run: every operation of the others returns the same error, at once or within
// CommunicatorConfig::timeout, and so do all that follow.
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

inline constexpr int kMaxRanks = 64;  // of one host

// What a rank's operations have taken so far, and its process.
struct CommunicatorUse {
  int64_t calls = 0;
  int64_t bytes = 0;         // that this rank has shown the others
  double seconds = 0;        // in the operations, waiting for other ranks included
  int64_t memory_bytes = 0;  // of the process, in memory now
};

// Floats that one rank gives all: rows of them, equally far apart.
struct PartRows {
  PartRows(std::span<float> row) : first(row.data()), width(row.size()) {}
  PartRows(float* first, size_t width, size_t n, size_t stride)
      : first(first), width(width), n(n), stride(stride) {}
  size_t size() const { return width * n; }
  // From the `begin`-th float on, one row behind the other. REQUIRES: begin + the span's size <= size().
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
  // Of those with which it takes sums: its place in its group.
  Shard shard() const {
    return group_size_ == 0 ? Shard{rank(), size()} : Shard{rank() % group_size_, group_size_};
  }

  // x = the sum of all ranks' x.
  Status all_reduce(std::span<float> x, WireType wire = WireType::kF32);
  // The same of this rank's part of x, shard().range(x.size()); the rest of x may hold anything.
  Status reduce_scatter(std::span<float> x, WireType wire = WireType::kF32);
  // Rank r has parts[r] and gets the others'; parts are disjoint and have the same sizes on every rank.
  Status all_gather(std::span<const PartRows> parts);
  // x = the root's x.
  Status broadcast(std::span<std::byte> x, int root);
  // Returns when all ranks have called it.
  Status barrier();
  // From now on this rank shares operations with those of the same quotient rank / group_size only, whose number in the group is
  // what `root` means. All ranks call it, once. REQUIRES: group_size divides size().
  Status form_groups(int group_size);

  // To one other rank, which gets what one rank sends it in its order. The message may change when this returns, which it does
  // before the other has taken it, unless that one is many messages behind.
  Status send_to(std::span<const std::byte> message, int to);
  // The next message of that rank, once it is there.
  Status receive_from(int from, std::vector<std::byte>& message);
  // While one lives nothing is counted: who waits to be told what to do next takes part in nothing.
  class Uncounted {
   public:
    explicit Uncounted(Communicator& ranks) : ranks_(ranks) { ranks_.counts_ = false; }
    ~Uncounted() { ranks_.counts_ = true; }
    Uncounted(const Uncounted&) = delete;

   private:
    Communicator& ranks_;
  };

  // Of this rank. Any thread.
  CommunicatorUse use() const;
  // By rank: of others what they have said last, with their signs of life; nothing of those from which this rank hears none.
  virtual std::vector<CommunicatorUse> uses() const { return {use()}; }

  // Ends the run for all ranks, for this reason; status() is this error on each.
  virtual void fail(std::string_view reason, ErrorCode code) = 0;
  void fail(std::string_view reason) { fail(reason, ErrorCode::kInternal); }
  // Ok, or why the run has ended. Never waits.
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
  int segment = -1;  // shm: the file descriptor of make_shm_segment()
  // mpi: rank and size are those of mpi_place().
  // A rank that shows no life for so long is dead. Its own time counts: a machine that slept has lost nobody.
  std::chrono::milliseconds timeout{5000};
  // How long a rank may take to begin.
  std::chrono::milliseconds join_timeout{60000};
};

// A row of THE list of communicators (communicators.cc). Errors: kInvalidArgument, kIo.
Result<std::unique_ptr<Communicator>> make_communicator(std::string_view name,
                                                        const CommunicatorConfig& config);
std::string communicator_names();  // "self, …"

// A message of any length to all ranks: the others get what the root has.
Status broadcast_message(Communicator& ranks, std::vector<std::byte>& message, int root);

// Memory that ranks on one host share, without a name: a file descriptor, which threads of a process use together and child
// processes inherit (it is closed by exec unless the caller clears FD_CLOEXEC). Nothing of it is left when its last user ends, however that
// ends, and /dev/shm is not needed. buffer_bytes: what a rank shows at once; larger messages take several turns.
// Errors: kInvalidArgument; kResourceExhausted where memory does not suffice.
inline constexpr size_t kShmBufferBytes = size_t{1} << 20;
Result<int> make_shm_segment(int n_ranks, size_t buffer_bytes = kShmBufferBytes);

}  // namespace penstock
