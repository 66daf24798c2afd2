#include "kernels/probe_kernels.h"

namespace penstock {

extern const ProbeKernels kProbeScalar;
#if defined(__x86_64__)
extern const ProbeKernels kProbeAvx2, kProbeAvx512, kProbeAmx;
#elif defined(__aarch64__)
extern const ProbeKernels kProbeNeon;
#endif

const ProbeKernels& probe_kernels([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx2" || isa == "avxvnni") return kProbeAvx2;
  if (isa == "avx512") return kProbeAvx512;
  if (isa == "amx") return kProbeAmx;
#elif defined(__aarch64__)
  if (isa == "neon" || isa == "neondot") return kProbeNeon;
#endif
  return kProbeScalar;
}

}  // namespace penstock
