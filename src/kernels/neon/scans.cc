#include "kernels/neon/tables.h"
#include "kernels/scan_kernels.h"

namespace penstock {
namespace {
constexpr int kScanLanes = 4;
}  // namespace
}  // namespace penstock

#include "kernels/generic/scans.inl"

namespace penstock {

constinit const ScanKernels kNeonScanKernels = kScanKernels;

}  // namespace penstock
