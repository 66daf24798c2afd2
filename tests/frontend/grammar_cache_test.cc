// What the cache of grammars keeps, and what it takes for the same.
#include "frontend/grammar_cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "formats/weight_source.h"
#include "frontend/grammar_key.h"
#include "grammar/token_matcher.h"
#include "support/test_data.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

const Tokenizer& tokenizer() {
  static const std::unique_ptr<Tokenizer> loaded = [] {
    const auto source =
        open_weights(models_dir().string() + "/penstock-stories-15m-q8_0.gguf").value();
    return Tokenizer::load(*source).value();
  }();
  return *loaded;
}

Metrics metrics_of(const GrammarCache& cache) {
  Metrics metrics;
  cache.add_metrics(metrics);
  return metrics;
}

std::string key_of(const std::string& schema) { return grammar_key({.text = schema}); }

TEST(GrammarKey, WhatMeansTheSameIsTheSame) {
  const std::string schema =
      R"({"type":"object","properties":{"b":{"type":"string","maxLength":3},"a":{"minimum":1}}})";
  EXPECT_EQ(key_of(R"({ "properties" : {"b": {"maxLength": 3, "type": "string"},
                        "a": {"minimum": 1.0}}, "type": "object" })"),
            key_of(schema));
  EXPECT_NE(
      key_of(
          R"({"type":"object","properties":{"a":{"minimum":1},"b":{"type":"string","maxLength":3}}})"),
      key_of(schema));
  EXPECT_NE(grammar_key({.text = schema, .json = {.whitespace = grammar::WhiteSpace::kNone}}),
            key_of(schema));
  // What the order of keywords may decide stays as it is.
  EXPECT_NE(key_of(R"({"allOf":[{"properties":{"x":{}}}],"properties":{"y":{}}})"),
            key_of(R"({"properties":{"y":{}},"allOf":[{"properties":{"x":{}}}]})"));
  EXPECT_NE(key_of(R"({"const":{"a":1,"b":2}})"), key_of(R"({"const":{"b":2,"a":1}})"));
  EXPECT_NE(key_of(R"({"minimum":0.1})"), key_of(R"({"minimum":0.1000000000000000055})"));
  EXPECT_NE(grammar_key({.kind = grammar::SpecKind::kRegex, .text = "a b"}),
            grammar_key({.kind = grammar::SpecKind::kRegex, .text = "a  b"}));
}

TEST(GrammarCache, CompilesOnceWhatMeansTheSame) {
  GrammarCache cache(tokenizer());
  for (const char* schema :
       {R"({"type":"integer","minimum":3})", R"({ "type": "integer", "minimum": 3 })",
        R"({"minimum":3,"type":"integer"})", R"({"type":"integer","minimum":3})"}) {
    EXPECT_TRUE(cache.compile({.json = schema}));
  }
  const Metrics metrics = metrics_of(cache);
  EXPECT_EQ(metrics.grammar_cache_queries.value, 4);
  EXPECT_EQ(metrics.grammar_cache_hits.value, 3);
  EXPECT_EQ(metrics.grammar_compile_seconds.count, 1u);
}

TEST(GrammarCache, CompilesOnceWhatManyAskForAtOnce) {
  GrammarCache cache(tokenizer());
  std::vector<std::thread> threads;
  std::atomic<int> n_made = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back(
        [&] { n_made += cache.compile({.regex = "(a|b[0-9]{1,40}){2,30}"}).has_value(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_made, 8);
  EXPECT_EQ(metrics_of(cache).grammar_compile_seconds.count, 1u);
}

TEST(GrammarCache, KeepsTheLastUsedOnes) {
  GrammarCache cache(tokenizer(), {.max_entries = 2});
  const auto ask = [&](const char* choice) { EXPECT_TRUE(cache.compile({.choice = {choice}})); };
  for (const char* choice : {"one", "two", "one", "three", "one", "two"}) ask(choice);
  EXPECT_EQ(cache.n_kept(), 2u);
  EXPECT_EQ(metrics_of(cache).grammar_cache_hits.value, 2);
  GrammarCache small(tokenizer(), {.max_bytes = 1});  // the latest stays whatever it takes
  for (const char* choice : {"one", "two", "two"}) EXPECT_TRUE(small.compile({.choice = {choice}}));
  EXPECT_EQ(small.n_kept(), 1u);
  EXPECT_EQ(metrics_of(small).grammar_cache_hits.value, 1);
}

// Those that were evicted and that requests still use are bounded, and one client leaves room for
// others.
TEST(GrammarCache, GrammarsInUseAreBounded) {
  const auto make = [](GrammarCache& cache, int i, const char* owner) {
    CompileEffort effort{.owner = owner};
    return cache.compile({.regex = fmt::format("[a-z]{{1,{}}}", 500 + i)}, "", effort);
  };
  GrammarCache cache(tokenizer(), {.max_entries = 1, .max_in_use = 1'000'000});
  std::vector<Constraint> in_use;
  int n = 0;
  for (auto made = make(cache, 0, "many"); made && n < 1000; made = make(cache, ++n, "many"))
    in_use.push_back(*std::move(made));
  ASSERT_LT(n, 1000);
  const auto refused = make(cache, n, "many");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("at most 1000000"));
  EXPECT_TRUE(make(cache, n - 1, "many")) << "it is kept";
  int n_others = 0;
  for (auto made = make(cache, 1000, "other"); made && n_others < 1000;
       made = make(cache, 1000 + ++n_others, "other"))
    in_use.push_back(*std::move(made));
  EXPECT_GT(n_others, 0);
  EXPECT_LT(n_others, n);
  in_use.clear();
  EXPECT_TRUE(make(cache, n, "many"));
}

TEST(GrammarCache, WhatIsCancelledIsMadeByWhoStillWantsIt) {
  GrammarCache cache(tokenizer());
  std::atomic<bool> gone = true;
  CompileEffort unwanted{.cancelled = &gone};
  const auto cancelled = cache.compile({.regex = "a[b-d]{3}"}, "", unwanted);
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(cache.n_kept(), 0u);
  EXPECT_TRUE(cache.compile({.regex = "a[b-d]{3}"}));
  for (int round = 0; round < 20; ++round) {
    const std::string regex = fmt::format("(a|b[0-9]{{1,40}}){{2,{}}}", 20 + round);
    std::atomic<bool> leaves = false;
    CompileEffort effort{.cancelled = &leaves};
    std::thread leaver([&] { (void)cache.compile({.regex = regex}, "", effort); });
    std::thread stayer([&] { EXPECT_TRUE(cache.compile({.regex = regex})); });
    leaves = true;
    leaver.join();
    stayer.join();
  }
  EXPECT_EQ(metrics_of(cache).grammar_refusals.value, 0);
}

TEST(GrammarCache, RefusalsAreKeptAndCounted) {
  GrammarCache cache(tokenizer());
  const auto first = cache.compile({.regex = "(a"}), second = cache.compile({.regex = "(a"});
  ASSERT_FALSE(first);
  ASSERT_FALSE(second);
  EXPECT_EQ(first.error().message, second.error().message);
  EXPECT_EQ(metrics_of(cache).grammar_refusals.value, 1);
  EXPECT_FALSE(cache.compile({}));
}

}  // namespace
}  // namespace penstock
