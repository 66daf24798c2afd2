// Instruction sets of this CPU that the operating system supports.
#pragma once
#include <cstdint>

namespace penstock {

// Features that several instruction sets depend on; others are checked in dispatch.cc.
struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C, BMI2
  bool avx512 = false;  // F, BW, VL, DQ, VNNI, VBMI, VBMI2
  bool avx512_bf16 = false;
  // TILE, INT8, BF16, with the permission to use the tile state granted
  bool amx = false;
  // A thread reads memory fastest as one stream: AMD from Zen 5 on. Others read fastest as several
  // streams far apart (docs/design/kernels.md).
  bool one_stream = false;
};

// Returns the features, which are detected once. The first call requests the AMX tile state from
// the kernel; threads started later inherit the permission.
const CpuFeatures& cpu_features();

// x86: returns a bit of `cpuid`, numbered as in the vendors' manuals; false on other processors,
// and for a leaf that the processor lacks. For registers above ymm check cpu_features(), too, which
// includes what the operating system saves.
enum class CpuidRegister : uint8_t { kEax, kEbx, kEcx, kEdx };
bool cpuid_bit(uint32_t leaf, uint32_t subleaf, CpuidRegister reg, int bit);

// ARM: returns a bit of Linux's AT_HWCAP; false on other processors.
bool hwcap_bit(int bit);

}  // namespace penstock
