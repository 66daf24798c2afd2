#include "support/counted_memory.h"

#include <cstdlib>
#include <new>

namespace penstock {
std::atomic<int64_t> n_allocations = 0;
constinit thread_local int64_t allocations_left = -1;
constinit thread_local int allocations_to_refuse = -1;
}  // namespace penstock

void* operator new(size_t size) {
  ++penstock::n_allocations;
  if (penstock::allocations_left == 0) {
    if (penstock::allocations_to_refuse > 0 && --penstock::allocations_to_refuse == 0)
      penstock::allocations_left = -1;
    throw std::bad_alloc();
  }
  if (penstock::allocations_left > 0) --penstock::allocations_left;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
// All three, or a sanitizer's own would go with the others' opposites.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
// Not inlined: g++ does not see that operator new is malloc here, and warns of a free that does not
// match.
[[gnu::noinline]] static void release(void* p) { std::free(p); }
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }
