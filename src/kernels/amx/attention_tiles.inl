// AMX products of the flash path. Include inside an anonymous namespace, after
// avx512bf16/attention_flash.inl and tiles.h.

// Scores of a step plus `offsets` ([32][16]), for head size 64: queries stay in tiles 4 to 7.
void score_step_64(const float* offsets, const std::byte* k0, const std::byte* k1, float* to) {
  tile_load<2>(k0, 64);
  tile_load<3>(k0 + kTileBytes, 64);
  tile_load<0>(offsets, 64);
  tile_dot_bf16<0, 4, 2>();
  tile_dot_bf16<0, 5, 3>();
  tile_store<0>(to, 64);
  tile_load<1>(offsets + kTileFloats, 64);
  tile_dot_bf16<1, 6, 2>();
  tile_dot_bf16<1, 7, 3>();
  tile_store<1>(to + 2 * kTileFloats, 64);
  tile_load<2>(k1, 64);
  tile_load<3>(k1 + kTileBytes, 64);
  tile_load<0>(offsets, 64);
  tile_dot_bf16<0, 4, 2>();
  tile_dot_bf16<0, 5, 3>();
  tile_store<0>(to + kTileFloats, 64);
  tile_load<1>(offsets + kTileFloats, 64);
  tile_dot_bf16<1, 6, 2>();
  tile_dot_bf16<1, 7, 3>();
  tile_store<1>(to + 3 * kTileFloats, 64);
}

void score_step(const uint16_t* q, int dim, int n_row_tiles, const float* offsets,
                const std::byte* k0, const std::byte* k1, float* to) {
  const ptrdiff_t q_stride = dim * 2;
  tile_load<0>(offsets, 64);
  tile_load<1>(offsets, 64);
  tile_load<2>(offsets + kTileFloats, 64);
  tile_load<3>(offsets + kTileFloats, 64);
  for (int d = 0; d < dim; d += 32, k0 += kTileBytes, k1 += kTileBytes) {
    tile_load<4>(q + d, q_stride);
    tile_load<6>(k0, 64);
    tile_dot_bf16<0, 4, 6>();
    tile_load<7>(k1, 64);
    tile_dot_bf16<1, 4, 7>();
    if (n_row_tiles == 1) continue;
    tile_load<5>(q + 16 * dim + d, q_stride);
    tile_dot_bf16<2, 5, 6>();
    tile_dot_bf16<3, 5, 7>();
  }
  tile_store<0>(to, 64);
  tile_store<1>(to + kTileFloats, 64);
  if (n_row_tiles == 1) return;
  tile_store<2>(to + 2 * kTileFloats, 64);
  tile_store<3>(to + 3 * kTileFloats, 64);
}

void add_step_values(const std::byte* weights, const std::byte* values, int n_steps, int dim,
                     int n_row_tiles, float* out) {
  const ptrdiff_t stride = dim * 4;
  const int64_t step_bytes = static_cast<int64_t>(dim / 16) * kTileBytes;
  float* low = out + static_cast<int64_t>(16) * dim;
  for (int d = 0; d < dim; d += 32) {
    const bool both = d + 16 < dim;  // two tiles of columns, not one
    const std::byte *v = values + d / 16 * kTileBytes, *p = weights;
    tile_load<0>(out + d, stride);
    if (both) tile_load<1>(out + d + 16, stride);
    if (n_row_tiles == 2) {
      tile_load<2>(low + d, stride);
      if (both) tile_load<3>(low + d + 16, stride);
    }
    for (int i = 0; i < n_steps; ++i, v += step_bytes, p += 2 * kTileBytes) {
      tile_load<4>(p, 64);
      tile_load<6>(v, 64);
      tile_dot_bf16<0, 4, 6>();
      if (both) {
        tile_load<7>(v + kTileBytes, 64);
        tile_dot_bf16<1, 4, 7>();
      }
      if (n_row_tiles == 1) continue;
      tile_load<5>(p + kTileBytes, 64);
      tile_dot_bf16<2, 5, 6>();
      if (both) tile_dot_bf16<3, 5, 7>();
    }
    tile_store<0>(out + d, stride);
    if (both) tile_store<1>(out + d + 16, stride);
    if (n_row_tiles == 1) continue;
    tile_store<2>(low + d, stride);
    if (both) tile_store<3>(low + d + 16, stride);
  }
}

struct TileUnits {
  class Scope {
   public:
    Scope() : tiles_(config()) {}

   private:
    static TileConfig config() {
      TileConfig config;
      for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
      return config;
    }
    TileScope tiles_;
  };

  static void score_steps(const uint16_t* q, int dim, int n_row_tiles, const std::byte* const* k,
                          int n_steps, const float* offsets, float* to) {
    const bool stay = dim == 64 && n_row_tiles == 2;
    if (stay) {
      tile_load<4>(q, 128);
      tile_load<5>(q + 32, 128);
      tile_load<6>(q + 16 * 64, 128);
      tile_load<7>(q + 16 * 64 + 32, 128);
    }
    for (int i = 0; i < n_steps; ++i, k += 2, to += kStepFloats) {
      if (stay) {
        score_step_64(offsets, k[0], k[1], to);
      } else {
        score_step(q, dim, n_row_tiles, offsets, k[0], k[1], to);
      }
    }
  }

  static void add_values(const std::byte* weights, const std::byte* values, int n_steps, int dim,
                         int n_row_tiles, float* out) {
    add_step_values(weights, values, n_steps, dim, n_row_tiles, out);
  }
};
