// Descriptions of draws from rows of logits (kernels/sample.h) in device memory: as they are data,
// a replayed step makes other draws.
#pragma once
#include <cstdint>

namespace penstock::cuda {

struct EditOnDevice {  // see LogitEdit
  int32_t token;
  uint16_t kind, phase;
  float value;
};

struct DrawOnDevice {
  int32_t row;             // of the logits; -1: drawn by the host
  int32_t edits, n_edits;  // in DrawsOnDevice::edits
  int32_t n_top;           // most likely tokens of the unedited row
  int64_t mask;            // in DrawsOnDevice::masks, -1: all tokens
  float temperature;
  // least (logit - largest) / temperature by min-p; -infinity: none
  float least_x;
  int32_t top_k;  // 0: all
  float top_p;    // 1: all
  bool report, likeliest;
  double u;
};

struct DrawnOnDevice {
  // special tokens: none is possible; left to the host
  static constexpr int kNone = -1, kLeft = -2;
  int32_t token;
  int32_t rank;
  int32_t n_top;
  // largest logit of the unedited row, and the token's
  float raw_most, raw_logit;
  double raw_sum;  // sum of exp(logit - largest)
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
  int32_t* tokens = nullptr;       // [n] drawn tokens, read by the next step
  DrawnOnDevice* drawn = nullptr;  // [n], in host memory
  TopOnDevice* tops = nullptr;     // [n, tops_stride], in host memory
};

}  // namespace penstock::cuda
