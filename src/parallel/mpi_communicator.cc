// Ranks of several hosts, in processes started by mpirun or srun.
//
// Collective operations use one MPI communicator; heartbeats and the end of a run use another.
// Calls of MPI are serialized by a lock and never block inside MPI, so that waiting ranks notice a
// failed run. Sums are computed here in the order of the ranks, not by MPI, so that they have the
// same bits as those of ranks on one host (shm_communicator.cc).
#include "parallel/communicator.h"

#if PENSTOCK_MPI
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "parallel/mpi_library.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

enum Tag : int { kBeat = 1, kFailure, kLeaving, kMessage };

// Up to this many bytes in total, every rank gathers and sums everything: one exchange. Longer
// tensors are summed by parts: two exchanges, but each byte is sent only twice.
constexpr size_t kSmallSum = size_t{256} << 10;
// Maximum per operation: OpenMPI's eager limit for TCP (mpi_library.cc), with its
// header.
constexpr size_t kMostFloats = (size_t{1} << 18) - 1024;
constexpr size_t kMostReason = 4000;

class MpiCommunicator final : public Communicator {
 public:
  using Communicator::fail;
  static Result<std::unique_ptr<Communicator>> join(const CommunicatorConfig& config) {
    ASSIGN_OR_RETURN(const MpiLibrary* mpi, enter_mpi());
    static std::atomic<bool> taken = false;
    if (taken.exchange(true)) {
      return make_error(
          ErrorCode::kUnsupported,
          "processes that MPI has started serve one model: they have ended with the first");
    }
    std::unique_ptr<MpiCommunicator> ranks(new MpiCommunicator(*mpi, config));
    RETURN_IF_ERROR(ranks->begin());
    return ranks;
  }
  ~MpiCommunicator() override;

  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }

  void fail(std::string_view reason, ErrorCode code) override {
    const std::string text = static_cast<char>(code) + std::string(reason.substr(0, kMostReason));
    if (!take_reason(text)) return;
    const std::lock_guard lock(calls_mutex_);
    for (int other = 0; other < size(); ++other)
      if (other != rank()) send_control(other, kFailure, reason_);
  }

  std::vector<CommunicatorUse> uses() const override {
    std::vector<CommunicatorUse> all;
    {
      const std::lock_guard lock(uses_mutex_);
      all = heard_uses_;
    }
    all[static_cast<size_t>(rank())] = use();
    return all;
  }

  Status status() const override {
    if (!failed_.load(std::memory_order_acquire)) return {};
    return make_error(static_cast<ErrorCode>(reason_[0]), reason_.substr(1));
  }

 private:
  MpiCommunicator(const MpiLibrary& mpi, const CommunicatorConfig& config)
      : mpi_(mpi), config_(config) {}

  Status begin();
  Status sum(std::span<float> x, WireType wire) override;
  Status sum_of_everything(std::span<float> x, WireType wire);
  Status sum_part(std::span<float> x, WireType wire) override;
  Status gather_parts(std::span<float> x, WireType wire);
  Status give_all(size_t n_bytes);
  std::span<float> piece_of(std::span<float> x, size_t place, size_t first) const;
  Status gather(std::span<const PartRows> parts) override;
  Status send(std::span<std::byte> x, int root) override;
  Status meet() override;
  Status split(int group_size) override;
  Status post(std::span<const std::byte> message, int to) override;
  Status take(int from, std::vector<std::byte>& message) override;
  void push(const std::stop_token& stop);

  // Starts an operation and waits for its end. It uses only memory of this object, which is leaked
  // if the run fails.
  template <class Start>
  Status carry_out(const char* what, const Start& start);
  Status error_of(const char* what, int code) const;
  bool take_reason(const std::string& reason);
  void send_control(int to, Tag tag, const std::string& text);
  void send_beat(int to, const CommunicatorUse& own);
  void watch(const std::stop_token& stop);
  void hear();
  // Polls `ready`, which calls MPI, until it returns true.
  template <class Ready>
  Status wait_until(const char* what, const Ready& ready);
  std::string called(int rank) const { return fmt::format("rank {} of {}", rank, size()); }

  // Rank 0 watches all ranks; other ranks watch rank 0, which informs them about the rest.
  bool watches(int other) const { return other != rank() && (rank() == 0 || other == 0); }

  const MpiLibrary& mpi_;
  const CommunicatorConfig config_;
  MPI_Comm data_ = nullptr, messages_ = nullptr, control_ = nullptr;
  std::mutex calls_mutex_;        // serializes calls of MPI
  int place_ = 0, n_places_ = 1;  // this rank in data_: all ranks, or its group
  std::vector<std::byte> out_, in_, message_;
  // Messages being sent, whose addresses MPI holds.
  struct Posted {
    std::vector<std::byte> message;
    MPI_Request request;
  };
  std::deque<Posted> posted_;  // calls_mutex_
  std::condition_variable_any posts_;

  std::mutex reason_mutex_;
  std::string reason_;  // first byte: error code, then text; written once, before failed_
  std::atomic<bool> failed_ = false;

  inline static const std::string kNothing;
  // Heartbeat being sent to rank 0. Static, since it may outlive the object; there is one
  // MpiCommunicator per process.
  inline static CommunicatorUse said_;
  MPI_Request saying_ = nullptr;
  bool is_saying_ = false;
  mutable std::mutex uses_mutex_;
  std::vector<CommunicatorUse> heard_uses_;  // by rank
  struct Peer {
    bool heard = false, left = false;
    long quiet = 0;  // in periods of this rank
  };
  std::vector<Peer> peers_;  // used by the watcher
  // a rank that has left, perhaps after all operations that are waited for
  std::atomic<int> left_ = -1;
  std::jthread watcher_, pusher_;
};

