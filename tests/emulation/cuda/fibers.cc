#include "emulation/cuda/fibers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "ops/cuda/kernels/warpgroup.h"
#include "quant/quant_type.h"

namespace penstock::cuda {
namespace {

namespace context = boost::context;

// Not a power of two: stacks that lie one behind the other would share the same few sets of the
// caches.
constexpr size_t kStackBytes = 64 * 1024 + 17 * 64;

// Random numbers that cost less than what they decide (xorshift, Marsaglia 2003).
class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed | 1) {}
  // 0 ... n - 1.
  size_t below(size_t n) {
    state_ ^= state_ << 13, state_ ^= state_ >> 17, state_ ^= state_ << 5;
    return static_cast<size_t>(uint64_t{state_} * n >> 32);
  }

 private:
  uint32_t state_;
};

// A block at a time; fibers are kept and take one thread after the other. Who waits switches to the
// next itself.
class Scheduler final : public Fibers {
 public:
  Scheduler() : random_(1) {}
  void seed(uint64_t value) { random_ = Random(static_cast<uint32_t>(value * 2654435761u + 1)); }

  void run_grid(const void* kernel, Body body, const char* name, int n_threads, Grid grid) {
    kernel_ = kernel, body_ = body, name_ = name, n_threads_ = n_threads, grid_ = grid;
    shared_.resize((static_cast<size_t>(grid.shared_bytes) + kAlign) / sizeof(uint64_t) + kAlign);
    order_.resize(static_cast<size_t>(grid.x) * static_cast<size_t>(grid.y));
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int>(i);
    shuffle(order_);
    for (const int block : order_) run_block(block % grid.x, block / grid.x);
  }

  void meet_warp(int thread, void* mine, Together together) override {
    meet(warps_[static_cast<size_t>(thread / kWarp)], thread, mine, together);
  }
  void meet_block(int thread, void* mine, Together together) override {
    meet(block_, thread, mine, together);
  }
  void copy_later(int thread, std::byte* to, const std::byte* from) override {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % kCopyBytes != 0)
      die("a copy of 16 bytes that are not aligned");
    Copies& copies = copies_[static_cast<size_t>(thread)];
    copies.all.push_back({copies.n_groups, to, from});
  }
  void end_copies(int thread) override { ++copies_[static_cast<size_t>(thread)].n_groups; }
  void make_copies(int thread, int most) override {
    Copies& copies = copies_[static_cast<size_t>(thread)];
    for (; copies.n_made < copies.all.size() &&
           copies.all[copies.n_made].group < copies.n_groups - most;
         ++copies.n_made)
      std::memcpy(copies.all[copies.n_made].to, copies.all[copies.n_made].from, kCopyBytes);
  }

 private:
  static constexpr size_t kAlign = 128, kCopyBytes = 16;
  struct Copy {
    int group;
    std::byte* to;
    const std::byte* from;
  };
  struct Copies {  // of a thread
    std::vector<Copy> all;
    size_t n_made = 0;
    int n_groups = 0;
    void clear() { all.clear(), n_made = 0, n_groups = 0; }
  };
  // Those who meet: the lanes of a warp, or all.
  struct Party {
    int first = 0, size = 0, n_here = 0;
    Together together = nullptr;
    std::vector<void*> mine;
  };
  struct Worker {
    context::fiber at;  // while it does not run
    int thread = 0;
  };

  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random_.below(i)]);
  }

  void run_block(int x, int y) {
    x_ = x, y_ = y;
    // not a number, before somebody writes it
    std::fill(shared_.begin(), shared_.end(), ~uint64_t{0});
    begin(block_, 0, n_threads_);
    warps_.resize(static_cast<size_t>(n_threads_ / kWarp));
    for (size_t w = 0; w < warps_.size(); ++w) begin(warps_[w], static_cast<int>(w) * kWarp, kWarp);
    copies_.resize(static_cast<size_t>(n_threads_));
    for (Copies& copies : copies_) copies.clear();
    at_.assign(static_cast<size_t>(n_threads_), nullptr);
    ready_.resize(static_cast<size_t>(n_threads_));
    for (int t = 0; t < n_threads_; ++t) ready_[static_cast<size_t>(t)] = t;
    n_left_ = n_threads_;
    switch_to(next());
    if (n_left_ != 0) die("some threads wait for others that have returned or wait elsewhere");
  }

  static void begin(Party& party, int first, int size) {
    party.first = first, party.size = size, party.n_here = 0;
    party.mine.assign(static_cast<size_t>(size), nullptr);
  }

  // A thread that can go on, drawn among all that can; the host's own when there is none.
  Worker* next() {
    if (ready_.empty()) return &host_;
    const size_t chosen = random_.below(ready_.size());
    const int thread = ready_[chosen];
    ready_[chosen] = ready_.back(), ready_.pop_back();
    Worker*& worker = at_[static_cast<size_t>(thread)];
    if (worker == nullptr) {
      worker = take_worker();
      worker->thread = thread;
    }
    return worker;
  }

  void switch_to(Worker* to) {
    if (to == current_) return;
    before_ = std::exchange(current_, to);
    context::fiber from = std::move(to->at).resume();
    before_->at = std::move(from);  // of whom switched here
  }

  Worker* take_worker() {
    if (!idle_.empty()) {
      Worker* const worker = idle_.back();
      idle_.pop_back();
      return worker;
    }
    Worker* const worker = workers_.emplace_back(std::make_unique<Worker>()).get();
    worker->at = context::fiber(std::allocator_arg, context::fixedsize_stack(kStackBytes),
                                [this, worker](context::fiber&& from) {
                                  before_->at = std::move(from);
                                  while (true) {
                                    body_(kernel_, thread_of(worker->thread));
                                    --n_left_;
                                    at_[static_cast<size_t>(worker->thread)] = nullptr;
                                    idle_.push_back(worker);
                                    switch_to(next());
                                  }
                                  return context::fiber();
                                });
    return worker;
  }

  Thread thread_of(int index) {
    auto address = reinterpret_cast<uintptr_t>(shared_.data());
    address = (address + kAlign - 1) / kAlign * kAlign;
    return {index, x_, y_, grid_.x, reinterpret_cast<std::byte*>(address), this};
  }

  void meet(Party& party, int thread, void* mine, Together together) {
    if (party.n_here == 0) party.together = together;
    if (party.together != together)
      die("threads that should do the same together do different things");
    party.mine[static_cast<size_t>(thread - party.first)] = mine;
    if (++party.n_here == party.size) {
      together(party.mine.data(), party.size);
      party.n_here = 0;
      for (int t = party.first; t < party.first + party.size; ++t) ready_.push_back(t);
    }
    switch_to(next());  // the last has no right to go first
  }

  [[noreturn]] void die(const char* what) {
    log().critical("emulated kernel {}: {} (block {}, {})", name_, what, x_, y_);
    std::abort();
  }

  Random random_;
  const void* kernel_ = nullptr;
  Body body_ = nullptr;
  const char* name_ = "";
  int n_threads_ = 0, n_left_ = 0, x_ = 0, y_ = 0;
  Grid grid_;
  std::vector<uint64_t> shared_;
  Party block_;
  std::vector<Party> warps_;
  std::vector<Copies> copies_;  // [thread]
  std::vector<int> order_;      // of the grid's blocks
  std::vector<int> ready_;      // threads
  std::vector<Worker*> at_;     // [thread], null: not begun, or done
  std::vector<Worker*> idle_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Worker host_;
  Worker *current_ = &host_, *before_ = nullptr;
};

Scheduler& scheduler() {
  thread_local Scheduler value;
  return value;
}

}  // namespace

void Fibers::run(const void* kernel, Body body, const char* name, int n_threads, Grid grid) {
  if (grid.x > 0 && grid.y > 0) scheduler().run_grid(kernel, body, name, n_threads, grid);
}

void Fibers::seed(uint64_t value) { scheduler().seed(value); }

namespace emulation {

namespace {

// half(word, which): a number of a word.
template <class Half>
void multiply_pairs(void* const* lanes, Half half) {
  const auto lane = [&](int i) { return static_cast<const MmaLane*>(lanes[i]); };
  float a[16][16], b[16][8];
  for (int g = 0; g < 8; ++g) {
    for (int t = 0; t < 4; ++t) {
      const MmaLane* const from = lane(4 * g + t);
      for (int i = 0; i < 4; ++i)
        for (int h = 0; h < 2; ++h)
          a[g + 8 * (i & 1)][8 * (i >> 1) + 2 * t + h] = half(from->a[i], h);
      for (int i = 0; i < 2; ++i)
        for (int h = 0; h < 2; ++h) b[8 * i + 2 * t + h][g] = half(from->b[i], h);
    }
  }
  float d[16][8] = {};
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 4; ++j) lane(i)->d[j] += d[i / 4 + 8 * (j >> 1)][2 * (i % 4) + (j & 1)];
}

uint16_t half_at(const std::byte* row, int col) {
  uint16_t bits;
  std::memcpy(&bits, row + 2 * col, sizeof bits);
  return bits;
}

// A row of a matrix that is read from shared memory: of 16 bytes.
const std::byte* row_of(const void* lane) {
  const std::byte* const row = static_cast<const MatrixLane*>(lane)->row;
  PENSTOCK_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0);
  return row;
}

}  // namespace

void mma_together(void* const* lanes, int) {
  multiply_pairs(lanes, [](uint32_t word, int which) {
    return float_of_bits(which == 0 ? word << 16 : word & 0xffff0000u);
  });
}
void mma_half_together(void* const* lanes, int) {
  multiply_pairs(lanes, [](uint32_t word, int which) {
    return half_to_float(static_cast<uint16_t>(word >> 16 * which));
  });
}

