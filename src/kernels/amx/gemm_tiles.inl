// Products of tiles, and transfer of accumulators between tiles and memory. Include inside an
// anonymous namespace, after the element types of tiles.

// The four tiles of sums of 32 rows x 32 weight rows (rows 0-15: weights 0-15, 16-31; rows 16-31:
// the same). Their order rotates from block to block: otherwise the load of a tile would follow the
// store of a tile exactly 4 KiB before it, and be delayed as if it read the same bytes (4K aliasing
// of addresses with equal lower 12 bits).
struct BlockSums {
  uint8_t* at = nullptr;
  int turn = 0;

  uint8_t* tile(int i) const { return at + (i + turn) % 4 * kTileBytes; }
};

// Location of the sums of a block; blocks of 32 rows follow one another.
inline BlockSums block_sums(uint8_t* pair_sums, int block) {
  return {pair_sums + static_cast<ptrdiff_t>(block) * 4 * kTileBytes, block % 4};
}

inline void store_sums(const BlockSums& sums) {
  tile_store<0>(sums.tile(0), 64), tile_store<1>(sums.tile(1), 64);
  tile_store<2>(sums.tile(2), 64), tile_store<3>(sums.tile(3), 64);
}

// Exchanges tile I of the sums between two blocks. Stores wait for the last product into their tile
// and delay later ones; spread between the first products of the next block, they do not delay the
// loads of its operands.
struct Handover {
  BlockSums last;  // sums that are still in tiles, or none
  BlockSums next;
  bool fresh;  // the next sums begin at zero

  template <int I>
  [[gnu::always_inline]] void pass() const {
    if (last.at != nullptr) tile_store<I>(last.tile(I), 64);
    if (fresh) {
      tile_zero<I>();
    } else {
      tile_load<I>(next.tile(I), 64);
    }
  }
};
struct NoHandover {
  template <int I>
  [[gnu::always_inline]] void pass() const {}
};

// One step of multiply(): kTileK columns.
template <class N, bool FirstUse, class Sums>
[[gnu::always_inline]] inline void multiply_step(const uint8_t* a, const uint8_t* b0,
                                                 const uint8_t* b1, const Sums& sums) {
  const auto load_a = [&]<int Tile>(const uint8_t* p) {
    // Later passes over activations bypass the first-level cache, which holds the weights.
    if constexpr (FirstUse) {
      tile_load<Tile>(p, 64);
    } else {
      tile_load_once<Tile>(p, 64);
    }
  };
  load_a.template operator()<4>(a);
  tile_load<6>(b0, 64);
  sums.template pass<0>();
  N::template dot<0, 4, 6>();
  tile_load<7>(b1, 64);
  sums.template pass<1>();
  N::template dot<1, 4, 7>();
  load_a.template operator()<5>(a + kTileBytes);
  sums.template pass<2>();
  N::template dot<2, 5, 6>();
  sums.template pass<3>();
  N::template dot<3, 5, 7>();
}

// Adds 32 rows x 32 weight rows over n_steps tiles of columns to four accumulators, which stay in
// tiles. Prefetches the sums of the next 32 rows, and from `ahead` on a part of the activations of
// the next slice (kAheadBytes per full slice).
template <class N, bool FirstUse>
[[gnu::always_inline]] inline void multiply(const uint8_t* a, const uint8_t* b0, const uint8_t* b1,
                                            int b_stride, int n_steps, const Handover& sums,
                                            const uint8_t* ahead) {
  multiply_step<N, FirstUse>(a, b0, b1, sums);
  const uint8_t* next = sums.next.at + 4 * kTileBytes;
  for (int s = 0;;) {
    for (int l = 0; l < kAheadBytes / kSliceSteps; l += 64) __builtin_prefetch(ahead + l, 0, 2);
    ahead += kAheadBytes / kSliceSteps;
    if (!sums.fresh && s >= n_steps - 8) {
      for (int l = 0; l < 8; ++l, next += 64) __builtin_prefetch(next, 0, 3);
    }
    if (++s == n_steps) break;
    a += 2 * kTileBytes, b0 += b_stride, b1 += b_stride;
    multiply_step<N, FirstUse>(a, b0, b1, NoHandover{});
  }
}
