#include "kernels/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace penstock {
namespace {

#if defined(__x86_64__)
struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  CpuidLeaf r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool has(uint32_t bits, int index) { return (bits >> index & 1u) != 0; }

uint64_t enabled_state() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool request_tile_state() {
  constexpr long kReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kReqXcompPerm, kXfeatureXtiledata) == 0;
}

CpuFeatures detect() {
  CpuFeatures f;
  const CpuidLeaf leaf1 = cpuid(1), leaf7 = cpuid(7), leaf7_1 = cpuid(7, 1);
  if (!has(leaf1.ecx, 27)) return f;  // OSXSAVE
  const uint64_t state = enabled_state();
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6, tiles = (state & 0x60000) == 0x60000;
  f.avx2 = ymm && has(leaf1.ecx, 12) && has(leaf1.ecx, 29) && has(leaf7.ebx, 5) && has(leaf7.ebx, 8);
  f.avx_vnni = f.avx2 && has(leaf7_1.eax, 4);
  f.avx512 = f.avx2 && zmm && has(leaf7.ebx, 16) && has(leaf7.ebx, 17) && has(leaf7.ebx, 30) &&
             has(leaf7.ebx, 31) && has(leaf7.ecx, 1) && has(leaf7.ecx, 6) && has(leaf7.ecx, 11);
  f.avx512_bf16 = f.avx512 && has(leaf7_1.eax, 5);
  f.amx = f.avx512_bf16 && tiles && has(leaf7.edx, 22) && has(leaf7.edx, 24) && has(leaf7.edx, 25) &&
          request_tile_state();
  return f;
}
#elif defined(__aarch64__)
CpuFeatures detect() {
  CpuFeatures f;
  f.neon = true;
#if defined(__linux__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  f.neon_dot = (getauxval(AT_HWCAP) & kDotProducts) != 0;
#endif
  return f;
}
#else
CpuFeatures detect() { return {}; }
#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace penstock
