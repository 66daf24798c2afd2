// Products of float panels with float activations, for any Simd S (GemmSimd). Panels:
//   F32, F16, F8: [k][16 rows]; BF16: [k / 2][16 rows][2]; F8Groups: units of F8 and their scales.
// Every output is one chain of fused multiply-adds, in the order of k.

// Completes the sums of kLanes rows of a panel from `lane` on: row scale, bias, and the store of
// existing rows.
template <class S>
[[gnu::always_inline]] inline void store_output(const PanelMatrix& w, int panel, int lane,
                                                typename S::Floats sum, int row,
                                                const GemmOutput& out) {
  const int first = panel * kPanelRows + lane;
  const int n_valid = w.rows - first;
  if (n_valid <= 0) return;
  if (w.row_scales != nullptr) sum = S::mul(sum, S::load_f32(w.row_scales + first, S::kLanes));
  if (out.bias != nullptr) sum = S::add(sum, S::load_f32(out.bias + first, n_valid));
  S::store(out.values + row * out.stride + first, sum, n_valid);
}

template <GemmSimd S, class Q>
struct FloatPanel {
  using Floats = typename S::Floats;
  static constexpr int kParts = kPanelRows / S::kLanes;
  static constexpr bool kF32 = std::is_same_v<Q, quant::F32>,
                        kF8G = std::is_same_v<Q, panel::F8Groups>,
                        kF8 = kF8G || std::is_same_v<Q, panel::F8Row>;
  static constexpr int kColumnBytes = kF32 ? 64 : kF8 ? 16 : 32;

  // Loads two columns of kLanes rows, from `lane` on.
  [[gnu::always_inline]] static void load_pair(const uint8_t* p, int lane, Floats& even,
                                               Floats& odd) {
    if constexpr (kF32) {
      even = S::load_aligned(p + 4 * lane), odd = S::load_aligned(p + 64 + 4 * lane);
    } else if constexpr (kF8) {
      even = S::load_f8(p + lane), odd = S::load_f8(p + 16 + lane);
    } else if constexpr (std::is_same_v<Q, quant::F16>) {
      even = S::load_half(p + 2 * lane), odd = S::load_half(p + 32 + 2 * lane);
    } else {
      S::load_bf16_pairs(p + 4 * lane, even, odd);
    }
  }

