// Products of many rows with integer-coded panels, for any Simd S (UnpacksBlocks). Included by
// int8_gemm.inl.
//
// A slice of columns of a few panels is unpacked once, to bytes and floats in the first-level
// caches, and multiplied with many rows, while the next slice is prefetched. Partial sums are kept
// beside the slice if the slices of a panel follow each other, otherwise in the output. Every
// output has the bits of the kernels for few rows.

template <class S, class Q>
struct Int8Blocks {
  using Panel = Int8Panel<S, Q>;
  using L = PanelLayout<Q>;
  using Bytes = typename S::Bytes;
  using Ints = typename S::Ints;
  using Floats = typename S::Floats;
  static constexpr int kParts = kPanelRows / S::kLanes, kPanels = S::kBlockPanels,
                       kRows = S::kBlockRows;
  static constexpr int kVectors = kPanels * kParts;  // vectors of weight rows
  // With AVX-512, 24 steps of two panels (24 KB of codes) are read from the first-level cache for
  // every four rows, beside scales, activations and their groups.
  static constexpr int kSliceSteps = S::kLanes == 16 ? 24 : 64;
  static constexpr int kGroups = Q::kGroupSize == 16 ? 2 : 1;  // groups per step
  static constexpr bool kKeepsSums = !CachesRows<S>;
  // Rows multiplied together: their activations and sums of a slice fit the second-level cache.
  static constexpr int kMostRows = 256;
  static constexpr bool kUnpacks = Q::kBits != 8 || Q::kIsCodebook;
  static_assert(kSliceSteps % L::kSteps == 0);

  struct Slice {
    alignas(64) uint8_t codes[kUnpacks ? kSliceSteps : 1][kPanels][8][64];
    alignas(64) float scales[L::kWholeRow ? 1 : kSliceSteps][kGroups][kPanels][kPanelRows];
    alignas(64) float offsets[Q::kHasOffset ? kSliceSteps : 1][kGroups][kPanels][kPanelRows];
    alignas(64) float sums[kKeepsSums ? kMostRows : 1][kPanels][kPanelRows];
  };

  const PanelMatrix& w;
  const Int8Rows& x;
  const GemmOutput& out;
  // the panels; missing ones repeat the last
  int index[kPanels] = {};
  const uint8_t* units[kPanels] = {};                // of the slice
  int n_panels = 0;                                  // without repetitions
  int first_step = 0, n_steps = 0;                   // of the slice
  bool is_last = false;                              // whether this is the last slice
  const uint8_t *ahead[2] = {}, *ahead_end[2] = {};  // to prefetch

  [[gnu::always_inline]] static const uint8_t* unit_of(const uint8_t* first, int step) {
    return first + step / L::kSteps * L::kUnitBytes;
  }

