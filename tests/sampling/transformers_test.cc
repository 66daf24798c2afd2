// The same tokens survive with the same probabilities as with transformers' logits processors. Made
// by make_goldens.py.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "sampling/sampler.h"
#include "support/test_data.h"

namespace penstock {
namespace {

TEST(Transformers, LogitsProcessorsAgree) {
  std::ifstream file(tests_dir().string() + "/golden/sampling/transformers.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GE(cases.size(), 50u);
  for (const auto& c : cases) {
    SamplingParams params;
    params.max_tokens = 100;
    SamplingParams::visit(params, [&](const char* name, auto& field, const char*, const auto&) {
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(field)>>) {
        if (c["params"].contains(name))
          field = c["params"][name].get<std::decay_t<decltype(field)>>();
      }
    });
    std::vector<float> logits = c["logits"].get<std::vector<float>>();
    const auto tokens = c["tokens"].get<std::vector<TokenId>>();
    const int n_prompt = c["n_prompt"];
    SamplerState state(
        SamplingSpec::make(params, {.end_ids = c["end_ids"].get<std::vector<TokenId>>()}, 0,
                           static_cast<int>(logits.size())),
        0, std::span(tokens).first(n_prompt), 100);
    for (size_t i = n_prompt; i < tokens.size(); ++i) state.append(tokens[i]);
    TokenDistribution left;
    ASSERT_NE(Sampler().draw_draft({state, tokens, n_prompt}, logits, left), kNoToken);
    std::map<TokenId, double> got;
    for (const TokenProb& each : left) got[each.token] = each.p;
    ASSERT_EQ(got.size(), c["left"].size()) << c["params"];
    for (const auto& [token, p] : c["left"].get<std::vector<std::pair<TokenId, double>>>()) {
      ASSERT_TRUE(got.contains(token)) << c["params"] << " token " << token;
      EXPECT_NEAR(got[token], p, 1e-6 + 1e-5 * p) << c["params"];
    }
  }
}

}  // namespace
}  // namespace penstock
