// Result<T>: a value or an Error, for failures that a user, a file, a network or memory can cause.
// Broken invariants use CHECK instead.
#pragma once
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace penstock {

enum class ErrorCode {
  kInvalidArgument,    // a request, flag or config value is wrong
  kContextOverflow,    // a prompt is longer than the model's context
  kNotFound,           // a file, model or name does not exist
  kCorruptFile,        // a file was read and its content is impossible
  kUnsupported,        // well-formed, but not something this build can do
  kResourceExhausted,  // memory, disk, queue or blocks ran out
  kIo,                 // the operating system refused
  kCancelled,
  kDeadlineExceeded,
  kInternal,
};

// message: one line that a user can act on: what failed and where, what was expected, what was
// found.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> make_error(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace penstock
