#include "kernels/neon/tables.h"
#include "kernels/recurrence_kernels.h"

#include "kernels/neon/simd.h"

#include "kernels/generic/recurrence.inl"

namespace penstock {

constinit const RecurrenceKernels kNeonRecurrenceKernels = kRecurrenceKernels;

}  // namespace penstock
