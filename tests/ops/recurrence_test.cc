// Operations with a state, of every backend, against plain loops over whole sequences.
#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "ops/ops_under_test.h"

namespace penstock {
namespace {

class Recurrence : public ::testing::TestWithParam<OpsUnderTest> {};

struct Sequence {
  std::vector<float> x;  // [length, channels]
  BlockId state{};
  int done = 0;
};

float rounded(float x) { return to_float(to_bfloat16(x)); }

// Where states in BF16 are rounded behind every token, whatever the steps.
bool rounds_by_token(const OpsUnderTest& ops) {
  return !ops.is_cpu() || ops.config.batch_invariant;
}

// out[t][c] = bias[c] + sum over taps of weight[k][c] * x[t - taps + 1 + k][c].
float expected(const Sequence& sequence, int t, int c, int channels,
               const std::vector<float>& weight, const std::vector<float>& bias, bool round_tail) {
  double sum = bias.empty() ? 0.0 : bias[c];
  const int taps = static_cast<int>(weight.size()) / channels;
  for (int k = 0; k < taps; ++k) {
    const int from = t - taps + 1 + k;
    if (from < 0) continue;
    const float x = sequence.x[from * channels + c];
    sum +=
        static_cast<double>(weight[k * channels + c]) * (round_tail && from < t ? rounded(x) : x);
  }
  return static_cast<float>(sum);
}

void check_conv(const OpsUnderTest& under_test, int channels, int taps, bool with_bias,
                StateDType type = StateDType::kF32) {
  const auto made = under_test.make();
  Ops& ops = *made;
  // Inputs that are rounded only where a step ends may be off by 2^-9 of themselves.
  const bool bf16 = type == StateDType::kBF16, by_token = bf16 && rounds_by_token(under_test);
  const float tolerance = bf16 && !by_token ? 0x1p-9f * 9 : 1e-5f;
  constexpr int kOffset = 5, kLayer = 1, kLength = 23;
  CacheSpec spec;
  spec.layers.assign(2, KvLayerSpec{1, 16, 0, 0});
  spec.state_values = {3, kOffset + int64_t{taps - 1} * channels};
  spec.state_dtype = type;
  const int n_blocks[] = {8, 4};
  const auto cache = ops.make_cache(spec, n_blocks).value();
  const std::vector<float> weight = random_floats(static_cast<size_t>(taps) * channels, 3);
  const std::vector<float> bias = with_bias ? random_floats(channels, 4) : std::vector<float>();
  const auto packed = ops.pack_vector(weight).value();
  const auto packed_bias = with_bias ? ops.pack_vector(bias).value() : nullptr;
  std::vector<Sequence> sequences;
  for (unsigned s = 0; s < 3; ++s) {
    sequences.push_back(
        {random_floats(static_cast<size_t>(kLength) * channels, 10 + s), BlockId(3 - s)});
  }
  // States of other sequences lie in the blocks before.
  for (int b = 0; b < 4; ++b) {
    // about 8e5
    const std::vector<std::byte> old(static_cast<size_t>(spec.state_bytes()), std::byte{0x49});
    cache->write_block(1, BlockId(b), old);
  }
  const std::vector<std::vector<int>> steps = {
      {1, 0, 4}, {1, 9, 0}, {7, 1, 1}, {0, 3, 1}, {14, 10, 17}};
  for (const std::vector<int>& counts : steps) {
    std::vector<float> x;
    std::vector<std::pair<int, int>> rows;  // sequence, token
    std::vector<int32_t> positions, seq_offsets = {0}, lens, table_offsets = {0};
    std::vector<BlockId> tables;
    for (size_t s = 0; s < sequences.size(); ++s) {
      Sequence& sequence = sequences[s];
      if (counts[s] == 0) continue;
      for (int i = 0; i < counts[s]; ++i, ++sequence.done) {
        rows.emplace_back(static_cast<int>(s), sequence.done);
        positions.push_back(sequence.done);
        const auto row = sequence.x.begin() + static_cast<ptrdiff_t>(sequence.done) * channels;
        x.insert(x.end(), row, row + channels);
      }
      seq_offsets.push_back(static_cast<int32_t>(rows.size()));
      lens.push_back(sequence.done);
      tables.push_back(sequence.state);
      table_offsets.push_back(static_cast<int32_t>(tables.size()));
    }
    const std::vector<TokenId> tokens(rows.size(), 0);
    const KvView views[] = {{}, {{}, tables, table_offsets, {}}};
    const Batch batch{tokens, positions, seq_offsets, lens, views, {}, {}};
    const StepShape shape = ops.begin_step(&batch);
    x.resize(static_cast<size_t>(shape.tokens) * channels);
    // its columns are not contiguous
    const Tensor wide = ops.new_tensor(shape.tokens, 3 * channels);
    const Tensor in = wide.columns(channels, channels);
    ops.copy(tensor_of(ops, x, shape.tokens, channels), in);
    const Tensor out = ops.new_tensor(shape.tokens, channels);
    ops.causal_conv(in, {packed.get(), packed_bias.get(), taps, kLayer, kOffset}, *cache, out);
    ops.wait(ops.submit());
    const Values got = read(ops, out);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int c = 0; c < channels; ++c) {
        const float want =
            expected(sequences[rows[r].first], rows[r].second, c, channels, weight, bias, by_token);
        ASSERT_NEAR(got.at(static_cast<int>(r), c), want, tolerance * (1 + std::fabs(want)))
            << "sequence " << rows[r].first << " token " << rows[r].second << " channel " << c;
      }
    }
  }
}

