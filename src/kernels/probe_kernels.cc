#include "kernels/probe_kernels.h"

#include "kernels/cpu_features.h"

namespace penstock {

extern const ProbeKernels kProbeScalar;
#if defined(__x86_64__)
extern const ProbeKernels kProbeAvx2, kProbeAvxVnni, kProbeAvx512, kProbeAmx;
extern const ComputeProbe kProbeAvx512Bf16;
#elif defined(__aarch64__)
extern const ProbeKernels kProbeNeon, kProbeNeonDot;
#endif

std::span<const ReadProbe> read_probes([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx2" || isa == "avxvnni") return kProbeAvx2.reads;
  if (isa == "avx512" || isa == "amx") return kProbeAvx512.reads;
#elif defined(__aarch64__)
  if (isa == "neon" || isa == "neondot") return kProbeNeon.reads;
#endif
  return kProbeScalar.reads;
}

std::vector<ComputeProbe> compute_probes([[maybe_unused]] std::string_view isa) {
  std::vector<ComputeProbe> probes;
  const auto add = [&](std::span<const ComputeProbe> units) {
    probes.insert(probes.end(), units.begin(), units.end());
  };
#if defined(__x86_64__)
  if (isa == "avx2" || isa == "avxvnni") add(kProbeAvx2.units);
  if (isa == "avxvnni") add(kProbeAvxVnni.units);
  if (isa == "avx512" || isa == "amx") {
    add(kProbeAvx512.units);
    if (cpu_features().avx512_bf16) probes.push_back(kProbeAvx512Bf16);
  }
  if (isa == "amx") add(kProbeAmx.units);
#elif defined(__aarch64__)
  if (isa == "neon" || isa == "neondot") add(kProbeNeon.units);
  if (isa == "neondot") add(kProbeNeonDot.units);
#endif
  if (probes.empty()) add(kProbeScalar.units);
  return probes;
}

}  // namespace penstock
