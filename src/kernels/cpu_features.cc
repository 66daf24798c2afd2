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
uint64_t enabled_state() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool request_tile_state() {
  constexpr long kReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kReqXcompPerm, kXfeatureXtiledata) == 0;
}

// Whether this is an AMD processor from Zen 5 on, by leaves 0 and 1 of CPUID.
bool zen5_or_later() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != signature_AMD_ebx ||
      ecx != signature_AMD_ecx)
    return false;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (eax >> 8 & 0xf) + (eax >> 20 & 0xff) >= 0x1a;  // family
}

CpuFeatures detect() {
  using enum CpuidRegister;
  const auto leaf7_ebx = [](int bit) { return cpuid_bit(7, 0, kEbx, bit); };
  const auto leaf7_ecx = [](int bit) { return cpuid_bit(7, 0, kEcx, bit); };
  const auto leaf7_edx = [](int bit) { return cpuid_bit(7, 0, kEdx, bit); };
  CpuFeatures f;
  f.one_stream = zen5_or_later();
  if (!cpuid_bit(1, 0, kEcx, 27)) return f;  // OSXSAVE
  const uint64_t state = enabled_state();
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6,
             tiles = (state & 0x60000) == 0x60000;
  f.avx2 =
      ymm && cpuid_bit(1, 0, kEcx, 12) && cpuid_bit(1, 0, kEcx, 29) && leaf7_ebx(5) && leaf7_ebx(8);
  f.avx512 = f.avx2 && zmm && leaf7_ebx(16) && leaf7_ebx(17) && leaf7_ebx(30) && leaf7_ebx(31) &&
             leaf7_ecx(1) && leaf7_ecx(6) && leaf7_ecx(11);
  f.avx512_bf16 = f.avx512 && cpuid_bit(7, 1, kEax, 5);
  f.amx = f.avx512_bf16 && tiles && leaf7_edx(22) && leaf7_edx(24) && leaf7_edx(25) &&
          request_tile_state();
  return f;
}
#else
CpuFeatures detect() { return {}; }
#endif

}  // namespace

bool cpuid_bit([[maybe_unused]] uint32_t leaf, [[maybe_unused]] uint32_t subleaf,
               [[maybe_unused]] CpuidRegister reg, [[maybe_unused]] int bit) {
#if defined(__x86_64__)
  uint32_t registers[4] = {};
  if (__get_cpuid_count(leaf, subleaf, &registers[0], &registers[1], &registers[2],
                        &registers[3]) == 0)
    return false;
  return (registers[static_cast<int>(reg)] >> bit & 1u) != 0;
#else
  return false;
#endif
}

bool hwcap_bit([[maybe_unused]] int bit) {
#if defined(__aarch64__) && defined(__linux__)
  return (getauxval(AT_HWCAP) >> bit & 1ul) != 0;
#else
  return false;
#endif
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace penstock