TEST_P(Recurrence, ConvolutionsGoOnWhereTheStepBeforeEnded) {
  for (const StateDType type : {StateDType::kF32, StateDType::kBF16}) {
    check_conv(GetParam(), 24, 3, false, type);
    check_conv(GetParam(), 600, 4, true, type);  // more channels than are taken together
    check_conv(GetParam(), 7, 1, true, type);    // without a tail
    check_conv(GetParam(), 5, 9, false, type);   // a tail longer than most steps
  }
}

// One sequence's tokens, in doubles.
struct DeltaCase {
  int n_key_heads, n_value_heads, key_dim, value_dim;
  bool in_turn;
  bool scan = false;  // of Mamba 2: x, B and C lie in this order, and b is not read
  bool by_key = false;
  bool by_channel = false;  // a scan of Mamba 1, with value_dim 1
  float write_factor = 1.0f;
  bool levels = false;  // by_channel, of RG-LRU
  int rates() const { return n_value_heads * (by_channel ? key_dim : 1); }
  int64_t state_values() const {
    return by_channel ? DeltaParams::state_values(1, key_dim, n_value_heads)
                      : DeltaParams::state_values(n_value_heads, key_dim, value_dim);
  }
  int decays_per_head() const { return by_key ? key_dim : 1; }
  int decays() const { return n_value_heads * decays_per_head(); }
  int keys() const { return n_key_heads * key_dim; }
  int values() const { return n_value_heads * value_dim; }
  int channels() const { return 2 * keys() + values(); }
};

struct DeltaInput {
  std::vector<float> qkv, a, b;  // [length, channels], [length, decays], [length, n_value_heads]
  BlockId state{};
  int done = 0;
};

