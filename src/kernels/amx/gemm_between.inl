// TileProduct with interleaved unpacking: the next slice of weights is unpacked between the tile
// products of the current one, an eighth of a tile after every second product, so that vector units
// and tiles work at the same time. Include inside an anonymous namespace, after TileProduct.
//
// Unpacking uses 256-bit arithmetic, since 512-bit instructions wait for the tiles. Unpacked
// weights and the order of sums are those of TileProduct, and so are the results, bit for
// bit.

// CodeScale for eight rows of a panel (256 bits).
template <int CodeBits>
struct HalfScale {
  __m256 scale, offset;

  // See CodeScale::make().
  [[gnu::always_inline]] static HalfScale make(__m256 scale, __m256 offset, int bias) {
    constexpr int kOne = 1 << CodeBits;
    const __m256 cut = _mm256_set1_ps(CodeScale<CodeBits>::kCut);
    const __m256 s = _mm256_mul_ps(scale, cut), o = _mm256_mul_ps(offset, cut);
    return {_mm256_mul_ps(s, _mm256_set1_ps(kOne)),
            _mm256_fnmadd_ps(s, _mm256_set1_ps(static_cast<float>(kOne + bias)), o)};
  }
  // See CodeScale::value().
  template <int First>
  [[gnu::always_inline]] __m256 value(__m256i codes) const {
    constexpr int kTop = 23 - CodeBits;
    __m256i x = codes;
    if constexpr (First < kTop) x = _mm256_slli_epi32(codes, kTop - First);
    if constexpr (First > kTop) x = _mm256_srli_epi32(codes, First - kTop);
    const __m256i mask = _mm256_set1_epi32(((1 << CodeBits) - 1) << kTop);
    x = _mm256_ternarylogic_epi32(x, mask, _mm256_set1_epi32(0x3f800000), 0xea);
    return _mm256_fmadd_ps(_mm256_castsi256_ps(x), scale, offset);
  }
  template <int Even, int Odd>
  [[gnu::always_inline]] void store_pair(__m256i codes, uint8_t* to) const {
    const __m256i high_halves = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
    const __m256i even = _mm256_castps_si256(value<Even>(codes)),
                  odd = _mm256_castps_si256(value<Odd>(codes));
    _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                       _mm256_mask_shuffle_epi8(odd, 0x33333333u, even, high_halves));
  }
};

// A tile is unpacked in eighths of two rows each.
inline constexpr int kEighths = 8;

template <class Q>
struct CodesInEighths {
  using Source = TileSource<Q>;
  using Panel = typename Source::Panel;
  using HalfPanel = Int8Panel<Avx2, Q>;
  using L = typename Source::L;
  static constexpr int kCodeBits = Source::kNibbles ? 4 : 8;

  const uint8_t* unit;
  int step;
  HalfScale<kCodeBits> scale[Source::kParts][2];

