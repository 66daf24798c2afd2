#include "ops/cuda/kernels/limits.h"

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

PENSTOCK_BODY void ReadMemory::operator()(const Thread& t) const {
  constexpr int kAhead = 4;  // loads in flight per thread
  const int64_t stride = static_cast<int64_t>(t.n_x) * kThreads;
  uint32_t x = 0;
  for (int64_t i = static_cast<int64_t>(t.x) * kThreads + t.index; i < n; i += kAhead * stride) {
    FourWords words[kAhead] = {};
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (i + j * stride < n) words[j] = from[i + j * stride];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      x ^= words[j].w[0] ^ words[j].w[1] ^ words[j].w[2] ^ words[j].w[3];
  }
  out[t.x * kThreads + t.index] = x;
}

PENSTOCK_BODY void CopyMemory::operator()(const Thread& t) const {
  const int64_t stride = static_cast<int64_t>(t.n_x) * kThreads;
  for (int64_t i = static_cast<int64_t>(t.x) * kThreads + t.index; i < n; i += stride)
    to[i] = from[i];
}

// Operands are about 1 for floats, 0 to 15 for integers.
template <Operand kOperand>
PENSTOCK_BODY void MultiplyInRegisters<kOperand>::operator()(const Thread& t) const {
  constexpr uint32_t kBase = kOperand == Operand::kBF16 ? 0x3f803f80u
                             : kOperand == Operand::kF8 ? 0x38383838u
                                                        : 0;
  constexpr uint32_t kMask = kOperand == Operand::kBF16 ? 0x00300030u
                             : kOperand == Operand::kF8 ? 0x03030303u
                                                        : 0x0f0f0f0fu;
  const auto word = [&](uint32_t i) {
    return kBase | ((static_cast<uint32_t>(t.index) * 8u + i) * 2654435761u & kMask);
  };
  const uint32_t a[4] = {word(0), word(1), word(2), word(3)}, b[2] = {word(4), word(5)};
  float total = 0;
  if constexpr (kOperand == Operand::kInt8) {
    int d[kAtOnce][4] = {};
    for (int i = 0; i < n; ++i)
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) t.mma_int8(d[j], a, b);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      total += static_cast<float>(d[j][0] + d[j][1] + d[j][2] + d[j][3]);
  } else {
    float d[kAtOnce][4] = {};
    for (int i = 0; i < n; ++i) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if constexpr (kOperand == Operand::kBF16) {
          t.mma(d[j], a, b);
        } else {
          t.mma_f8(d[j], a, b);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) total += d[j][0] + d[j][1] + d[j][2] + d[j][3];
  }
  out[t.x * kThreads + t.index] = total;
}

PENSTOCK_BODY void DoNothing::operator()(const Thread&) const {}

PENSTOCK_KERNEL(ReadMemory)
PENSTOCK_KERNEL(CopyMemory)
PENSTOCK_KERNEL(MultiplyInRegisters<Operand::kBF16>)
PENSTOCK_KERNEL(MultiplyInRegisters<Operand::kF8>)
PENSTOCK_KERNEL(MultiplyInRegisters<Operand::kInt8>)
PENSTOCK_KERNEL(DoNothing)

}  // namespace penstock::cuda
