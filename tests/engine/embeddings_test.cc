// Embeddings that a request gives in place of those of its tokens: the text is that of the tokens
// whose embeddings they are, and cached blocks are shared only by requests that give the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/model_engine.h"
#include "engine/requests/given_input.h"
#include "formats/tensor_rows.h"

namespace penstock {
namespace {

using testing::HasSubstr;

constexpr TokenId kPlaceholder = 3;
constexpr int kFirst = 21, kCount = 40;  // begins and ends within blocks of 16

class Embeddings : public testing::TestWithParam<std::string> {  // backend
 protected:
  std::unique_ptr<Ops> ops() const {
    return make_ops(GetParam(), {.n_threads = 2, .batch_invariant = true}).value();
  }
  static ModelEngine::Of of(int most_tokens) { return {.most_tokens = most_tokens}; }
  void SetUp() override {
    if (!make_ops(GetParam(), {.n_threads = 2})) GTEST_SKIP() << "not in this build";
  }

  // A prompt of 90 tokens; `seed` chooses the hidden ones, whose embeddings are given.
  static std::vector<TokenId> plain_prompt(int seed) {
    std::vector<TokenId> prompt = prompt_of(90, 1, 200);
    const std::vector<TokenId> hidden = prompt_of(kCount, seed, 200);
    std::ranges::copy(hidden, prompt.begin() + kFirst);
    return prompt;
  }
  static Request plain(int seed) {
    Request request = request_of(plain_prompt(seed), 12);
    request.sampling.ignore_eos = true, request.sampling.temperature = 0;
    request.sampling.logprobs = 1;
    return request;
  }
  static PromptEmbeddings embeddings_of(std::span<const TokenId> tokens, int first,
                                        uint64_t identity) {
    const auto source = make_synthetic_source("tiny", "f32").value();
    const int dim = ModelEngine::dim();
    std::vector<float> values;
    for (const TokenId token : tokens) {
      const std::vector<float> row = read_row(*source, "token_embd.weight", token, dim).value();
      values.insert(values.end(), row.begin(), row.end());
    }
    PromptEmbeddings given;
    given.first = first, given.count = static_cast<int>(tokens.size());
    given.rows = std::make_shared<const EmbeddingRows>(
        EmbeddingRows{given.count, std::move(values), 1, false, {identity, 7}});
    return given;
  }
  // The same text with placeholders and embeddings in their place.
  static Request given(int seed) {
    Request request = plain(seed);
    const auto hidden = std::span(request.prompt).subspan(kFirst, kCount);
    request.embeddings = {embeddings_of(hidden, kFirst, static_cast<uint64_t>(seed))};
    std::ranges::fill(hidden, kPlaceholder);
    return request;
  }
};

TEST_P(Embeddings, GiveTheTextOfTheirTokens) {
  ModelEngine tokens(ops(), of(256));
  const std::vector<Collected> wanted = tokens.run({plain(5), plain(6)});
  for (const int most_tokens : {256, 33}) {
    ModelEngine engine(ops(), of(most_tokens));
    expect_equal(engine.run({given(5), given(6)}), wanted);
  }
}

// At once: those that begin alike wait for each other's blocks and copy parts of them.
TEST_P(Embeddings, ShareBlocksWhileTheyRun) {
  ModelEngine tokens(ops(), of(256));
  const std::vector<Collected> wanted = tokens.run({plain(5), plain(6), plain(5), plain(5)});
  for (const int most_tokens : {256, 24}) {
    ModelEngine engine(ops(), of(most_tokens));
    const std::vector<Collected> got = engine.run({given(5), given(6), plain(5), given(5)});
    expect_equal(got, wanted);
    EXPECT_GE(got[3].sequences.at(0).stats.cached_tokens, 80);
  }
}

// In one engine, one after the other: the text of equal placeholders depends on what is given, and
// the prefix is shared as far as that is the same.
TEST_P(Embeddings, ArePartOfThePrefix) {
  ModelEngine tokens(ops(), of(256));
  const std::vector<Collected> wanted = tokens.run({plain(5), plain(6)});
  ModelEngine engine(ops(), of(256));
  const auto run = [&](const Request& request) { return std::move(engine.run({request})[0]); };
  const auto cached = [](const Collected& result) {
    return result.sequences.at(0).stats.cached_tokens;
  };
  EXPECT_EQ(cached(run(given(5))), 0);
  const Collected again = run(given(5)), other = run(given(6)), text = run(plain(5));
  expect_equal({again, other, text}, {wanted[0], wanted[1], wanted[0]});
  EXPECT_EQ(cached(again), 80);  // all full blocks but the last token's
  EXPECT_EQ(cached(other), 16);  // the block before the first given token's
  EXPECT_EQ(cached(text), 16);
  // equal placeholders without embeddings are a third thing
  Request none = given(5);
  none.embeddings.clear();
  EXPECT_EQ(cached(run(none)), 16);
}

// Rows at another place are other content, even where block and ids are equal.
TEST(PromptInput, HashesTellPlacesAndIdentities) {
  const std::vector<float> values(64);
  const auto input = [&](int first, int count, uint64_t identity) {
    PromptInput result;
    result.rows = {{first, count, values.data(), 0}};
    result.identities = {{{identity, 1}, 0}};
    return result;
  };
  const BlockHash ids{1, 2};
  const PromptInput one = input(20, 20, 5);
  EXPECT_EQ(one.with_rows(ids, 0, 16), ids);
  EXPECT_EQ(one.with_rows(ids, 48, 64), ids);
  std::vector<BlockHash> hashes = {ids};
  for (const PromptInput& each : {one, input(20, 20, 6), input(21, 20, 5), input(20, 19, 5)})
    for (const int first : {16, 32}) hashes.push_back(each.with_rows(ids, first, first + 16));
  // a longer picture's rows in the first block are the same
  EXPECT_EQ(hashes[1], hashes[7]);
  hashes.erase(hashes.begin() + 7);
  for (size_t i = 0; i < hashes.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(hashes[i], hashes[k]) << i << " " << k;
  EXPECT_EQ(one.first_given(0, 16), 16);
  EXPECT_EQ(one.first_given(0, 48), 20);
  EXPECT_EQ(one.first_given(30, 48), 30);
  EXPECT_EQ(one.first_given(40, 48), 48);
}

// Steps end before or behind parts that see themselves.
TEST(PromptInput, PartsAreNotCut) {
  const std::vector<float> values(64);
  PromptInput input;
  input.rows = {{5, 10, values.data(), 0}, {15, 10, values.data(), 0}};
  EXPECT_EQ(input.without_cut(0, 8, 100), 8);
  input.parts_see = true;
  EXPECT_EQ(input.without_cut(0, 5, 100), 5);
  EXPECT_EQ(input.without_cut(0, 8, 100), 5);
  EXPECT_EQ(input.without_cut(0, 15, 100), 15);
  EXPECT_EQ(input.without_cut(0, 16, 100), 15);
  EXPECT_EQ(input.without_cut(0, 40, 100), 40);
  EXPECT_EQ(input.without_cut(5, 3, 100), 10);  // a whole part, although less was asked for
  EXPECT_EQ(input.without_cut(5, 3, 10), 10);
  EXPECT_EQ(input.without_cut(5, 3, 9), 0);
  EXPECT_EQ(input.without_cut(8, 3, 7), 7);  // its beginning was found in the cache
  EXPECT_EQ(input.without_cut(25, 3, 7), 3);
}

TEST(PromptInput, PositionsOfGrids) {
  using Axes = std::vector<AxisPosition>;
  Request request;
  request.prompt.assign(14, 1);
  PromptEmbeddings grid;
  grid.first = 2, grid.count = 6, grid.grid_cols = 3;
  grid.rows =
      std::make_shared<const EmbeddingRows>(EmbeddingRows{6, std::vector<float>(6), 1, false, {}});
  request.embeddings = {grid};
  grid.first = 9, grid.count = 4, grid.grid_cols = 1, grid.grid_frames = 2;
  request.embeddings.push_back(grid);
  EngineInfo info;
  info.model_dim = 1;
  ASSERT_TRUE(check_embeddings(request, info));
  EXPECT_TRUE(prompt_input_of(request, info)->axes.empty());
  info.positions_have_axes = true;
  const auto input = prompt_input_of(request, info);
  EXPECT_EQ(input->axes, (Axes{{0, 0, 0},
                               {1, 1, 1},
                               {2, 2, 2},
                               {2, 2, 3},
                               {2, 2, 4},
                               {2, 3, 2},
                               {2, 3, 3},
                               {2, 3, 4},
                               {5, 5, 5},
                               {6, 6, 6},
                               {6, 7, 6},
                               {7, 6, 6},
                               {7, 7, 6},
                               {8, 8, 8}}));
  EXPECT_EQ(input->axis_delta, 9 - 14);
}

TEST(PromptInput, WhatIsWrongIsRefused) {
  EngineInfo info;
  info.model_dim = 2;
  const auto rows = [](size_t n, int levels = 1, float value = 0) {
    return std::make_shared<const EmbeddingRows>(
        EmbeddingRows{4, std::vector<float>(n, value), levels, false, {}});
  };
  const auto error = [&](auto change) {
    Request request;
    request.prompt.assign(8, 1);
    request.embeddings.resize(2);
    for (int i = 0; i < 2; ++i) {
      PromptEmbeddings& given = request.embeddings[static_cast<size_t>(i)];
      given.first = 4 * i, given.count = 4;
      given.rows = rows(8);
    }
    change(request.embeddings);
    const Status status = check_embeddings(request, info);
    return status ? std::string() : status.error().message;
  };
  using All = std::vector<PromptEmbeddings>;
  EXPECT_EQ(error([](All&) {}), "");
  EXPECT_THAT(error([](All& all) { all[1].first = 3; }),
              HasSubstr("embeddings[1]: expected a range of the prompt's 8 tokens behind 4"));
  EXPECT_THAT(error([](All& all) { all[1].first = 5; }), HasSubstr("got 4 tokens from 5 on"));
  EXPECT_THAT(error([](All& all) { all[0].first = -1; }), HasSubstr("from -1 on"));
  EXPECT_THAT(error([](All& all) { all[1].count = std::numeric_limits<int>::max(); }),
              HasSubstr("expected a range"));
  EXPECT_THAT(error([](All& all) { all[0].count = 0; }), HasSubstr("got 0 tokens"));
  EXPECT_THAT(error([](All& all) { all[0].rows = nullptr; }), HasSubstr("1 levels, got 0"));
  EXPECT_THAT(error([&](All& all) { all[0].rows = rows(8, 4); }), HasSubstr("1 levels, got 4"));
  EXPECT_THAT(error([&](All& all) { all[0].rows = rows(9); }),
              HasSubstr("expected 1 x 4 x 2 values, got 9"));
  EXPECT_THAT(error([](All& all) { all[0].first_row = 1; }), HasSubstr("at most 4 rows"));
  EXPECT_THAT(error([&](All& all) { all[0].rows = rows(8, 1, NAN); }), HasSubstr("finite"));
  EXPECT_THAT(error([](All& all) { all[0].grid_cols = 3; }), HasSubstr("frames of whole rows"));
  EXPECT_THAT(error([](All& all) { all[0].grid_frames = 0; }), HasSubstr("frames of whole rows"));
}

INSTANTIATE_TEST_SUITE_P(Backends, Embeddings, testing::Values("cpu", "cuda_emulated"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