std::vector<double> unit(const float* x, int n) {
  double squares = 1e-6;
  for (int i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  std::vector<double> result;
  for (int i = 0; i < n; ++i) result.push_back(x[i] / std::sqrt(squares));
  return result;
}

// [length, values] by the definition: the decayed state forgets what it has for the key, and learns
// the value.
std::vector<double> delta_reference(const DeltaCase& c, const DeltaInput& in, int length,
                                    const std::vector<float>& rate,
                                    const std::vector<float>& bias) {
  std::vector<double> out(static_cast<size_t>(length) * c.values());
  for (int h = 0; h < c.n_value_heads; ++h) {
    const int key_head = c.in_turn ? h % c.n_key_heads : h * c.n_key_heads / c.n_value_heads;
    std::vector<double> state(static_cast<size_t>(c.key_dim) * c.value_dim);
    for (int t = 0; t < length; ++t) {
      const float* row = in.qkv.data() + static_cast<size_t>(t) * c.channels();
      const std::vector<double> q = unit(row + key_head * c.key_dim, c.key_dim),
                                k = unit(row + c.keys() + key_head * c.key_dim, c.key_dim);
      const double beta = c.write_factor / (1 + std::exp(-in.b[t * c.n_value_heads + h]));
      for (int i = 0; i < c.key_dim; ++i) {
        const int at = h * c.decays_per_head() + (c.by_key ? i : 0);
        const double decay =
            std::exp(rate[h] * std::log1p(std::exp(in.a[t * c.decays() + at] + bias[at])));
        for (int v = 0; v < c.value_dim; ++v) state[i * c.value_dim + v] *= decay;
      }
      for (int v = 0; v < c.value_dim; ++v) {
        double known = 0, read = 0;
        for (int i = 0; i < c.key_dim; ++i) known += state[i * c.value_dim + v] * k[i];
        const double update = beta * (row[2 * c.keys() + h * c.value_dim + v] - known);
        for (int i = 0; i < c.key_dim; ++i) {
          state[i * c.value_dim + v] += k[i] * update;
          read += state[i * c.value_dim + v] * q[i];
        }
        out[static_cast<size_t>(t) * c.values() + h * c.value_dim + v] =
            read / std::sqrt(c.key_dim);
      }
    }
  }
  return out;
}

constexpr float kMinStep = 0.3f, kMaxStep = 1.5f;

// Likewise: the state decays by the step's length, and takes the input in.
std::vector<double> scan_reference(const DeltaCase& c, const DeltaInput& in, int length,
                                   const std::vector<float>& rate, const std::vector<float>& bias) {
  std::vector<double> out(static_cast<size_t>(length) * c.values());
  for (int h = 0; h < c.n_value_heads; ++h) {
    const int group = h * c.n_key_heads / c.n_value_heads;
    std::vector<double> state(static_cast<size_t>(c.key_dim) * c.value_dim);
    for (int t = 0; t < length; ++t) {
      const float* x = in.qkv.data() + static_cast<size_t>(t) * c.channels();
      const float* key = x + c.values() + group * c.key_dim;
      const double free = std::log1p(std::exp(in.a[t * c.n_value_heads + h] + bias[h]));
      const double step = std::clamp<double>(free, kMinStep, kMaxStep);
      for (int v = 0; v < c.value_dim; ++v) {
        const double input = x[h * c.value_dim + v];
        double read = bias[h] * input;  // the skip's weights are the biases
        for (int i = 0; i < c.key_dim; ++i) {
          double& s = state[i * c.value_dim + v];
          const float own = rate[c.by_channel ? h * c.key_dim + i : h];
          s = std::exp(own * step) * s + key[i] * step * input;
          read += s * key[c.keys() + i];
        }
        out[static_cast<size_t>(t) * c.values() + h * c.value_dim + v] = read;
      }
    }
  }
  return out;
}

// RG-LRU: what comes in is as strong as what the state forgets; a sequence's first token comes in whole.
std::vector<double> levels_reference(const DeltaCase& c, const DeltaInput& in, int length,
                                     const std::vector<float>& rate,
                                     const std::vector<float>& bias) {
  const auto n = static_cast<size_t>(c.n_value_heads);
  std::vector<double> out;
  std::vector<double> state(n);
  for (size_t t = 0; t < static_cast<size_t>(length); ++t) {
    const float* row = in.qkv.data() + t * static_cast<size_t>(c.channels());
    for (size_t h = 0; h < n; ++h) {
      const double step = 1 / (1 + std::exp(-static_cast<double>(in.a[t * n + h]) - bias[h])),
                   decay = std::exp(rate[h] * step);
      const double taken = t == 0 ? 1 : std::sqrt(1 - decay * decay);
      state[h] = decay * state[h] + row[n] * taken * row[h];
      out.push_back(row[n + 1] * state[h]);
    }
  }
  return out;
}

// Tokens that a step takes of each sequence.
using StepCounts = std::vector<int>;

// What the steps give for the tokens of all sequences, one sequence after the other.
std::vector<float> run_delta(Ops& ops, const DeltaCase& c, std::vector<DeltaInput> sequences,
                             const std::vector<StepCounts>& steps, const std::vector<float>& rate,
                             const std::vector<float>& bias, StateDType type = StateDType::kF32) {
  constexpr int kOffset = 16, kLayer = 1;
  CacheSpec spec;
  spec.layers.assign(2, KvLayerSpec{1, 16, 0, 0});
  spec.state_values = {16, kOffset + c.state_values()};
  spec.state_dtype = type;
  const int n_blocks[] = {8, 4};
  const auto cache = ops.make_cache(spec, n_blocks).value();
  for (int b = 0; b < 4; ++b) {
    // about 8e5
    const std::vector<std::byte> old(static_cast<size_t>(spec.state_bytes()), std::byte{0x49});
    cache->write_block(1, BlockId(b), old);
  }
  const auto packed_rate = ops.pack_vector(rate).value(),
             packed_bias = ops.pack_vector(bias).value(),
             zeros = ops.pack_vector(std::vector<float>(bias.size())).value();
  std::vector<std::vector<float>> results(sequences.size());
  for (const StepCounts& counts : steps) {
    std::vector<float> qkv, a, b;
    std::vector<size_t> owners;
    std::vector<int32_t> positions, seq_offsets = {0}, lens, table_offsets = {0};
    std::vector<BlockId> tables;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from, int row,
                           int cols) {
      to.insert(to.end(), from.begin() + ptrdiff_t{row} * cols,
                from.begin() + (ptrdiff_t{row} + 1) * cols);
    };
    for (size_t s = 0; s < sequences.size(); ++s) {
      DeltaInput& sequence = sequences[s];
      if (counts[s] == 0) continue;
      for (int i = 0; i < counts[s]; ++i, ++sequence.done) {
        owners.push_back(s);
        positions.push_back(sequence.done);
        append(qkv, sequence.qkv, sequence.done, c.channels());
        append(a, sequence.a, sequence.done, c.decays());
        append(b, sequence.b, sequence.done, c.n_value_heads);
      }
      seq_offsets.push_back(static_cast<int32_t>(owners.size()));
      lens.push_back(sequence.done);
      tables.push_back(sequence.state);
      table_offsets.push_back(static_cast<int32_t>(tables.size()));
    }
    const std::vector<TokenId> tokens(owners.size(), 0);
    const KvView views[] = {{}, {{}, tables, table_offsets, {}}};
    const Batch batch{tokens, positions, seq_offsets, lens, views, {}, {}};
    const StepShape shape = ops.begin_step(&batch);
    const auto tensor = [&](std::vector<float>& values, int cols) {
      values.resize(static_cast<size_t>(shape.tokens) * cols);
      return tensor_of(ops, values, shape.tokens, cols);
    };
    const Tensor out = ops.new_tensor(shape.tokens, c.values());
    const DeltaParams params{packed_rate.get(), packed_bias.get(), c.n_key_heads,
                             c.n_value_heads,   c.key_dim,         c.value_dim,
                             c.in_turn,         c.by_key,          kLayer,
                             kOffset,           c.write_factor};
    StateSpaceParams scan;
    scan.rate = packed_rate.get(), scan.bias = packed_bias.get(), scan.skip = packed_bias.get();
    scan.n_groups = c.n_key_heads, scan.n_heads = c.n_value_heads;
    scan.state_dim = c.key_dim, scan.head_dim = c.value_dim;
    scan.min_step = kMinStep, scan.max_step = kMaxStep, scan.layer = kLayer,
    scan.state_offset = kOffset, scan.by_channel = c.by_channel;
    scan.gated_levels = c.levels;
    if (c.levels) scan.skip = zeros.get();
    const Tensor x = tensor(qkv, c.channels()), first = tensor(a, c.decays()),
                 second = tensor(b, c.n_value_heads);
    if (c.scan) {
      ops.state_space(x, first, second, scan, *cache, out);
    } else {
      ops.gated_delta(x, first, second, params, *cache, out);
    }
    ops.wait(ops.submit());
    const Values got = read(ops, out);
    for (size_t r = 0; r < owners.size(); ++r) {
      for (int i = 0; i < c.values(); ++i)
        results[owners[r]].push_back(got.at(static_cast<int>(r), i));
    }
  }
  std::vector<float> all;
  for (const auto& result : results) all.insert(all.end(), result.begin(), result.end());
  return all;
}

