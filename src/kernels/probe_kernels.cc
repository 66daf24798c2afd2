#include "kernels/probe_kernels.h"

namespace penstock {

extern const ProbeKernels kProbeScalar;
#if defined(__x86_64__)
extern const ProbeKernels kProbeAvx2, kProbeAvx512, kProbeAmx;
#endif

const ProbeKernels& probe_kernels([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx2" || isa == "avxvnni") return kProbeAvx2;
  if (isa == "avx512") return kProbeAvx512;
  if (isa == "amx") return kProbeAmx;
#endif
  return kProbeScalar;
}

}  // namespace penstock
