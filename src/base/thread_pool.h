// A fixed set of workers that run the same function in lock step. The caller is worker 0, and does the parts
// of those that have not begun when it is through with its own.
//
// Workers spin briefly after a region and then park, so that regions inside a step start in under a
// microsecond and an idle engine uses no CPU. Pools of the same size have the same workers, and one pool of the
// process runs a region at a time: several engines take turns instead of slowing each other down, step by step where
// they give way between their steps, and share the time by their weights. Pools that keep to CPUs of their own know of no others than
// those on the same ones. A pool's run() is called by one thread only (the engine thread).
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {

// Threads that the affinity mask and the cgroup CPU quota allow, at least 1. Never the host's count.
int available_cpus();
// Keeps this thread, and those it makes, on them; does nothing for none.
void stay_on_cpus(const std::vector<int>& cpus);
// This thread has nothing to compute for now: from here on, until it computes again, give_way() waits for it no more.
void rest_from_turns();

// While it lives, this thread's regions are one turn: for a step that is shorter than it takes to go to and fro between its
// regions. Not for one that waits for another thread's regions.
class OneTurn {
 public:
  OneTurn();
  ~OneTurn();
  OneTurn(const OneTurn&) = delete;
  OneTurn& operator=(const OneTurn&) = delete;
};

class ThreadPool {
 public:
  // n_threads <= 0 means available_cpus(). cpus: where its workers stay; the caller sees to itself.
  explicit ThreadPool(int n_threads = 0, const std::vector<int>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return n_threads_; }

  // Where one's own work may wait, as before a step: lets those threads go first that had less of the CPUs while they wanted
  // them, each for its weight (> 0).
  void give_way(double weight = 1);

  // Calls fn(worker, n_workers) once for every worker and returns when all are done. fn must not throw,
  // allocate or wait for another worker's call: one thread may make several of them, one after the other. A region
  // inside a region runs on its caller alone.
  template <class F>
  void run(F&& fn) {
    run_impl([](void* ctx, int worker,
                int n_workers) { (*static_cast<std::remove_reference_t<F>*>(ctx))(worker, n_workers); },
             const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Splits [0, n_items) into one contiguous range per worker (multiples of `grain`): fn(begin, end, worker).
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

  // As for_ranges, but each worker takes its range in ever smaller pieces (multiples of `grain`) and then
  // what is left of the others': a worker that is slowed down does not hold the rest up. fn is called several
  // times per worker.
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
  static std::pair<int64_t, int64_t> range_of(int64_t n_items, int64_t grain, int worker, int n_workers) {
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

  // What is left of a worker's range in for_pieces.
  struct Rest;
  std::unique_ptr<Rest[]> rests_;  // [worker]
  Place& place_;
  std::shared_ptr<Workers> workers_;
  int n_threads_;
};

}  // namespace penstock
