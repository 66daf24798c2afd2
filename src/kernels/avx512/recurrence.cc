#include "kernels/avx512/tables.h"
#include "kernels/recurrence_kernels.h"

#include "kernels/avx512/simd.h"

#include "kernels/generic/recurrence.inl"

namespace penstock {

constinit const RecurrenceKernels kAvx512RecurrenceKernels = kRecurrenceKernels;

}  // namespace penstock
