// Requirements on the vectors of an instruction set, by which the code of generic/ is written.
#pragma once
#include <concepts>
#include <cstdint>

namespace penstock {

// Simd of simd.h: 16 floats. scalar/simd.h specifies every function.
template <class S>
concept VectorSimd =
    requires(typename S::F x, typename S::F& to, const float* from, float* p, const uint16_t* words,
             uint16_t* state, const int8_t* bytes, const void* any, int n, uint32_t lanes) {
      // vectors of accumulators that a loop may keep live
      requires(S::kAccumulators >= 1);
      requires(S::kRows >= 1);                           // attention rows per pass
      requires(S::kRegisterBytes >= 16);                 // register bytes for transposition
      { S::zero() } -> std::same_as<typename S::F>;      // 0 in all lanes
      { S::set1(1.0f) } -> std::same_as<typename S::F>;  // one number in all lanes
      { S::load(from) } -> std::same_as<typename S::F>;  // at any address
      // the first n lanes; the others are zero
      { S::load_n(from, n) } -> std::same_as<typename S::F>;
      { S::store(p, x) } -> std::same_as<void>;               // at any address
      { S::store_n(p, x, n) } -> std::same_as<void>;          // the first n lanes
      { S::load_f16(words) } -> std::same_as<typename S::F>;  // 16 FP16
      // two elements of each of 16 groups of four int8
      { S::load_i8_pairs(bytes, n, to, to) } -> std::same_as<void>;
      // two codes of 4 bits of each of 16 words, at bits n and n + 8
      { S::load_i4_pairs(any, n, to, to) } -> std::same_as<void>;
      { S::load_u8(any) } -> std::same_as<typename S::F>;  // 16 bytes, unsigned
      // both elements of each of 16 pairs of BF16
      { S::load_bf16_pairs(words, to, to) } -> std::same_as<void>;
      // lanes i and i + 8 share a word
      { S::load_bf16_state(words) } -> std::same_as<typename S::F>;
      { S::store_bf16_state(state, x) } -> std::same_as<typename S::F>;  // rounded values
      { S::to_f16(1.0f) } -> std::same_as<uint16_t>;                     // to nearest even
      { S::to_bf16(1.0f) } -> std::same_as<uint16_t>;                    // to nearest even
      { S::prefetch(any) } -> std::same_as<void>;                        // into the first cache
      { S::add(x, x) } -> std::same_as<typename S::F>;
      { S::sub(x, x) } -> std::same_as<typename S::F>;
      { S::mul(x, x) } -> std::same_as<typename S::F>;
      { S::div(x, x) } -> std::same_as<typename S::F>;
      { S::fma(x, x, x) } -> std::same_as<typename S::F>;  // a * b + c
      { S::min(x, x) } -> std::same_as<typename S::F>;     // b if a is NaN
      { S::max(x, x) } -> std::same_as<typename S::F>;     // b if a is NaN
      { S::round(x) } -> std::same_as<typename S::F>;      // to the nearest integer
      // a * 2^n, n an integer in [-160, 160]
      { S::times_pow2(x, x) } -> std::same_as<typename S::F>;
      { S::select_less(x, x, x, x) } -> std::same_as<typename S::F>;  // a < b ? yes : no
      // lane i of x if bit i is set
      { S::keep(lanes, x, x) } -> std::same_as<typename S::F>;
      { S::reduce_add(x) } -> std::same_as<float>;  // in the order of scalar/simd.h
      { S::reduce_max(x) } -> std::same_as<float>;
    };

// Integer products of K and V of int8 and 4 bits, for attention.inl: 16 lanes of 32 bits, or four bytes in each
// of them.
template <class S>
concept WholeNumberSimd =
    VectorSimd<S> && requires(typename S::Ints i, typename S::Words w, typename S::F x,
                              const void* from, void* to, int32_t n) {
      { S::zero_ints() } -> std::same_as<typename S::Ints>;
      { S::set1_ints(n) } -> std::same_as<typename S::Ints>;
      { S::load_ints(from) } -> std::same_as<typename S::Ints>;
      { S::to_ints(x) } -> std::same_as<typename S::Ints>;  // to nearest
      { S::to_float(i) } -> std::same_as<typename S::F>;
      { S::add_ints(i, i) } -> std::same_as<typename S::Ints>;
      { S::reduce_add_ints(i) } -> std::same_as<int32_t>;
      { S::times_256(i) } -> std::same_as<typename S::Ints>;
      { S::over_256(i) } -> std::same_as<typename S::Ints>;
      { S::lifted(i) } -> std::same_as<typename S::Ints>;  // signed bytes plus 128
      // sum + the products of unsigned and signed bytes
      { S::dot_bytes(i, i, i) } -> std::same_as<typename S::Ints>;
      { S::store_bytes(to, i) } -> std::same_as<void>;  // the lanes' lowest bytes
      // 64 floats as words, which are stored as low and high bytes, or multiplied, over 2^15
      { S::to_words(x, x, x, x) } -> std::same_as<typename S::Words>;
      { S::store_halves(to, w) } -> std::same_as<void>;
      { S::times_words(w, w) } -> std::same_as<typename S::Words>;
      // codes of 4 bits: 16 bytes, each in both halves of a lane; eight times these in every byte
      { S::load_factors(from) } -> std::same_as<typename S::Ints>;
      { S::bias_of(i) } -> std::same_as<typename S::Ints>;
      // low or high codes of all bytes, times factors and times 16
      { S::template times_factors<true>(i, i, i) } -> std::same_as<typename S::Ints>;
      { S::template sixteenfold<true>(i) } -> std::same_as<typename S::Ints>;
    };

// V of strips.inl: a register of floats or doubles (T).
template <class V, class T>
concept StripVector = requires(typename V::F x, const T* from, T* to) {
  requires(V::kLanes >= 1);
  { V::zero() } -> std::same_as<typename V::F>;
  { V::set1(T{1}) } -> std::same_as<typename V::F>;  // one number in all lanes
  { V::load(from) } -> std::same_as<typename V::F>;
  { V::store(to, x) } -> std::same_as<void>;
  { V::add(x, x) } -> std::same_as<typename V::F>;
  { V::sub(x, x) } -> std::same_as<typename V::F>;
  { V::fma(x, x, x) } -> std::same_as<typename V::F>;  // a * b + c
};

// Stands for a panel type whose codes are points of a grid, in requirements.
struct AnyGrid {
  static constexpr int kIndexBits = 8, kColumns = 8;
};

// S of int8_gemm.inl and float_gemm.inl, defined in gemm_simd.h: kLanes of the 16 rows of a panel
// per register.
template <class S>
concept GemmSimd = requires(typename S::Bytes b, typename S::Ints i, typename S::Floats f,
                            typename S::Floats& to, typename S::Bytes (&codes)[8],
                            const uint8_t* from, const uint32_t* table, const float* floats,
                            float* p, const int8_t* x, int8_t* rounded, const int32_t& negative_sum,
                            const void* any, int n) {
  requires(S::kLanes == 4 || S::kLanes == 8 || S::kLanes == 16);  // rows of a panel per register
  // maximum rows of activations per block
  requires(S::kMaxRows >= 4);
  // maximum panels that few rows read at once
  requires(S::kStreams >= 1);

  // Codes, as bytes.
  { S::load(from) } -> std::same_as<typename S::Bytes>;        // one register, aligned
  { S::load_table(from) } -> std::same_as<typename S::Bytes>;  // 16 bytes, for lookup()
  { S::splat_byte(n) } -> std::same_as<typename S::Bytes>;     // one byte in all places
  { S::splat_word(n) } -> std::same_as<typename S::Bytes>;     // 32 bits in all lanes
  { S::bit_and(b, b) } -> std::same_as<typename S::Bytes>;
  // a | (b & mask); a is zero in the mask
  { S::or_and(b, b, b) } -> std::same_as<typename S::Bytes>;
  // per 16-bit lane or per byte
  { S::template shift_left<1>(b) } -> std::same_as<typename S::Bytes>;
  { S::template shift_right<1>(b) } -> std::same_as<typename S::Bytes>;
  { S::template word_left<1>(b) } -> std::same_as<typename S::Bytes>;  // per 32-bit lane
  { S::template word_right<1>(b) } -> std::same_as<typename S::Bytes>;
  { S::word_right(b, n) } -> std::same_as<typename S::Bytes>;
  { S::lookup(b, b) } -> std::same_as<typename S::Bytes>;  // looks up codes in a table of 16 bytes
  // whether lookup() ignores the codes' upper nibbles
  { S::kLookupMasks } -> std::convertible_to<bool>;
  { S::gather(table, b) } -> std::same_as<typename S::Bytes>;  // 32 bits per index
  // whether points() exists, which sets w as load_points() does
  { S::template kHasPoints<AnyGrid> } -> std::convertible_to<bool>;
  requires(!S::template kHasPoints<AnyGrid> ||
           requires { S::template points<AnyGrid>(from, b, codes); });

  // Integers of 32 bits.
  { S::zero_int() } -> std::same_as<typename S::Ints>;
  { S::add_int(i, i) } -> std::same_as<typename S::Ints>;
  { S::to_float(i) } -> std::same_as<typename S::Floats>;
  // dot<Bias, MaxCode, N, OneChain>: sum of (code - Bias) * x over 4 N columns; codes are at most
  // MaxCode.
  { S::template dot<8, 15, 8, false>(codes, x, negative_sum) } -> std::same_as<typename S::Ints>;
  { S::template dot<128, 255, 4, true>(codes, x, negative_sum) } -> std::same_as<typename S::Ints>;

  // kLanes numbers as floats.
  { S::load_half(from) } -> std::same_as<typename S::Floats>;  // FP16
  { S::load_i8(from) } -> std::same_as<typename S::Floats>;    // int8
  { S::load_f8(from) } -> std::same_as<typename S::Floats>;    // F8 E4M3, times 2^-8
  {
    S::load_nibbles(from, n)
  } -> std::same_as<typename S::Floats>;  // four bits of each byte, from bit 0 or 4 on
  { S::load_aligned(from) } -> std::same_as<typename S::Floats>;   // F32
  { S::load_bf16_pairs(from, to, to) } -> std::same_as<void>;      // two columns of BF16
  { S::load_f32(floats, n) } -> std::same_as<typename S::Floats>;  // the first n; others zero
  { S::store(p, f, n) } -> std::same_as<void>;                     // the first n
  { S::zero() } -> std::same_as<typename S::Floats>;
  { S::splat(1.0f) } -> std::same_as<typename S::Floats>;  // one number in all lanes
  { S::negate(f) } -> std::same_as<typename S::Floats>;
  { S::mul(f, f) } -> std::same_as<typename S::Floats>;
  { S::add(f, f) } -> std::same_as<typename S::Floats>;
  { S::fma(f, f, f) } -> std::same_as<typename S::Floats>;  // a * b + c

  // Rounding of activations.
  // max(a, |b|); a if b is NaN
  { S::abs_max(f, f) } -> std::same_as<typename S::Floats>;
  { S::max_of(f) } -> std::same_as<float>;                    // the largest lane
  { S::clamp(f, 1.0f) } -> std::same_as<typename S::Floats>;  // into [-limit, limit]
  { S::store_rounded(rounded, f) } -> std::same_as<void>;     // kLanes int8, to nearest even
};

// Products of one column of codes at a time, for int8_columns.inl and int8_blocks.inl.
template <class S>
concept AddsProducts = GemmSimd<S> && requires(typename S::Ints& sum, typename S::Bytes codes,
                                               const int32_t& negative_sum, const void* four) {
  { S::splat_int(four) } -> std::same_as<typename S::Ints>;  // broadcasts four activations
  // initial value of the accumulator, as in dot()
  { S::template start<8, 15>(negative_sum) } -> std::same_as<typename S::Ints>;
  // Product 1 of 8, of codes up to 15 and four activations. `pairs`, the second argument, holds
  // what the last product adds to the sum.
  { S::template add_products<15, 1, 8>(sum, sum, codes, sum) } -> std::same_as<void>;
};

// For int8_columns.inl: few rows, one column of codes at a time, as registers cannot hold a step of
// codes beside the accumulators.
template <class S>
concept ColumnsFirst = AddsProducts<S> && requires { requires S::kColumnsFirst; };

// For int8_blocks.inl: many rows with weights that are unpacked once.
template <class S>
concept UnpacksBlocks = AddsProducts<S> && requires(uint8_t* to, typename S::Bytes codes) {
  requires(S::kBlockRows >= 1);                         // rows of activations multiplied together
  requires(S::kBlockPanels >= 1);                       // panels multiplied together
  { S::store_bytes(to, codes) } -> std::same_as<void>;  // one register, aligned
};

// The second-level cache holds rows: kCachedRows are multiplied with a slice of all panels.
template <class S>
concept CachesRows = UnpacksBlocks<S> && requires { requires(S::kCachedRows >= 1); };

// Activations of blocks are prefetched to the first-level cache, kStepsAhead steps ahead.
template <class S>
concept FetchesActivations = UnpacksBlocks<S> && requires { requires(S::kStepsAhead >= 1); };

// dot() with activations broadcast by shuffles of one load.
template <class S>
concept ShufflesActivations =
    GemmSimd<S> &&
    requires(typename S::Bytes (&codes)[8], const int8_t* x, const int32_t& negative_sum) {
      requires S::kShuffles;
      // shuffled_dot<Bias, Shuffled>: shuffles the last `Shuffled` groups of four.
      { S::template shuffled_dot<8, 2>(codes, x, negative_sum) } -> std::same_as<typename S::Ints>;
    };

}  // namespace penstock
