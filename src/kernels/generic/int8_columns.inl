// Products of two to four rows with integer-coded panels, if 16 registers cannot hold a step of
// codes beside the accumulators; for any Simd S (ColumnsFirst). Included by int8_gemm.inl.

template <class S, class Q>
struct Int8Columns {
  using Panel = Int8Panel<S, Q>;
  using L = PanelLayout<Q>;
  using Bytes = typename S::Bytes;
  using Ints = typename S::Ints;
  using Floats = typename S::Floats;

  // Loads dword vector J of a step; see load_codes(). REQUIRES: the panel has no grid.
  template <int J>
  [[gnu::always_inline]] static Bytes load_column(const uint8_t* line, const Bytes& table) {
    Bytes w;
    if constexpr (Q::kBits == 8) {
      w = S::load(line + 64 * J);
    } else if constexpr (Q::kBits >= 4) {
      w = S::bit_and(Panel::template move_bit<J % 2 * 4, 0>(S::load(line + J / 2 * 64)),
                     S::splat_byte(0x0f));
    } else if constexpr (Q::kBits == 1) {
      w = S::bit_and(Panel::template move_bit<J, 1>(S::load(line)), S::splat_byte(2));
    } else {
      w = S::bit_and(Panel::template move_bit<J % 4 * 2, 0>(S::load(line + J / 4 * 64)),
                     S::splat_byte(3));
    }
    if constexpr (Q::kBits == 3)
      w = S::or_and(w, Panel::template move_bit<J, 2>(S::load(line + 128)), S::splat_byte(1 << 2));
    if constexpr (Q::kBits == 5)
      w = S::or_and(w, Panel::template move_bit<J, 4>(S::load(line + 256)), S::splat_byte(1 << 4));
    if constexpr (Q::kBits == 6)
      w = S::or_and(w, Panel::template move_bit<J % 4 * 2, 4>(S::load(line + 256 + J / 4 * 64)),
                    S::splat_byte(0x30));
    if constexpr (Q::kIsCodebook) w = S::lookup(w, table);
    return w;
  }

  // As Panel::add_step(), for all rows of the panel: every load of four activations is multiplied
  // with one column of codes at a time, so that the accumulators of four rows fit 16 registers. For
  // a single row this would read memory more slowly.
  template <int M, Fetch F>
  [[gnu::always_inline]] static void add_step(const uint8_t* unit, int step, const Bytes& table,
                                              const int8_t* x, const ActivationGroup* groups,
                                              const ActivationHalves* halves,
                                              Floats (&acc)[kPanelRows / S::kLanes][M]) {
    constexpr int kParts = kPanelRows / S::kLanes, kGroups = Q::kGroupSize == 16 ? 2 : 1,
                  kN = 8 / kGroups;
    if constexpr (F.ahead > 0) {
      constexpr int kLines = (L::kUnitBytes / 64 + L::kSteps - 1) / L::kSteps;
      for (int l = 0; l < kLines; ++l)
        __builtin_prefetch(unit + F.ahead + (step * kLines + l) * 64, 0, F.cache);
    }
    const uint8_t* line = unit + step * L::kStepBytes;
    const auto add_group = [&]<int G>() __attribute__((always_inline)) {
      Ints sum[kParts][M], pairs[kParts][M];
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        const Ints start = S::template start<L::kBias, L::kMaxCode>(
            kGroups == 2 ? halves[m].negative_sums[G] : groups[m].negative_sum);
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) sum[part][m] = start, pairs[part][m] = start;
      }
      const auto add_column = [&]<int J>() __attribute__((always_inline)) {
        Bytes codes[kParts];
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part)
          codes[part] = load_column<G * kN + J>(line + 4 * part * S::kLanes, table);
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) {
          const Ints four = S::splat_int(x + m * 32 + 4 * (G * kN + J));
#pragma GCC unroll 4
          for (int part = 0; part < kParts; ++part)
            S::template add_products<L::kMaxCode, J, kN>(sum[part][m], pairs[part][m], codes[part],
                                                         four);
        }
      };
      const auto add =
          [&]<int... J>(std::integer_sequence<int, J...>)
              __attribute__((always_inline)) { (add_column.template operator()<J>(), ...); };
      add(std::make_integer_sequence<int, kN>());
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const int lane = part * S::kLanes,
                  group = kGroups == 2 ? 2 * step + G : L::group_of(step * 32);
        const auto u = Panel::unit_scales(unit, lane);
        const Floats s = Panel::scale(unit, u, group, lane);
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) {
          const Floats xs = S::splat(groups[m].scale);
          acc[part][m] =
              S::fma(S::to_float(sum[part][m]), L::kWholeRow ? xs : S::mul(s, xs), acc[part][m]);
        }
      }
    };
    const auto add_offsets = [&]<int G>() __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const int lane = part * S::kLanes,
                  group = kGroups == 2 ? 2 * step + G : L::group_of(step * 32);
        const Floats o = Panel::offset(unit, Panel::unit_scales(unit, lane), group, lane);
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m)
          acc[part][m] =
              S::fma(o, S::splat(kGroups == 2 ? halves[m].scaled_sums[G] : groups[m].scaled_sum),
                     acc[part][m]);
      }
    };
    add_group.template operator()<0>();
    if constexpr (kGroups == 2) add_group.template operator()<1>();
    if constexpr (Q::kHasOffset) {
      add_offsets.template operator()<0>();
      if constexpr (kGroups == 2) add_offsets.template operator()<1>();
    }
  }
};
