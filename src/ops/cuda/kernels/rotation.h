// Rotary position embedding of queries and keys.
#pragma once
#include "ops/cuda/kernels/attention.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

struct CosSin {
  float c, s;
};

// Cosine and sine of any angle, to about an ulp of 1: reduction by quarter turns in doubles, then
// polynomials (Cephes) on [-pi/4, pi/4]. The library's functions would use a table in local memory
// for large angles.
PENSTOCK_DEVICE CosSin cos_sin(float angle) {
  const double quarters = static_cast<double>(angle) * 0.63661977236758134308,
               whole = rint(quarters);
  const auto x = static_cast<float>((quarters - whole) * 1.57079632679489661923);
  const float z = x * x;
  const float s = x + x * z * (-1.6666654611e-1f + z * (8.3321608736e-3f - z * 1.9515295891e-4f));
  const float c =
      1.0f - 0.5f * z + z * z * (4.166664568e-2f + z * (-1.388731625e-3f + z * 2.443315712e-5f));
  const auto quarter = static_cast<int>(static_cast<int64_t>(whole) & 3);
  const CosSin at = quarter % 2 == 0 ? CosSin{c, s} : CosSin{-s, c};
  return quarter < 2 ? at : CosSin{-at.c, -at.s};
}

// Returns the rotation with the inv_freq of the token's sequence.
PENSTOCK_DEVICE Rotation rotation_of(const Rotation& rotation, const BatchOnDevice& batch,
                                     int token) {
  Rotation own = rotation;
  if (rotation.long_inv_freq != nullptr && batch.long_ropes[batch.sequences[token]] != 0)
    own.inv_freq = rotation.long_inv_freq;
  return own;
}

// Rotation of the feature pair i of all heads of a token.
struct Turn {
  float c, s;
  int first, second;  // features of a head

  PENSTOCK_DEVICE Turn(const Rotation& rotation, const BatchOnDevice& batch, int token, int i) {
    const int position = rotation.axes == nullptr || batch.axis_positions == nullptr
                             ? batch.positions[token]
                             : batch.axis_positions[3 * token + static_cast<int>(rotation.axes[i])];
    const CosSin angle =
        cos_sin(static_cast<float>(position + rotation.offset) * rotation.inv_freq[i]);
    c = angle.c * rotation.scale, s = angle.s * rotation.scale;
    first = rotation.first + (rotation.interleaved ? 2 * i : i);
    second = first + (rotation.interleaved ? 1 : rotation.half);
  }
  PENSTOCK_DEVICE void apply(float a, float b, float* to) const {
    to[first] = a * c - b * s, to[second] = a * s + b * c;
  }
};

// Rotates the feature pair i of a token's head. `to` may equal `from`.
PENSTOCK_DEVICE void rotate_pair(const Rotation& rotation, const BatchOnDevice& batch, int token,
                                 const float* from, float* to, int i) {
  const Turn turn(rotation, batch, token, i);
  turn.apply(from[turn.first], from[turn.second], to);
}

}  // namespace penstock::cuda