  // acc += w[k] x[k] + w[k + 1] x[k + 1], in this order.
  template <int M>
  [[gnu::always_inline]] static void add_pair(const uint8_t* p, int lane, const float* x,
                                              ptrdiff_t stride, const Floats& scale,
                                              Floats (&acc)[M]) {
    Floats even, odd;
    load_pair(p, lane, even, odd);
    if constexpr (kF8G) even = S::mul(even, scale), odd = S::mul(odd, scale);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      acc[m] = S::fma(even, S::splat(x[m * stride]), acc[m]);
      acc[m] = S::fma(odd, S::splat(x[m * stride + 1]), acc[m]);
    }
  }

  template <int M, int P, int PrefetchBytes>
  static void block(const PanelMatrix& w, const FloatRows& x, int row, int panel, int panel_step,
                    const GemmOutput& out) {
    const uint8_t* p[P];
    Floats acc[P][kParts][M], scale[P][kParts];  // scale: F8Groups only
    for (int i = 0; i < P; ++i) {
      p[i] = w.data + static_cast<size_t>(panel + i * panel_step) * w.panel_bytes;
      for (int part = 0; part < kParts; ++part) {
        for (int m = 0; m < M; ++m) acc[i][part][m] = S::zero();
        scale[i][part] = S::zero();
      }
    }
    const float* values = x.values + row * x.stride;
    // Loads the scales of a unit, at its first column.
    const auto start_unit = [&](int k) __attribute__((always_inline)) {
      if (k % panel::F8Groups::kUnitK != 0) return;
      for (int i = 0; i < P; ++i) {
        if (k > 0) p[i] += 64;  // skips the previous unit's scales
        for (int part = 0; part < kParts; ++part)
          scale[i][part] = S::load_aligned(p[i] + panel::F8Groups::kScales + 4 * part * S::kLanes);
      }
    };
    int k = 0;
    for (; k + 2 <= w.cols; k += 2) {
      if constexpr (kF8G) start_unit(k);
#pragma GCC unroll 4
      for (int i = 0; i < P; ++i) {
        if constexpr (PrefetchBytes > 0) {
          __builtin_prefetch(p[i] + PrefetchBytes, 0, 3);
          if constexpr (kColumnBytes == 64) __builtin_prefetch(p[i] + PrefetchBytes + 64, 0, 3);
        }
        for (int part = 0; part < kParts; ++part) {
          add_pair<M>(p[i], part * S::kLanes, values + k, x.stride, scale[i][part], acc[i][part]);
        }
        p[i] += 2 * kColumnBytes;
      }
    }
    if (k < w.cols) {  // an odd last column: the panel is padded with 0, and x must be
      float last[2 * M] = {};
      for (int m = 0; m < M; ++m) last[2 * m] = values[m * x.stride + k];
      if constexpr (kF8G) start_unit(k);
      for (int i = 0; i < P; ++i) {
        for (int part = 0; part < kParts; ++part)
          add_pair<M>(p[i], part * S::kLanes, last, 2, scale[i][part], acc[i][part]);
      }
    }
    for (int i = 0; i < P; ++i) {
      for (int part = 0; part < kParts; ++part) {
        for (int m = 0; m < M; ++m) {
          store_output<S>(w, panel + i * panel_step, part * S::kLanes, acc[i][part][m], row + m,
                          out);
        }
      }
    }
  }

  // Multiplies rows [row, row + M) and columns [begin, end) with one panel, column by column of its
  // 16 rows: each load of x serves the whole panel. Sums of earlier columns are in the output.
  template <int M, int PrefetchBytes>
  static void block_by_column(const PanelMatrix& w, const FloatRows& x, int row, int panel,
                              int begin, int end, const GemmOutput& out) {
    const uint8_t* p = w.data + static_cast<size_t>(panel) * w.panel_bytes;
    p += kF8G ? static_cast<size_t>(begin / panel::F8Groups::kUnitK) * panel::F8Groups::kUnitBytes
              : static_cast<size_t>(begin) * kColumnBytes;
    Floats acc[M][kParts], scale[kParts];  // scale: F8Groups only
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const int n_valid = w.rows - panel * kPanelRows - part * S::kLanes;
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        acc[m][part] = S::zero();
        if (begin > 0 && n_valid > 0)
          acc[m][part] = S::load_f32(output(out, row + m, panel, part), n_valid);
      }
      scale[part] = S::zero();
    }
    const float* values = x.values + row * x.stride;
    const auto start_unit = [&](int k) __attribute__((always_inline)) {
      if (k % panel::F8Groups::kUnitK != 0) return;
      if (k > begin) p += 64;  // skips the previous unit's scales
      for (int part = 0; part < kParts; ++part)
        scale[part] = S::load_aligned(p + panel::F8Groups::kScales + 4 * part * S::kLanes);
    };
    const auto add_column = [&]<bool Odd>(int k) __attribute__((always_inline)) {
      Floats column[kParts];
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        Floats even, odd;
        load_pair(p, part * S::kLanes, even, odd);
        column[part] = Odd ? odd : even;
        if constexpr (kF8G) column[part] = S::mul(column[part], scale[part]);
      }
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const Floats value = S::splat(values[m * x.stride + k]);
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part)
          acc[m][part] = S::fma(column[part], value, acc[m][part]);
      }
    };
    int k = begin;
    for (; k + 2 <= end; k += 2) {
      if constexpr (kF8G) start_unit(k);
      if constexpr (PrefetchBytes > 0) {
        __builtin_prefetch(p + PrefetchBytes, 0, 3);
        if constexpr (kColumnBytes == 64) __builtin_prefetch(p + PrefetchBytes + 64, 0, 3);
      }
      add_column.template operator()<false>(k);
      add_column.template operator()<true>(k + 1);
      p += 2 * kColumnBytes;
    }
    if (k < end) {  // an odd last column
      if constexpr (kF8G) start_unit(k);
      add_column.template operator()<false>(k);
    }
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const int n_valid = w.rows - panel * kPanelRows - part * S::kLanes;
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        if (end == w.cols) {
          store_output<S>(w, panel, part * S::kLanes, acc[m][part], row + m, out);
        } else if (n_valid > 0) {
          S::store(output(out, row + m, panel, part), acc[m][part], n_valid);
        }
      }
    }
  }
  static float* output(const GemmOutput& out, int row, int panel, int part) {
    return out.values + row * out.stride + panel * kPanelRows + part * S::kLanes;
  }

  // Any number of rows in blocks of up to five, whose accumulators and operands fit 16 registers.
  // For many rows: columns of a panel that the first-level cache holds, times rows that the
  // second-level cache holds. Only the first block loads from memory.
  template <int Block, int PrefetchBytes>
  static void gemm_by_column(const PanelMatrix& w, const FloatRows& x, int n_rows, int first_panel,
                             int last_panel, const GemmOutput& out) {
    static_assert(Block == 5);
    constexpr int kColumns = 16384 / kColumnBytes,
                  kRows = (192 << 10) / 4 / kColumns / Block * Block;
    const int columns = n_rows <= 16 ? w.cols : kColumns;
    for (int begin = 0; begin < w.cols; begin += columns) {
      const int end = begin + columns < w.cols ? begin + columns : w.cols;
      for (int first = 0; first < n_rows; first += kRows) {
        const int last = first + kRows < n_rows ? first + kRows : n_rows;
        for (int panel = first_panel; panel < last_panel; ++panel) {
          int row = first;
          const auto block = [&]<int M>() __attribute__((always_inline)) {
            if (row == first) {
              block_by_column<M, PrefetchBytes>(w, x, row, panel, begin, end, out);
            } else {
              block_by_column<M, 0>(w, x, row, panel, begin, end, out);
            }
            row += M;
          };
          while (row < last) {
            const int left = last - row;
            switch (left > 8 || left == 5 ? 5 : left > 5 ? (left + 1) / 2 : left) {
              case 5: block.template operator()<5>(); break;
              case 4: block.template operator()<4>(); break;
              case 3: block.template operator()<3>(); break;
              case 2: block.template operator()<2>(); break;
              default: block.template operator()<1>(); break;
            }
          }
        }
      }
    }
  }

  // Rows [row, row + M) times all panels, P adjacent panels at a time.
  template <int M, int P, int PrefetchBytes>
  static void sweep(const PanelMatrix& w, const FloatRows& x, int row, int begin, int end,
                    const GemmOutput& out) {
    int panel = begin;
    for (; panel + P <= end; panel += P) block<M, P, PrefetchBytes>(w, x, row, panel, 1, out);
    for (; panel < end; ++panel) block<M, 1, PrefetchBytes>(w, x, row, panel, 1, out);
  }

  // Any number of rows in blocks of R, as many at once as the second-level cache holds, times P
  // panels. Blocks of 8 are followed by one of 4, and the rest by single rows.
  template <int R, int P>
  static void blocks(const PanelMatrix& w, const FloatRows& x, int n_rows, int begin, int end,
                     const GemmOutput& out) {
    const int chunk = (128 << 10) / w.cols < 32 ? 32 : (128 << 10) / w.cols / 32 * 32;
    for (int first = 0; first < n_rows; first += chunk) {
      const int last = first + chunk < n_rows ? first + chunk : n_rows;
      for (int panel = begin; panel < end; panel += P) {
        const int panel_end = panel + P < end ? panel + P : end;
        int row = first;
        for (; row + R <= last; row += R) sweep<R, P, 0>(w, x, row, panel, panel_end, out);
        if constexpr (R > 4) {
          for (; row + 4 <= last; row += 4) sweep<4, P, 0>(w, x, row, panel, panel_end, out);
        }
        for (; row < last; ++row) sweep<1, P, 0>(w, x, row, panel, panel_end, out);
      }
    }
  }

  template <GemmPlan Plan>
  static void gemm(const PanelMatrix& w, const FloatRows& x, int n_rows, int begin, int end,
                   const GemmOutput& out) {
    static_assert(Plan.prefetch.ahead >= 0 && Plan.prefetch.level == 1);
    static_assert(Plan.strategy == GemmStrategy::kColumns ||
                  (Plan.block <= S::kMaxRows && Plan.panels <= S::kStreams));
    if constexpr (Plan.strategy == GemmStrategy::kStreams) {
      sweep<Plan.block, Plan.panels, Plan.prefetch.ahead>(w, x, 0, begin, end, out);
    } else if constexpr (Plan.strategy == GemmStrategy::kColumns) {
      gemm_by_column<Plan.block, Plan.prefetch.ahead>(w, x, n_rows, begin, end, out);
    } else {
      static_assert(Plan.strategy == GemmStrategy::kBlocks);
      blocks<Plan.block, Plan.panels>(w, x, n_rows, begin, end, out);
    }
  }

  // Rows [row, row + M) times kLanes rows of a panel: column k adds to accumulator k % 4, and the
  // accumulators are added at the end.
  template <int M>
  static void block_of_chains(const PanelMatrix& w, const FloatRows& x, int row, int panel,
                              int lane, const GemmOutput& out) {
    const uint8_t* p = w.data + static_cast<size_t>(panel) * w.panel_bytes;
    const float* values = x.values + row * x.stride;
    Floats acc[4][M], even, odd;
    for (auto& chain : acc) {
      for (Floats& sum : chain) sum = S::zero();
    }
    const auto add_columns = [&](const float* from, ptrdiff_t stride, Floats(&even_sums)[M],
                                 Floats(&odd_sums)[M]) __attribute__((always_inline)) {
      load_pair(p, lane, even, odd);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        even_sums[m] = S::fma(even, S::splat(from[m * stride]), even_sums[m]);
        odd_sums[m] = S::fma(odd, S::splat(from[m * stride + 1]), odd_sums[m]);
      }
      p += 2 * kColumnBytes;
    };
    int k = 0;
    for (; k + 4 <= w.cols; k += 4) {
      __builtin_prefetch(p + 2048, 0, 3);
      if constexpr (kColumnBytes == 64) __builtin_prefetch(p + 2048 + 64, 0, 3);
      add_columns(values + k, x.stride, acc[0], acc[1]);
      add_columns(values + k + 2, x.stride, acc[2], acc[3]);
    }
    // an odd last column: the panel is padded with 0, and x must be
    for (; k < w.cols; k += 2) {
      float last[2 * M] = {};
      for (int m = 0; m < M; ++m) {
        last[2 * m] = values[m * x.stride + k];
        if (k + 1 < w.cols) last[2 * m + 1] = values[m * x.stride + k + 1];
      }
      add_columns(last, 2, acc[0], acc[1]);
    }
    for (int m = 0; m < M; ++m) {
      const Floats sum = S::add(S::add(acc[0][m], acc[1][m]), S::add(acc[2][m], acc[3][m]));
      store_output<S>(w, panel, lane, sum, row + m, out);
    }
  }

  static void chains_gemm(const PanelMatrix& w, const FloatRows& x, int n_rows, int begin, int end,
                          const GemmOutput& out) {
    constexpr int kBlock = S::kMaxRows > 8 ? 4 : 2;
    for (int panel = begin; panel < end; ++panel) {
      for (int lane = 0; lane < kPanelRows; lane += S::kLanes) {
        int row = 0;
        for (; row + kBlock <= n_rows; row += kBlock)
          block_of_chains<kBlock>(w, x, row, panel, lane, out);
        if constexpr (kBlock > 2) {
          for (; row + 2 <= n_rows; row += 2) block_of_chains<2>(w, x, row, panel, lane, out);
        }
        for (; row < n_rows; ++row) block_of_chains<1>(w, x, row, panel, lane, out);
      }
    }
  }
};
