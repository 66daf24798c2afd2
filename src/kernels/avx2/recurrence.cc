#include "kernels/avx2/tables.h"
#include "kernels/recurrence_kernels.h"

#include "kernels/avx2/simd.h"

#include "kernels/generic/recurrence.inl"

namespace penstock {

constinit const RecurrenceKernels kAvx2RecurrenceKernels = kRecurrenceKernels;

}  // namespace penstock
