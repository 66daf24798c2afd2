// Parameters of operations that mix residual streams (Ops::mix_streams) or scale by position
// (Ops::scale_by_position).
#pragma once

namespace penstock {

class Vector;

inline constexpr int kMaxMixedStreams = 16;
// How several residual streams are read, written and mixed (Ops::mix_streams).
struct StreamMixParams {
  int count = 0;                  // streams, at most kMaxMixedStreams
  const Vector* scale = nullptr;  // [1 to 3]: of shares read, shares written and the mixture
  const Vector* base = nullptr;   // as many as there are shares
  float eps = 0.0f;
  int iterations = 1;                        // of the normalization of the mixture
  float magnitude = 2.0f, write_eps = 0.0f;  // of shares written
};

// Multiplies x of the token at position p by 1 + beta * log(1 + floor((p + offset) / period)), or, if
// it is smooth, by 1 + beta * log(max(1, (p + offset) / period)).
struct PositionScale {
  float beta = 0.0f;  // 0 = no scaling
  float period = 1.0f;
  int offset = 0;
  bool smooth = false;
};

}  // namespace penstock
