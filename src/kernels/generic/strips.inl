// Strip products on vectors (StripVector). REQUIRES: kTileRows and kTileVectors are defined, and
// kTileRows * kTileVectors accumulators fit the registers.

namespace penstock {
namespace {

template <class V, class T, int kWidth, bool kSubtract>
void strip_tile(int64_t n, const T* a, const T* b, T* c) {
  typename V::F sums[kTileRows][kTileVectors];
  for (auto& row : sums) {
    for (auto& sum : row) sum = V::zero();
  }
  for (int64_t k = 0; k < n; ++k, a += kWidth, b += kWidth) {
    typename V::F x[kTileVectors];
    for (int j = 0; j < kTileVectors; ++j) x[j] = V::load(b + j * V::kLanes);
    for (int i = 0; i < kTileRows; ++i) {
      const typename V::F factor = V::set1(a[i]);
      for (int j = 0; j < kTileVectors; ++j) sums[i][j] = V::fma(factor, x[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kTileRows; ++i) {
    for (int j = 0; j < kTileVectors; ++j) {
      T* to = c + i * kWidth + j * V::kLanes;
      V::store(to, kSubtract ? V::sub(V::load(to), sums[i][j]) : V::add(V::load(to), sums[i][j]));
    }
  }
}

template <class V, class T, int kWidth, bool kSubtract>
  requires StripVector<V, T>
void strip_product(int64_t n, const T* a, const T* b, T* c) {
  for (int i = 0; i < kStripRows; i += kTileRows) {
    for (int j = 0; j < kWidth; j += kTileVectors * V::kLanes)
      strip_tile<V, T, kWidth, kSubtract>(n, a + i, b + j, c + i * kWidth + j);
  }
}

}  // namespace
}  // namespace penstock
