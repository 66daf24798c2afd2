// A fork-join thread pool: a fixed set of workers that all run the same function in a parallel
// region. The caller is worker 0; when it has finished its own part it also does the parts of
// workers that have not begun.
//
// Workers spin briefly after a region and then park, so that regions inside a step start in under a
// microsecond and an idle engine uses no CPU. Pools of the same size share their workers, and only
// one pool of the process runs a region at a time: several engines take turns instead of slowing
// each other down, a whole step at a time if they call give_way() between their steps, and share
// the time by their weights. Pools with CPUs of their own take turns only with pools on the same
// CPUs. A pool's run() is called by one thread only (the engine thread).
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {

// Number of CPUs that the affinity mask and the cgroup CPU quota allow, at least 1.
int available_cpus();
// Binds this thread, and those that it starts from now on, to these CPUs; does nothing for an empty
// list.
void stay_on_cpus(const std::vector<int>& cpus);
// Says that this thread has nothing to compute: until it computes again, give_way() does not wait
// for it.
void rest_from_turns();

// Makes all regions of this thread one turn while it lives: for a step that takes less time than
// switching between pools at each of its regions would. Not for a step that waits for regions of
// another thread.
class OneTurn {
 public:
  OneTurn();
  ~OneTurn();
  OneTurn(const OneTurn&) = delete;
  OneTurn& operator=(const OneTurn&) = delete;
};

class ThreadPool {
 public:
  // n_threads <= 0 means available_cpus(). cpus: CPUs that the workers are bound to; the caller's
  // thread is not bound.
  explicit ThreadPool(int n_threads = 0, const std::vector<int>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return n_threads_; }

  // Called where this thread's work may wait, as before a step: waits for threads that had less
  // time on the CPUs than this one, relative to their weights, while they wanted to compute.
  // weight: > 0.
  void give_way(double weight = 1);

  // Calls fn(worker, n_workers) once for every worker and returns when all are done. fn must not
  // throw, allocate or wait for another worker's call: one thread may make several of them, one
  // after the other. A region inside a region runs on its caller alone.
  template <class F>
  void run(F&& fn) {
    run_impl(
        [](void* ctx, int worker, int n_workers) {
          (*static_cast<std::remove_reference_t<F>*>(ctx))(worker, n_workers);
        },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Splits [0, n_items) into one contiguous range per worker (multiples of `grain`): fn(begin, end,
  // worker).
  template <class F>
  void for_ranges(int64_t n_items, int64_t grain, F&& fn) {
    if (n_items <= grain || n_threads_ == 1) {
      if (n_items > 0) fn(int64_t{0}, n_items, 0);
      return;
    }
    run([&](int worker, int n_workers) {
      const auto [begin, end] = range_of(n_items, grain, worker, n_workers);
      if (begin < end) fn(begin, end, worker);
    });
  }

  // As for_ranges, but with work stealing: each worker takes its range in ever smaller pieces
  // (multiples of `grain`), and then pieces of the other workers' ranges, so that a slow worker
  // does not delay the region. fn is called several times per worker.
  template <class F>
  void for_pieces(int64_t n_items, int64_t grain, F&& fn) {
    if (n_items <= grain || n_threads_ == 1) {
      if (n_items > 0) fn(int64_t{0}, n_items, 0);
      return;
    }
    lay_out_pieces(n_items, grain);
    run([&](int worker, int) {
      for (Piece piece; take_piece(worker, grain, piece);) fn(piece.begin, piece.end, worker);
    });
  }

  // The range of worker `worker` of `n_workers` in for_ranges.
  static std::pair<int64_t, int64_t> range_of(int64_t n_items, int64_t grain, int worker,
                                              int n_workers) {
    const int64_t n_grains = (n_items + grain - 1) / grain;
    const int64_t begin = n_grains * worker / n_workers * grain;
    const int64_t end = n_grains * (worker + 1) / n_workers * grain;
    return {begin, end < n_items ? end : n_items};
  }

 private:
  using Fn = void (*)(void* ctx, int worker, int n_workers);
  struct Piece {
    int64_t begin = 0, end = 0;
  };
  class Workers;
  struct Place;
  void lay_out_pieces(int64_t n_items, int64_t grain);
  bool take_piece(int worker, int64_t grain, Piece& piece);
  void run_impl(Fn fn, void* ctx);

  // The rest of a worker's range in for_pieces.
  struct Rest;
  std::unique_ptr<Rest[]> rests_;  // [worker]
  Place& place_;
  std::shared_ptr<Workers> workers_;
  int n_threads_;
};

}  // namespace penstock
