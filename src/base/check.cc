#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace penstock {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "penstock: internal error: %s does not hold at %s:%d\n", condition, file,
               line);
  std::abort();
}

}  // namespace penstock