  CodesInEighths(const PanelMatrix&, const uint8_t* panel, int s)
      : unit(panel + static_cast<size_t>(s / L::kSteps) * L::kUnitBytes), step(s % L::kSteps) {
    for (int half = 0; half < 2; ++half) {
      const auto u = HalfPanel::unit_scales(unit, 8 * half);
      for (int part = 0; part < Source::kParts; ++part) {
        const int group = Source::group_of(step, part);
        __m256 offset = _mm256_setzero_ps();
        if constexpr (Q::kHasOffset) offset = HalfPanel::offset(unit, u, group, 8 * half);
        scale[part][half] = HalfScale<kCodeBits>::make(HalfPanel::scale(unit, u, group, 8 * half),
                                                       offset, L::kBias);
      }
    }
  }
  // Unpacks eighth E. tile: start of the tile.
  template <int E>
  [[gnu::always_inline]] void unpack(__m512i codebook, uint8_t* tile) const {
    uint8_t* to = tile + 128 * E;
    const auto& scales = scale[E / 4 % Source::kParts];
    if constexpr (Source::kNibbles) {
      const auto* codes =
          reinterpret_cast<const __m256i*>(unit + step * L::kStepBytes + 64 * (E / 2));
      constexpr int kFirst = E % 2 * 4;
      for (int half = 0; half < 2; ++half) {
        const __m256i c = _mm256_load_si256(codes + half);
        scales[half].template store_pair<kFirst, kFirst + 8>(c, to + 32 * half);
        scales[half].template store_pair<kFirst + 16, kFirst + 24>(c, to + 64 + 32 * half);
      }
    } else {
      __m512i w[8];
      // computes all; the compiler keeps only what this eighth uses
      Panel::load_codes(unit, step, 0, codebook, w);
      const __m256i halves[2] = {_mm512_castsi512_si256(w[E]), _mm512_extracti64x4_epi64(w[E], 1)};
      for (int half = 0; half < 2; ++half) {
        scales[half].template store_pair<0, 8>(halves[half], to + 32 * half);
        scales[half].template store_pair<16, 24>(halves[half], to + 64 + 32 * half);
      }
    }
  }
};

template <class Q>
struct BytesInEighths {
  using L = typename ByteSource<Q>::L;
  const uint8_t* unit;

  BytesInEighths(const PanelMatrix&, const uint8_t* panel, int s)
      : unit(panel + static_cast<size_t>(s) * L::kUnitBytes) {}
  template <int E>
  [[gnu::always_inline]] void unpack(__m512i codebook, uint8_t* tile) const {
    __m512i codes[8];
    ByteSource<Q>::Panel::load_codes(unit, E / 4, 0, codebook, codes);
    _mm512_store_si512(tile + 128 * E, codes[E % 4 * 2]);
    _mm512_store_si512(tile + 128 * E + 64, codes[E % 4 * 2 + 1]);
  }
};

// Product with interleaved unpacking. Tile: unpacks a tile of Source in eighths.
template <class N, class Source, class Tile, int Bias>
struct BetweenProduct : TileProduct<N, Source, false, Bias> {
  using Base = TileProduct<N, Source, false, Bias>;
  using Base::n_rows, Base::padded_cols, Base::sums, Base::tiles, Base::w;

  uint8_t* slices[2];  // B tiles of the current and of the next slice
  __m512i codebook;

  // A work item: a pair of panels times a block of rows over a slice of columns. Nesting of the
  // loops from the innermost: pairs of a block of panels, slices, blocks of panels, blocks of rows.
  struct Item {
    int row, row_end;  // row == row_end: past the last item
    int begin, end;    // block of panels
    int slice, panel;

    bool operator==(const Item&) const = default;
    int pair() const { return (panel - begin) / 2; }
    int n_blocks() const { return (row_end - row + 31) / 32; }
  };
  struct Range {
    int begin, end, block_rows;
  };

  int n_slices() const { return (w.padded_cols + kSliceK<N> - 1) / kSliceK<N>; }
  int n_steps(int slice) const {
    const int left = (w.padded_cols + N::kTileK - 1) / N::kTileK - slice * kSliceSteps;
    return left < kSliceSteps ? left : kSliceSteps;
  }

  Item first(const Range& range) const {
    const int end = std::min(range.begin + 2 * kBlockPairs, range.end);
    return {0, std::min(range.block_rows, n_rows), range.begin, end, 0, range.begin};
  }
  Item after(Item item, const Range& range) const {
    if ((item.panel += 2) < item.end) return item;
    item.panel = item.begin;
    if (++item.slice < n_slices()) return item;
    item.slice = 0;
    item.begin = item.end;
    if (item.begin >= range.end) {
      item.begin = range.begin;
      item.row = item.row_end;
      item.row_end = std::min(item.row + range.block_rows, n_rows);
    }
    item.end = std::min(item.begin + 2 * kBlockPairs, range.end);
    item.panel = item.begin;
    return item;
  }
  static bool exists(const Item& item) { return item.row < item.row_end; }

