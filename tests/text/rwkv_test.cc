// The vocabulary of RWKV's World models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kList =
    "1 '\\x00' 1\n"
    "2 '\\n' 1\n"
    "3 'a' 1\n"
    "4 'ab' 2\n"
    "5 'abcd' 4\n"
    "6 'c' 1\n"
    "7 ' ' 1\r\n"
    "8 '\\'' 1\n"
    "9 \"'a\" 2\n"
    "10 b'\\xe4\\xb8' 2\n"
    "11 '\xe4\xb8\xad' 3\n"
    "12 b'\\xad' 1\n"
    "13 b'\\xff' 1\n"
    "14 '\\u00e9' 2\n"
    "15 '  ' 2\n"
    "16 '\\\\' 1\n"
    "17 'd' 1\n";

std::unique_ptr<Tokenizer> of_list() { return Tokenizer::from_files({.vocab_txt = kList}).value(); }

TEST(Rwkv, TheLongestTokenIsTaken) {
  const auto tokenizer = of_list();
  EXPECT_THAT(tokenizer->encode("abc"), ElementsAre(4, 6));
  EXPECT_THAT(tokenizer->encode("abcda"), ElementsAre(5, 3));
  EXPECT_THAT(tokenizer->encode("'a'ab   \n\\"), ElementsAre(9, 9, 15, 7, 2, 16));
  EXPECT_THAT(tokenizer->encode("\xe4\xb8\xad\xc3\xa9"), ElementsAre(11, 14));
  EXPECT_THAT(tokenizer->encode(""), ElementsAre());
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{10, 12, 5, 0}),
            "\xe4\xb8\xad"
            "abcd");
  EXPECT_EQ(tokenizer->eos(), 0);
  EXPECT_TRUE(tokenizer->is_end_of_generation(0));
}

TEST(Rwkv, BytesWithoutTokensAreDropped) {
  EXPECT_THAT(of_list()->encode("azb\xff"), ElementsAre(3, 13));
}

TEST(Rwkv, GgufFilesHaveTheSameTokens) {
  const nlohmann::json metadata = {
      {"tokenizer.ggml.model", "rwkv"},
      {"tokenizer.ggml.tokens",
       {"<s>", "\\x00", "\\n", "a", "ab", "abcd", "c", " ", "'", "'a", "\\xe4\\xb8",
        "\\xe4\\xb8\\xad", "\\xad", "\\xff", "\\xc3\\xa9", "  ", "\\\\", "d"}}};
  const auto list = of_list(), gguf = Tokenizer::from_gguf(metadata).value();
  for (const char* text : {"abcda'a", "\xe4\xb8\xad\xc3\xa9   \\", "d\n\xff"})
    EXPECT_EQ(gguf->encode(text), list->encode(text)) << text;
  EXPECT_THAT(gguf->encode("a<s>", {.parse_special = true}), ElementsAre(3, 0));
  EXPECT_EQ(gguf->vocab_size(), list->vocab_size());
}

TEST(Rwkv, WhatIsNoListIsRefused) {
  for (const char* line : {"18 'ab' 3", "19 'a", "-1 'x' 1", "20 b'\\xg0' 1", "0 'x' 1", "21 '' 0",
                           "22 '\\' 1", "23 'x'", "24 '\\u12' 1", "5 'x' 1"}) {
    const auto tokenizer = Tokenizer::from_files({.vocab_txt = std::string(kList) + line});
    EXPECT_FALSE(tokenizer) << line;
  }
  const auto gguf = Tokenizer::from_gguf(
      {{"tokenizer.ggml.model", "rwkv"}, {"tokenizer.ggml.tokens", {"<s>", "\\x0"}}});
  EXPECT_THAT(gguf ? "" : gguf.error().message, HasSubstr("token 1: expected the inside"));
}

}  // namespace
}  // namespace penstock
