// Experts on CUDA's emulated device against the products of one expert at a time and the host's
// routing: biases, weights by mma, all ways to choose; of many tokens by the kernels of many rows.
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "ops/cpu/routing.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/ops_under_test.h"

namespace penstock {
namespace {

constexpr int kExperts = 8, kDim = 64, kWidth = 48, kTokens = 11;

struct Expert {
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<std::unique_ptr<Vector>> biases;
};

Expert experts_of(Ops& ops, QuantType type, int rows, int cols, unsigned seed) {
  Expert made;
  for (unsigned e = 0; e < kExperts; ++e) {
    const std::vector<float> values =
        random_floats(static_cast<size_t>(rows) * cols, seed + e, 0.2f);
    std::vector<std::byte> bytes(quant_bytes(type, cols) * static_cast<size_t>(rows));
    for (int r = 0; r < rows; ++r)
      quantize_row(type, &values[static_cast<size_t>(r) * cols],
                   &bytes[quant_bytes(type, cols) * static_cast<size_t>(r)], cols);
    made.weights.push_back(ops.pack({type, rows, cols, bytes}).value());
    made.biases.push_back(
        ops.pack_vector(random_floats(static_cast<size_t>(rows), seed + 50 + e)).value());
  }
  return made;
}

MoeParams params_of(const Expert& gate, const Expert& up, const Expert& down) {
  return {.gate = gate.weights,
          .up = up.weights,
          .down = down.weights,
          .gate_bias = gate.biases,
          .up_bias = up.biases,
          .down_bias = down.biases};
}

// What one expert makes of x, by the products that linear() has.
Values one_expert(Ops& ops, Tensor x, const Expert& gate, const Expert& up, const Expert& down,
                  size_t e) {
  const int width = up.weights[e]->rows();
  const Tensor g = ops.new_tensor(x.rows, width), u = ops.new_tensor(x.rows, width);
  const Tensor out = ops.new_tensor(x.rows, x.cols);
  const LinearTarget both[] = {{gate.weights[e].get(), gate.biases[e].get(), g},
                               {up.weights[e].get(), up.biases[e].get(), u}};
  ops.linear(x, both);
  ops.activate_mul(g, u, Activation::kSilu, g);
  const LinearTarget last[] = {{down.weights[e].get(), down.biases[e].get(), out}};
  ops.linear(g, last);
  return read(ops, out);
}

std::vector<ExpertRouting> ways_to_choose() {
  std::vector<ExpertRouting> ways;
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSqrtSoftplus}) {
    ways.push_back({.n_active = 3, .score = score, .scale = 2.5f});
    ways.push_back({.n_active = 4,
                    .score = score,
                    .n_groups = 4,
                    .n_active_groups = 2,
                    .group_top = 2,
                    .normalize = false,
                    .sum_eps = 1e-3f});
    ways.push_back({.n_active = 2, .score = score, .n_groups = 2, .n_active_groups = 1});
  }
  ways.push_back({.n_active = 3, .sum_min = 0.7f});
  ways.push_back(
      {.n_active = 2, .score = RouterScore::kSparseMixer, .normalize = false, .jitter = 0.1f});
  return ways;
}

TEST(CudaExperts, AreTheProductsOfEachByTheHostsRouting) {
  auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  Ops& ops = **made;
  for (const QuantType type : {QuantType::kF32, QuantType::kBF16}) {
    const Expert gate = experts_of(ops, type, kWidth, kDim, 1),
                 up = experts_of(ops, type, kWidth, kDim, 100);
    const Expert down = experts_of(ops, type, kDim, kWidth, 200);
    const std::vector<float> bias = random_floats(kExperts, 7, 0.3f),
                             scale = random_floats(kExperts, 8);
    const auto packed_bias = ops.pack_vector(bias).value(),
               packed_scale = ops.pack_vector(scale).value();
    int round = 0;
    for (const ExpertRouting& routing : ways_to_choose()) {
      ops.begin_step(nullptr);
      const bool with_bias = ++round % 2 == 0 && routing.score != RouterScore::kSparseMixer;
      const std::vector<float> logits =
          random_floats(kTokens * kExperts, 300 + static_cast<unsigned>(round));
      const Tensor x = tensor_of(ops, random_floats(kTokens * kDim, 11), kTokens, kDim);
      MoeParams params = params_of(gate, up, down);
      params.routing = routing, params.expert_scale = packed_scale.get();
      if (with_bias) params.selection_bias = packed_bias.get();
      const Tensor out = ops.new_tensor(kTokens, kDim);
      ops.moe(x, tensor_of(ops, logits, kTokens, kExperts), params, out);
      const Values got = read(ops, out);
      std::vector<Values> of_expert;
      for (size_t e = 0; e < kExperts; ++e)
        of_expert.push_back(one_expert(ops, x, gate, up, down, e));
      for (int t = 0; t < kTokens; ++t) {
        std::vector<ExpertChoice> choices(static_cast<size_t>(routing.n_active));
        choose_experts(logits.data() + t * kExperts, kExperts, routing,
                       with_bias ? bias.data() : nullptr, choices.data());
        for (int i = 0; i < kDim; ++i) {
          double want = 0;
          for (const ExpertChoice& choice : choices) {
            want += static_cast<double>(choice.weight) * scale[choice.expert] *
                    of_expert[static_cast<size_t>(choice.expert)].at(t, i);
          }
          ASSERT_NEAR(got.at(t, i), want, 5e-5 * (1 + std::fabs(want))) << round << " token " << t;
        }
      }
    }
  }
}

// Experts behind those with weights give their input; a token's own experts are weighed by the scores.
TEST(CudaExperts, WithoutWeightsAndByTheToken) {
  auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  Ops& ops = **made;
  constexpr int kRouted = kExperts + 3, kVocab = 5;
  const Expert gate = experts_of(ops, QuantType::kF32, kWidth, kDim, 1),
               up = experts_of(ops, QuantType::kF32, kWidth, kDim, 100);
  const Expert down = experts_of(ops, QuantType::kF32, kDim, kWidth, 200);
  std::vector<float> table;
  for (int token = 0; token < kVocab; ++token)
    for (int i = 0; i < 2; ++i) table.push_back(static_cast<float>((3 * token + 4 * i) % kRouted));
  const auto packed = ops.pack_vector(table).value();
  std::vector<TokenId> tokens;
  for (int t = 0; t < kTokens; ++t) tokens.push_back(t % (kVocab + 1));  // one is not in the table
  std::vector<int32_t> positions(kTokens, 0);
  const int32_t seq_offsets[] = {0, kTokens}, lens[] = {kTokens};
  const Batch batch = {tokens, positions, seq_offsets, lens, {}, {}, {}};
  const std::vector<float> values = random_floats(kTokens * kDim, 11),
                           logits = random_floats(kTokens * kRouted, 12);
  for (const bool by_token : {false, true}) {
    ops.begin_step(&batch);
    const Tensor x = tensor_of(ops, values, kTokens, kDim), out = ops.new_tensor(kTokens, kDim);
    MoeParams params = params_of(gate, up, down);
    params.routing = {.n_active = 2, .score = RouterScore::kSqrtSoftplus, .scale = 1.5f};
    if (by_token) params.token_experts = packed.get();
    ops.moe(x, tensor_of(ops, logits, kTokens, kRouted), params, out);
    const Values got = read(ops, out);
    std::vector<Values> of_expert;
    for (size_t e = 0; e < kExperts; ++e)
      of_expert.push_back(one_expert(ops, x, gate, up, down, e));
    int n_without = 0;
    for (int t = 0; t < kTokens; ++t) {
      std::vector<ExpertChoice> choices(2);
      const float* const own = logits.data() + t * kRouted;
      const int token = tokens[static_cast<size_t>(t)] % kVocab;
      if (by_token) {
        weigh_experts(own, kRouted, params.routing, table.data() + 2 * token, choices.data());
      } else {
        choose_experts(own, kRouted, params.routing, nullptr, choices.data());
      }
      for (int i = 0; i < kDim; ++i) {
        double want = 0;
        for (const ExpertChoice& choice : choices) {
          const bool has = choice.expert < kExperts;
          want +=
              double{choice.weight} * (has ? of_expert[static_cast<size_t>(choice.expert)].at(t, i)
                                           : values[static_cast<size_t>(t * kDim + i)]);
          n_without += has ? 0 : 1;
        }
        ASSERT_NEAR(got.at(t, i), want, 5e-5 * (1 + std::fabs(want))) << "token " << t;
      }
    }
    EXPECT_GT(n_without, 0);
  }
}

#ifdef PENSTOCK_CUDA_EMULATION

// Expert 0 has all tokens and so several blocks, the last but one none; others have some. Dense
// products of as many rows round the same things.
TEST(CudaExperts, OfManyTokensAreProductsOfManyRows) {
  constexpr int kMany = 80, kSize = 256;
  auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  Ops& ops = **made;
  cuda::WideProducts& wide = static_cast<cuda::CudaOps&>(ops).wide();
  for (const QuantType type :
       {QuantType::kBF16, QuantType::kF16, QuantType::kQ8_0, QuantType::kQ4_K, QuantType::kMXFP4}) {
    const Expert gate = experts_of(ops, type, kSize, kSize, 1),
                 up = experts_of(ops, type, kSize, kSize, 100);
    const Expert down = experts_of(ops, type, kSize, kSize, 200);
    std::vector<float> logits = random_floats(kMany * kExperts, 300);
    for (int t = 0; t < kMany; ++t)
      logits[t * kExperts] = 9.0f, logits[t * kExperts + kExperts - 2] = -9.0f;
    for (const int rows : {64, 128}) {
      ops.begin_step(nullptr);
      wide.cut({rows});
      const Tensor x = tensor_of(ops, random_floats(kMany * kSize, 11), kMany, kSize);
      MoeParams params = params_of(gate, up, down);
      params.routing = {.n_active = 3};
      const Tensor out = ops.new_tensor(kMany, kSize);
      ops.moe(x, tensor_of(ops, logits, kMany, kExperts), params, out);
      const Values got = read(ops, out);
      std::vector<Values> of_expert;
      for (size_t e = 0; e < kExperts; ++e)
        of_expert.push_back(one_expert(ops, x, gate, up, down, e));
      for (int t = 0; t < kMany; ++t) {
        std::vector<ExpertChoice> choices(3);
        choose_experts(logits.data() + t * kExperts, kExperts, params.routing, nullptr,
                       choices.data());
        for (int i = 0; i < kSize; ++i) {
          double want = 0;
          for (const ExpertChoice& choice : choices)
            want += static_cast<double>(choice.weight) *
                    of_expert[static_cast<size_t>(choice.expert)].at(t, i);
          ASSERT_NEAR(got.at(t, i), want, 1e-5 * (1 + std::fabs(want))) << rows << " token " << t;
        }
      }
    }
  }
}

#endif

}  // namespace
}  // namespace penstock
