// The tile instructions. Include inside an anonymous namespace, after <cstdint>.
//
// Inline assembly with memory clobbers: compilers' intrinsics do not declare what a tile load
// reads. After an include of emulation/amx/tile_file.h, the functions are emulated.

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int n_rows, int n_bytes) {
    rows[tile] = static_cast<uint8_t>(n_rows);
    row_bytes[tile] = static_cast<uint16_t>(n_bytes);
  }
};

#ifdef PENSTOCK_EMULATED_TILES
inline void tile_configure(const TileConfig& config) { tile_file::configure(&config); }
inline void tile_release() { tile_file::release(); }
template <int Tile>
inline void tile_zero() {
  tile_file::zero(Tile);
}
template <int Tile>
inline void tile_load(const void* p, ptrdiff_t stride) {
  tile_file::load(Tile, p, stride);
}
template <int Tile>
inline void tile_load_once(const void* p, ptrdiff_t stride) {
  tile_file::load(Tile, p, stride);
}
template <int Tile>
inline void tile_store(void* p, ptrdiff_t stride) {
  tile_file::store(Tile, p, stride);
}
template <int C, int A, int B>
inline void tile_dot_bf16() {
  tile_file::dot_bf16(C, A, B);
}
template <int C, int A, int B>
inline void tile_dot_int8() {
  tile_file::dot_signed_unsigned(C, A, B);
}
template <int C, int A, int B>
inline void tile_dot_signed() {
  tile_file::dot_signed(C, A, B);
}
#else
// Configures the tiles of the calling thread and zeroes them.
[[gnu::always_inline]] inline void tile_configure(const TileConfig& config) {
  asm volatile("ldtilecfg (%0)" ::"r"(&config) : "memory");
}
[[gnu::always_inline]] inline void tile_release() { asm volatile("tilerelease" ::: "memory"); }
template <int Tile>
[[gnu::always_inline]] inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Tile) : "memory");
}
template <int Tile>
[[gnu::always_inline]] inline void tile_load(const void* p, ptrdiff_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(Tile) : "memory");
}
// Loads a tile with a non-temporal hint: its lines do not stay in the first-level cache.
template <int Tile>
[[gnu::always_inline]] inline void tile_load_once(const void* p, ptrdiff_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
[[gnu::always_inline]] inline void tile_store(void* p, ptrdiff_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(Tile) : "memory");
}
// C += A B with BF16 pairs.
template <int C, int A, int B>
[[gnu::always_inline]] inline void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B) : "memory");
}
// C += A B with signed bytes in A and unsigned bytes in B.
template <int C, int A, int B>
[[gnu::always_inline]] inline void tile_dot_int8() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B) : "memory");
}
// C += A B with signed bytes in both.
template <int C, int A, int B>
[[gnu::always_inline]] inline void tile_dot_signed() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B) : "memory");
}
#endif

// Configures the calling thread's tiles for the lifetime of this object.
class TileScope {
 public:
  explicit TileScope(const TileConfig& config) { tile_configure(config); }
  ~TileScope() { tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};
