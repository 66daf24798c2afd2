#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cgroup.h"

namespace penstock {
namespace {

void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int kSpins = 20000;  // about 0.5 ms of pauses: longer than any gap within a step

}  // namespace

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = cgroup_cpus("/sys/fs/cgroup", own_cgroups()); quota > 0 && quota < n)
    n = quota;
  return n > 0 ? n : 1;
}

void stay_on_cpus(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(cpu, &mask);
  // failure is ignored: CPUs that are not allowed are not needed
  sched_setaffinity(0, sizeof mask, &mask);
}

namespace {

using Clock = std::chrono::steady_clock;

class Turns;

// A thread's use of the CPUs of a place. Written by the thread, read by others.
struct Share {
  explicit Share(Turns& at);
  ~Share();
  Turns& turns;
  std::atomic<double> used{0};        // seconds / weight, while other threads had turns, too
  std::atomic<int64_t> last_turn{0};  // end of its last turn, nanoseconds
  double weight = 1;
  Clock::time_point turn_begin{};  // start of its current turn, if turns are timed
};

// Most threads run regions of one place only.
thread_local std::vector<std::unique_ptr<Share>> own_shares;

Share& own_share(Turns& at) {
  for (const auto& share : own_shares)
    if (&share->turns == &at) return *share;
  own_shares.push_back(std::make_unique<Share>(at));
  return *own_shares.back();
}

int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// The right to run a region. A thread that finds it taken parks: spinning would only take a CPU
// from computing threads.
//
// Threads that compute at the same time get equal shares of time, or shares by their weights:
// before a step, a thread that is ahead waits until the others have caught up. Turns are timed only
// while several threads alternate.
class Turns {
 public:
  void take() {
    if (!mutex_.try_lock()) {
      n_waiting_.fetch_add(1, std::memory_order_relaxed);
      mutex_.lock();
      n_waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    n_taken_.store(n_taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    Share& share = own_share(*this);
    n_same_ = &share == last_ ? n_same_ + 1 : 0;
    last_ = &share;
    const bool contended = n_same_ < kManySame;
    if (contended != contended_.load(std::memory_order_relaxed))
      contended_.store(contended, std::memory_order_relaxed);
    share.turn_begin = contended ? Clock::now() : Clock::time_point();
  }
  void give() {
    Share& share = own_share(*this);
    if (share.turn_begin != Clock::time_point()) {
      const Clock::time_point now = Clock::now();
      const double seconds = std::chrono::duration<double>(now - share.turn_begin).count();
      share.used.store(share.used.load(std::memory_order_relaxed) + seconds / share.weight,
                       std::memory_order_relaxed);
      share.last_turn.store(nanoseconds(now), std::memory_order_relaxed);
    }
    mutex_.unlock();
  }

  void let_others(double weight) {
    Share& share = own_share(*this);
    share.weight = weight;
    if (!contended_.load(std::memory_order_relaxed)) return;
    catch_up(share);
    while (somebody_had_less(share)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    let_one_in();
  }

  void add(Share* share) {
    const std::lock_guard lock(shares_mutex_);
    shares_.push_back(share);
  }
  void remove(Share* share) {
    const std::lock_guard lock(shares_mutex_);
    std::erase(shares_, share);
  }

 private:
  static constexpr int kManySame = 4096;  // turns of one thread, about ten steps
  static constexpr double kSlice = 1e-3;  // seconds that a thread may be ahead
  // nanoseconds without a turn: longer than between two steps
  static constexpr int64_t kIdle = 3'000'000;

  static bool is_idle(const Share& share) {
    return nanoseconds(Clock::now()) - share.last_turn.load(std::memory_order_relaxed) > kIdle;
  }
  // An idle thread accumulates no credit.
  void catch_up(Share& share) {
    if (!is_idle(share)) return;
    const std::lock_guard lock(shares_mutex_);
    double least = -1;
    for (const Share* other : shares_) {
      if (other == &share || is_idle(*other)) continue;
      const double used = other->used.load(std::memory_order_relaxed);
      least = least < 0 ? used : std::min(least, used);
    }
    if (least > share.used.load(std::memory_order_relaxed))
      share.used.store(least, std::memory_order_relaxed);
  }
  bool somebody_had_less(const Share& share) {
    const double used = share.used.load(std::memory_order_relaxed);
    const std::lock_guard lock(shares_mutex_);
    for (const Share* other : shares_) {
      if (other != &share && other->used.load(std::memory_order_relaxed) + kSlice < used &&
          !is_idle(*other))
        return true;
    }
    return false;
  }
  // Waiting threads were woken when the last turn ended; gives them time to take theirs.
  void let_one_in() {
    constexpr auto kLongest = std::chrono::microseconds(500);
    if (n_waiting_.load(std::memory_order_relaxed) == 0) return;
    const uint64_t before = n_taken_.load(std::memory_order_relaxed);
    const auto end = Clock::now() + kLongest;
    while (n_waiting_.load(std::memory_order_relaxed) > 0 &&
           n_taken_.load(std::memory_order_relaxed) == before && Clock::now() < end) {
      std::this_thread::yield();
    }
  }

  std::mutex mutex_;  // held during a turn; guards the next two
  const Share* last_ = nullptr;
  int n_same_ = 0;
  std::atomic<int> n_waiting_{0};
  std::atomic<uint64_t> n_taken_{0};
  std::atomic<bool> contended_{false};
  std::mutex shares_mutex_;
  std::vector<Share*> shares_;
};

thread_local bool in_region = false;

// Nesting of OneTurn.
thread_local int n_one_turns = 0;
thread_local Turns* kept_turn = nullptr;  // the turn that the thread keeps between two regions

void give_kept_turn() {
  if (kept_turn != nullptr) kept_turn->give();
  kept_turn = nullptr;
}

Share::Share(Turns& at) : turns(at) { turns.add(this); }
Share::~Share() { turns.remove(this); }

}  // namespace

void rest_from_turns() {
  for (const auto& share : own_shares) share->last_turn.store(0, std::memory_order_relaxed);
}

OneTurn::OneTurn() { ++n_one_turns; }
OneTurn::~OneTurn() {
  if (--n_one_turns == 0) give_kept_turn();
}

// A region is an epoch. Each worker's part is done by the thread that claims it first: the
// worker, or the caller after its own part if the worker has not begun because its CPU is busy.
// So on an overloaded machine the pool slows down to one thread at worst, not to one time slice
// per region.
class ThreadPool::Workers {
 public:
  Workers(int n_threads, const std::vector<int>& cpus);
  ~Workers() { end(); }
  // REQUIRES: the caller has the turn.
  void run(Fn fn, void* ctx);

 private:
  struct alignas(64) Part {
    // last epoch in which this part was claimed; epochs are consecutive
    std::atomic<uint32_t> claimed{0};
    // Claims the part of `epoch`. Returns false if it was claimed already.
    bool claim(uint32_t epoch) {
      uint32_t last = epoch - 1;
      return claimed.load(std::memory_order_relaxed) == last &&
             claimed.compare_exchange_strong(last, epoch, std::memory_order_acquire);
    }
  };
  void loop(int worker);
  void end();

  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<int> n_pending_{0};
  Fn fn_ = nullptr;  // read only by threads with a claimed part, during which they do not change
  void* ctx_ = nullptr;
  std::atomic<bool> stop_ = false;
  const int n_threads_;
  std::vector<Part> parts_;  // [worker]; worker 0 has none
  std::vector<std::thread> threads_;
};

ThreadPool::Workers::Workers(int n_threads, const std::vector<int>& cpus)
    : n_threads_(n_threads), parts_(n_threads) {
  try {
    for (int worker = 1; worker < n_threads; ++worker) {
      threads_.emplace_back([this, worker, cpus] {
        stay_on_cpus(cpus);
        loop(worker);
      });
    }
  } catch (...) {  // the system refuses another thread
    end();
    throw;
  }
}

void ThreadPool::Workers::end() {
  stop_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Workers::run(Fn fn, void* ctx) {
  fn_ = fn;
  ctx_ = ctx;
  n_pending_.store(n_threads_ - 1, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.fetch_add(1, std::memory_order_release) + 1;
  epoch_.notify_all();
  fn(ctx, 0, n_threads_);
  for (int worker = 1; worker < n_threads_; ++worker) {
    if (!parts_[worker].claim(epoch)) continue;
    fn(ctx, worker, n_threads_);
    n_pending_.fetch_sub(1, std::memory_order_relaxed);
  }
  // A preempted worker needs a CPU: yields after a while instead of
  // spinning.
  for (int spins = 0; n_pending_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      spin_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::Workers::loop(int worker) {
  in_region = true;  // workers only run regions
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++spins) {
      spin_pause();
    }
    epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);  // epochs without this worker are skipped
    if (stop_) return;
    if (!parts_[worker].claim(seen)) continue;
    fn_(ctx_, worker, n_threads_);
    n_pending_.fetch_sub(1, std::memory_order_release);
  }
}

// A set of CPUs on which pools take turns.
struct ThreadPool::Place {
  // cpus is empty: all that the process may use, and workers are not bound.
  static Place& of(const std::vector<int>& cpus) {
    static std::mutex mutex;
    // never destroyed: threads may end during exit
    static auto& all = *new std::map<std::vector<int>, Place>;
    const std::lock_guard lock(mutex);
    Place& place = all[cpus];
    place.cpus = cpus;
    return place;
  }
  // Returns the workers that all pools of this size share.
  std::shared_ptr<Workers> workers_of(int n_threads) {
    const std::lock_guard lock(mutex);
    std::weak_ptr<Workers>& known = workers[n_threads];
    std::shared_ptr<Workers> found = known.lock();
    if (found == nullptr) known = found = std::make_shared<Workers>(n_threads, cpus);
    return found;
  }

  std::vector<int> cpus;
  Turns turns;
  std::mutex mutex;
  std::map<int, std::weak_ptr<Workers>> workers;  // by size
};

struct alignas(64) ThreadPool::Rest {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

ThreadPool::ThreadPool(int n_threads, const std::vector<int>& cpus)
    : place_(Place::of(cpus)), n_threads_(n_threads > 0 ? n_threads : available_cpus()) {
  rests_ = std::make_unique<Rest[]>(n_threads_);
  if (n_threads_ > 1) workers_ = place_.workers_of(n_threads_);
}

ThreadPool::~ThreadPool() = default;

void ThreadPool::give_way(double weight) {
  if (kept_turn != &place_.turns) place_.turns.let_others(weight);
}

void ThreadPool::run_impl(Fn fn, void* ctx) {
  if (n_threads_ == 1) return fn(ctx, 0, 1);
  if (in_region) {
    for (int worker = 0; worker < n_threads_; ++worker) fn(ctx, worker, n_threads_);
    return;
  }
  if (kept_turn != &place_.turns) {
    give_kept_turn();
    place_.turns.take();
  }
  in_region = true;
  workers_->run(fn, ctx);
  in_region = false;
  if (n_one_turns > 0) {
    kept_turn = &place_.turns;
  } else {
    place_.turns.give();
  }
}

void ThreadPool::lay_out_pieces(int64_t n_items, int64_t grain) {
  for (int worker = 0; worker < n_threads_; ++worker) {
    const auto [begin, end] = range_of(n_items, grain, worker, n_threads_);
    rests_[worker].next.store(begin, std::memory_order_relaxed);
    rests_[worker].end = end;
  }
}

// Takes half of the rest of the worker's own range, then of the other workers'.
bool ThreadPool::take_piece(int worker, int64_t grain, Piece& piece) {
  for (int i = 0; i < n_threads_; ++i) {
    Rest& rest = rests_[(worker + i) % n_threads_];
    int64_t begin = rest.next.load(std::memory_order_relaxed);
    while (begin < rest.end) {
      const int64_t half = (rest.end - begin) / 2 / grain * grain;
      const int64_t end = half > grain               ? begin + half
                          : begin + grain < rest.end ? begin + grain
                                                     : rest.end;
      if (!rest.next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      piece = {begin, end};
      return true;
    }
  }
  return false;
}

}  // namespace penstock
