// Products of integer-coded panels with int8 activations, for any Simd S (GemmSimd). Include inside
// an anonymous namespace.

// GemmPlan::prefetch for one layout. ahead: bytes, 0: no prefetch. cache: locality argument of
// __builtin_prefetch: 2 is the second-level cache, 3 the first.
struct Fetch {
  int ahead, cache;
  bool one_stream;  // GemmWhere::kOneStream
  constexpr Fetch(int ahead, int cache = 2, bool one_stream = false)
      : ahead(ahead), cache(cache), one_stream(one_stream) {}
};

template <class S, class Q>
struct Int8Blocks;
template <class S, class Q>
struct Int8Columns;

template <GemmSimd S, class Q>
struct Int8Panel {
  using L = PanelLayout<Q>;
  using Bytes = typename S::Bytes;
  using Ints = typename S::Ints;
  using Floats = typename S::Floats;

  // Loads the eight dword vectors of a step, for the vector's rows.
  [[gnu::always_inline]] static void load_codes(const uint8_t* unit, int step, int lane,
                                                const Bytes& table, Bytes (&w)[8]) {
    const uint8_t* line = unit + step * L::kStepBytes + 4 * lane;
    if constexpr (L::kGrid) {
      load_points(unit, step, lane, w);
      if constexpr (L::kSigns) add_bit<Q::kSignBit>(line + 64 * L::kIndexLines, w);
    } else {
      load_planes(line, w);
    }
    if constexpr (Q::kIsCodebook) {
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) w[j] = S::lookup(w[j], table);
    }
  }

  // Loads codes of bit planes. `line`: first plane of the step, at the vector's rows. Codes of a
  // codebook may have anything in their upper nibbles if lookups ignore it.
  [[gnu::always_inline]] static void load_planes(const uint8_t* line, Bytes (&w)[8]) {
    if constexpr (Q::kBits == 8) {
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) w[j] = S::load(line + 64 * j);
    } else if constexpr (Q::kBits >= 4) {
      const Bytes mask = S::splat_byte(0x0f);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Bytes v = S::load(line + 64 * j);
        w[2 * j] = Q::kIsCodebook && S::kLookupMasks ? v : S::bit_and(v, mask);
        w[2 * j + 1] = S::template shift_right<4>(v);
        if constexpr (!(Q::kIsCodebook && S::kLookupMasks))
          w[2 * j + 1] = S::bit_and(w[2 * j + 1], mask);
      }
    } else if constexpr (Q::kBits == 1) {
      load_bits(line, w);
    } else {
      load_crumbs(line, w);
    }
    if constexpr (Q::kBits == 3) add_bit<2>(line + 128, w);
    if constexpr (Q::kBits == 5) add_bit<4>(line + 256, w);
    if constexpr (Q::kBits == 6) add_crumbs(line + 256, w);
  }

  // Loads the codes of a step's points, without signs.
  [[gnu::always_inline]] static void load_points(const uint8_t* unit, int step, int lane,
                                                 Bytes (&w)[8]) {
    constexpr int kColumns = Q::kColumns, kBits = L::kHighBits;
    const uint8_t* line = unit + step * L::kStepBytes + 4 * lane;
    Bytes high = S::splat_byte(0);
    if constexpr (kBits > 0) {
      const int bit = step * (32 / kColumns) * kBits;
      high = S::word_right(S::load(unit + L::kHigh + bit / 32 * 64 + 4 * lane), bit % 32);
    }
    if constexpr (S::template kHasPoints<Q>) {
      S::template points<Q>(line, high, w);
    } else {
      const auto load_four = [&]<int Line, int... C>(std::integer_sequence<int, C...>) {
        const Bytes low = S::load(line + 64 * Line);
        (look_up<4 * Line + C>(S::bit_and(S::template word_right<8 * C>(low), S::splat_word(255)),
                               high, w),
         ...);
      };
      load_four.template operator()<0>(std::make_integer_sequence<int, 4>());
      if constexpr (kColumns == 4)
        load_four.template operator()<1>(std::make_integer_sequence<int, 4>());
    }
  }
  // Looks up point I of a step. index: lower bits of the point's index.
  template <int I>
  [[gnu::always_inline]] static void look_up(Bytes index, const Bytes& high, Bytes (&w)[8]) {
    constexpr int kBits = L::kHighBits, kAt = I * kBits;
    if constexpr (kBits > 0) {
      const Bytes mask = S::splat_word(((1 << kBits) - 1) << 8);
      if constexpr (kAt < 8) {
        index = S::or_and(index, S::template word_left<8 - kAt>(high), mask);
      } else {
        index = S::or_and(index, S::template word_right<kAt - 8>(high), mask);
      }
    }
    const Bytes point = S::gather(Q::kGrid.points, index);
    if constexpr (Q::kColumns == 8) {
      const Bytes mask = S::splat_byte(0x0f);
      w[2 * I] = S::kLookupMasks ? point : S::bit_and(point, mask);
      w[2 * I + 1] = S::template shift_right<4>(point);
      if constexpr (!S::kLookupMasks) w[2 * I + 1] = S::bit_and(w[2 * I + 1], mask);
    } else {
      w[I] = point;
    }
  }

  // Loads codes of one bit, times two.
  [[gnu::always_inline]] static void load_bits(const uint8_t* line, Bytes (&w)[8]) {
    const Bytes v = S::load(line), mask = S::splat_byte(2);
    w[0] = S::bit_and(move_bit<0, 1>(v), mask);
    w[1] = S::bit_and(move_bit<1, 1>(v), mask);
    w[2] = S::bit_and(move_bit<2, 1>(v), mask);
    w[3] = S::bit_and(move_bit<3, 1>(v), mask);
    w[4] = S::bit_and(move_bit<4, 1>(v), mask);
    w[5] = S::bit_and(move_bit<5, 1>(v), mask);
    w[6] = S::bit_and(move_bit<6, 1>(v), mask);
    w[7] = S::bit_and(move_bit<7, 1>(v), mask);
  }

  [[gnu::always_inline]] static void load_crumbs(const uint8_t* line, Bytes (&w)[8]) {
    const Bytes mask = S::splat_byte(3);
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      const Bytes v = S::load(line + 64 * c);
      w[4 * c] = S::bit_and(v, mask);
      w[4 * c + 1] = S::bit_and(S::template shift_right<2>(v), mask);
      w[4 * c + 2] = S::bit_and(S::template shift_right<4>(v), mask);
      w[4 * c + 3] = S::bit_and(S::template shift_right<6>(v), mask);
    }
  }
  // Adds bits 4 and 5 of codes of six bits.
  [[gnu::always_inline]] static void add_crumbs(const uint8_t* line, Bytes (&w)[8]) {
    const Bytes mask = S::splat_byte(0x30);
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      const Bytes v = S::load(line + 64 * c);
      w[4 * c] = S::or_and(w[4 * c], S::template shift_left<4>(v), mask);
      w[4 * c + 1] = S::or_and(w[4 * c + 1], S::template shift_left<2>(v), mask);
      w[4 * c + 2] = S::or_and(w[4 * c + 2], v, mask);
      w[4 * c + 3] = S::or_and(w[4 * c + 3], S::template shift_right<2>(v), mask);
    }
  }
  template <int Bit>
  [[gnu::always_inline]] static void add_bit(const uint8_t* line, Bytes (&w)[8]) {
    const Bytes v = S::load(line), mask = S::splat_byte(1 << Bit);
    w[0] = S::or_and(w[0], move_bit<0, Bit>(v), mask);
    w[1] = S::or_and(w[1], move_bit<1, Bit>(v), mask);
    w[2] = S::or_and(w[2], move_bit<2, Bit>(v), mask);
    w[3] = S::or_and(w[3], move_bit<3, Bit>(v), mask);
    w[4] = S::or_and(w[4], move_bit<4, Bit>(v), mask);
    w[5] = S::or_and(w[5], move_bit<5, Bit>(v), mask);
    w[6] = S::or_and(w[6], move_bit<6, Bit>(v), mask);
    w[7] = S::or_and(w[7], move_bit<7, Bit>(v), mask);
  }
  template <int From, int To>
  [[gnu::always_inline]] static Bytes move_bit(const Bytes& v) {
    if constexpr (From < To) {
      return S::template shift_left<To - From>(v);
    } else if constexpr (From > To) {
      return S::template shift_right<From - To>(v);
    } else {
      return v;
    }
  }

  [[gnu::always_inline]] static Bytes table(const PanelMatrix& w) {
    if constexpr (panel::OwnLevels<Q>) {
      return S::load_table(w.levels);
    } else if constexpr (Q::kIsCodebook) {
      alignas(16) uint8_t levels[16];
      for (int i = 0; i < 16; ++i) levels[i] = static_cast<uint8_t>(Q::level(i) + L::kBias);
      return S::load_table(levels);
    } else {
      return S::splat_byte(0);
    }
  }

  // Super-scale (and min) of a unit for the vector's rows; `lane` is its first
  // row.
  struct UnitScales {
    Floats scale, min;  // odd sub-scales: scale, and twice the scale
  };
  [[gnu::always_inline]] static UnitScales unit_scales(const uint8_t* unit, int lane) {
    UnitScales u{S::zero(), S::zero()};
    if constexpr (Q::kHasSuperScales) {
      u.scale = S::load_half(unit + L::kSuper + 2 * lane);
      if constexpr (L::kGrid) u.min = S::add(u.scale, u.scale);
      if constexpr (Q::kHasOffset)
        u.min = S::negate(S::load_half(unit + L::kSuper + 32 + 2 * lane));
    }
    return u;
  }
  [[gnu::always_inline]] static Floats scale(const uint8_t* unit, const UnitScales& u, int group,
                                             int lane) {
    if constexpr (L::kWholeRow) {
      return S::splat(1.0f);
    } else if constexpr (L::kGrid) {
      const Floats n = S::load_nibbles(unit + L::kScales + group / 2 * 16 + lane, group % 2 * 4);
      return S::fma(n, u.min, u.scale);
    } else if constexpr (panel::F8Scales<Q>) {
      return S::load_f8(unit + L::kScales + 16 * group + lane);
    } else if constexpr (!Q::kHasSuperScales) {
      return S::load_half(unit + L::kScales + 32 * group + 2 * lane);
    } else if constexpr (L::kPackedMins) {
      return S::mul(S::load_nibbles(unit + L::kScales + 16 * group + lane, 0), u.scale);
    } else {
      return S::mul(S::load_i8(unit + L::kScales + 16 * group + lane), u.scale);
    }
  }
  [[gnu::always_inline]] static Floats offset(const uint8_t* unit, const UnitScales& u, int group,
                                              int lane) {
    if constexpr (L::kZeros) {
      const Floats zero = S::load_i8(unit + L::kOffsets + 16 * group + lane);
      return S::negate(S::mul(zero, scale(unit, u, group, lane)));
    } else if constexpr (!Q::kHasSuperScales) {
      return S::load_half(unit + L::kOffsets + 32 * group + 2 * lane);
    } else if constexpr (L::kPackedMins) {
      return S::mul(S::load_nibbles(unit + L::kScales + 16 * group + lane, 4), u.min);
    } else {
      return S::mul(S::load_i8(unit + L::kOffsets + 16 * group + lane), u.min);
    }
  }

  // Sum over 4 N columns, for one of M rows.
  template <int N, int M, Fetch F>
  [[gnu::always_inline]] static Ints dot(const Bytes* w, const int8_t* x,
                                         const int32_t& negative_sum) {
    // measurements: bench/notes/2026-11-kernels.md
    constexpr bool kShuffling = Q::kBits == 8 ? M >= 3 && M < 8 : M >= 2;
    if constexpr (N == 8 && kShuffling && !Q::kIsCodebook && F.one_stream &&
                  ShufflesActivations<S>) {
      return S::template shuffled_dot < L::kBias,
             Q::kBits == 8 ? 4 : 2 > (w, x, negative_sum);  // unpacking needs shifts
    } else {
      return S::template dot<L::kBias, L::kMaxCode, N, (M >= 8)>(w, x, negative_sum);
    }
  }

  // Adds one step of the vector's rows to the accumulators of M rows of activations. x, groups: of
  // the step.
  template <int M, Fetch F>
  [[gnu::always_inline]] static void add_step(const uint8_t* unit, int step, int lane,
                                              const Bytes& table, const int8_t* x,
                                              const ActivationGroup* groups,
                                              const ActivationHalves* halves, Floats (&acc)[M]) {
    constexpr int kLines = (L::kUnitBytes / 64 + L::kSteps - 1) / L::kSteps;
    const UnitScales u = unit_scales(unit, lane);
    if constexpr (F.ahead > 0) {
      for (int l = 0; l < kLines; ++l) {
        __builtin_prefetch(unit + F.ahead + (step * kLines + l) * 64, 0, F.cache);
      }
    }
    Bytes w[8];
    load_codes(unit, step, lane, table, w);
    if constexpr (Q::kGroupSize == 16) {
      const Floats s0 = scale(unit, u, 2 * step, lane), s1 = scale(unit, u, 2 * step + 1, lane);
      Floats o0 = S::zero(), o1 = S::zero();
      if constexpr (Q::kHasOffset)
        o0 = offset(unit, u, 2 * step, lane), o1 = offset(unit, u, 2 * step + 1, lane);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const int8_t* xm = x + m * 32;
        const ActivationGroup& g = groups[m];
        const Floats xs = S::splat(g.scale);
        const Ints d0 = dot<4, M, F>(w, xm, halves[m].negative_sums[0]);
        const Ints d1 = dot<4, M, F>(w + 4, xm + 16, halves[m].negative_sums[1]);
        acc[m] = S::fma(S::to_float(d0), S::mul(s0, xs), acc[m]);
        acc[m] = S::fma(S::to_float(d1), S::mul(s1, xs), acc[m]);
        if constexpr (Q::kHasOffset) {
          acc[m] = S::fma(o0, S::splat(halves[m].scaled_sums[0]), acc[m]);
          acc[m] = S::fma(o1, S::splat(halves[m].scaled_sums[1]), acc[m]);
        }
      }
    } else {
      const int group = L::group_of(step * 32);
      const Floats s = scale(unit, u, group, lane);
      Floats o = S::zero();
      if constexpr (Q::kHasOffset) o = offset(unit, u, group, lane);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const int8_t* xm = x + m * 32;
        const ActivationGroup& g = groups[m];
        const Ints d = dot<8, M, F>(w, xm, g.negative_sum);
        const Floats xs = S::splat(g.scale);
        acc[m] = S::fma(S::to_float(d), L::kWholeRow ? xs : S::mul(s, xs), acc[m]);
        if constexpr (Q::kHasOffset) acc[m] = S::fma(o, S::splat(g.scaled_sum), acc[m]);
      }
    }
  }

  static constexpr bool kColumnsFirst = ColumnsFirst<S>;

  // As above with integer accumulators: neither weights nor activations have scales inside a row.
  template <int M, Fetch F>
  [[gnu::always_inline]] static void add_step(const uint8_t* unit, int step, int lane,
                                              const Bytes& table, const int8_t* x,
                                              const ActivationGroup* groups,
                                              const ActivationHalves*, Ints (&acc)[M]) {
    if constexpr (F.ahead > 0) {
      for (int l = 0; l < Q::kBits; ++l)
        __builtin_prefetch(unit + F.ahead + step * L::kStepBytes + l * 64, 0, F.cache);
    }
    Bytes w[8];
    load_codes(unit, step, lane, table, w);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      acc[m] = S::add_int(acc[m], dot<8, M, F>(w, x + m * 32, groups[m].negative_sum));
    }
  }

  template <bool Whole>
  [[gnu::always_inline]] static auto fresh_sum() {
    if constexpr (Whole) {
      return S::zero_int();
    } else {
      return S::zero();
    }
  }

  // M rows of activations from `row` on (a part of one of x's blocks) times P panels, `panel_step`
  // apart (missing ones repeat the last), that advance together: several streams hide more of the
  // memory's latency than one. Whole: nothing has scales inside a row, and accumulators are
  // integers.
  template <bool Whole, int M, int P, Fetch F>
  static void block(const PanelMatrix& w, const Int8Rows& x, int row, int n_rows, int panel,
                    int panel_step, int last, const GemmOutput& out) {
    constexpr int kParts = kPanelRows / S::kLanes;
    const int n_units = w.padded_cols / L::kUnitK;
    const Bytes codebook = table(w);
    const uint8_t* unit[P];
    int index[P];
    decltype(fresh_sum<Whole>()) acc[P][kParts][M];
    for (int i = 0; i < P; ++i) {
      index[i] = panel + i * panel_step < last ? panel + i * panel_step : last;
      unit[i] = w.data + static_cast<size_t>(index[i]) * w.panel_bytes;
      for (int part = 0; part < kParts; ++part) {
        for (int m = 0; m < M; ++m) acc[i][part][m] = fresh_sum<Whole>();
      }
    }
    // Plans that prefetch have whole blocks, except for 12 of 16 rows and for 3 or 4 of more. Parts
    // of blocks of all sizes share their code.
    const int rows =
        F.ahead > 0 && int8_block_rows(M) == M && !(kColumnsFirst && M == 4) ? M : x.block_rows;
    const ptrdiff_t first = static_cast<ptrdiff_t>(row / rows) * x.n_steps * rows + row % rows;
    const int8_t* values = x.values + first * 32;
    const ActivationGroup* groups = x.groups + first;
    [[maybe_unused]] const ActivationHalves* halves = x.halves + first;
    for (int u = 0; u < n_units; ++u) {
#pragma GCC unroll 1
      for (int step = 0; step < L::kSteps;
           ++step, values += 32 * rows, groups += rows, halves += rows) {
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i) {
          if constexpr (!Whole && !L::kGrid && M >= 2 && M <= 4 && kColumnsFirst) {
            Int8Columns<S, Q>::template add_step<M, F>(unit[i], step, codebook, values, groups,
                                                       halves, acc[i]);
          } else {
            add_step<M, F>(unit[i], step, 0, codebook, values, groups, halves, acc[i][0]);
#pragma GCC unroll 4
            for (int part = 1; part < kParts; ++part)
              add_step<M, 0>(unit[i], step, part * S::kLanes, codebook, values, groups, halves,
                             acc[i][part]);
          }
        }
      }
      for (int i = 0; i < P; ++i) unit[i] += L::kUnitBytes;
    }
    for (int i = 0; i < P; ++i) {
      for (int part = 0; part < kParts; ++part) {
        for (int m = 0; m < M && row + m < n_rows; ++m) {
          Floats sum;
          if constexpr (Whole) {
            sum = S::mul(S::to_float(acc[i][part][m]), S::splat(x.groups[first + m].scale));
          } else {
            sum = acc[i][part][m];
          }
          store_output<S>(w, index[i], part * S::kLanes, sum, row + m, out);
        }
      }
    }
  }

  // One block of R rows, times P panels far apart that advance together.
  template <bool Whole, int R, int P, Fetch F>
  static void streams(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
                      const GemmOutput& out) {
    const int n = (end - begin + P - 1) / P;
    for (int p = 0; p < n; ++p) block<Whole, R, P, F>(w, x, 0, n_rows, begin + p, n, end - 1, out);
  }

  // Any number of rows in blocks of R, one panel at a time.
  template <bool Whole, int R>
  static void blocks(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
                     const GemmOutput& out) {
    // Rows of activations that fit the second-level cache beside a panel: whole blocks of Int8Rows.
    const int fitting = (512 << 10) / w.padded_cols / 16 * 16, chunk = fitting < 64 ? 64 : fitting;
    for (int first = 0; first < n_rows; first += chunk) {
      const int last = first + chunk < n_rows ? first + chunk : n_rows;
      for (int panel = begin; panel < end; ++panel) {
        for (int row = first; row < last; row += R)
          block<Whole, R, 1, 0>(w, x, row, n_rows, panel, 0, panel, out);
      }
    }
  }

  // Any number of rows in blocks of R while a panel is in the first-level caches: each block
  // unpacks the codes again, to registers. Only the first block loads from memory. The last block
  // has as many groups of four rows as are left.
  template <int R, Fetch F>
  static void by_panel(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
                       const GemmOutput& out) {
    constexpr int kLeast = R % 4 == 0 ? 4 : R;
    for (int panel = begin; panel < end; ++panel) {
      block<false, R, 1, F>(w, x, 0, n_rows, panel, 0, panel, out);
      int row = R;
      for (; row + (R - kLeast) < n_rows; row += R)
        block<false, R, 1, 0>(w, x, row, n_rows, panel, 0, panel, out);
      if constexpr (R == 16) {
        switch ((n_rows - row + 3) / 4) {
          case 3: block<false, 12, 1, 0>(w, x, row, n_rows, panel, 0, panel, out); break;
          case 2: block<false, 8, 1, 0>(w, x, row, n_rows, panel, 0, panel, out); break;
          case 1: block<false, 4, 1, 0>(w, x, row, n_rows, panel, 0, panel, out); break;
          default: break;
        }
      } else {
        static_assert(R == kLeast);
      }
    }
  }

  // Multiplies as the plan says. Whole: neither weights nor activations have scales inside a row.
  template <GemmPlan Plan, bool Whole>
  static void rows(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
                   const GemmOutput& out) {
    constexpr Fetch kFetch = {Plan.prefetch.bytes(L::kUnitBytes, L::kStepBytes),
                              Plan.prefetch.level == 1 ? 3 : 2,
                              Plan.where == GemmWhere::kOneStream};
    constexpr int kBlock = Plan.block;
    static_assert(kBlock <= S::kMaxRows && Plan.panels <= S::kStreams);
    if constexpr (Plan.strategy == GemmStrategy::kStreams) {
      streams<Whole, kBlock, Plan.panels, kFetch>(w, x, n_rows, begin, end, out);
    } else if constexpr (Plan.strategy == GemmStrategy::kPanel) {
      static_assert(!Whole);
      by_panel<kBlock, kFetch>(w, x, n_rows, begin, end, out);
    } else if constexpr (Plan.strategy == GemmStrategy::kUnpacked) {
      static_assert(!Whole && kBlock == S::kBlockRows && Plan.panels == S::kBlockPanels);
      Int8Blocks<S, Q>::gemm(w, x, n_rows, begin, end, out);
    } else {
      static_assert(Plan.strategy == GemmStrategy::kBlocks);
      blocks<Whole, kBlock>(w, x, n_rows, begin, end, out);
    }
  }

  template <GemmPlan Plan>
  static void gemm(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
                   const GemmOutput& out) {
    constexpr bool kScaled = Plan.multiplies(panel_kind_of<Q>(false));
    if constexpr (L::kWholeRow && Plan.multiplies(panel_kind_of<Q>(true))) {
      if (!kScaled || x.one_scale) return rows<Plan, true>(w, x, n_rows, begin, end, out);
    }
    if constexpr (kScaled) rows<Plan, false>(w, x, n_rows, begin, end, out);
  }
};

#include "kernels/generic/int8_blocks.inl"
#include "kernels/generic/int8_columns.inl"

// Eight bytes at a time: made unsigned, added in pairs, and the pairs by one multiplication.
[[gnu::always_inline]] inline int sum_of_16(const int8_t* values) {
  uint64_t pairs = 0;
  for (int half = 0; half < 2; ++half) {
    uint64_t bytes;
    __builtin_memcpy(&bytes, values + 8 * half, sizeof bytes);
    bytes ^= 0x8080808080808080u;
    pairs += (bytes & 0x00ff00ff00ff00ffu) + (bytes >> 8 & 0x00ff00ff00ff00ffu);
  }
  return static_cast<int>(pairs * 0x0001000100010001u >> 48) - 16 * 128;
}

// Quantizes one row of activations; see GemmKernels::quantize_row.
template <GemmSimd S>
void quantize_activations(const float* x, int cols, int padded_cols,
                          const ActivationRounding& rounding, int block_rows, int8_t* values,
                          ActivationGroup* groups, ActivationHalves* halves) {
  using Floats = typename S::Floats;
  constexpr int kVectors = 32 / S::kLanes;
  constexpr int kAhead = 256;  // distance of prefetches in floats
  const auto load = [&](int k, Floats(&v)[kVectors]) {
    for (int i = 0; i < 2 && k < cols; ++i) __builtin_prefetch(x + k + kAhead + 16 * i);
    for (int i = 0; i < kVectors; ++i) {
      const int n = cols - k - i * S::kLanes;
      v[i] = n > 0 ? S::load_f32(x + k + i * S::kLanes, n) : S::zero();
    }
  };
  const auto largest = [](const Floats(&v)[kVectors]) {
    Floats m = S::zero();
    for (int i = 0; i < kVectors; ++i) m = S::abs_max(m, v[i]);
    return S::max_of(m);
  };
  const bool one_scale = rounding.one_scale();
  float row_max = rounding.fixed_scale * 127.0f;
  if (rounding.kind == ActivationRounding::Kind::kPerRow) {
    row_max = 0;
    for (int k = 0; k < cols; k += 32) {
      Floats v[kVectors];
      load(k, v);
      const float m = largest(v);
      row_max = m > row_max ? m : row_max;
    }
  }
  for (int k = 0; k < padded_cols; k += 32) {
    Floats v[kVectors];
    load(k, v);
    const float top = one_scale ? row_max : largest(v);
    // A reciprocal of so small a scale would overflow: the group becomes zero.
    const float inverse = top > 1e-30f ? 127.0f / top : 0.0f;
    for (int i = 0; i < kVectors; ++i)
      S::store_rounded(values + i * S::kLanes, S::clamp(S::mul(v[i], S::splat(inverse)), 127.0f));
    const int sums[2] = {sum_of_16(values), sum_of_16(values + 16)};
    ActivationGroup& g = *groups;
    g.scale = inverse > 0 ? top / 127.0f : 0.0f;
    g.scaled_sum = g.scale * static_cast<float>(sums[0] + sums[1]);
    g.negative_sum = -(sums[0] + sums[1]);
    for (int h = 0; h < 2; ++h) {
      halves->negative_sums[h] = -sums[h];
      halves->scaled_sums[h] = g.scale * static_cast<float>(sums[h]);
    }
    values += 32 * block_rows, groups += block_rows, halves += block_rows;
  }
}
