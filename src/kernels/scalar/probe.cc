#include "kernels/probe_kernels.h"
#include "kernels/scalar/tables.h"

namespace penstock {
namespace {

uint64_t read_streams(const void* data, size_t bytes) {
  const uint64_t* words = static_cast<const uint64_t*>(data);
  const size_t quarter = bytes / 8 / 4;
  uint64_t sum[4] = {};
  for (size_t i = 0; i < quarter; ++i) {
    for (size_t s = 0; s < 4; ++s) sum[s] ^= words[s * quarter + i];
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

float multiply_floats(int64_t iterations) {
  float acc[16];
  for (int i = 0; i < 16; ++i) acc[i] = static_cast<float>(i);
  for (int64_t n = 0; n < iterations; ++n) {
    for (int i = 0; i < 16; ++i) acc[i] = acc[i] * 0.5f + 0.5f;
    asm volatile("" : : "r"(acc) : "memory");
  }
  float sum = 0;
  for (const float value : acc) sum += value;
  return sum;
}

float multiply_integers(int64_t iterations) {
  int8_t left[64], right[64];
  for (int i = 0; i < 64; ++i)
    left[i] = static_cast<int8_t>(i), right[i] = static_cast<int8_t>(100 - i);
  int acc[16] = {};
  for (int64_t n = 0; n < iterations; ++n) {
    for (int i = 0; i < 64; ++i) acc[i / 4] += left[i] * right[i];
    asm volatile("" : : "r"(acc), "r"(left), "r"(right) : "memory");
  }
  int sum = 0;
  for (const int value : acc) sum ^= value;
  return static_cast<float>(sum);
}

constexpr ReadProbe kReads[] = {read_streams};
constexpr ComputeProbe kUnits[] = {
    {"scalar FP32", ComputeProbe::Operand::kFloats, 32, multiply_floats},
    {"scalar INT8", ComputeProbe::Operand::kIntegers, 128, multiply_integers}};

}  // namespace

constinit const ProbeKernels kScalarProbeKernels = {kReads, kUnits};

}  // namespace penstock