  // Progress of unpacking an item's slice, tile by tile: [step][2 panels].
  struct Unpacking {
    const PanelMatrix& w;
    const uint8_t* panels[2];
    int first_step, n_tiles, done;
    uint8_t* to;

    bool left() const { return done < n_tiles; }
    Tile tile() const { return Tile(w, panels[done % 2], first_step + done / 2); }
    uint8_t* at() const { return to + done * kTileBytes; }
    void finish() {
      for (; left(); ++done) Source::unpack(w, panels[done % 2], first_step + done / 2, at());
    }
  };
  Unpacking unpacking(const Item& item, uint8_t* to) const {
    if (!exists(item)) return {w, {}, 0, 0, 0, to};
    const int second = item.panel + 1 < item.end ? item.panel + 1 : item.panel;
    const auto data = [&](int panel) {
      return w.data + static_cast<size_t>(panel) * w.panel_bytes;
    };
    return {
        w, {data(item.panel), data(second)}, item.slice * kSliceSteps, 2 * n_steps(item.slice), 0,
        to};
  }

  // Operands of a block of 32 rows and one slice.
  struct Block {
    const uint8_t *a, *b;
    Handover sums;
    const uint8_t* ahead;  // to prefetch; see multiply()
    bool first_use;
  };

  template <int T>
  [[gnu::always_inline]] static void load_a(const Block& block, const uint8_t* p) {
    if (block.first_use) [[unlikely]] {
      tile_load<T>(p, 64);
    } else {
      tile_load_once<T>(p, 64);
    }
  }
  // multiply_step() that calls first() and second() after every second product.
  template <bool MayBeFirst, class F, class G>
  [[gnu::always_inline]] static void step(const Block& block, int s, F first, G second) {
    const uint8_t *a = block.a + s * 2 * kTileBytes, *b = block.b + s * 2 * kTileBytes;
    const auto pass = [&]<int I> {
      if (MayBeFirst && s == 0) block.sums.template pass<I>();
    };
    load_a<4>(block, a);
    tile_load<6>(b, 64);
    pass.template operator()<0>();
    N::template dot<0, 4, 6>();
    tile_load<7>(b + kTileBytes, 64);
    pass.template operator()<1>();
    N::template dot<1, 4, 7>();
    first();
    load_a<5>(block, a + kTileBytes);
    pass.template operator()<2>();
    N::template dot<2, 5, 6>();
    pass.template operator()<3>();
    N::template dot<3, 5, 7>();
    second();
  }
  // Prefetches what multiply() prefetches in step s of n.
  [[gnu::always_inline]] static void fetch(const Block& block, int s, int n) {
    constexpr int kBytes = kAheadBytes / kSliceSteps;
    for (int l = 0; l < kBytes; l += 64) __builtin_prefetch(block.ahead + s * kBytes + l, 0, 2);
    if (block.sums.fresh || s < n - 8) return;
    const uint8_t* next =
        block.sums.next.at + 4 * kTileBytes + static_cast<ptrdiff_t>(s - (n - 8)) * 512;
    for (int l = 0; l < 8; ++l) __builtin_prefetch(next + l * 64, 0, 3);
  }
  template <int E>
  [[gnu::always_inline]] void step_and_quarter(const Block& block, int s, int n, const Tile& tile,
                                               uint8_t* to) const {
    step<E == 0>(
        block, s, [&] { tile.template unpack<E>(codebook, to); },
        [&] { tile.template unpack<E + 1>(codebook, to); });
    fetch(block, s, n);
  }

  void multiply_block(const Block& block, int n, Unpacking& next) const {
    int s = 0;
    for (; s + 4 <= n && next.left(); s += 4, ++next.done) {
      const auto tile = next.tile();
      uint8_t* to = next.at();
      step_and_quarter<0>(block, s, n, tile, to);
      step_and_quarter<2>(block, s + 1, n, tile, to);
      step_and_quarter<4>(block, s + 2, n, tile, to);
      step_and_quarter<6>(block, s + 3, n, tile, to);
    }
    const auto nothing = [] {};
#pragma GCC unroll 1
    for (; s < n; ++s) step<true>(block, s, nothing, nothing), fetch(block, s, n);
  }

