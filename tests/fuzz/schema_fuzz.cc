// Bytes as the choices by which a schema with overlapping members, a vocabulary and texts are
// drawn: bits are what is taken, and there is no dead end.
#include "grammar/grammar.h"

#include <cstdio>

#include "../grammar/random_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock::grammar;
  Choices choices(data, size);
  const std::string wrong = try_random_schema(choices, small_limits());
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  __builtin_trap();
}
