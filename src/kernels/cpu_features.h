// What this CPU and operating system can execute.
#pragma once
#include <cstdint>

namespace penstock {

// What more than one place asks for; what only one instruction set needs is asked for in its row (dispatch.cc).
struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C, BMI2
  bool avx512 = false;  // F, BW, VL, DQ, VNNI, VBMI, VBMI2
  bool avx512_bf16 = false;
  bool amx = false;  // TILE, INT8, BF16, with the permission to use the tile state granted
  // Memory is read fastest as one stream a thread: AMD from Zen 5 on; elsewhere as several far apart (docs/kernels.md).
  bool one_stream = false;
};

// Detected once. Asks the kernel for the AMX tile state on first use; threads started later inherit the
// permission.
const CpuFeatures& cpu_features();

// x86: a bit of what `cpuid` tells, as the makers' manuals number them. Registers above ymm need cpu_features() too: it knows
// what the operating system saves. False elsewhere, and for a leaf that the processor does not have.
enum class CpuidRegister : uint8_t { kEax, kEbx, kEcx, kEdx };
bool cpuid_bit(uint32_t leaf, uint32_t subleaf, CpuidRegister reg, int bit);

// ARM: a bit of Linux's AT_HWCAP. False elsewhere.
bool hwcap_bit(int bit);

}  // namespace penstock