constexpr int kLength = 23;

struct DeltaInputs {
  explicit DeltaInputs(const DeltaCase& c)
      : rate(random_floats(c.rates(), 3)), bias(random_floats(c.decays(), 4)) {
    for (float& r : rate) r = -std::exp(r);
    for (unsigned s = 0; s < 3; ++s) {
      const auto heads = static_cast<size_t>(kLength) * c.n_value_heads;
      sequences.push_back({random_floats(static_cast<size_t>(kLength) * c.channels(), 10 + s),
                           random_floats(heads * c.decays_per_head(), 20 + s),
                           random_floats(heads, 30 + s), BlockId(3 - s)});
    }
  }
  std::vector<float> rate, bias;
  std::vector<DeltaInput> sequences;
};

const std::vector<StepCounts> kCut = {{1, 0, 4}, {1, 9, 0}, {7, 1, 1}, {0, 3, 1}, {14, 10, 17}};

// At once is in any steps; near where a long run of tokens is computed as products of matrices.
void check_delta(const OpsUnderTest& under_test, const DeltaCase& c) {
  const auto made = under_test.make();
  Ops& ops = *made;
  const auto [rate, bias, sequences] = DeltaInputs(c);
  std::vector<double> want;
  for (const DeltaInput& sequence : sequences) {
    const auto reference = c.levels ? levels_reference : c.scan ? scan_reference : delta_reference;
    const std::vector<double> one = reference(c, sequence, kLength, rate, bias);
    want.insert(want.end(), one.begin(), one.end());
  }
  const std::vector<float> got = run_delta(ops, c, sequences, kCut, rate, bias);
  ASSERT_EQ(got.size(), want.size());
  // Keys of scans have any length.
  const double tolerance = c.scan ? 2e-5 : 2e-6;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << i;
  const std::vector<float> at_once =
      run_delta(ops, c, sequences, {{kLength, kLength, kLength}}, rate, bias);
  if (!under_test.is_cpu() || under_test.config.batch_invariant) {
    EXPECT_EQ(at_once, got);
    return;
  }
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(at_once[i], want[i], tolerance * (1 + std::fabs(want[i]))) << i;
}

