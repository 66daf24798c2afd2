// Draws from rows of logits (kernels/sample.h), as a step has them in the device's memory: what is
// drawn where is data, so that a recorded step draws anew whenever it is played.
#pragma once
#include <cstdint>

namespace penstock::cuda {

struct EditOnDevice {  // as LogitEdit
  int32_t token;
  uint16_t kind, phase;
  float value;
};

struct DrawOnDevice {
  int32_t row;             // of the logits; -1: left to the host
  int32_t edits, n_edits;  // in DrawsOnDevice::edits
  int32_t n_top;           // most likely tokens of the row as it came
  int64_t mask;            // in DrawsOnDevice::masks, -1: all tokens
  float temperature;
  // (logit - largest) / temperature of what min-p keeps; -infinity: everything
  float least_x;
  int32_t top_k;  // 0: all
  float top_p;    // 1: all
  bool report, likeliest;
  double u;
};

struct DrawnOnDevice {
  // of token: none is possible; left to the host
  static constexpr int kNone = -1, kLeft = -2;
  int32_t token;
  int32_t rank;
  int32_t n_top;
  // of the row as it came: its largest, and that of the token
  float raw_most, raw_logit;
  double raw_sum;  // of exp(logit - largest)
};

struct TopOnDevice {
  int32_t token;
  float raw_logit;
};

struct DrawsOnDevice {
  int32_t n = 0, tops_stride = 0;
  const DrawOnDevice* draws = nullptr;  // [n]
  const EditOnDevice* edits = nullptr;
  const uint32_t* masks = nullptr;
  int32_t* tokens = nullptr;       // [n] drawn, for the step that follows
  DrawnOnDevice* drawn = nullptr;  // [n], in the host's memory
  TopOnDevice* tops = nullptr;     // [n, tops_stride], in the host's memory
};

}  // namespace penstock::cuda
