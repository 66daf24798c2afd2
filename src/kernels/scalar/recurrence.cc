#include "kernels/recurrence_kernels.h"
#include "kernels/scalar/tables.h"

#include "kernels/scalar/simd.h"

#include "kernels/generic/recurrence.inl"

namespace penstock {

constinit const RecurrenceKernels kScalarRecurrenceKernels = kRecurrenceKernels;

}  // namespace penstock
