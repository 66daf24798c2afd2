// Vector kernels of every instruction set against double precision, for every remainder of the
// vector width.
#include "kernels/vector_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"

namespace penstock {
namespace {

std::vector<int> sizes() {
  std::vector<int> all;
  for (int n = 1; n <= 70; ++n) all.push_back(n);
  for (const int n : {127, 256, 1000, 2048}) all.push_back(n);
  return all;
}

// Values with guards on both sides: a kernel may touch nothing else.
class Guarded {
 public:
  explicit Guarded(const std::vector<float>& values) : all_(values.size() + 32, kGuard) {
    std::copy(values.begin(), values.end(), all_.begin() + 16);
  }
  float* data() { return all_.data() + 16; }
  int size() const { return static_cast<int>(all_.size()) - 32; }
  void check_guards() const {
    for (size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(all_[i], kGuard);
      ASSERT_EQ(all_[all_.size() - 1 - i], kGuard);
    }
  }

 private:
  static constexpr float kGuard = 12345.0f;
  std::vector<float> all_;
};

std::vector<float> random_values(int n, unsigned seed, float scale = 2.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.1f, scale);
  std::vector<float> x(n);
  for (float& v : x) v = normal(generator);
  return x;
}

// With parameters, for the kinds that have some.
ActivationFunction function_of(Activation kind) {
  ActivationFunction f(kind);
  const float xielu[] = {0.8f, 1.1f, 0.5f, -1e-6f}, clamped[] = {1.702f, 3.0f};
  if (kind == Activation::kXielu) std::copy(std::begin(xielu), std::end(xielu), f.parameters);
  if (kind == Activation::kClampedSilu)
    std::copy(std::begin(clamped), std::end(clamped), f.parameters);
  if (kind == Activation::kSoftCappedSilu) f.parameters[0] = 0.7f, f.parameters[1] = 1.3f;
  if (kind == Activation::kClamp) f.parameters[0] = -1.1f, f.parameters[1] = 1.5f;
  if (kind == Activation::kBoundedSilu || kind == Activation::kCappedSilu) f.parameters[0] = 1.5f;
  return f;
}

double exact(const ActivationFunction& f, double x) {
  const double p = f.parameters[0], n = f.parameters[1], b = f.parameters[2], e = f.parameters[3];
  switch (f.kind) {
    case Activation::kXielu:
      return x > 0 ? p * x * x + b * x : n * (std::expm1(std::min(x, e)) - x) + b * x;
    case Activation::kClampedSilu: return std::min(x, n) / (1 + std::exp(-p * std::min(x, n)));
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kSigmoid: return 1 / (1 + std::exp(-x));
    case Activation::kClamp: return std::max(p, std::min(x, n));
    case Activation::kBoundedSilu: return std::min(x / (1 + std::exp(-x)), p);
    case Activation::kSoftCappedSilu: return p * std::tanh(x / p) / (1 + std::exp(-x));
    case Activation::kCappedSilu: return std::min(x, p) / (1 + std::exp(-std::min(x, p)));
    case Activation::kSoftplus: return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    case Activation::kGelu: return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu: return std::max(x, 0.0);
    case Activation::kRelu2: return x > 0 ? x * x : 0.0;
  }
  return 0;
}

class VectorKernelsTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  const VectorKernels& kernels_ = *GetParam()->vector;

  static void expect_close(Guarded& got, const std::vector<double>& expected, double tolerance) {
    got.check_guards();
    for (int i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got.data()[i], expected[i], tolerance * (1 + std::fabs(expected[i])))
          << i << " of " << got.size();
    }
  }
};

