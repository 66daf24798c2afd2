// PENSTOCK_CHECK(condition): ends the program when an internal invariant is broken. No file, flag
// or request may cause that.
#pragma once

namespace penstock {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace penstock

#define PENSTOCK_CHECK(condition)                    \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? void(0)                                     \
       : ::penstock::check_failed(#condition, __FILE__, __LINE__))
