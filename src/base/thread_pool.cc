#include "base/thread_pool.h"

#include <sched.h>

#include <atomic>
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

constexpr int kSpins = 20000;  // about 0.5 ms of pauses: longer than any gap inside a step

}  // namespace

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = cgroup_cpus("/sys/fs/cgroup", own_cgroups()); quota > 0 && quota < n) n = quota;
  return n > 0 ? n : 1;
}

// A region is an epoch. Each worker's part of it is done by whoever claims it first: the worker, or the
// caller when it is through with its own part and the worker has not begun, because another program has its
// CPU. So a machine with more to do than CPUs slows the pool down to one thread at worst, not to one time
// slice per region.
struct ThreadPool::Shared {
  struct alignas(64) Part {
    std::atomic<uint32_t> claimed{0};  // the last epoch in which this part was taken; all epochs in turn
    // Takes the part of `epoch`; false when it is taken already.
    bool claim(uint32_t epoch) {
      uint32_t last = epoch - 1;
      return claimed.load(std::memory_order_relaxed) == last &&
             claimed.compare_exchange_strong(last, epoch, std::memory_order_acquire);
    }
  };

  // What is left of a worker's range in for_pieces.
  struct alignas(64) Rest {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<int> n_pending{0};
  Fn fn = nullptr;  // read only by who has claimed a part: until that is done they do not change
  void* ctx = nullptr;
  std::atomic<bool> stop = false;
  std::vector<Part> parts;  // [worker]; that of worker 0 is not used
  std::vector<Rest> rests;  // [worker]
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int n_threads)
    : shared_(std::make_unique<Shared>()), n_threads_(n_threads > 0 ? n_threads : available_cpus()) {
  shared_->parts = std::vector<Shared::Part>(n_threads_);
  shared_->rests = std::vector<Shared::Rest>(n_threads_);
  for (int worker = 1; worker < n_threads_; ++worker) {
    shared_->threads.emplace_back([this, worker] { worker_loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop = true;
  shared_->epoch.fetch_add(1, std::memory_order_release);
  shared_->epoch.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void ThreadPool::run_impl(Fn fn, void* ctx) {
  if (n_threads_ == 1) return fn(ctx, 0, 1);
  shared_->fn = fn;
  shared_->ctx = ctx;
  shared_->n_pending.store(n_threads_ - 1, std::memory_order_relaxed);
  const uint32_t epoch = shared_->epoch.fetch_add(1, std::memory_order_release) + 1;
  shared_->epoch.notify_all();
  fn(ctx, 0, n_threads_);
  for (int worker = 1; worker < n_threads_; ++worker) {
    if (!shared_->parts[worker].claim(epoch)) continue;
    fn(ctx, worker, n_threads_);
    shared_->n_pending.fetch_sub(1, std::memory_order_relaxed);
  }
  // A worker that lost its CPU needs it back: give way after a while instead of spinning against it.
  for (int spins = 0; shared_->n_pending.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      spin_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::lay_out_pieces(int64_t n_items, int64_t grain) {
  for (int worker = 0; worker < n_threads_; ++worker) {
    const auto [begin, end] = range_of(n_items, grain, worker, n_threads_);
    shared_->rests[worker].next.store(begin, std::memory_order_relaxed);
    shared_->rests[worker].end = end;
  }
}

// Half of what is left of the worker's own range, then of its neighbours'.
bool ThreadPool::take_piece(int worker, int64_t grain, Piece& piece) {
  for (int i = 0; i < n_threads_; ++i) {
    Shared::Rest& rest = shared_->rests[(worker + i) % n_threads_];
    int64_t begin = rest.next.load(std::memory_order_relaxed);
    while (begin < rest.end) {
      const int64_t half = (rest.end - begin) / 2 / grain * grain;
      const int64_t end = half > grain ? begin + half : begin + grain < rest.end ? begin + grain : rest.end;
      if (!rest.next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      piece = {begin, end};
      return true;
    }
  }
  return false;
}

void ThreadPool::worker_loop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && shared_->epoch.load(std::memory_order_acquire) == seen; ++spins) {
      spin_pause();
    }
    shared_->epoch.wait(seen, std::memory_order_acquire);
    seen = shared_->epoch.load(std::memory_order_acquire);  // epochs without this worker are skipped
    if (shared_->stop) return;
    if (!shared_->parts[worker].claim(seen)) continue;
    shared_->fn(shared_->ctx, worker, n_threads_);
    shared_->n_pending.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace penstock