Status MpiCommunicator::error_of(const char* what, int code) const {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  mpi_.error_string(code, text, &length);
  return errorf(ErrorCode::kIo, "{}: {}: {}", called(rank()), what, text);
}

Status MpiCommunicator::begin() {
  int rank = 0, size = 0;
  RETURN_IF_ERROR(error_of("MPI_Comm_rank", mpi_.comm_rank(mpi_.world, &rank)));
  RETURN_IF_ERROR(error_of("MPI_Comm_size", mpi_.comm_size(mpi_.world, &size)));
  if (rank != config_.rank || size != config_.size) {
    return errorf(ErrorCode::kInvalidArgument, "MPI calls this rank {} of {}, expected {} of {}",
                  rank, size, config_.rank, config_.size);
  }
  place_ = rank, n_places_ = size;
  for (MPI_Comm* comm : {&data_, &messages_, &control_}) {
    RETURN_IF_ERROR(error_of("MPI_Comm_dup", mpi_.comm_dup(mpi_.world, comm)));
    RETURN_IF_ERROR(
        error_of("MPI_Comm_set_errhandler", mpi_.comm_set_errhandler(*comm, mpi_.errors_return)));
  }
  peers_.resize(static_cast<size_t>(size));
  heard_uses_.resize(static_cast<size_t>(size));
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  pusher_ = std::jthread([this](const std::stop_token& stop) { push(stop); });
  return {};
}

MpiCommunicator::~MpiCommunicator() {
  watcher_.request_stop();
  if (watcher_.joinable()) watcher_.join();
  pusher_.request_stop();
  if (pusher_.joinable()) pusher_.join();
  if (control_ == nullptr) return;
  const std::lock_guard lock(calls_mutex_);
  if (is_saying_) mpi_.request_free(&saying_);
  for (int other = 0; other < size(); ++other)
    if (watches(other)) send_control(other, kLeaving, kNothing);
  if (!failed_ && posted_.empty()) return;
  // Unfinished operations may still write to these buffers, so they are leaked.
  leave_mpi();
  new std::vector<std::byte>(std::move(out_));
  new std::vector<std::byte>(std::move(in_));
  new std::vector<std::byte>(std::move(message_));
  new std::deque<Posted>(std::move(posted_));
}

template <class Ready>
Status MpiCommunicator::wait_until(const char* what, const Ready& ready) {
  // Spins for the usual skew of ranks, then yields for the latency of a slow link (sleeps overshoot
  // by about 100 us on virtual machines, and a token needs dozens of sums), then sleeps; after a
  // long wait it counts as idle.
  constexpr auto kSpin = std::chrono::microseconds(200), kYield = std::chrono::microseconds(5000),
                 kShort = std::chrono::microseconds(20), kLong = std::chrono::microseconds(500);
  constexpr auto kIdle = milliseconds(200);
  for (const auto begin = steady_clock::now();;) {
    int done = 0;
    {
      const std::lock_guard lock(calls_mutex_);
      RETURN_IF_ERROR(error_of(what, ready(&done)));
    }
    if (done != 0) return {};
    RETURN_IF_ERROR(status());
    const auto waited = steady_clock::now() - begin;
    if (const int left = left_; left >= 0 && waited > config_.timeout)
      fail(called(left) + " has ended");
    if (waited > kIdle) {
      std::this_thread::sleep_for(kLong);
    } else if (waited > kYield) {
      std::this_thread::sleep_for(kShort);
    } else if (waited > kSpin) {
      std::this_thread::yield();
    }
  }
}

