// What an error of the system means for a file that is written.
#pragma once
#include <cerrno>

#include "base/result.h"

namespace penstock {

// kResourceExhausted where the disk has no room or the file may not be so large, else kIo.
inline ErrorCode file_error(int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return full ? ErrorCode::kResourceExhausted : ErrorCode::kIo;
}

}  // namespace penstock
