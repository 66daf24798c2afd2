// PENSTOCK_CHECK: a broken invariant of our own. Never reachable from a file, a flag or a request.
#pragma once

namespace penstock {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace penstock

#define PENSTOCK_CHECK(condition)                    \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? void(0)                                     \
       : ::penstock::check_failed(#condition, __FILE__, __LINE__))