  [[gnu::always_inline]] void unpack(int s, const Bytes& table, Slice& slice) const {
#pragma GCC unroll 2
    for (int i = 0; i < kPanels; ++i) {
      const uint8_t* unit = unit_of(units[i], s);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part)
        unpack_step(unit, s, i, part * S::kLanes, table, slice);
    }
  }
  [[gnu::always_inline]] static void unpack_step(const uint8_t* unit, int s, int i, int lane,
                                                 const Bytes& table, Slice& slice) {
    const int step = s % L::kSteps;
    if constexpr (kUnpacks) {
      Bytes codes[8];
      Panel::load_codes(unit, step, lane, table, codes);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) S::store_bytes(slice.codes[s][i][j] + 4 * lane, codes[j]);
    }
    if constexpr (!L::kWholeRow) {
      const auto u = Panel::unit_scales(unit, lane);
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        const int group = kGroups == 2 ? 2 * step + g : L::group_of(step * 32);
        S::store(slice.scales[s][g][i] + lane, Panel::scale(unit, u, group, lane), S::kLanes);
        if constexpr (Q::kHasOffset)
          S::store(slice.offsets[s][g][i] + lane, Panel::offset(unit, u, group, lane), S::kLanes);
      }
    }
  }

  [[gnu::always_inline]] static Floats load(const float* p) {
    return S::load_aligned(reinterpret_cast<const uint8_t*>(p));
  }

  // Integer sums of group G of step s.
  template <int G>
  [[gnu::always_inline]] void dots(const Slice& slice, int s, const int8_t* values,
                                   const ActivationGroup* groups, const ActivationHalves* halves,
                                   Ints (&sum)[kRows][kVectors]) const {
    constexpr int kN = 8 / kGroups;
    Ints pairs[kRows][kVectors];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Ints start = S::template start<L::kBias, L::kMaxCode>(
          kGroups == 2 ? halves[m].negative_sums[G] : groups[m].negative_sum);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[m][v] = start, pairs[m][v] = start;
    }
    const auto add = [&]<int... J>(std::integer_sequence<int, J...>)
                         __attribute__((always_inline)) {
                           (add_column<G, J, kN>(slice, s, values, sum, pairs), ...);
                         };
    add(std::make_integer_sequence<int, kN>());
  }
  template <int G, int J, int N>
  [[gnu::always_inline]] void add_column(const Slice& slice, int s, const int8_t* values,
                                         Ints (&sum)[kRows][kVectors],
                                         Ints (&pairs)[kRows][kVectors]) const {
    constexpr int kLine = G * N + J;
    Bytes codes[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const int i = v / kParts, lane = v % kParts * S::kLanes;
      if constexpr (kUnpacks) {
        codes[v] = S::load(slice.codes[s][i][kLine] + 4 * lane);
      } else {
        codes[v] =
            S::load(unit_of(units[i], s) + s % L::kSteps * L::kStepBytes + 64 * kLine + 4 * lane);
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Ints four = S::splat_int(values + m * 32 + 4 * kLine);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        S::template add_products<L::kMaxCode, J, N>(sum[m][v], pairs[m][v], codes[v], four);
    }
  }

  template <int G>
  [[gnu::always_inline]] void add_group(const Slice& slice, int s, const int8_t* values,
                                        const ActivationGroup* groups,
                                        const ActivationHalves* halves,
                                        Floats (&acc)[kRows][kVectors]) const {
    Ints sum[kRows][kVectors];
    dots<G>(slice, s, values, groups, halves, sum);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Floats xs = S::splat(groups[m].scale);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Floats scale = xs;
        if constexpr (!L::kWholeRow)
          scale = S::mul(load(slice.scales[s][G][0] + v * S::kLanes), xs);
        acc[m][v] = S::fma(S::to_float(sum[m][v]), scale, acc[m][v]);
      }
    }
  }
  template <int G>
  [[gnu::always_inline]] void add_offsets(const Slice& slice, int s, const ActivationGroup* groups,
                                          const ActivationHalves* halves,
                                          Floats (&acc)[kRows][kVectors]) const {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Floats sum = S::splat(kGroups == 2 ? halves[m].scaled_sums[G] : groups[m].scaled_sum);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        acc[m][v] = S::fma(load(slice.offsets[s][G][0] + v * S::kLanes), sum, acc[m][v]);
    }
  }

  // Returns the address of lane 0 of vector v of a row, and the number of its existing lanes.
  float* output(int row, int v) const {
    return out.values + row * out.stride + index[v / kParts] * kPanelRows + v % kParts * S::kLanes;
  }
  int n_valid(int v) const {
    const int n = w.rows - index[v / kParts] * kPanelRows - v % kParts * S::kLanes;
    return v / kParts >= n_panels || n < 0 ? 0 : n;
  }

  // The slice times kRows rows from `row` on (number `at` of those together), of which n exist.
  // Prefetches up to n_lines of both parts of what is ahead.
  void block(Slice& slice, int row, int at, int n, int n_lines) {
    Floats acc[kRows][kVectors];
    int valid[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) valid[v] = n_valid(v);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        acc[m][v] = S::zero();
        if (first_step == 0) continue;
        if constexpr (kKeepsSums) {
          acc[m][v] = load(slice.sums[at + m][0] + v * S::kLanes);
        } else if (m < n && valid[v] > 0) {
          acc[m][v] = S::load_f32(output(row + m, v), valid[v]);
        }
      }
    }
    const int together = x.block_rows;
    const ptrdiff_t first =
        (static_cast<ptrdiff_t>(row / together) * x.n_steps + first_step) * together +
        row % together;
    const int8_t* values = x.values + first * 32;
    const ActivationGroup* groups = x.groups + first;
    [[maybe_unused]] const ActivationHalves* halves = x.halves + first;
    for (int s = 0; s < n_steps;
         ++s, values += 32 * together, groups += together, halves += together) {
      for (int i = 0; i < 2; ++i) {
        for (int l = 0; l < n_lines && ahead[i] < ahead_end[i]; ++l, ahead[i] += 64)
          __builtin_prefetch(ahead[i], 0, 2);
      }
      if constexpr (FetchesActivations<S>) {
        const int ahead_rows = S::kStepsAhead * together;  // rows of activations
        for (int m = 0; m < kRows; m += 2) __builtin_prefetch(values + 32 * (ahead_rows + m));
        __builtin_prefetch(groups + ahead_rows);
        if constexpr (kGroups == 2) __builtin_prefetch(halves + ahead_rows);
      }
      add_group<0>(slice, s, values, groups, halves, acc);
      if constexpr (kGroups == 2) add_group<1>(slice, s, values, groups, halves, acc);
      if constexpr (Q::kHasOffset) {
        add_offsets<0>(slice, s, groups, halves, acc);
        if constexpr (kGroups == 2) add_offsets<1>(slice, s, groups, halves, acc);
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        if (kKeepsSums && !is_last) {
          S::store(slice.sums[at + m][0] + v * S::kLanes, acc[m][v], S::kLanes);
        } else if (m < n && valid[v] > 0) {
          if (is_last) {
            store_output<S>(w, index[v / kParts], v % kParts * S::kLanes, acc[m][v], row + m, out);
          } else {
            S::store(output(row + m, v), acc[m][v], valid[v]);
          }
        }
      }
    }
  }

  // Selects panels from `panel` on and the slice of columns at `step`, and what to
  // prefetch.
  void select(int panel, int end, int step, int next_panel, int next_step) {
    const int all = w.padded_cols / 32;
    first_step = step, n_steps = all - step < kSliceSteps ? all - step : kSliceSteps;
    is_last = step + n_steps == all;
    n_panels = end - panel < kPanels ? end - panel : kPanels;
    for (int i = 0; i < kPanels; ++i) {
      index[i] = panel + (i < n_panels ? i : n_panels - 1);
      units[i] = unit_of(w.data + static_cast<size_t>(index[i]) * w.panel_bytes, step);
    }
    const int n = all - next_step < kSliceSteps ? all - next_step : kSliceSteps;
    for (int i = 0; i < 2; ++i) {
      ahead[i] = ahead_end[i] = nullptr;
      if (i >= kPanels || next_panel + i >= end) continue;
      ahead[i] = unit_of(w.data + static_cast<size_t>(next_panel + i) * w.panel_bytes, next_step);
      ahead_end[i] = unit_of(ahead[i], n);
    }
  }

  // Rows [first, last) times the slice at `step` of the panels from `panel` on, at most [panel,
  // end).
  void multiply(Slice& slice, int panel, int end, int step, int next_panel, int next_step,
                int first, int last) {
    select(panel, end, step, next_panel, next_step);
    const int n_blocks = (last - first + kRows - 1) / kRows;
    const ptrdiff_t lines = (ahead_end[0] - ahead[0]) / 64;
    const int per_step = static_cast<int>(lines / (n_blocks * n_steps)) + 1;
    const Bytes table = Panel::table(w);
    for (int s = 0; s < n_steps; ++s) unpack(s, table, slice);
    for (int row = first; row < last; row += kRows)
      block(slice, row, row - first, last - row < kRows ? last - row : kRows, per_step);
  }

  static void gemm(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
                   const GemmOutput& out) {
    Int8Blocks product{w, x, out};
    Slice slice;
    const int all = w.padded_cols / 32;
    if constexpr (CachesRows<S>) {
      // A slice of as many rows of activations as the second-level cache holds, times all panels.
      for (int step = 0; step < all; step += kSliceSteps) {
        for (int first = 0; first < n_rows; first += S::kCachedRows) {
          const int last = first + S::kCachedRows < n_rows ? first + S::kCachedRows : n_rows;
          for (int panel = begin; panel < end; panel += kPanels) {
            const bool is_end = panel + kPanels >= end;
            const int next_panel = !is_end                    ? panel + kPanels
                                   : step + kSliceSteps < all ? begin
                                                              : end;
            product.multiply(slice, panel, end, step, next_panel,
                             is_end ? step + kSliceSteps : step, first, last);
          }
        }
      }
    } else {
      const int n_chunks = (n_rows + kMostRows - 1) / kMostRows;
      const int chunk = ((n_rows + n_chunks - 1) / n_chunks + kRows - 1) / kRows * kRows;
      for (int first = 0; first < n_rows; first += chunk) {
        const int last = first + chunk < n_rows ? first + chunk : n_rows;
        for (int panel = begin; panel < end; panel += kPanels) {
          for (int step = 0; step < all; step += kSliceSteps) {
            const bool is_end = step + kSliceSteps >= all;
            product.multiply(slice, panel, end, step, is_end ? panel + kPanels : panel,
                             is_end ? 0 : step + kSliceSteps, first, last);
          }
        }
      }
    }
  }
};