TEST_P(VectorKernelsTest, RmsNorm) {
  for (const int n : sizes()) {
    const std::vector<float> x = random_values(n, n), w = random_values(n, n + 1);
    double squares = 0;
    for (const float v : x) squares += double{v} * v;
    const double factor = 1 / std::sqrt(squares / n + 1e-5);
    std::vector<double> plain(n), weighted(n);
    for (int i = 0; i < n; ++i) {
      plain[i] = x[i] * factor;
      weighted[i] = plain[i] * w[i];
    }
    Guarded a(x), b(x);
    kernels_.rms_norm(a.data(), nullptr, 1e-5f, n, a.data());
    expect_close(a, plain, 1e-6);
    kernels_.rms_norm(x.data(), w.data(), 1e-5f, n, b.data());
    expect_close(b, weighted, 1e-6);
  }
}

TEST_P(VectorKernelsTest, LayerNorm) {
  for (const int n : sizes()) {
    const std::vector<float> x = random_values(n, n), w = random_values(n, n + 1),
                             bias = random_values(n, n + 2);
    double mean = 0, variance = 0;
    for (const float v : x) mean += v / double(n);
    for (const float v : x) variance += (v - mean) * (v - mean) / n;
    std::vector<double> plain(n), full(n);
    for (int i = 0; i < n; ++i) {
      plain[i] = (x[i] - mean) / std::sqrt(variance + 1e-5);
      full[i] = plain[i] * w[i] + bias[i];
    }
    Guarded a(x), b(x);
    kernels_.layer_norm(a.data(), nullptr, nullptr, 1e-5f, n, a.data());
    expect_close(a, plain, n == 1 ? 1e-2 : 1e-5);  // one value: a rounded zero over sqrt(eps)
    kernels_.layer_norm(x.data(), w.data(), bias.data(), 1e-5f, n, b.data());
    if (n > 1) expect_close(b, full, 1e-5);
  }
}

TEST_P(VectorKernelsTest, AddScaledAndScale) {
  for (const int n : sizes()) {
    const std::vector<float> x = random_values(n, n), d = random_values(n, n + 1);
    std::vector<double> added(n), scaled(n), capped(n);
    for (int i = 0; i < n; ++i) {
      added[i] = x[i] + 0.22 * d[i];
      scaled[i] = x[i] * 1.5;
      capped[i] = 3.0 * std::tanh(x[i] * 1.5 / 3.0);
    }
    Guarded a(x), b(x), c(x);
    kernels_.add_scaled(a.data(), d.data(), 0.22f, n);
    expect_close(a, added, 1e-6);
    kernels_.scale_softcap(b.data(), 1.5f, 0.0f, n);
    expect_close(b, scaled, 1e-6);
    kernels_.scale_softcap(c.data(), 1.5f, 3.0f, n);
    expect_close(c, capped, 1e-6);
  }
}

TEST_P(VectorKernelsTest, Activations) {
  for (int kind = 0; kind < kNumActivations; ++kind) {
    const ActivationFunction activation = function_of(static_cast<Activation>(kind));
    for (const int n : sizes()) {
      const std::vector<float> x = random_values(n, n, 4.0f), up = random_values(n, n + 1);
      std::vector<double> expected(n), product(n);
      for (int i = 0; i < n; ++i) {
        expected[i] = exact(activation, x[i]);
        const bool clamps = activation.kind == Activation::kClampedSilu;
        const bool bounds = activation.kind == Activation::kBoundedSilu ||
                            activation.kind == Activation::kCappedSilu;
        const double limit = activation.parameters[bounds ? 0 : 1];
        const double within = std::clamp<double>(up[i], -limit, limit);
        const bool soft = activation.kind == Activation::kSoftCappedSilu;
        const double u = activation.parameters[1];
        product[i] = expected[i] * (clamps   ? within + 1
                                    : bounds ? within
                                    : soft   ? u * std::tanh(up[i] / u)
                                             : up[i]);
      }
      Guarded a(x), b(x);
      kernels_.activate(a.data(), activation, n);
      expect_close(a, expected, 1e-6);
      kernels_.activate_mul(x.data(), up.data(), activation, n, b.data());
      expect_close(b, product, 2e-6);
    }
  }
}

