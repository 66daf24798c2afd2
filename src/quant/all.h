// THE list of encodings, in the order of enum QuantType; tables, dispatch and typed tests derive
// from it. A new encoding is a header, a row here and a name in the enum.
#pragma once
#include <tuple>
#include <utility>

#include "quant/codebook.h"
#include "quant/few_bits.h"
#include "quant/grids.h"
#include "quant/k_quants.h"
#include "quant/plain.h"
#include "quant/q32.h"
#include "quant/ternary.h"

namespace penstock::quant {

using All = std::tuple<F32, F16, BF16, I8, I16, I32, I64, F64, U8, Bool, F8E4M3, F8E5M2,  //
                       Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,                                      //
                       Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,                                      //
                       IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4, NVFP4,                        //
                       Q1_0, Q2_0, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S>;

// Calls fn with a value of the encoding's struct: visit(type, [&](auto q) { using Q = decltype(q);
// ... }). fn returns the same type for every encoding.
template <class F>
decltype(auto) visit(QuantType type, F&& fn) {
  using R = decltype(fn(F32{}));
  using Call = R (*)(F&);
  static constexpr auto kCalls = []<class... Q>(std::tuple<Q...>*) {
    return std::array<Call, sizeof...(Q)>{[](F& f) -> R { return f(Q{}); }...};
  }(static_cast<All*>(nullptr));
  return kCalls[static_cast<size_t>(type)](fn);
}

}  // namespace penstock::quant
