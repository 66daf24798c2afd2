// Recurrences over states in BF16, of every instruction set, beside those over F32.
#include "kernels/recurrence_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_table.h"

namespace penstock {
namespace {

constexpr int kF32 = static_cast<int>(StateFormat::kF32),
              kBf16 = static_cast<int>(StateFormat::kBF16);

// So many tokens of one strip.
struct Inputs {
  Inputs(int dim, int n) : key_dim(dim), n_tokens(n) {
    std::minstd_rand generator(static_cast<unsigned>(7 * dim + n));
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, int each, float scale) {
      values.resize(static_cast<size_t>(each) * static_cast<size_t>(n));
      for (float& value : values) value = scale * normal(generator);
    };
    const float unit = 1.0f / std::sqrt(static_cast<float>(dim));
    fill(q, dim, unit), fill(k, dim, unit), fill(v, kDeltaLanes, 1.0f);
    fill(decay, dim, 0.05f), fill(beta, kDeltaLanes, 0.1f);
    for (float& x : decay) x = 0.9f + std::fmod(std::fabs(x), 0.1f);
    for (float& x : beta) x = 0.5f + x;
    rates.resize(size_t(dim) * kDeltaLanes);
    for (float& x : rates) x = -std::fabs(normal(generator));
  }
  // Tokens [first, first + n), for a state behind those before.
  DeltaStrip strip(int first, int n, void* state, float* out) const {
    DeltaStrip strip{};
    const ptrdiff_t keys = ptrdiff_t{first} * key_dim;
    strip.state = state, strip.key_dim = key_dim, strip.n_features = kDeltaLanes,
    strip.n_tokens = n;
    strip.q = q.data() + keys, strip.k = k.data() + keys;
    strip.v = v.data() + ptrdiff_t{first} * kDeltaLanes;
    strip.decay = decay.data() + keys, strip.rates = rates.data();
    strip.beta = beta.data() + ptrdiff_t{first} * kDeltaLanes;
    strip.decay_stride = key_dim, strip.beta_stride = kDeltaLanes;
    strip.out = out + ptrdiff_t{first} * kDeltaLanes, strip.out_stride = kDeltaLanes;
    return strip;
  }

  int key_dim, n_tokens;
  std::vector<float> q, k, v, decay, beta, rates;
};

size_t place_of(size_t i) {
  return i / kDeltaLanes * kDeltaLanes +
         static_cast<size_t>(bf16_place(static_cast<int>(i % kDeltaLanes)));
}

class StateKernels : public ::testing::TestWithParam<KernelTable> {};

// q, k and v have one stride, which is not the same here: a token at a time.
template <class State>
std::vector<float> run(RecurrenceKernels::Kernel kernel, const Inputs& inputs,
                       std::vector<State>& state) {
  std::vector<float> out(static_cast<size_t>(inputs.n_tokens) * kDeltaLanes);
  for (int t = 0; t < inputs.n_tokens; ++t) kernel(inputs.strip(t, 1, state.data(), out.data()));
  return out;
}

// What is between two tokens is what a kernel of F32 has there, rounded to nearest even.
TEST_P(StateKernels, AreRoundedBehindEveryToken) {
  const RecurrenceKernels& kernels = *GetParam().recurrence;
  for (const auto& of :
       {kernels.delta_rule, kernels.delta_rule_by_key, kernels.state_space, kernels.channel_scan}) {
    for (const int key_dim : {1, 6, 16, 128}) {
      const Inputs inputs(key_dim, 9);
      const auto n = static_cast<size_t>(key_dim) * kDeltaLanes;
      std::vector<uint16_t> state(n, 0);
      std::vector<float> wide(n, 0.0f);
      const std::vector<float> got = run(of[kBf16], inputs, state);
      std::vector<float> want(got.size());
      for (int t = 0; t < inputs.n_tokens; ++t) {
        of[kF32](inputs.strip(t, 1, wide.data(), want.data()));
        for (float& value : wide) value = to_float(to_bfloat16(value));
      }
      EXPECT_EQ(got, want) << key_dim;
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(to_float(BFloat16{state[place_of(i)]}), wide[i]) << key_dim << " " << i;
    }
  }
}

// Strips of several tokens are those of each after the other.
TEST_P(StateKernels, CutsChangeNothing) {
  const RecurrenceKernels& kernels = *GetParam().recurrence;
  for (const auto& of :
       {kernels.delta_rule, kernels.delta_rule_by_key, kernels.state_space, kernels.channel_scan}) {
    constexpr int kDim = kDeltaLanes;  // then all of a token's rows have one stride
    const Inputs inputs(kDim, 12);
    std::vector<uint16_t> whole(size_t{kDim} * kDeltaLanes, 0), cut = whole;
    std::vector<float> at_once(size_t{12} * kDeltaLanes);
    DeltaStrip strip = inputs.strip(0, 12, whole.data(), at_once.data());
    strip.stride = kDim;
    of[kBf16](strip);
    EXPECT_EQ(run(of[kBf16], inputs, cut), at_once);
    EXPECT_EQ(cut, whole);
  }
}

// Of state_space from nothing, with key 1 and step 1, the state is the value.
TEST_P(StateKernels, RoundAsTheSpecificationDoes) {
  using Limits = std::numeric_limits<float>;
  const float values[kDeltaLanes] = {0.0f,
                                     1.0f,
                                     1.00390625f,  // a tie, to the even one below
                                     1.01171875f,  // a tie, to the even one above
                                     -1.01171875f,
                                     1.003906369f,  // above the tie
                                     3.14159265f,
                                     -2.7182818e-20f,
                                     Limits::max(),  // to infinity
                                     Limits::infinity(),
                                     -Limits::infinity(),
                                     Limits::quiet_NaN(),
                                     std::bit_cast<float>(0x7fd12345u),
                                     std::bit_cast<float>(0xffc00000u),
                                     Limits::min(),
                                     65280.0f};
  const float one = 1.0f, none = 0.0f;
  uint16_t state[kDeltaLanes] = {};
  float out[kDeltaLanes];
  DeltaStrip strip{};
  strip.state = state, strip.key_dim = 1, strip.n_features = kDeltaLanes, strip.n_tokens = 1;
  strip.q = &one, strip.k = &one, strip.v = values, strip.decay = &none, strip.beta = &one;
  strip.out = out;
  GetParam().recurrence->state_space[kBf16](strip);
  for (int i = 0; i < kDeltaLanes; ++i) {
    const BFloat16 want = to_bfloat16(values[i]);
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(to_float(BFloat16{state[bf16_place(i)]}))) << i;
    } else {
      EXPECT_EQ(state[bf16_place(i)], want.bits) << values[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, StateKernels,
                         ::testing::ValuesIn(available_kernels().begin(),
                                             available_kernels().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock
