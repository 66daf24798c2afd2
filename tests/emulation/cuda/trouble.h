// What tests ask of all emulated devices together.
#pragma once
#include <cstdint>

namespace penstock::cuda {

enum class EmulatedCalls : uint8_t {
  kMemory,    // is refused
  kLaunches,  // of kernels: the device is lost
  kOthers,    // copies, recordings played, marks, waits: the device is lost
};

// The n-th call of this kind from now on fails; 0: none does. Returns how many calls of the kind
// that counted until now there were since it was called last.
int64_t fail_emulated_call(int64_t n, EmulatedCalls kind = EmulatedCalls::kOthers);
// Memory that was taken and not given back.
int64_t emulated_bytes_in_use();
// What the host reads from the device is not what lies there.
void make_emulated_reads_wrong(bool wrong);

}  // namespace penstock::cuda