template <class Start>
Status MpiCommunicator::carry_out(const char* what, const Start& start) {
  RETURN_IF_ERROR(status());
  MPI_Request request;
  {
    const std::lock_guard lock(calls_mutex_);
    RETURN_IF_ERROR(error_of(what, start(&request)));
  }
  return wait_until(what, [&](int* done) { return mpi_.test(&request, done, MPI_STATUS_IGNORE); });
}

Status MpiCommunicator::split(int group_size) {
  MPI_Comm group = nullptr;
  // all ranks arrive at about the same time, so the blocking call is short
  RETURN_IF_ERROR(meet());
  {
    const std::lock_guard lock(calls_mutex_);
    RETURN_IF_ERROR(
        error_of("MPI_Comm_split", mpi_.comm_split(data_, rank() / group_size, rank(), &group)));
    RETURN_IF_ERROR(
        error_of("MPI_Comm_set_errhandler", mpi_.comm_set_errhandler(group, mpi_.errors_return)));
  }
  data_ = group;
  place_ = rank() % group_size, n_places_ = group_size;
  return {};
}

Status MpiCommunicator::post(std::span<const std::byte> message, int to) {
  RETURN_IF_ERROR(status());
  const std::lock_guard lock(calls_mutex_);
  posted_.push_back({{message.begin(), message.end()}, nullptr});
  Posted& posted = posted_.back();
  const Status sent =
      error_of("MPI_Isend", mpi_.isend(posted.message.data(), static_cast<int>(message.size()),
                                       mpi_.bytes, to, kMessage, messages_, &posted.request));
  if (!sent) posted_.pop_back();
  posts_.notify_one();
  return sent;
}

Status MpiCommunicator::take(int from, std::vector<std::byte>& message) {
  RETURN_IF_ERROR(status());
  MPI_Status found;
  RETURN_IF_ERROR(wait_until("MPI_Iprobe", [&](int* arrived) {
    return mpi_.iprobe(from, kMessage, messages_, arrived, &found);
  }));
  int n = 0;
  mpi_.get_count(&found, mpi_.bytes, &n);
  message_.resize(static_cast<size_t>(std::max(n, 0)));
  RETURN_IF_ERROR(carry_out("MPI_Irecv", [&](MPI_Request* request) {
    return mpi_.irecv(message_.data(), n, mpi_.bytes, from, kMessage, messages_, request);
  }));
  message.swap(message_);
  return {};
}