TEST_P(Recurrence, DeltaRuleIsItsDefinitionInAnySteps) {
  check_delta(GetParam(), {2, 4, 12, 12, false});
  check_delta(GetParam(), {2, 6, 8, 8, true});
  check_delta(GetParam(), {3, 3, 20, 36, false});  // parts of 16 features, and a smaller one
  check_delta(GetParam(), {1, 2, 128, 128, false});
  check_delta(GetParam(), {1, 1, 3, 1, false});
  check_delta(GetParam(), {.n_key_heads = 2,
                           .n_value_heads = 4,
                           .key_dim = 12,
                           .value_dim = 24,
                           .in_turn = false,
                           .write_factor = 2.0f});
}

TEST_P(Recurrence, DeltaRuleWithDecaysByKeyIsItsDefinitionInAnySteps) {
  check_delta(GetParam(), {4, 4, 12, 12, false, false, true});
  check_delta(GetParam(), {3, 3, 20, 36, false, false, true});
  check_delta(GetParam(), {2, 2, 128, 128, false, false, true});
  check_delta(GetParam(), {1, 2, 192, 20, false});
  check_delta(GetParam(), {1, 2, 256, 16, false, false, true});
  check_delta(GetParam(), {1, 1, 3, 1, false, false, true});
}

TEST_P(Recurrence, ScansAreTheirDefinitionInAnySteps) {
  check_delta(GetParam(), {1, 4, 16, 12, false, true});
  check_delta(GetParam(), {3, 6, 20, 8, false, true});
  check_delta(GetParam(), {2, 2, 128, 64, false, true});
  check_delta(GetParam(), {1, 2, 256, 16, false, true});
  check_delta(GetParam(), {1, 3, 3, 33, false, true});
}

// As many channels as strips of 16 have, fewer, and some more.
TEST_P(Recurrence, ScansByChannelAreTheirDefinitionInAnySteps) {
  for (const auto& [channels, state_dim] : {std::pair{32, 16}, {7, 5}, {83, 20}, {1, 1}})
    check_delta(GetParam(), {1, channels, state_dim, 1, false, true, false, true});
}

TEST_P(Recurrence, GatedLevelsAreTheirDefinitionInAnySteps) {
  for (const int channels : {32, 7, 83})
    check_delta(GetParam(), {.n_key_heads = 1,
                             .n_value_heads = channels,
                             .key_dim = 1,
                             .value_dim = 1,
                             .in_turn = false,
                             .scan = true,
                             .by_channel = true,
                             .levels = true});
}