void load_together(void* const* lanes, int) {
  const auto row = [&](int i) { return row_of(lanes[i]); };
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i)
      std::memcpy(static_cast<const MatrixLane*>(lanes[l])->to + i,
                  row(8 * i + l / 4) + 4 * (l % 4), 4);
}
void load_transposed_together(void* const* lanes, int) {
  const auto at = [&](int matrix, int r, int col) {
    return uint32_t{half_at(row_of(lanes[8 * matrix + r]), col)};
  };
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i)
      static_cast<const MatrixLane*>(lanes[l])->to[i] =
          at(i, 2 * (l % 4), l / 4) | at(i, 2 * (l % 4) + 1, l / 4) << 16;
}
void transpose_together(void* const* lanes, int) {
  uint32_t before[32];
  for (int l = 0; l < 32; ++l) before[l] = *static_cast<const uint32_t*>(lanes[l]);
  const auto at = [&](int r, int col) {
    return before[4 * r + col / 2] >> 16 * (col % 2) & 0xffffu;
  };
  for (int l = 0; l < 32; ++l)
    *static_cast<uint32_t*>(lanes[l]) = at(2 * (l % 4), l / 4) | at(2 * (l % 4) + 1, l / 4) << 16;
}

namespace {

// value: of the bits of a number.
template <class Value>
void multiply_tiles(void* const* lanes, Value value) {
  const auto lane = [&](int i) { return static_cast<const WgmmaLane*>(lanes[i]); };
  float a[16][16];  // [k][row]
  for (int i = 0; i < 32; ++i)
    for (int r = 0; r < 4; ++r)
      for (int h = 0; h < 2; ++h)
        a[8 * (r >> 1) + 2 * (i % 4) + h][i / 4 + 8 * (r & 1)] =
            value(static_cast<uint16_t>(lane(i)->a[r] >> 16 * h));
  const int step = lane(0)->step, stride = lane(0)->stride;
  const auto number_at = [&](int k, int n) {
    if (stride == 0) return tile_piece(n, 2 * step + k / 8) + k % 8 * 2;
    return n / 64 * stride + tile_piece(16 * step + k, n % 64 / 8) + n % 8 * 2;
  };
  for (int n = 0; n < lane(0)->n_columns; ++n) {
    float d[16] = {};
    for (int k = 0; k < 16; ++k) {
      uint16_t bits;
      std::memcpy(&bits, lane(0)->b + number_at(k, n), sizeof bits);
      const float b = value(bits);
      for (int m = 0; m < 16; ++m) d[m] += a[k][m] * b;
    }
    for (int m = 0; m < 16; ++m)
      lane(m % 8 * 4 + n % 8 / 2)->d[n / 8 * 4 + m / 8 * 2 + n % 2] += d[m];
  }
}

}  // namespace

void wgmma_together(void* const* lanes, int) { multiply_tiles(lanes, bf16_to_float); }
void wgmma_half_together(void* const* lanes, int) { multiply_tiles(lanes, half_to_float); }

namespace {

// Four bytes in a word, and sums of another type.
template <class Lane, class Sum, class Value>
void multiply_bytes(void* const* lanes, Value value) {
  Sum a[16][32], b[32][8];
  for (int i = 0; i < 32; ++i) {
    const auto* const from = static_cast<const Lane*>(lanes[i]);
    const int g = i / 4, t = i % 4;
    for (int byte = 0; byte < 4; ++byte) {
      for (int r = 0; r < 4; ++r)
        a[g + 8 * (r & 1)][16 * (r >> 1) + 4 * t + byte] = value(from->a[r] >> 8 * byte & 255);
      for (int r = 0; r < 2; ++r) b[16 * r + 4 * t + byte][g] = value(from->b[r] >> 8 * byte & 255);
    }
  }
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 4; ++j) {
      Sum sum = 0;
      for (int k = 0; k < 32; ++k) sum += a[i / 4 + 8 * (j >> 1)][k] * b[k][2 * (i % 4) + (j & 1)];
      static_cast<const Lane*>(lanes[i])->d[j] += sum;
    }
  }
}

}  // namespace

void mma_int8_together(void* const* lanes, int) {
  multiply_bytes<Int8Lane, int>(lanes, [](uint32_t byte) { return static_cast<int8_t>(byte); });
}

void mma_f8_together(void* const* lanes, int) {
  multiply_bytes<MmaLane, float>(lanes, [](uint32_t bits) {
    const auto byte = static_cast<std::byte>(bits);
    float value;
    dequantize_row(QuantType::kF8E4M3, &byte, &value, 1);
    return value;
  });
}

}  // namespace emulation
}  // namespace penstock::cuda
