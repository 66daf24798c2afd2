// The vocabulary of PLaMo 2 and 3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "text/tokenizer.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct PlamoRow {
  std::string text;
  double score;
  std::string kind;
};

// Tokens 0 to 4 are special, 5 to 260 the bytes.
std::vector<PlamoRow> plamo_rows() {
  std::vector<PlamoRow> rows = {{"<|plamo:unk|>", 0, "UNKNOWN"},
                                {"<|plamo:bos|>", 0, "CONTROL"},
                                {"<|plamo:eos|>", 0, "CONTROL"},
                                {"<|plamo:pad|>", 0, "CONTROL"},
                                {"<|plamo:op|>", -1, "NORMAL"}};
  for (int byte = 0; byte < 256; ++byte)
    rows.push_back({fmt::format("<0x{:02X}>", byte), -5, "BYTE"});
  // 261 ..; the scores of "ab" + "c" and of "a" + "bc" are equal
  for (const auto& [text, score] :
       std::initializer_list<std::pair<const char*, double>>{{"a", -3.00004},
                                                             {"b", -3},
                                                             {"c", -2.5},
                                                             {"ab", -4},
                                                             {"bc", -3.5},
                                                             {"abc", -6.6},
                                                             {" ", -1},
                                                             {"  ", -1.5},
                                                             {"\xe3\x81\x82", -2},
                                                             {"\xe3\x81\x82 a", -4.7},
                                                             {"ca", -5.5}})
    rows.push_back({text, score, "NORMAL"});
  return rows;
}

std::string plamo_list(const std::vector<PlamoRow>& rows) {
  std::string list;
  for (const PlamoRow& row : rows)
    list += nlohmann::json{row.text, row.score, row.kind}.dump() + "\n";
  return list;
}

std::unique_ptr<Tokenizer> plamo_of(const std::string& config = "") {
  TokenizerFiles files;
  files.tokenizer_jsonl = plamo_list(plamo_rows()), files.tokenizer_config_json = config;
  return Tokenizer::from_files(files).value();
}

// As the published code does: from the end, whole numbers, the longest of equally good tokens.
std::vector<TokenId> plamo_reference(const std::string& text) {
  constexpr int64_t kUnknown = 10'000'000;
  std::map<std::string, std::pair<TokenId, int64_t>> costs;
  const std::vector<PlamoRow> all = plamo_rows();
  for (size_t i = 5; i < all.size(); ++i)
    if (all[i].kind == "NORMAL")
      costs[all[i].text] = {static_cast<TokenId>(i), -std::llround(all[i].score * 1e4)};
  const auto length = [&](size_t at) { return text[at] >= 0 ? size_t{1} : size_t{3}; };
  std::vector<int64_t> best(text.size() + 1, 0);
  std::vector<std::pair<size_t, TokenId>> step(text.size());
  for (size_t at = text.size(); at-- > 0;) {
    if ((text[at] & 0xc0) == 0x80) continue;
    best[at] = int64_t{1} << 60;
    for (size_t n = text.size() - at; n > 0; --n) {
      const auto found = costs.find(text.substr(at, n));
      if (found == costs.end() || best[at + n] + found->second.second >= best[at]) continue;
      best[at] = best[at + n] + found->second.second, step[at] = {n, found->second.first};
    }
    if (const int64_t cost = best[at + length(at)] + kUnknown; cost < best[at])
      best[at] = cost, step[at] = {length(at), kNoToken};
  }
  std::vector<TokenId> ids;
  for (size_t at = 0; at < text.size(); at += step[at].first) {
    if (step[at].second != kNoToken) ids.push_back(step[at].second);
    for (size_t i = 0; step[at].second == kNoToken && i < step[at].first; ++i)
      ids.push_back(5 + static_cast<unsigned char>(text[at + i]));
  }
  return ids;
}

TEST(Plamo, TheBestTokensAreTaken) {
  const auto tokenizer = plamo_of();
  EXPECT_THAT(tokenizer->encode("abc"), ElementsAre(264, 263));  // not 261, 265, which are as good
  EXPECT_THAT(tokenizer->encode("\xe3\x81\x82 ab"), ElementsAre(269, 267, 264));
  EXPECT_THAT(tokenizer->encode("a?"), ElementsAre(261, 5 + '?'));
  EXPECT_THAT(tokenizer->encode("\xe3\x81\x83"), ElementsAre(5 + 0xe3, 5 + 0x81, 5 + 0x83));
  EXPECT_THAT(tokenizer->encode(""), ElementsAre());
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{270, 5 + 0xe3, 5 + 0x81, 5 + 0x83}),
            "\xe3\x81\x82 a\xe3\x81\x83");
  EXPECT_EQ(tokenizer->eos(), 2);
}

TEST(Plamo, RandomTextsGiveThePublishedCodesTokens) {
  const auto tokenizer = plamo_of();
  constexpr const char* kParts[] = {"a", "b", "c", " ", "\xe3\x81\x82", "\xe3\x81\x83", "d"};
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (uint32_t n = random() % 24; n > 0; --n) text += kParts[random() % std::size(kParts)];
    EXPECT_EQ(tokenizer->encode(text), plamo_reference(text)) << text;
  }
}

TEST(Plamo, SpecialTokensAreSaid) {
  const auto tokenizer = plamo_of(R"({"add_bos_token": true, "bos_token": "<|plamo:bos|>"})");
  EXPECT_THAT(tokenizer->encode("a<|plamo:op|>b", {.add_special = true, .parse_special = true}),
              ElementsAre(1, 261, 4, 262));
}

TEST(Plamo, RunsAreWordsOfTheirOwn) {
  const auto tokenizer = plamo_of(R"({"break_around_consecutive_spaces_threshold": 2,
                                     "break_around_repeated_chars_threshold": 3})");
  EXPECT_THAT(tokenizer->encode("\xe3\x81\x82 a"), ElementsAre(270));
  EXPECT_THAT(tokenizer->encode("\xe3\x81\x82 aaa"), ElementsAre(269, 267, 261, 261, 261));
  EXPECT_THAT(tokenizer->encode("   a"), ElementsAre(268, 267, 261));
}

TEST(Plamo, GgufFilesHaveTheSameTokens) {
  nlohmann::json tokens, scores, types;
  for (const PlamoRow& row : plamo_rows()) {
    tokens.push_back(row.text), scores.push_back(row.score);
    types.push_back(row.kind == "BYTE" ? 6 : row.text.starts_with("<|") ? 3 : 1);
  }
  const auto gguf = Tokenizer::from_gguf({{"tokenizer.ggml.model", "plamo2"},
                                          {"tokenizer.ggml.tokens", tokens},
                                          {"tokenizer.ggml.scores", scores},
                                          {"tokenizer.ggml.token_type", types},
                                          {"tokenizer.ggml.bos_token_id", 1},
                                          {"tokenizer.ggml.eot_token_id", 4}})
                        .value();
  const auto list = plamo_of();
  for (const char* text : {"abcab ca", "\xe3\x81\x82 a\xff", "<|plamo:eos|>"})
    EXPECT_EQ(gguf->encode(text), list->encode(text)) << text;
  EXPECT_TRUE(gguf->is_end_of_generation(4));
}

TEST(Plamo, WhatIsNoListIsRefused) {
  for (const char* line :
       {"[\"x\"]", "[1, 2]", "{}", "[\"x\", \"y\"]", "[\"x\", 1e300]", "[", "[\"a\", 1, 2]"}) {
    const auto tokenizer =
        Tokenizer::from_files({.tokenizer_jsonl = plamo_list(plamo_rows()) + line});
    EXPECT_FALSE(tokenizer) << line;
  }
  std::vector<PlamoRow> fewer = plamo_rows();
  fewer.erase(fewer.begin() + 200);
  const auto tokenizer = Tokenizer::from_files({.tokenizer_jsonl = plamo_list(fewer)});
  EXPECT_THAT(tokenizer ? "" : tokenizer.error().message, HasSubstr("each of the 256 bytes"));
}

}  // namespace
}  // namespace penstock
