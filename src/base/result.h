// Result<T> and helpers. The type itself is public: include/penstock/result.h.
#pragma once
#include <fmt/format.h>

#include "penstock/result.h"

namespace penstock {

// Makes an error: errorf(ErrorCode::kCorruptFile, "{}: expected {} bytes, got {}", path, want,
// have)
template <class... Args>
tl::unexpected<Error> errorf(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace penstock

#define PENSTOCK_CONCAT_(a, b) a##b
#define PENSTOCK_CONCAT(a, b) PENSTOCK_CONCAT_(a, b)

// Returns the error of a Status or Result expression to the caller.
#define RETURN_IF_ERROR(expr)                                                               \
  do {                                                                                      \
    if (auto status_ = (expr); !status_) return tl::unexpected(std::move(status_).error()); \
  } while (false)

// Assigns the value of a Result to the left side, or returns its error to the caller:
//   ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
// The left side may be a declaration, which takes no parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_(PENSTOCK_CONCAT(result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_(result, lhs, expr)                     \
  auto result = (expr);                                          \
  if (!result) return tl::unexpected(std::move(result).error()); \
  lhs = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