// Dense sweep over the whole useful range, with the ends.
TEST_P(VectorKernelsTest, ActivationsOverTheWholeRange) {
  for (int kind = 0; kind < kNumActivations; ++kind) {
    const ActivationFunction activation = function_of(static_cast<Activation>(kind));
    std::vector<float> x;
    for (int i = -120000; i <= 120000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
    for (const float v : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e4f, -1e4f, 3e18f, -3e18f}) x.push_back(v);
    const std::vector<float> before = x;
    kernels_.activate(x.data(), activation, static_cast<int>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = exact(activation, before[i]);
      ASSERT_NEAR(x[i], expected, 1e-6 * (1 + std::fabs(expected)))
          << "activation " << kind << " of " << before[i];
    }
  }
}

TEST_P(VectorKernelsTest, SoftmaxAndItsExponential) {
  for (const int n : sizes()) {
    const std::vector<float> x = random_values(n, n, 5.0f);
    double sum = 0;
    for (const float v : x) sum += std::exp(double{v});
    std::vector<double> expected(n);
    for (int i = 0; i < n; ++i) expected[i] = std::exp(double{x[i]}) / sum;
    Guarded a(x);
    EXPECT_NEAR(kernels_.softmax(a.data(), n), std::log(sum), 1e-5);
    expect_close(a, expected, 1e-6);
  }
  // e^x itself: relative error of every ratio to the largest element.
  std::vector<float> x;
  // Down to e^-80 / 1000: below that the result is subnormal and has fewer digits.
  for (int i = 0; i <= 80000; ++i) x.push_back(-static_cast<float>(i) * 1e-3f);
  const std::vector<float> before = x;
  kernels_.softmax(x.data(), static_cast<int>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(double{x[i]} / x[0] / std::exp(double{before[i]}), 1.0, 6e-7) << before[i];
  }
}

TEST_P(VectorKernelsTest, SoftmaxOfFarApartAndInfiniteLogits) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {-inf, 0.0f, -1e30f, 1e4f, -inf};
  kernels_.softmax(x.data(), 5);
  EXPECT_EQ(x, (std::vector<float>{0, 0, 0, 1, 0}));
}

TEST_P(VectorKernelsTest, Rope) {
  for (int half = 1; half <= 70; ++half) {
    for (const bool interleaved : {false, true}) {
      const std::vector<float> x = random_values(2 * half, half);
      std::vector<float> cos(half), sin(half);
      std::vector<double> expected(2 * half);
      for (int i = 0; i < half; ++i) {
        cos[i] = std::cos(0.3f * i);
        sin[i] = std::sin(0.3f * i);
        const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
        expected[a] = double{x[a]} * cos[i] - double{x[b]} * sin[i];
        expected[b] = double{x[a]} * sin[i] + double{x[b]} * cos[i];
      }
      Guarded got(x);
      kernels_.rope(got.data(), cos.data(), sin.data(), half, interleaved);
      expect_close(got, expected, 1e-6);
    }
  }
}

TEST_P(VectorKernelsTest, RoundInt8) {
  for (const int n : sizes()) {
    std::vector<float> x = random_values(n, n);
    float most = 1e-5f;
    for (const float v : x) most = std::max(most, std::fabs(v));
    Guarded got(x);
    kernels_.round_int8(got.data(), n);
    got.check_guards();
    for (int i = 0; i < n; ++i) {
      const double code = double{got.data()[i]} * 127 / most;
      ASSERT_NEAR(code, std::round(code), 1e-4);
      ASSERT_LE(std::fabs(code - double{x[i]} * 127 / most), 0.5001);
    }
  }
  std::vector<float> halves = {127.0f, 0.5f, 1.5f, -2.5f, 3.5f};  // to even
  kernels_.round_int8(halves.data(), 5);
  EXPECT_EQ(halves, (std::vector<float>{127, 0, 2, -2, 4}));
}

std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> all;
  for (const KernelTable& table : available_kernels()) all.push_back(&table);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Isa, VectorKernelsTest, testing::ValuesIn(tables()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace penstock
