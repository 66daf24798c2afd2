// Error codes for failed writes to files.
#pragma once
#include <cerrno>

#include "base/result.h"

namespace penstock {

// Returns kResourceExhausted when the disk or quota is full or the file would be too large, else
// kIo. error_number: errno.
inline ErrorCode file_error(int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return full ? ErrorCode::kResourceExhausted : ErrorCode::kIo;
}

}  // namespace penstock
