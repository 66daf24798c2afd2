// Values of nlohmann-json where memory runs out. Through the server: tests/e2e/amplification_e2e.py.
#include <gtest/gtest.h>

#include "base/json_text.h"
#include "support/counted_memory.h"

namespace penstock {
namespace {

using PlainJson = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Runs `make` with memory for k allocations, for every k up to the first with which it ends, and
// returns that one. There is none for destroying what it made, whole or in part.
template <class Make>
int64_t allocations_of(const Make& make) {
  for (int64_t k = 0;; ++k) {
    allocations_left = k;
    bool made = false;
    try {
      const auto value = make();
      made = true;
      allocations_left = 0;
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
    if (made) return k;
  }
}

TEST(JsonDestroy, TakesNoMemory) {
  const std::string text =
      R"({"a": [1, [2, {"b": ["a text that is longer than a string's own room", null]}], {}, []],)"
      R"( "c": {"d": {"e": [[[[1.5]]], true]}}, "f": "another text that is longer than that room"})";
  EXPECT_GT(allocations_of([&] { return bounded_json<PlainJson>(text); }), 10);
  EXPECT_GT(allocations_of([&] { return bounded_json<OrderedJson>(text); }), 10);
  const auto value = bounded_json<PlainJson>(text);
  const auto ordered = bounded_json<OrderedJson>(text);
  EXPECT_GT(allocations_of([&] { return value; }), 10);
  EXPECT_GT(allocations_of([&] {
              OrderedJson changed = ordered;
              changed["a"][1] = ordered["c"];
              changed["c"].erase("d");
              changed["g"] = {{"h", ordered}, {"i", {1, 2, 3}}};
              return changed;
            }),
            20);
}

// Leaks and values destroyed twice are for the sanitizer to find.
TEST(JsonDestroy, EveryKindOfValue) {
  PlainJson value = PlainJson::array({PlainJson::binary({1, 2, 3}), "text", 1.5, nullptr, true});
  OrderedJson ordered = OrderedJson::array({OrderedJson::binary({1, 2, 3}), "text", 1.5, nullptr});
  for (int depth = 0; depth < kMaxJsonNesting; ++depth) {
    value = PlainJson{{"x", std::move(value)}};
    ordered = OrderedJson{{"x", std::move(ordered)}};
  }
  value = PlainJson();
  ordered.clear();
  EXPECT_TRUE(value.is_null() && ordered.empty());
}

}  // namespace
}  // namespace penstock