  // Prefetches part m of n of the packed weights that are unpacked during the next item.
  void fetch_packed(const Item& item, int m, int n) const {
    if (!exists(item)) return;
    const int bytes = static_cast<int>(static_cast<int64_t>(n_steps(item.slice)) * N::kTileK /
                                       Source::kUnitK * Source::kUnitBytes);
    const int lines = (bytes / 64 + n - 1) / n;
    const uint8_t* from =
        this->panel_slice(item.panel, item.slice) + static_cast<ptrdiff_t>(m) * lines * 64;
    for (int l = 0; l < lines; ++l, from += 64) {
      __builtin_prefetch(from, 0, 2);
      __builtin_prefetch(from + w.panel_bytes, 0, 2);
    }
  }

  // Multiplies one item with its unpacked slice `b`. last: location of the sums that are still in
  // tiles, if any; updated.
  void multiply_item(const Item& item, const uint8_t* b, Unpacking next, const Item& to_fetch,
                     BlockSums& last) const {
    const int blocks = item.n_blocks();
    const int ahead_slice = item.slice + 1 < n_slices() ? item.slice + 1 : 0;
    const uint8_t* ahead = slice_tiles<N>(tiles, n_rows, padded_cols, ahead_slice, item.row) +
                           static_cast<ptrdiff_t>(item.pair()) * blocks * kAheadBytes;
    uint8_t* pair_sums = sums + static_cast<ptrdiff_t>(item.pair()) * blocks * 4 * kTileBytes;
    for (int m = 0; m < blocks; ++m, ahead += kAheadBytes) {
      fetch_packed(to_fetch, m, blocks);
      const Block block{slice_tiles<N>(tiles, n_rows, padded_cols, item.slice, item.row + 32 * m),
                        b,
                        {last, block_sums(pair_sums, m), item.slice == 0},
                        ahead,
                        item.panel == item.begin};
      multiply_block(block, n_steps(item.slice), next);
      last = block.sums.next;
    }
    next.finish();
  }

  void run(const Range& range, const GemmOutput& out) const {
    Item item = first(range);
    unpacking(item, slices[0]).finish();
    BlockSums last;
    for (int i = 0; exists(item); ++i) {
      const Item next = after(item, range);
      const Item later = exists(next) ? after(next, range) : next;
      multiply_item(item, slices[i % 2], unpacking(next, slices[(i + 1) % 2]), later, last);
      if (next.begin != item.begin || next.row != item.row) {  // all sums of the block are complete
        store_sums(last), last = {};
        if (this->streams(out)) {
          this->template write_block<true>(item.begin, item.end, item.row, item.row_end, out);
        } else {
          this->template write_block<false>(item.begin, item.end, item.row, item.row_end, out);
        }
      }
      item = next;
    }
  }

  // For GemmStrategy::kTilesBetween: blocks of rows of nearly equal size.
  template <int MostRows>
  static void gemm(const PanelMatrix& w, const uint8_t* tiles, int n_rows, int begin, int end,
                   const GemmOutput& out, uint8_t* scratch) {
    if (begin >= end) return;
    TileConfig config;
    for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
    const TileScope scope(config);
    const BetweenProduct product{
        {w, tiles, n_rows, round_up(w.cols, 256), scratch, scratch + kWeightsBytes},
        {scratch, scratch + kWeightsBytes + kSumsBytes},
        Source::Panel::table(w)};
    const int n_blocks = (n_rows + MostRows - 1) / MostRows;
    product.run({begin, end, round_up((n_rows + n_blocks - 1) / n_blocks, 32)}, out);
  }
};
