// Recurrences in chunks, of every instruction set, beside those of plain loops token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/recurrence_kernels.h"

namespace penstock {
namespace {

size_t to_size(int64_t n) { return static_cast<size_t>(n); }

// A value head's tokens, its state before them, and what else lies in their rows.
struct ChunkCase {
  int key_dim, n_features, n_tokens;
  float least_decay, most_decay;  // evenly between them
  enum { kStateSpace, kDelta, kDeltaByKey } rule;
  int decays() const { return rule == kDeltaByKey ? key_dim : 1; }
};

class ChunkedHead {
 public:
  explicit ChunkedHead(const ChunkCase& c) : case_(c), stride_(2 * c.key_dim + c.n_features + 5) {
    std::minstd_rand generator(
        static_cast<unsigned>(7 * c.key_dim + 3 * c.n_features + c.n_tokens));
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    rows_.resize(to_size(stride_) * to_size(c.n_tokens));
    for (float& x : rows_) x = normal(generator);
    for (int t = 0; t < c.n_tokens; ++t) {
      // As they are in models: keys of the delta rule at unit length.
      float* const row = rows_.data() + ptrdiff_t{t} * stride_;
      for (float* const x : {row, row + c.key_dim}) {
        float squares = 0;
        for (int i = 0; i < c.key_dim; ++i) squares += x[i] * x[i];
        for (int i = 0; i < c.key_dim; ++i) x[i] /= std::sqrt(squares);
      }
      for (int i = 0; i < c.decays(); ++i)
        decay_.push_back(c.least_decay + (c.most_decay - c.least_decay) * uniform(generator));
      beta_.push_back(uniform(generator));
    }
    state_.resize(to_size(strips()) * to_size(c.key_dim) * kDeltaLanes);
    for (size_t i = 0; i < state_.size(); ++i) {
      const auto feature =
          static_cast<int>(i / to_size(c.key_dim * kDeltaLanes) * kDeltaLanes + i % kDeltaLanes);
      state_[i] = feature < c.n_features ? normal(generator) : 0.0f;
    }
  }

  struct Result {
    std::vector<float> out, state;
  };

  Result by_token(const RecurrenceKernels& kernels) const {
    Result result = empty();
    for (int strip = 0; strip < strips(); ++strip) {
      DeltaStrip part = from(0, case_.n_tokens, result);
      const int first = strip * kDeltaLanes;
      part.state = result.state.data() + ptrdiff_t{first} * case_.key_dim;
      part.n_features = std::min(kDeltaLanes, case_.n_features - first);
      part.v += first, part.out += first;
      by_token_kernel(kernels)(part);
    }
    return result;
  }

  Result in_chunks(const RecurrenceKernels& kernels) const {
    Result result = empty();
    std::vector<float> memory(ChunkKeys::floats(case_.key_dim), NAN);
    const ChunkKeys keys(case_.key_dim, memory.data());
    const RecurrenceKernels::Chunks& chunks = chunk_kernels(kernels);
    for (int t = 0; t < case_.n_tokens; t += kScanChunk) {
      DeltaStrip chunk = from(t, std::min(kScanChunk, case_.n_tokens - t), result);
      chunk.state = result.state.data();
      chunk.n_features = case_.n_features;
      chunks.keys(chunk, keys);
      chunk.q = chunk.k = nullptr;
      chunks.scan(chunk, keys);
    }
    return result;
  }

 private:
  RecurrenceKernels::Kernel by_token_kernel(const RecurrenceKernels& kernels) const {
    constexpr int kFormat = static_cast<int>(StateFormat::kF32);
    if (case_.rule == ChunkCase::kStateSpace) return kernels.state_space[kFormat];
    return (case_.rule == ChunkCase::kDelta ? kernels.delta_rule
                                            : kernels.delta_rule_by_key)[kFormat];
  }
  const RecurrenceKernels::Chunks& chunk_kernels(const RecurrenceKernels& kernels) const {
    if (case_.rule == ChunkCase::kStateSpace) return kernels.state_space_chunks;
    return case_.rule == ChunkCase::kDelta ? kernels.delta_rule_chunks
                                           : kernels.delta_rule_by_key_chunks;
  }
  int strips() const { return (case_.n_features + kDeltaLanes - 1) / kDeltaLanes; }
  Result empty() const {
    return {std::vector<float>(to_size(case_.n_tokens) * to_size(out_stride()), -7.0f), state_};
  }
  int out_stride() const { return case_.n_features + 3; }
  DeltaStrip from(int t, int n, Result& result) const {
    DeltaStrip strip{};
    const float* const row = rows_.data() + ptrdiff_t{t} * stride_;
    strip.key_dim = case_.key_dim, strip.n_tokens = n;
    strip.q = row, strip.k = row + case_.key_dim, strip.v = row + ptrdiff_t{2} * case_.key_dim;
    strip.stride = stride_;
    strip.decay = decay_.data() + ptrdiff_t{t} * case_.decays(), strip.beta = beta_.data() + t;
    strip.decay_stride = case_.decays(), strip.beta_stride = 1;
    strip.out = result.out.data() + ptrdiff_t{t} * out_stride(), strip.out_stride = out_stride();
    strip.skip = 0.25f;
    return strip;
  }

  ChunkCase case_;
  int stride_;
  std::vector<float> rows_, decay_, beta_, state_;
};

class ChunkKernels : public ::testing::TestWithParam<KernelTable> {};

void expect_near(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-5f * (1 + std::fabs(want[i]))) << what << " " << i;
}

// What lies between the rows of `out` is not written, and a state's lanes without features stay
// zero: both are compared too.
TEST_P(ChunkKernels, AreTheTokensOneByOne) {
  const RecurrenceKernels& scalar = *available_kernels().front().recurrence;
  for (const auto rule : {ChunkCase::kStateSpace, ChunkCase::kDelta, ChunkCase::kDeltaByKey}) {
    for (const auto& [key_dim, n_features] : {std::pair{128, 64},
                                              {128, 128},
                                              {16, 16},
                                              {37, 20},
                                              {1, 1},
                                              {3, 50},
                                              {65, 33},
                                              {20, 36}}) {
      for (const int n_tokens : {1, 7, 8, 15, 16, 17, 45, 64}) {
        for (const auto& [least, most] :
             {std::pair{0.0f, 1.0f}, {0.999f, 1.0f}, {1.0f, 1.0f}, {0.0f, 1e-30f}, {0.0f, 0.0f}}) {
          const ChunkCase c{key_dim, n_features, n_tokens, least, most, rule};
          SCOPED_TRACE(::testing::Message()
                       << key_dim << " keys " << n_features << " features " << n_tokens
                       << " tokens, decays " << least << " to " << most << " rule " << rule);
          const ChunkedHead head(c);
          const ChunkedHead::Result want = head.by_token(scalar),
                                    got = head.in_chunks(*GetParam().recurrence);
          expect_near(got.out, want.out, "out");
          expect_near(got.state, want.state, "state");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ChunkKernels,
                         ::testing::ValuesIn(available_kernels().begin(),
                                             available_kernels().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock
