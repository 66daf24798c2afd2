// Experts whose weights are streamed (kernels/expert_stream.h) against the values of the file in
// doubles, for every coding that has a stream; a token's bits are the same however its rows are
// grouped; and the kernels that they take.
#include <cmath>

#include "base/half.h"
#include "ops/cpu/routing.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/ops_under_test.h"

#ifdef PENSTOCK_CUDA_EMULATION

namespace penstock::cuda {
namespace {

constexpr int kActive = 3;

struct Shape {
  int dim, width;
};

// The matrices of all experts for one of their products, and what they stand for.
struct Matrices {
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<std::unique_ptr<Vector>> biases;
  std::vector<std::vector<float>> values, bias_values;
  int rows = 0, cols = 0;

  // Product with expert e, in doubles.
  std::vector<double> times(size_t e, const std::vector<double>& x) const {
    std::vector<double> out;
    for (int r = 0; r < rows; ++r) {
      double sum = bias_values[e][static_cast<size_t>(r)];
      for (int k = 0; k < cols; ++k)
        sum += static_cast<double>(values[e][static_cast<size_t>(r) * cols + k]) *
               x[static_cast<size_t>(k)];
      out.push_back(sum);
    }
    return out;
  }
};

// A kind of weights: of a type of files, or of groups with zeros or without.
struct Kind {
  std::string name;
  QuantType type = QuantType::kF32;
  int group = 0;  // of 4 bits; 0: it is of `type`
  bool zeros = false;
};

const Kind kKinds[] = {{"BF16", QuantType::kBF16},        {"Q8_0", QuantType::kQ8_0},
                       {"Q4_0", QuantType::kQ4_0},        {"Q4_K", QuantType::kQ4_K},
                       {"Q5_K", QuantType::kQ5_K},        {"Q6_K", QuantType::kQ6_K},
                       {"MXFP4", QuantType::kMXFP4},      {"GPTQ", QuantType::kF32, 64},
                       {"AWQ", QuantType::kF32, 64, true}};

class CudaExpertStreams : public testing::Test {
 protected:
  void SetUp() override { use(false); }
  void use(bool invariant) {
    ops_ = make_ops("cuda_emulated", {.n_threads = 1, .batch_invariant = invariant}).value();
  }
  CudaOps& cuda() { return static_cast<CudaOps&>(*ops_); }

  void add(const Kind& kind, unsigned seed, Matrices& to) {
    const auto n = static_cast<size_t>(to.rows) * static_cast<size_t>(to.cols);
    std::vector<float> values(n);
    if (kind.group == 0) {
      const std::vector<float> exact = random_floats(n, seed, 0.2f);
      std::vector<std::byte> bytes(quant_bytes(kind.type, static_cast<int64_t>(n)));
      quantize_row(kind.type, exact.data(), bytes.data(), static_cast<int64_t>(n));
      dequantize_row(kind.type, bytes.data(), values.data(), static_cast<int64_t>(n));
      to.weights.push_back(ops_->pack({kind.type, to.rows, to.cols, bytes}).value());
    } else {
      GroupedMatrix g;
      g.rows = to.rows, g.cols = to.cols, g.bits = 4, g.group_size = kind.group;
      g.layout = CodeLayout::kWordsByRow, g.uniform_zero = 8;
      std::vector<std::byte> codes(GroupedMatrix::packed_bytes(g.layout, g.rows, g.cols, 4));
      std::minstd_rand generator(seed);
      for (std::byte& b : codes) b = static_cast<std::byte>(generator() >> 8);
      g.packed = codes;
      const size_t n_scales = n / static_cast<size_t>(kind.group);
      for (const float scale : random_floats(n_scales, seed + 1, 0.04f))
        g.scales.push_back(to_float(to_half(scale)));
      for (size_t i = 0; kind.zeros && i < n_scales; ++i)
        g.zeros.push_back(static_cast<int16_t>(i * 7 % 16));
      to.weights.push_back(ops_->pack_grouped(g, 0, g.rows).value());
      g.dequantize(0, g.rows, values.data());
    }
    to.values.push_back(std::move(values));
    to.bias_values.push_back(random_floats(static_cast<size_t>(to.rows), seed + 50, 0.3f));
    to.biases.push_back(ops_->pack_vector(to.bias_values.back()).value());
  }
  Matrices matrices(const Kind& kind, int rows, int cols, unsigned seed) {
    Matrices made;
    made.rows = rows, made.cols = cols;
    for (unsigned e = 0; e < static_cast<unsigned>(n_experts_); ++e) add(kind, seed + e, made);
    return made;
  }
  void load(const Kind& gates, const Kind& ups, const Kind& downs, Shape shape) {
    gate_ = matrices(gates, shape.width, shape.dim, 1);
    up_ = matrices(ups, shape.width, shape.dim, 100);
    down_ = matrices(downs, shape.dim, shape.width, 200);
    x_ = random_floats(static_cast<size_t>(kMostTokens) * shape.dim, 11);
    logits_ = random_floats(static_cast<size_t>(kMostTokens) * n_experts_, 12);
    // Expert 0 has all tokens.
    for (size_t t = 0; t < kMostTokens; ++t) logits_[t * static_cast<size_t>(n_experts_)] = 9.0f;
  }
  // What the mixture makes of tokens [first, first + n).
  Values mixture(int first, int n, bool has_gate = true, bool weigh_input = false) {
    ops_->begin_step(nullptr);
    const auto from = [&](const std::vector<float>& all, int cols) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(first) * cols;
      return tensor_of(*ops_, {begin, begin + static_cast<ptrdiff_t>(n) * cols}, n, cols);
    };
    MoeParams params{
        .up = up_.weights, .down = down_.weights, .up_bias = up_.biases, .down_bias = down_.biases};
    if (has_gate) params.gate = gate_.weights, params.gate_bias = gate_.biases;
    params.routing = {.n_active = kActive, .weigh_input = weigh_input};
    const Tensor x = from(x_, up_.cols), logits = from(logits_, n_experts_);
    const Tensor out = ops_->new_tensor(n, down_.rows);
    const uint64_t before = cuda().device().n_launches();
    ops_->moe(x, logits, params, out);
    n_launches_ = static_cast<int>(cuda().device().n_launches() - before);
    return read(*ops_, out);
  }
  // The same of one token, in doubles.
  std::vector<double> expected(int token, bool has_gate, bool weigh_input) const {
    std::vector<ExpertChoice> choices(kActive);
    choose_experts(logits_.data() + static_cast<ptrdiff_t>(token) * n_experts_, n_experts_,
                   {.n_active = kActive}, nullptr, choices.data());
    std::vector<double> sum(static_cast<size_t>(down_.rows), 0.0);
    for (const ExpertChoice& choice : choices) {
      const auto e = static_cast<size_t>(choice.expert);
      const auto begin = x_.begin() + static_cast<ptrdiff_t>(token) * up_.cols;
      std::vector<double> x(begin, begin + up_.cols);
      if (weigh_input)
        for (double& v : x) v *= choice.weight;
      const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
      std::vector<double> hidden = up_.times(e, x);
      const std::vector<double> gate = has_gate ? gate_.times(e, x) : hidden;
      for (size_t i = 0; i < hidden.size(); ++i)
        hidden[i] = has_gate ? silu(gate[i]) * hidden[i] : silu(hidden[i]);
      const std::vector<double> own = down_.times(e, hidden);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i] * (weigh_input ? 1 : choice.weight);
    }
    return sum;
  }
  void expect_exact(const std::string& what, int n, bool has_gate = true,
                    bool weigh_input = false) {
    const Values got = mixture(0, n, has_gate, weigh_input);
    for (int t = 0; t < n; ++t) {
      const std::vector<double> want = expected(t, has_gate, weigh_input);
      double error = 0, size = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        const double off = got.at(t, static_cast<int>(i)) - want[i];
        error += off * off, size += want[i] * want[i];
      }
      EXPECT_LT(std::sqrt(error / size), 2e-5) << what << ", token " << t << " of " << n;
    }
  }

  static constexpr int kMostTokens = 13;
  std::unique_ptr<Ops> ops_;
  Matrices gate_, up_, down_;
  std::vector<float> x_, logits_;
  int n_experts_ = 8, n_launches_ = 0;
};

TEST_F(CudaExpertStreams, OfEveryCodingAreThoseOfTheValues) {
  for (const Kind& kind : kKinds) {
    load(kind, kind, kind, {256, 256});
    for (const int n : {1, 2, 13}) expect_exact(kind.name, n);
  }
}

// One to eight warps share a tile; the last set of tiles is not whole; inputs end within an item.
TEST_F(CudaExpertStreams, OfEveryShapeAreThoseOfTheValues) {
  const Kind bf16 = kKinds[0], q8 = kKinds[1], q6 = kKinds[5];
  for (const Shape shape : {Shape{48, 80}, {384, 48}, {1104, 32}, {1024, 144}}) {
    load(bf16, bf16, bf16, shape);
    for (const int n : {1, 5}) expect_exact("BF16, " + std::to_string(shape.dim), n);
  }
  for (const Shape shape : {Shape{32, 96}, {672, 64}}) {
    load(q8, q8, q8, shape);
    for (const int n : {1, 5}) expect_exact("Q8_0, " + std::to_string(shape.dim), n);
  }
  for (const Shape shape : {Shape{768, 256}, {512, 256}}) {
    load(q6, q6, q6, shape);
    for (const int n : {1, 5}) expect_exact("Q6_K, " + std::to_string(shape.dim), n);
  }
}

TEST_F(CudaExpertStreams, WithoutGatesAndWithWeightedInputs) {
  const Kind q4 = kKinds[3], q6 = kKinds[5];
  load(q4, q4, q6, {256, 256});
  for (const int n : {1, 6}) {
    expect_exact("without gates", n, false);
    expect_exact("weighted inputs", n, true, true);
  }
  // Gate and up of two codings take a kernel each.
  load(q4, q6, q4, {256, 256});
  for (const int n : {1, 6}) expect_exact("two codings", n);
}

// So many experts that choices are likely of different ones: some are of one here, and each is multiplied by itself.
TEST_F(CudaExpertStreams, OfManyExpertsAreNotSorted) {
  n_experts_ = 80;
  const Kind q8 = kKinds[1];
  load(q8, q8, q8, {64, 96});
  expect_exact("many experts", 3);
  EXPECT_EQ(n_launches_, 4);
  expect_exact("many experts", 12);
  EXPECT_EQ(n_launches_, 5);
}

// Of one token choices stay in their order; of more they are sorted.
TEST_F(CudaExpertStreams, TakeFourKernelsOrFive) {
  const Kind q4 = kKinds[3];
  load(q4, q4, q4, {256, 256});
  mixture(0, 1);
  EXPECT_EQ(n_launches_, 4);
  mixture(0, 5);
  EXPECT_EQ(n_launches_, 5);
  cuda().stream(false);
  mixture(0, 1);
  EXPECT_GE(n_launches_, 8);
}

// Groups of 1, 4 or 8 rows, by the number of tokens and by the shared memory that there is.
TEST_F(CudaExpertStreams, ATokensBitsDependOnNothingElse) {
  use(true);
  for (const Kind& kind : kKinds) {
    load(kind, kind, kind, {256, 256});
    const Values all = mixture(0, kMostTokens);
    for (const int n : {1, 3}) {
      for (int first = 0; first + n <= kMostTokens; first += 5) {
        const Values some = mixture(first, n);
        for (int t = 0; t < n; ++t)
          for (int i = 0; i < some.cols; ++i)
            ASSERT_EQ(some.at(t, i), all.at(first + t, i)) << kind.name << ", " << n << " tokens";
      }
    }
    Device& device = cuda().device();
    if (!device.emulated()) continue;  // a GPU has what it has
    const int most = device.most_shared_bytes();
    for (const int kib : {120, 84}) {
      device.limit_shared_bytes(kib << 10);
      EXPECT_EQ(mixture(0, kMostTokens).all, all.all) << kind.name << ", " << kib << " KiB";
    }
    device.limit_shared_bytes(most);
  }
}

}  // namespace
}  // namespace penstock::cuda

#endif
