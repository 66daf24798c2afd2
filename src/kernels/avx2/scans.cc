#include "kernels/avx2/tables.h"
#include "kernels/scan_kernels.h"

namespace penstock {
namespace {
constexpr int kScanLanes = 8;
}  // namespace
}  // namespace penstock

#include "kernels/generic/scans.inl"

namespace penstock {

constinit const ScanKernels kAvx2ScanKernels = kScanKernels;

}  // namespace penstock
