// Ranks on one host: each publishes buffers in shared memory, where the others read them.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "parallel/communicator.h"
#include "parallel/futex.h"
#include "parallel/shm_inbox.h"
#include "parallel/shm_segment.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Longer than the usual skew of ranks, shorter than the cost of a core that spins in
// vain.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr milliseconds kLook{50};  // poll interval of sleepers for the end of the run

enum Kind : uint32_t { kBarrier = 1, kAllReduce, kReduceScatter, kAllGather, kBroadcast };

std::string_view kind_name(uint32_t kind) {
  constexpr std::string_view kNames[] = {"barrier", "all_reduce", "reduce_scatter", "all_gather",
                                         "broadcast"};
  return kind >= kBarrier && kind <= kBroadcast ? kNames[kind - kBarrier] : "nothing known";
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class ShmCommunicator final : public Communicator {
 public:
  using Communicator::fail;
  ShmCommunicator(ShmSegment segment, const CommunicatorConfig& config)
      : segment_(std::move(segment)),
        header_(segment_.header()),
        config_(config),
        inboxes_(segment_, config.rank),
        group_{0, config.size} {
    watcher_ = std::jthread([this](std::stop_token stop) { watch(std::move(stop)); });
  }
  ~ShmCommunicator() override {
    watcher_.request_stop();
    watcher_.join();
    own().left = 1;
    futex_wake(own().turn);
    for (int r = 0; r < size(); ++r) futex_wake(header_.inboxes[r].bell);
  }

  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }

  std::vector<CommunicatorUse> uses() const override {
    std::vector<CommunicatorUse> all;
    for (int r = 0; r < size(); ++r) {
      const RankSaid& said = header_.said[r];
      all.push_back(r == rank()
                        ? use()
                        : CommunicatorUse{said.calls, said.bytes, said.seconds, said.memory_bytes});
    }
    return all;
  }

  void fail(std::string_view reason, ErrorCode code) override {
    uint32_t none = ShmHeader::kNone;
    if (header_.failure.compare_exchange_strong(none, ShmHeader::kBeingSaid)) {
      const size_t n = std::min(reason.size(), sizeof header_.reason - 1);
      std::memcpy(header_.reason, reason.data(), n);
      header_.reason[n] = '\0';
      header_.code = code;
      header_.failure = ShmHeader::kSaid;
    }
    for (int r = 0; r < size(); ++r) {
      futex_wake(header_.ranks[r].turn);
      futex_wake(header_.inboxes[r].bell);
    }
  }

  Status status() const override {
    const uint32_t failure = header_.failure.load(std::memory_order_acquire);
    if (failure == ShmHeader::kNone) return {};
    // The rank that writes the reason may have died while writing.
    if (failure != ShmHeader::kSaid) return make_error(ErrorCode::kInternal, "a rank has failed");
    return make_error(header_.code, std::string(header_.reason));
  }

 private:
  Status sum(std::span<float> x, WireType wire) override {
    const size_t most = segment_.buffer_bytes() / wire_bytes(wire);
    for (size_t first = 0; first < x.size(); first += most) {
      const std::span<float> part = x.subspan(first, std::min(most, x.size() - first));
      to_wire(part, wire, own_buffer());
      RETURN_IF_ERROR(show({kAllReduce, root_of(wire), part.size() * wire_bytes(wire)}));
      if (wire == WireType::kF32) {
        add_up(part);
      } else {
        add_shares(part, wire, 0);
        round_to_wire(wire, part);
      }
    }
    return status();
  }

  Status sum_part(std::span<float> x, WireType wire) override {
    const size_t most = segment_.buffer_bytes() / wire_bytes(wire);
    const Shard::Range own = shard().range(static_cast<int>(x.size()));
    const auto own_first = static_cast<size_t>(own.first),
               own_end = own_first + static_cast<size_t>(own.count);
    for (size_t first = 0; first < x.size(); first += most) {
      const std::span<float> part = x.subspan(first, std::min(most, x.size() - first));
      to_wire(part, wire, own_buffer());
      RETURN_IF_ERROR(show({kReduceScatter, root_of(wire), part.size() * wire_bytes(wire)}));
      const size_t begin = std::max(own_first, first), end = std::min(own_end, first + part.size());
      if (begin < end) add_shares(x.subspan(begin, end - begin), wire, begin - first);
    }
    return status();
  }

  Status gather(std::span<const PartRows> parts) override {
    size_t longest = 0, total = 0;
    for (const PartRows& part : parts) {
      longest = std::max(longest, part.size());
      total += part.size() * sizeof(float);
    }
    const size_t most = segment_.buffer_bytes() / sizeof(float);
    const auto part_of = [&](int rank) { return parts[static_cast<size_t>(rank - group_.first)]; };
    const auto count = [&](const PartRows& part, size_t first) {
      return std::min(most, part.size() - std::min(first, part.size()));
    };
    for (size_t first = 0; first < longest; first += most) {
      const PartRows mine = part_of(rank());
      mine.read(first, {reinterpret_cast<float*>(own_buffer()), count(mine, first)});
      RETURN_IF_ERROR(show({kAllGather, 0, total}));
      for (int r = group_.first; r < group_.first + group_.count; ++r) {
        const PartRows part = part_of(r);
        if (r != rank())
          part.write(first, {reinterpret_cast<const float*>(shown_by(r)), count(part, first)});
      }
    }
    return status();
  }

  Status send(std::span<std::byte> x, int place) override {
    const int root = group_.first + place;
    const size_t most = segment_.buffer_bytes();
    for (size_t first = 0; first < x.size(); first += most) {
      const std::span<std::byte> part = x.subspan(first, std::min(most, x.size() - first));
      if (rank() == root) std::memcpy(own_buffer(), part.data(), part.size());
      RETURN_IF_ERROR(show({kBroadcast, static_cast<uint32_t>(root), part.size()}));
      if (rank() != root) std::memcpy(part.data(), shown_by(root), part.size());
    }
    return status();
  }

  Status meet() override { return show({kBarrier, 0, 0}); }

  Status split(int group_size) override {
    RETURN_IF_ERROR(meet());
    // Ranks of other groups no longer wait for this one, and could overwrite their buffers before
    // all ranks have read them.
    for (++header_.n_grouped; header_.n_grouped < static_cast<uint32_t>(size());) {
      RETURN_IF_ERROR(status());
      std::this_thread::sleep_for(kSpin);
    }
    group_ = {rank() / group_size * group_size, group_size};
    return {};
  }

  // A rank that waits for room drains its own inbox, so that two ranks can send to each other.
  Status post(std::span<const std::byte> message, int to) override {
    constexpr auto kNap = std::chrono::microseconds(20);
    size_t done = 0;
    do {
      while (!inboxes_.write(to, message, done)) {
        RETURN_IF_ERROR(status());
        if (header_.ranks[to].left != 0) fail(called(to) + " has ended");
        inboxes_.drain();
        std::this_thread::sleep_for(kNap);
      }
    } while (done < message.size());
    return status();
  }

  Status take(int from, std::vector<std::byte>& message) override {
    for (const auto begin = steady_clock::now();;) {
      for (int i = 0; i < 64; ++i) {
        if (inboxes_.pop(from, message)) return status();
        pause();
      }
      if (steady_clock::now() - begin < kSpin) continue;
      RETURN_IF_ERROR(status());
      const bool left = header_.ranks[from].left.load() != 0;
      if (inboxes_.pop(from, message)) return status();
      if (left) fail(called(from) + " has ended");
      inboxes_.sleep(kLook);
    }
  }

  // Operations without a root compare wire types, so that a mismatch is detected.
  static uint32_t root_of(WireType wire) { return static_cast<uint32_t>(wire); }
  RankState& own() { return header_.ranks[rank()]; }
  std::byte* own_buffer() { return segment_.buffer(rank(), turn_); }
  const std::byte* shown_by(int rank) const { return segment_.buffer(rank, turn_ - 1); }
  std::string called(int rank) const {
    return fmt::format("rank {} of {} (process {})", rank, size(),
                       header_.ranks[rank].process.load());
  }

  // Publishes this rank's buffer, and waits until all ranks of the group have published theirs.
  Status show(const ShownMessage& message) {
    RETURN_IF_ERROR(status());
    own().shown[turn_ % 2] = message;
    own().turn.store(++turn_);  // before the check for sleepers
    if (own().sleepers.load() > 0) futex_wake(own().turn);
    for (int r = group_.first; r < group_.first + group_.count; ++r) {
      if (r == rank()) continue;
      RETURN_IF_ERROR(wait_for(r));
      if (const ShownMessage other = header_.ranks[r].shown[(turn_ - 1) % 2]; other != message) {
        fail(fmt::format("{} is at {} of {} bytes, rank {} at {} of {} bytes", called(r),
                         kind_name(other.kind), other.bytes, rank(), kind_name(message.kind),
                         message.bytes));
        return status();
      }
    }
    return {};
  }

  bool has_shown(int rank) const {
    return static_cast<int32_t>(header_.ranks[rank].turn.load(std::memory_order_acquire) - turn_) >=
           0;
  }

  Status wait_for(int rank) {
    const auto begin = steady_clock::now();
    do {
      for (int i = 0; i < 64; ++i) {
        if (has_shown(rank)) return {};
        pause();
      }
    } while (steady_clock::now() - begin < kSpin);
    RankState& other = header_.ranks[rank];
    ++other.sleepers;
    while (true) {
      const uint32_t seen = other.turn.load();
      const bool left = other.left.load() != 0;
      if (has_shown(rank)) break;
      if (left) fail(called(rank) + " has ended");
      if (!status()) break;
      futex_wait(other.turn, seen, kLook);
    }
    --other.sleepers;
    return has_shown(rank) ? Status() : status();
  }

  // x, which this rank has published, becomes the sum of all terms in the order of the ranks. The
  // first two summands commute, so either may be in x.
  void add_up(std::span<float> x) const {
    const int place = rank() - group_.first;
    if (place > 1) from_wire(shown_by(group_.first), WireType::kF32, x);
    for (int r = place == 1 ? 0 : 1; r < group_.count; ++r) {
      if (place == 1 && r == 1) continue;
      add_from_wire(shown_by(group_.first + r), WireType::kF32, x);
    }
  }

  // x = sum of all published terms from number `first` on, in the order of the ranks.
  void add_shares(std::span<float> x, WireType wire, size_t first) const {
    const size_t at = first * wire_bytes(wire);
    from_wire(shown_by(group_.first) + at, wire, x);
    for (int r = 1; r < group_.count; ++r) add_from_wire(shown_by(group_.first + r) + at, wire, x);
  }

  void say() {
    const CommunicatorUse own = use();
    RankSaid& said = header_.said[rank()];
    said.calls = own.calls, said.bytes = own.bytes;
    said.seconds = own.seconds, said.memory_bytes = own.memory_bytes;
  }

  // Sends heartbeats and checks those of other ranks.
  void watch(std::stop_token stop) {
    const milliseconds period =
        std::clamp(config_.timeout / 25, milliseconds(2), milliseconds(200));
    const auto patience = config_.timeout / period, join_patience = config_.join_timeout / period;
    struct {
      uint32_t beats = 0;
      long quiet = 0;  // in periods of this rank
    } seen[kMaxRanks];
    std::mutex mutex;
    std::condition_variable_any wake;
    while (!stop.stop_requested()) {
      ++own().beats;
      say();
      for (int r = 0; r < size(); ++r) {
        const RankState& other = header_.ranks[r];
        if (r == rank() || other.left != 0) continue;
        const uint32_t beats = other.beats;
        seen[r].quiet = beats == seen[r].beats ? seen[r].quiet + 1 : 0;
        seen[r].beats = beats;
        if (other.process == 0 && seen[r].quiet > join_patience) {
          fail(fmt::format("rank {} of {} has not begun within {:.1f} s", r, size(),
                           std::chrono::duration<double>(config_.join_timeout).count()));
        } else if (other.process != 0 && seen[r].quiet > patience) {
          fail(fmt::format("{} has shown no life for {:.1f} s: it has died or was stopped",
                           called(r), std::chrono::duration<double>(config_.timeout).count()));
        }
      }
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, period, [] { return false; });
    }
  }

  const ShmSegment segment_;
  ShmHeader& header_;
  const CommunicatorConfig config_;
  ShmInboxes inboxes_;
  Shard::Range group_;  // ranks of collective operations
  uint32_t turn_ = 0;   // turns that this rank has completed
  std::jthread watcher_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_shm_communicator(const CommunicatorConfig& config) {
  ASSIGN_OR_RETURN(ShmSegment segment, ShmSegment::map(config.segment));
  if (const auto n_ranks = static_cast<int>(segment.header().n_ranks); n_ranks != config.size) {
    return errorf(ErrorCode::kInvalidArgument, "memory that ranks share is for {} ranks, not {}",
                  n_ranks, config.size);
  }
  RankState& own = segment.header().ranks[config.rank];
  uint32_t nobody = 0;
  if (!own.process.compare_exchange_strong(nobody, static_cast<uint32_t>(getpid()))) {
    return errorf(ErrorCode::kInvalidArgument, "rank {} of {} is taken by process {}", config.rank,
                  config.size, nobody);
  }
  return std::make_unique<ShmCommunicator>(std::move(segment), config);
}

}  // namespace penstock
