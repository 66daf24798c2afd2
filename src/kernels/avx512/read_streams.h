// A pure read of memory as four streams, with 512-bit loads. Include inside an anonymous namespace, after
// <immintrin.h>.

inline uint64_t read_streams(const void* data, size_t bytes) {
  const char* base = static_cast<const char*>(data);
  const size_t quarter = bytes / 4;
  __m512i acc[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                    _mm512_setzero_si512()};
  for (size_t i = 0; i < quarter; i += 64) {
    for (size_t s = 0; s < 4; ++s) {
      const char* line = base + s * quarter + i;
      _mm_prefetch(line + 2304, _MM_HINT_T1);
      acc[s] = _mm512_xor_si512(acc[s], _mm512_load_si512(line));
    }
  }
  const __m512i sum = _mm512_xor_si512(_mm512_xor_si512(acc[0], acc[1]), _mm512_xor_si512(acc[2], acc[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum));
}
