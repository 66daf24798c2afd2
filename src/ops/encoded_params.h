// Parameters of attention to the rows of an encoder (Ops::attend_encoded).
#pragma once
#include <cstdint>

namespace penstock {

// Keys and values of an encoder's rows in one layer. They are a sequence's state in that layer: units
// of 16 rows and one head, in the type of states.
struct EncodedParams {
  int layer = 0;
  int n_rows = 0;  // of the encoder, of every sequence
  int n_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;  // multiplies q.k

  // Number of values of the state.
  int64_t state_values() const {
    const auto padded = [](int n) { return int64_t{n + 15} / 16 * 16; };
    return 2 * padded(n_rows) * n_heads * padded(head_dim);
  }
};

}  // namespace penstock