// States in BF16. What is rounded behind every token is the same in any steps; otherwise a sequence
// that is one step is computed in F32 altogether. Rounding moves a number by at most 2^-9 of it, at
// random, and what was forgotten of a state no longer counts: results stay within 2^-8 of their
// size, as a whole.
void check_bf16(const OpsUnderTest& under_test, const DeltaCase& c) {
  const auto ops = under_test.make();
  const auto [rate, bias, sequences] = DeltaInputs(c);
  const auto run = [&](const std::vector<StepCounts>& steps, StateDType type) {
    return run_delta(*ops, c, sequences, steps, rate, bias, type);
  };
  const std::vector<StepCounts> whole = {{kLength, kLength, kLength}}, singly(kLength, {1, 1, 1});
  const std::vector<float> f32 = run(whole, StateDType::kF32),
                           by_token = run(singly, StateDType::kBF16),
                           cut = run(kCut, StateDType::kBF16);
  EXPECT_EQ(run(whole, StateDType::kBF16), rounds_by_token(under_test) ? by_token : f32);
  if (rounds_by_token(under_test)) {
    EXPECT_EQ(cut, by_token);
  }
  for (const std::vector<float>& got : {by_token, cut}) {
    ASSERT_EQ(got.size(), f32.size());
    double size = 0, error = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      size += static_cast<double>(f32[i]) * f32[i];
      error += (static_cast<double>(got[i]) - f32[i]) * (got[i] - f32[i]);
    }
    EXPECT_GT(error, 0);
    EXPECT_LT(std::sqrt(error / size), 0x1p-8);
  }
}

TEST_P(Recurrence, StatesInHalfTheBytesAreNearAndTheSameInAnySteps) {
  check_bf16(GetParam(), {2, 4, 12, 12, false});
  check_bf16(GetParam(), {3, 3, 20, 36, false});
  check_bf16(GetParam(), {1, 2, 128, 128, false});
  check_bf16(GetParam(), {3, 3, 20, 36, false, false, true});
  check_bf16(GetParam(), {2, 2, 128, 128, false, false, true});
  check_bf16(GetParam(), {3, 6, 20, 8, false, true});
  check_bf16(GetParam(), {2, 2, 128, 64, false, true});
  check_bf16(GetParam(), {1, 83, 20, 1, false, true, false, true});
}

// What block 0 has is in 1 and 2 behind two copies.
template <class Value>
void expect_states_are_copied(Ops& ops, StateDType dtype) {
  CacheSpec spec;
  spec.layers.assign(2, KvLayerSpec{1, 16, 0, 0});
  spec.state_values = {3, 6};
  spec.state_dtype = dtype;
  const int n_blocks[] = {1, 3};
  const auto cache = ops.make_cache(spec, n_blocks).value();
  const std::vector<Value> values = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(Value));
  ASSERT_EQ(spec.block_bytes(1), bytes);
  ASSERT_EQ(cache->block_bytes(1), bytes);
  cache->write_block(1, BlockId(0), std::as_bytes(std::span(values)));
  const int32_t from[] = {0, 2}, to[] = {2, 1};
  ops.begin_step(nullptr);
  ops.move_kv(*cache, 1, from, to);
  ops.wait(ops.submit());
  for (const int block : {1, 2}) {
    std::vector<Value> got(values.size());
    cache->read_block(1, BlockId(block), std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, values) << block;
  }
}

TEST_P(Recurrence, StatesAreCopiedFromBlockToBlock) {
  const auto ops = GetParam().make();
  expect_states_are_copied<float>(*ops, StateDType::kF32);
  expect_states_are_copied<uint16_t>(*ops, StateDType::kBF16);
}

TEST_P(Recurrence, MultiplyIsByElement) {
  const auto ops = GetParam().make();
  ops->begin_step(nullptr);
  const std::vector<float> a = random_floats(3 * 70, 1), b = random_floats(3 * 70, 2);
  const Tensor x = tensor_of(*ops, a, 3, 70);
  ops->multiply(x, tensor_of(*ops, b, 3, 70));
  const Values got = read(*ops, x);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(got.all[i], a[i] * b[i]);
}

INSTANTIATE_TEST_SUITE_P(Backends, Recurrence, ::testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
