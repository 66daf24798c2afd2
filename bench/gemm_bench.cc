// Matrix products, each beside a reference measured in the same loop: few rows of activations
// against a pure read of the weights (GB/s), many against the peak of the arithmetic they use
// (GFLOP/s). Times are minima over alternating runs, for the machine is rarely quiet.
//
//   PENSTOCK_ISA=avx512 gemm_bench --benchmark_filter=decode/.*q4_k
//   PENSTOCK_BENCH_THREADS=1 PENSTOCK_BENCH_MB=1 PENSTOCK_BENCH_RUNS=100 gemm_bench    # out of the cache
//   PENSTOCK_UNPACK=between gemm_bench --benchmark_filter=prefill/q4_0    # weights unpacked between tile products; before
//   PENSTOCK_BENCH_INVARIANT=1 gemm_bench    # INT8 tiles instead of BF16 tiles, as in batch-invariant mode
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/pack/panel_pack.h"
#include "kernels/probe_kernels.h"
#include "machine.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/weight.h"
#include "quant/all.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::byte> random_rows(QuantType type, int rows, int cols) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(static_cast<size_t>(rows) * quant_bytes(type, cols));
  std::vector<float> row(cols);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (int r = 0; r < rows; ++r) {
    for (float& x : row) x = normal(random);
    quantize_row(type, row.data(), bytes.data() + r * quant_bytes(type, cols), cols);
  }
  return bytes;
}

// A way to store weights: an encoding of files, or what other quantizers make.
struct Kind {
  std::string name;
  QuantType type = QuantType::kF32;  // where bits is 0
  int bits = 0, group_size = 0;      // 0: a group is a whole row
  bool zeros = false, levels = false, per_token = false;
};

const std::vector<Kind>& grouped_kinds() {
  static const std::vector<Kind> kinds = {
      {"int8", {}, 8, 0},
      {"w8a8", {}, 8, 0, false, false, true},
      {"int4", {}, 4, 128},
      {"int4_zeros", {}, 4, 128, true},
      {"int3", {}, 3, 128, true},
      {"int2", {}, 2, 128, true},
      {"nf4", {}, 4, 64, false, true},
      {"ternary", {}, 2, 0, false, false, true},
  };
  return kinds;
}

std::unique_ptr<Weight> pack_grouped(const Kind& kind, int rows, int cols) {
  GroupedMatrix m;
  m.rows = rows, m.cols = cols, m.bits = kind.bits;
  m.group_size = kind.group_size > 0 ? kind.group_size : cols;
  m.layout = kind.bits == 8 ? CodeLayout::kBytes : CodeLayout::kWordsByRow;
  m.uniform_zero = static_cast<int16_t>(kind.bits == 2 && !kind.zeros ? 1 : 1 << (kind.bits - 1));
  m.scales.assign(static_cast<size_t>(rows) * m.n_groups(), 0.01f);
  for (size_t i = 0; kind.zeros && i < m.scales.size(); ++i)
    m.zeros.push_back(static_cast<int16_t>(i % 3));
  for (int c = 0; kind.levels && c < 16; ++c)
    m.codebook.push_back(static_cast<float>((c - 8) * (c - 8)) / 64);
  if (kind.per_token) m.activations.kind = ActivationCoding::Kind::kInt8PerToken;
  std::vector<std::byte> codes(GroupedMatrix::packed_bytes(m.layout, rows, cols, m.bits));
  std::mt19937 random(1);
  for (std::byte& byte : codes) byte = static_cast<std::byte>(random());
  m.packed = codes;
  return WeightPacker(pool()).pack(m, 0, rows).value();
}

// `rows` rows, a multiple of 128: the same 128 over and over.
std::unique_ptr<Weight> pack_kind(const Kind& kind, int rows, int cols) {
  if (kind.bits > 0) return pack_grouped(kind, rows, cols);
  const auto some = random_rows(kind.type, 128, cols);
  std::vector<std::byte> all;
  for (int r = 0; r < rows; r += 128) all.insert(all.end(), some.begin(), some.end());
  return WeightPacker(pool()).pack({kind.type, rows, cols, all}).value();
}

// A weight of `copies` times the same 128 rows: packing gigabytes would take longer than measuring.
struct BigWeight {
  WeightMemory memory;
  PanelMatrix panels;
  ActivationRounding rounding;

  BigWeight(const Kind& kind, int cols, size_t bytes) {
    constexpr int kRows = 128;
    const auto small = pack_kind(kind, kRows, cols);
    panels = static_cast<const CpuWeight&>(*small).panels();
    rounding = static_cast<const CpuWeight&>(*small).rounding();
    const size_t piece = panels.panel_bytes * panels.n_panels();
    const size_t copies = std::max<size_t>(1, bytes / piece);
    memory = WeightPages().allocate(copies * piece);
    if (memory.data() == nullptr) std::abort();
    pool().for_ranges(static_cast<int64_t>(copies), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t c = begin; c < end; ++c)
        std::memcpy(memory.data() + c * piece, panels.data, piece);
    });
    panels.data = memory.data();
    panels.rows = static_cast<int>(copies) * kRows;
    panels.row_scales = nullptr;
  }
};

struct Int8Activations {
  std::vector<int8_t> values;
  std::vector<ActivationGroup> groups;
  std::vector<ActivationHalves> halves;
  Int8Rows rows;

  Int8Activations(const std::vector<float>& x, int n_rows, int cols,
                  const ActivationRounding& rounding, int block_rows) {
    const int padded = (cols + 255) / 256 * 256, block = block_rows;
    const int n_padded = (n_rows + block - 1) / block * block, n_steps = padded / 32;
    values.resize(static_cast<size_t>(n_padded) * padded);
    groups.resize(static_cast<size_t>(n_padded) * n_steps);
    halves.resize(groups.size());
    for (int m = 0; m < n_rows; ++m) {
      const size_t first = static_cast<size_t>(m / block) * n_steps * block + m % block;
      table().gemm->quantize_row(&x[static_cast<size_t>(m) * cols], cols, padded, rounding, block,
                                 &values[first * 32], &groups[first], &halves[first]);
    }
    rows = {values.data(), groups.data(), halves.data(), block, n_steps, rounding.one_scale()};
  }
};

std::vector<float> random_activations(int n_rows, int cols) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n_rows) * cols);
  for (float& v : x) v = normal(random);
  return x;
}

// The least time of each of two functions, run in turn.
template <class F, class G>
std::pair<double, double> alternate(benchmark::State& state, F f, G g) {
  double best_f = 1e30, best_g = 1e30;
  for (auto _ : state) {
    auto start = Clock::now();
    f();
    best_f = std::min(best_f, seconds_since(start));
    start = Clock::now();
    g();
    best_g = std::min(best_g, seconds_since(start));
  }
  return {best_f, best_g};
}

// Few rows: all weights once, in place of a model's layers; larger than any cache.
void decode(benchmark::State& state, const Kind& kind, int n_rows) {
  constexpr int kCols = 2048;
  static size_t bytes = size_t{std::getenv("PENSTOCK_BENCH_MB")
                                   ? std::strtoul(std::getenv("PENSTOCK_BENCH_MB"), nullptr, 10)
                                   : 768}
                        << 20;
  const BigWeight w(kind, kCols, bytes);
  const auto x = random_activations(n_rows, kCols);
  std::vector<float> y(static_cast<size_t>(w.panels.rows) * n_rows);
  const GemmOutput out{y.data(), w.panels.rows, nullptr};
  const int index = static_cast<int>(w.panels.type);
  const TileKernels* tiles = table().tiles;
  const GemmTraits traits =
      gemm_traits(table(), std::getenv("PENSTOCK_BENCH_INVARIANT") != nullptr);
  const GemmChoice choice =
      choose_gemm(GemmPlans::of(table()), w.panels.type, w.rounding.one_scale(), n_rows, traits);
  const size_t plan = choice.index;
  const Int8Activations int8(x, n_rows, kCols, w.rounding, std::max(choice.block_rows, 1));
  const size_t scratch_bytes = choice.needs_tiles() ? tiles->scratch_bytes : 0;
  const auto tile_bytes = [&]() -> size_t {
    if (choice.path() == GemmPath::kBf16Tiles) return tiles->bf16_tile_bytes(n_rows, kCols);
    return choice.path() == GemmPath::kInt8RowTiles ? tiles->int8_tile_bytes(n_rows, kCols) : 64;
  };
  const WeightMemory scratch = WeightPages().allocate(scratch_bytes * pool().size() + 64),
                     packed = WeightPages().allocate(tile_bytes());
  const FloatRows rows{x.data(), kCols};
  if (choice.path() == GemmPath::kBf16Tiles)
    tiles->pack_bf16(rows, n_rows, 0, n_rows, kCols, kCols, packed.data());
  if (choice.path() == GemmPath::kInt8RowTiles)
    tiles->pack_int8(rows, n_rows, 0, n_rows, kCols, kCols, w.rounding, packed.data());
  const auto product = [&] {
    pool().for_ranges(w.panels.n_panels(), 1, [&](int64_t begin, int64_t end, int worker) {
      const int b = static_cast<int>(begin), e = static_cast<int>(end);
      switch (choice.path()) {
        case GemmPath::kF32:
          return table().gemm->f32[index][plan](w.panels, rows, n_rows, b, e, out);
        case GemmPath::kInt8:
          return table().gemm->int8[index][plan](w.panels, int8.rows, n_rows, b, e, out);
        case GemmPath::kInt8Tiles:
          return tiles->int8[index][plan](w.panels, int8.rows, n_rows, b, e, out);
        case GemmPath::kInt8RowTiles:
        case GemmPath::kBf16Tiles:
          return tiles->tiles[index][plan](w.panels, packed.data(), n_rows, b, e, out,
                                           scratch.data() + worker * scratch_bytes);
      }
    });
  };
  const size_t total = w.panels.panel_bytes * w.panels.n_panels();
  uint64_t sink = 0;
  const auto read = [&] {
    pool().run([&](int worker, int n_workers) {
      const size_t part = total / n_workers / 2048 * 2048;
      const uint64_t sum = probe_read(w.panels.data + part * worker, part);
      if (worker == 0) sink += sum;
    });
  };
  const auto [seconds, read_seconds] = alternate(state, product, read);
  benchmark::DoNotOptimize(sink);
  state.counters["GB/s"] = static_cast<double>(total) / seconds * 1e-9;
  state.counters["%read"] = 100 * read_seconds / seconds;
  state.counters["GMAC/s"] = static_cast<double>(w.panels.rows) * kCols * n_rows / seconds * 1e-9;
}

void prefill(benchmark::State& state, const Kind& kind, int n_rows, int rows, int cols) {
  const auto weight = pack_kind(kind, rows, cols);
  auto x = random_activations(n_rows, cols);
  // In huge pages, as a step's tensors are.
  const WeightMemory y = WeightPages().allocate(static_cast<size_t>(n_rows) * rows * sizeof(float));
  LinearScratch scratch;
  LinearContext context{pool(), scratch, table()};
  context.traits = gemm_traits(table(), false);
  const LinearTarget target{weight.get(), nullptr, {y.data(), DType::kF32, n_rows, rows, rows}};
  const Tensor input{x.data(), DType::kF32, n_rows, cols, cols};
  constexpr int64_t kRounds = 50000;
  const bool integers = panel_kind(static_cast<const CpuWeight&>(*weight).panels().type, false) >=
                        PanelKind::kNibbles;
  const ComputeProbe probe =
      probe_unit(integers ? ComputeProbe::Operand::kIntegers : ComputeProbe::Operand::kFloats);
  const double flops = 2.0 * n_rows * rows * cols;
  float sink = 0;
  const auto [seconds, peak_seconds] = alternate(
      state, [&] { cpu_linear(context, input, {&target, 1}); },
      [&] {
        pool().run([&](int worker, int) {
          const float result = probe.run(kRounds);
          if (worker == 0) sink += result;
        });
      });
  benchmark::DoNotOptimize(sink);
  const double peak = probe.operations_per_iteration * kRounds * pool().size() / peak_seconds;
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["%peak"] = 100 * (flops / seconds) / peak;
}

void register_kind(const Kind& kind) {
  for (int n_rows : {1, 2, 4, 6, 8, 12, 16, 24, 32, 64}) {
    benchmark::RegisterBenchmark(
        ("decode/" + kind.name + "/rows:" + std::to_string(n_rows)).c_str(), decode, kind, n_rows)
        ->Iterations(setting("PENSTOCK_BENCH_RUNS", 7))
        ->Unit(benchmark::kMillisecond);
  }
  for (int n_rows : {32, 128, 512, 2048}) {
    for (const auto& [rows, cols] : {std::pair{8192, 2048}, std::pair{2048, 8192}}) {
      benchmark::RegisterBenchmark(("prefill/" + kind.name + "/rows:" + std::to_string(n_rows) +
                                    "/" + std::to_string(cols) + "x" + std::to_string(rows))
                                       .c_str(),
                                   prefill, kind, n_rows, rows, cols)
          ->Iterations(setting("PENSTOCK_BENCH_RUNS", 7))
          ->Unit(benchmark::kMillisecond);
    }
  }
}

void register_all() {
  for (const QuantTypeInfo& info : quant_types()) {
    if (info.type >= QuantType::kI8 && info.type <= QuantType::kF8E5M2) continue;
    if (can_quantize(info.type)) register_kind({std::string(info.name), info.type});
  }
  for (const Kind& kind : grouped_kinds()) register_kind(kind);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_benchmarks(argc, argv, penstock::register_all);
}
