#include "kernels/avx512/tables.h"
#include "kernels/scan_kernels.h"

namespace penstock {
namespace {
constexpr int kScanLanes = 16;
}  // namespace
}  // namespace penstock

#include "kernels/generic/scans.inl"

namespace penstock {

constinit const ScanKernels kAvx512ScanKernels = kScanKernels;

}  // namespace penstock