// MPI sends long messages only inside its calls, which this thread makes while the rank computes.
void MpiCommunicator::push(const std::stop_token& stop) {
  constexpr auto kTurn = std::chrono::microseconds(100);
  constexpr int kLastTurns = 10000;  // for messages posted before the end
  int n_last = 0;
  std::unique_lock lock(calls_mutex_);
  while (posts_.wait(lock, stop, [&] { return !posted_.empty(); })) {
    while (!posted_.empty()) {
      int done = 0;
      if (mpi_.test(&posted_.front().request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0)
        break;
      posted_.pop_front();
    }
    lock.unlock();
    std::this_thread::sleep_for(kTurn);
    lock.lock();
    if (failed_ || (stop.stop_requested() && ++n_last > kLastTurns)) return;
  }
}

Status MpiCommunicator::sum(std::span<float> x, WireType wire) {
  if (x.size() * wire_bytes(wire) * static_cast<size_t>(n_places_) <= kSmallSum)
    return sum_of_everything(x, wire);
  // Reduce-scatter and all-gather: each rank sums one part of x and sends it to all.
  RETURN_IF_ERROR(sum_part(x, wire));
  return gather_parts(x, wire);
}

// All-gather of out_ into in_.
Status MpiCommunicator::give_all(size_t n_bytes) {
  in_.resize(n_bytes * static_cast<size_t>(n_places_));
  return carry_out("MPI_Iallgather", [&](MPI_Request* request) {
    const auto count = static_cast<int>(n_bytes);
    return mpi_.iallgather(out_.data(), count, mpi_.bytes, in_.data(), count, mpi_.bytes, data_,
                           request);
  });
}

Status MpiCommunicator::sum_of_everything(std::span<float> x, WireType wire) {
  const size_t n_bytes = x.size() * wire_bytes(wire);
  out_.resize(n_bytes);
  to_wire(x, wire, out_.data());
  RETURN_IF_ERROR(give_all(n_bytes));
  from_wire(in_.data(), wire, x);
  for (size_t r = 1; r < static_cast<size_t>(n_places_); ++r)
    add_from_wire(in_.data() + r * n_bytes, wire, x);
  round_to_wire(wire, x);
  return status();
}

// Returns piece `first` of a rank's part of x; the last ranks' pieces may be shorter.
std::span<float> MpiCommunicator::piece_of(std::span<float> x, size_t place, size_t first) const {
  const Shard::Range part =
      Shard{static_cast<int>(place), n_places_}.range(static_cast<int>(x.size()));
  const auto n = static_cast<size_t>(part.count);
  return first < n
             ? x.subspan(static_cast<size_t>(part.first) + first, std::min(kMostFloats, n - first))
             : x.first(0);
}

Status MpiCommunicator::sum_part(std::span<float> x, WireType wire) {
  const auto n_ranks = static_cast<size_t>(n_places_);
  const size_t widest = (x.size() + n_ranks - 1) / n_ranks;
  for (size_t first = 0; first < widest; first += kMostFloats) {
    const size_t n_bytes = std::min(kMostFloats, widest - first) * wire_bytes(wire);
    out_.assign(n_bytes * n_ranks, std::byte{});
    in_.resize(n_bytes * n_ranks);
    for (size_t r = 0; r < n_ranks; ++r)
      to_wire(piece_of(x, r, first), wire, out_.data() + r * n_bytes);
    RETURN_IF_ERROR(carry_out("MPI_Ialltoall", [&](MPI_Request* request) {
      const auto count = static_cast<int>(n_bytes);
      return mpi_.ialltoall(out_.data(), count, mpi_.bytes, in_.data(), count, mpi_.bytes, data_,
                            request);
    }));
    const std::span<float> own = piece_of(x, static_cast<size_t>(place_), first);
    from_wire(in_.data(), wire, own);
    for (size_t r = 1; r < n_ranks; ++r) add_from_wire(in_.data() + r * n_bytes, wire, own);
  }
  return status();
}

// All-gather of the parts of x, all rounded alike, including this rank's.
Status MpiCommunicator::gather_parts(std::span<float> x, WireType wire) {
  const auto n_ranks = static_cast<size_t>(n_places_);
  const size_t widest = (x.size() + n_ranks - 1) / n_ranks;
  for (size_t first = 0; first < widest; first += kMostFloats) {
    const size_t n_bytes = std::min(kMostFloats, widest - first) * wire_bytes(wire);
    out_.assign(n_bytes, std::byte{});
    to_wire(piece_of(x, static_cast<size_t>(place_), first), wire, out_.data());
    RETURN_IF_ERROR(give_all(n_bytes));
    for (size_t r = 0; r < n_ranks; ++r)
      from_wire(in_.data() + r * n_bytes, wire, piece_of(x, r, first));
  }
  return status();
}

Status MpiCommunicator::gather(std::span<const PartRows> parts) {
  size_t longest = 0;
  for (const PartRows& part : parts) longest = std::max(longest, part.size());
  const auto own = static_cast<size_t>(place_);
  for (size_t first = 0; first < longest; first += kMostFloats) {
    const size_t n = std::min(kMostFloats, longest - first);
    const auto count = [&](size_t r) {
      return std::min(n, parts[r].size() - std::min(first, parts[r].size()));
    };
    out_.assign(n * sizeof(float), std::byte{});
    parts[own].read(first, {reinterpret_cast<float*>(out_.data()), count(own)});
    RETURN_IF_ERROR(give_all(n * sizeof(float)));
    for (size_t r = 0; r < parts.size(); ++r)
      if (r != own)
        parts[r].write(first, {reinterpret_cast<const float*>(in_.data()) + r * n, count(r)});
  }
  return status();
}

Status MpiCommunicator::send(std::span<std::byte> x, int root) {
  constexpr size_t kMost = kMostFloats * sizeof(float);
  for (size_t first = 0; first < x.size(); first += kMost) {
    const std::span<std::byte> part = x.subspan(first, std::min(kMost, x.size() - first));
    message_.assign(part.begin(), part.end());
    RETURN_IF_ERROR(carry_out("MPI_Ibcast", [&](MPI_Request* request) {
      return mpi_.ibcast(message_.data(), static_cast<int>(part.size()), mpi_.bytes, root, data_,
                         request);
    }));
    if (place_ != root) std::ranges::copy(message_, part.begin());
  }
  return status();
}

Status MpiCommunicator::meet() {
  return carry_out("MPI_Ibarrier",
                   [&](MPI_Request* request) { return mpi_.ibarrier(data_, request); });
}

// Stores the reason of a failure. Returns whether it is the first.
bool MpiCommunicator::take_reason(const std::string& reason) {
  const std::lock_guard lock(reason_mutex_);
  if (failed_) return false;
  reason_ = reason;
  failed_.store(true, std::memory_order_release);
  return true;
}

// Sends without waiting. REQUIRES: calls_mutex_ is held; the text lives as long as this.
void MpiCommunicator::send_control(int to, Tag tag, const std::string& text) {
  MPI_Request request;
  const auto n = static_cast<int>(text.size());
  if (mpi_.isend(text.data(), n, mpi_.bytes, to, tag, control_, &request) == MPI_SUCCESS)
    mpi_.request_free(&request);
}

// Sends a heartbeat; to rank 0 with this rank's counters, unless the last one is still being sent.
// REQUIRES: calls_mutex_ is held.
void MpiCommunicator::send_beat(int to, const CommunicatorUse& own) {
  if (to != 0) return send_control(to, kBeat, kNothing);
  int done = 1;
  if (is_saying_ && mpi_.test(&saying_, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0)
    return;
  said_ = own;
  is_saying_ =
      mpi_.isend(&said_, sizeof said_, mpi_.bytes, to, kBeat, control_, &saying_) == MPI_SUCCESS;
}

// Receives all pending control messages.
void MpiCommunicator::hear() {
  for (int arrived = 1; arrived != 0;) {
    std::string text;
    MPI_Status from;
    {
      const std::lock_guard lock(calls_mutex_);
      if (mpi_.iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, control_, &arrived, &from) != MPI_SUCCESS ||
          arrived == 0)
        return;
      int n = 0;
      mpi_.get_count(&from, mpi_.bytes, &n);
      text.resize(static_cast<size_t>(std::max(n, 0)));
      mpi_.recv(text.data(), n, mpi_.bytes, from.MPI_SOURCE, from.MPI_TAG, control_,
                MPI_STATUS_IGNORE);
    }
    Peer& peer = peers_[static_cast<size_t>(from.MPI_SOURCE)];
    peer.heard = true, peer.quiet = 0;
    if (from.MPI_TAG == kLeaving) peer.left = true, left_ = from.MPI_SOURCE;
    if (from.MPI_TAG == kFailure && !text.empty()) take_reason(text);
    if (from.MPI_TAG == kBeat && text.size() == sizeof(CommunicatorUse)) {
      const std::lock_guard lock(uses_mutex_);
      std::memcpy(&heard_uses_[static_cast<size_t>(from.MPI_SOURCE)], text.data(), text.size());
    }
  }
}

// Sends heartbeats and checks those of other ranks.
void MpiCommunicator::watch(const std::stop_token& stop) {
  const milliseconds period = std::clamp(config_.timeout / 25, milliseconds(2), milliseconds(200));
  const auto patience = config_.timeout / period, join_patience = config_.join_timeout / period;
  std::mutex mutex;
  std::condition_variable_any wake;
  while (!stop.stop_requested()) {
    hear();
    const CommunicatorUse own = use();
    for (int other = 0; other < size(); ++other) {
      Peer& peer = peers_[static_cast<size_t>(other)];
      if (!watches(other) || peer.left) continue;
      {
        const std::lock_guard lock(calls_mutex_);
        send_beat(other, own);
      }
      if (++peer.quiet <= (peer.heard ? patience : join_patience)) continue;
      const auto limit = peer.heard ? config_.timeout : config_.join_timeout;
      fail(fmt::format(
          "{} has shown no life for {:.1f} s: it has died, was stopped or cannot be reached",
          called(other), std::chrono::duration<double>(limit).count()));
    }
    std::unique_lock lock(mutex);
    wake.wait_for(lock, stop, period, [] { return false; });
  }
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_mpi_communicator(const CommunicatorConfig& config) {
  return MpiCommunicator::join(config);
}

}  // namespace penstock
#else
namespace penstock {

Result<std::unique_ptr<Communicator>> make_mpi_communicator(const CommunicatorConfig&) {
  return make_error(ErrorCode::kUnsupported,
                    "this penstock was built without MPI, which ranks of several hosts need");
}

}  // namespace penstock
#endif
