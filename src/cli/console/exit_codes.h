// Exit codes of the program, documented in `penstock --help`.
#pragma once
#include "base/result.h"

namespace penstock {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;        // anything not listed below
inline constexpr int kExitUsage = 2;          // a flag, config value or request is wrong
inline constexpr int kExitNotFound = 3;       // a file or model does not exist
inline constexpr int kExitBadFile = 4;        // a file is corrupt or of an unsupported kind
inline constexpr int kExitExhausted = 5;      // memory, disk or cache blocks ran out
inline constexpr int kExitInterrupted = 130;  // Ctrl-C

constexpr int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kContextOverflow: return kExitUsage;
    case ErrorCode::kNotFound: return kExitNotFound;
    case ErrorCode::kCorruptFile:
    case ErrorCode::kUnsupported: return kExitBadFile;
    case ErrorCode::kResourceExhausted: return kExitExhausted;
    case ErrorCode::kCancelled: return kExitInterrupted;
    case ErrorCode::kIo:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kInternal: break;
  }
  return kExitFailure;
}

// Prints "penstock: MESSAGE" to stderr and returns the exit code.
int fail(const Error& error);

}  // namespace penstock
