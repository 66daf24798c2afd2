#include "random_schema.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock::grammar {
namespace {

// RANDOM_SCHEMAS=n draws so many.
TEST(RandomSchemas, MasksAreWhatIsTakenAndNothingEndsDead) {
  const char* asked = std::getenv("RANDOM_SCHEMAS");
  const char* first = std::getenv("RANDOM_SCHEMAS_FROM");
  const uint64_t n = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 300;
  const uint64_t from = first != nullptr ? std::strtoull(first, nullptr, 10) : 0;
  for (uint64_t seed = from; seed < from + n; ++seed) {
    Choices choices(seed);
    EXPECT_EQ(try_random_schema(choices, small_limits()), "") << "RANDOM_SCHEMAS_FROM=" << seed;
  }
}

TEST(RandomSchemas, MostCompile) {
  int compiled = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Choices choices(seed);
    compiled += Grammar::compile({SpecKind::kJsonSchema, RandomSchema(choices).draw()}, nullptr)
                    .has_value();
  }
  EXPECT_GT(compiled, 100);
}

}  // namespace
}  // namespace penstock::grammar
