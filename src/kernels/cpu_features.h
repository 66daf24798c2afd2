// What this CPU and operating system can execute.
#pragma once

namespace penstock {

struct CpuFeatures {
  bool avx2 = false;      // AVX2, FMA, F16C, BMI2
  bool avx_vnni = false;  // 256-bit vpdpbusd without AVX-512
  bool avx512 = false;    // F, BW, VL, DQ, VNNI, VBMI, VBMI2
  bool avx512_bf16 = false;
  bool amx = false;  // TILE, INT8, BF16, with the permission to use the tile state granted

  bool neon = false;      // every 64-bit ARM processor
  bool neon_dot = false;  // dot products of bytes (ARMv8.2)
};

// Detected once. Asks the kernel for the AMX tile state on first use; threads started later inherit the
// permission.
const CpuFeatures& cpu_features();

}  // namespace penstock
