// What a visit to a machine with a GPU measures (scripts/visit_cuda): limits, kernels on shapes of
// real models, decode and prefill of whole models with random weights. One JSON object on the
// standard output. On the emulated device everything is tiny, and only shows that it runs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "base/half.h"
#include "model/batch_builder.h"
#include "model/model.h"
#include "model/sources/synthetic.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/device_limits.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr int kRounds = 5;
// read in between, so that nothing is left in a cache
constexpr int64_t kColdBytes = int64_t{320} << 20;

struct Visit {
  std::unique_ptr<Ops> ops;
  bool emulated = false;

  // The median of some rounds, each of which is waited for.
  template <class Fn>
  double seconds_of(Fn&& fn) {
    std::vector<double> all;
    for (int round = 0; round < (emulated ? 1 : kRounds); ++round) {
      ops->wait(ops->submit());
      const auto start = std::chrono::steady_clock::now();
      fn();
      ops->wait(ops->submit());
      all.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
  }
};

std::vector<float> random_values(size_t n) {
  std::minstd_rand generator(7);
  std::vector<float> values(n);
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(generator() % 2001) - 1000) * 1e-4f;
  return values;
}

// A matrix of which 64 rows are random, and repeated.
std::vector<std::byte> random_matrix(QuantType type, int rows, int cols) {
  const int n = std::min(rows, 64);
  const std::vector<float> values =
      random_values(static_cast<size_t>(n) * static_cast<size_t>(cols));
  const size_t row_bytes = quant_bytes(type, cols);
  std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(rows));
  for (int r = 0; r < rows; ++r) {
    std::byte* const to = bytes.data() + row_bytes * static_cast<size_t>(r);
    if (r < n) {
      quantize_row(type, values.data() + static_cast<ptrdiff_t>(r) * cols, to, cols);
    } else {
      std::copy_n(bytes.data() + row_bytes * static_cast<size_t>(r % n), row_bytes, to);
    }
  }
  return bytes;
}

struct Shape {
  int out, in;
};

// Of so many bytes together that they lie in no cache when they are taken by turns; emulated: one.
Result<std::vector<std::unique_ptr<Weight>>> make_weights(Visit& visit, QuantType type, Shape shape,
                                                          int64_t least_bytes) {
  const std::vector<std::byte> bytes = random_matrix(type, shape.out, shape.in);
  std::vector<std::unique_ptr<Weight>> weights;
  int64_t packed = 0;
  while (weights.empty() || (!visit.emulated && packed < least_bytes)) {
    ASSIGN_OR_RETURN(auto weight, visit.ops->pack({type, shape.out, shape.in, bytes}));
    packed += weight->packed_bytes();
    weights.push_back(std::move(weight));
  }
  return weights;
}

// How far `a` is from `b`, for the length of that.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - double{b[i]};
    apart += d * d, length += double{b[i]} * double{b[i]};
  }
  return std::sqrt(apart / length);
}

Result<Json> measure_products(Visit& visit) {
  const std::vector<Shape> shapes =
      visit.emulated ? std::vector<Shape>{{32, 256}}
                     : std::vector<Shape>{{4096, 4096}, {14336, 4096}, {4096, 14336}};
  const std::vector<int> tokens =
      visit.emulated ? std::vector<int>{1, 9} : std::vector<int>{1, 4, 8, 16, 32, 128, 1024};
  Json all = Json::array();
  for (const QuantType type :
       {QuantType::kBF16, QuantType::kQ8_0, QuantType::kQ4_K, QuantType::kF8E4M3}) {
    for (const Shape& shape : shapes) {
      ASSIGN_OR_RETURN(const auto weights, make_weights(visit, type, shape, kColdBytes));
      for (const int n : tokens) {
        visit.ops->begin_step(nullptr);
        const Tensor x = visit.ops->new_tensor(n, shape.in),
                     out = visit.ops->new_tensor(n, shape.out);
        visit.ops->write_rows(random_values(static_cast<size_t>(n) * static_cast<size_t>(shape.in)),
                              x);
        const auto multiply_all = [&] {
          for (const auto& weight : weights) {
            const LinearTarget target{weight.get(), nullptr, out};
            visit.ops->linear(x, {&target, 1});
          }
        };
        const auto seconds_by = [&](bool streams) {
          static_cast<cuda::CudaOps&>(*visit.ops).stream(streams);
          multiply_all();
          return visit.seconds_of(multiply_all) / static_cast<double>(weights.size());
        };
        const double apart = seconds_by(false), seconds = seconds_by(true);
        const double read = static_cast<double>(weights[0]->packed_bytes());
        all.push_back({{"type", quant_info(type).name},
                       {"out", shape.out},
                       {"in", shape.in},
                       {"tokens", n},
                       {"us", seconds * 1e6},
                       {"us_not_through_shared_memory", apart * 1e6},
                       {"weight_GB_per_s", read / seconds / 1e9},
                       {"Tflop_per_s", 2e-12 * n * shape.out * shape.in / seconds}});
      }
    }
  }
  return all;
}

// Products of few rows, recorded, with weights that lie in no cache: through shared memory and not.
// Expected: a start of 2 us, and the bytes at 4.1 TB/s, which is what reading reaches.
Result<Json> measure_stream(Visit& visit, std::string_view only, std::string_view only_shape) {
  auto& ops = static_cast<cuda::CudaOps&>(*visit.ops);
  const std::vector<Shape> shapes =
      visit.emulated
          ? std::vector<Shape>{{80, 256}}
          : std::vector<Shape>{{2048, 2048},  {8192, 2048},  {2048, 8192},   {4096, 4096},
                               {14336, 4096}, {4096, 14336}, {128'256, 4096}};
  constexpr int64_t kCold = int64_t{160} << 20;
  using enum QuantType;
  ops.wide().enable(false);  // which takes eight rows of codes
  Json all = Json::array();
  for (const QuantType type : {kBF16, kQ8_0, kQ4_0, kQ4_K, kQ6_K}) {
    if (!only.empty() && only != quant_info(type).name) continue;
    for (const Shape& shape : shapes) {
      const bool head = shape.out > 100'000;
      if (!only_shape.empty() && only_shape != fmt::format("{}x{}", shape.out, shape.in)) continue;
      if (head && type != kBF16 && type != kQ6_K) continue;
      ASSIGN_OR_RETURN(const auto weights, make_weights(visit, type, shape, kCold));
      std::vector<float> of_one;  // the first row's, by itself
      for (const int n : {1, 2, 4, 8}) {
        if (head && n > 1) continue;
        ops.begin_step(nullptr);
        const Tensor x = visit.ops->new_tensor(n, shape.in),
                     out = visit.ops->new_tensor(n, shape.out);
        ops.write_rows(random_values(static_cast<size_t>(n) * static_cast<size_t>(shape.in)), x);
        const auto multiply_all = [&] {
          for (const auto& weight : weights) {
            const LinearTarget target{weight.get(), nullptr, out};
            ops.linear(x, {&target, 1});
          }
        };
        std::vector<float> values[2];
        double seconds[2] = {};
        for (const bool streams : {true, false}) {
          ops.stream(streams);
          multiply_all();
          values[streams].resize(static_cast<size_t>(n) * static_cast<size_t>(shape.out));
          ops.read_rows(out, values[streams]);
          if (!streams && n > 1) continue;
          ops.device().begin_recording();
          multiply_all();
          const auto recording = ops.device().end_recording();
          if (!recording) return errorf(ErrorCode::kInternal, "products could not be recorded");
          ops.device().play(*recording);
          seconds[streams] = visit.seconds_of([&] { ops.device().play(*recording); }) /
                             static_cast<double>(weights.size());
        }
        ops.stream(true);
        const double off = distance(values[1], values[0]);
        values[1].resize(static_cast<size_t>(shape.out));
        if (n == 1) of_one = values[1];
        const double read = static_cast<double>(weights[0]->packed_bytes());
        all.push_back({{"type", quant_info(type).name},
                       {"out", shape.out},
                       {"in", shape.in},
                       {"rows", n},
                       {"us", seconds[1] * 1e6},
                       {"us_not_through_shared_memory", seconds[0] * 1e6},
                       {"us_expected", 2 + read / 4.1e6},
                       {"GB_per_s", read / seconds[1] / 1e9},
                       {"off", off},
                       {"same_bits_as_alone", values[1] == of_one}});
      }
    }
  }
  ops.wide().enable(true);
  return all;
}

// Products of many rows, by every size of block; and how far results are from those of the kernel
// for few rows, which streams weights up to eight of them.
Result<Json> measure_wide(Visit& visit, std::string_view only) {
  using Rows = std::vector<int>;
  const std::vector<Shape> shapes =
      visit.emulated ? std::vector<Shape>{{160, 256}}
                     : std::vector<Shape>{{4096, 4096}, {14336, 4096}, {4096, 14336}};
  const Rows tokens = visit.emulated ? Rows{5, 16, 70} : Rows{8, 16, 64, 128, 256, 1024, 2048};
  const Rows compared = visit.emulated ? Rows{16, 70} : Rows{50, 300};
  constexpr int64_t kLeastBytes =
      int64_t{72}  // of weights that are taken by turns: more than a cache has
      << 20;
  auto& ops = static_cast<cuda::CudaOps&>(*visit.ops);
  int widest = 0;
  for (const Shape& shape : shapes) widest = std::max(widest, shape.in);
  const std::vector<float> values =
      random_values(static_cast<size_t>(tokens.back()) * static_cast<size_t>(widest));
  Json all = Json::array();
  for (const QuantType type : {QuantType::kBF16, QuantType::kF16, QuantType::kQ8_0,
                               QuantType::kQ4_K, QuantType::kQ4_0, QuantType::kF8E4M3}) {
    if (!only.empty() && only != quant_info(type).name) continue;
    for (const Shape& shape : shapes) {
      ASSIGN_OR_RETURN(const auto weights, make_weights(visit, type, shape, kLeastBytes));
      struct Way {
        const char* name;
        bool wide;
        cuda::WideProducts::Cut cut = {};
      };
      const std::vector<Way> ways = {{"not wide", false}, {"as chosen", true}};
      const std::vector<Way> of_few = {{"16", true, {16}},
                                       {"32", true, {32}},
                                       {"64", true, {64}},
                                       {"not split", true, {0, 1}},
                                       {"4 splits", true, {0, 4}}};
      const std::vector<Way> of_many = {
          {"64", true, {64, 1}}, {"128", true, {128, 1}}, {"256", true, {256, 1}}};
      const auto take = [&](const Way& way) {
        ops.wide().enable(way.wide), ops.wide().cut(way.cut);
      };
      const auto tensors = [&](int n) {
        ops.begin_step(nullptr);
        const Tensor x = visit.ops->new_tensor(n, shape.in),
                     out = visit.ops->new_tensor(n, shape.out);
        ops.write_rows({values.data(), static_cast<size_t>(n) * static_cast<size_t>(shape.in)}, x);
        return std::pair(x, out);
      };
      Json row = {{"type", quant_info(type).name}, {"out", shape.out}, {"in", shape.in}};
      for (const int n : compared) {
        const auto [x, out] = tensors(n);
        std::vector<float> expected, got(static_cast<size_t>(n) * static_cast<size_t>(shape.out));
        const auto compare = [&, x = x, out = out](const Way& way) {
          take(way);
          ops.clear(out);
          const LinearTarget target{weights[0].get(), nullptr, out};
          ops.linear(x, {&target, 1});
          ops.read_rows(out, got);
          if (expected.empty()) expected = got;
          row["apart"][std::to_string(n)][way.name] = distance(got, expected);
        };
        std::ranges::for_each(ways, compare);
        std::ranges::for_each(n < cuda::WideProducts::kLeastRounded ? of_few : of_many, compare);
      }
      for (const int n : tokens) {
        const auto [x, out] = tensors(n);
        const auto multiply_all = [&, x = x, out = out] {
          for (const auto& weight : weights) {
            const LinearTarget target{weight.get(), nullptr, out};
            ops.linear(x, {&target, 1});
          }
        };
        Json& of = row["Tflop_per_s"][std::to_string(n)];
        const auto measure = [&](const Way& way) {
          if (!way.wide && n > 256) return;  // slow
          take(way);
          multiply_all();
          const double seconds =
              visit.seconds_of(multiply_all) / static_cast<double>(weights.size());
          of[way.name] = 2e-12 * n * shape.out * shape.in / seconds;
        };
        std::ranges::for_each(ways, measure);
        std::ranges::for_each(n < cuda::WideProducts::kLeastRounded ? of_few : of_many, measure);
      }
      all.push_back(std::move(row));
    }
  }
  return all;
}

// A layer's mixture. The router's choices differ from call to call, so that weights lie in no cache.
struct Mixture {
  const char* of;
  int dim, width, n_experts, n_active;
};

class MixtureWork {
 public:
  static constexpr int kCalls = 16;  // whose choices differ

  MixtureWork(Visit& visit, const Mixture& shape) : visit_(visit), shape_(shape) {}
  Status open(QuantType type) {
    const Mixture& s = shape_;
    for (auto& [weights, rows, cols] :
         {std::tuple{&gate_, s.width, s.dim}, {&up_, s.width, s.dim}, {&down_, s.dim, s.width}}) {
      const std::vector<std::byte> bytes = random_matrix(type, rows, cols);
      for (int e = 0; e < s.n_experts; ++e) {
        ASSIGN_OR_RETURN(auto weight, visit_.ops->pack({type, rows, cols, bytes}));
        weights->push_back(std::move(weight));
      }
    }
    CacheSpec spec;
    spec.layers.assign(1, {1, 16});
    const int n_blocks[] = {1};
    ASSIGN_OR_RETURN(cache_, visit_.ops->make_cache(spec, n_blocks));
    return {};
  }
  // Weights that a token's experts have.
  double bytes_of_token() const {
    double bytes = 0;
    for (const auto* weights : {&gate_, &up_, &down_})
      bytes += static_cast<double>((*weights)[0]->packed_bytes()) * shape_.n_active;
    return bytes;
  }
  // Of n tokens: seconds of a call, and what the last one gave.
  Result<double> seconds_of(int n, std::vector<float>& out) {
    const std::vector<TokenId> tokens(static_cast<size_t>(n));
    const std::vector<int32_t> positions(static_cast<size_t>(n));
    const int32_t offsets[] = {0, n}, lens[] = {n};
    const Batch batch = {tokens, positions, offsets, lens, {}, {}, {}};
    const int rows = visit_.ops->begin_step(&batch).tokens;
    ASSIGN_OR_RETURN(const auto inputs,
                     visit_.ops->pack_vector(random_values(static_cast<size_t>(rows) *
                                                           static_cast<size_t>(shape_.dim))));
    std::minstd_rand generator(3);
    std::vector<std::unique_ptr<Vector>> logits;
    for (int i = 0; i < kCalls; ++i) {
      std::vector<float> drawn(static_cast<size_t>(rows) * static_cast<size_t>(shape_.n_experts));
      for (float& logit : drawn) logit = static_cast<float>(generator() % 10007) * 1e-3f;
      ASSIGN_OR_RETURN(logits.emplace_back(), visit_.ops->pack_vector(drawn));
    }
    MoeParams params;
    params.gate = gate_, params.up = up_, params.down = down_;
    params.routing.n_active = shape_.n_active;
    const auto tensor_of = [rows](const Vector& vector, int cols) {
      return Tensor{const_cast<float*>(cuda::device_data(&vector)), DType::kF32, rows, cols, cols};
    };
    const auto step = [&](int n_calls) {
      const StepShape shape = visit_.ops->begin_step(&batch);
      return visit_.ops->run({.cache = cache_.get(), .shape = shape, .n_layers = n_calls}, [&] {
        Tensor sum;
        for (int i = 0; i < n_calls; ++i) {
          sum = visit_.ops->new_tensor(rows, shape_.dim);
          visit_.ops->moe(tensor_of(*inputs, shape_.dim),
                          tensor_of(*logits[static_cast<size_t>(i % kCalls)], shape_.n_experts),
                          params, sum);
        }
        return StepOutputs{.hidden = sum};
      });
    };
    out.resize(static_cast<size_t>(rows) * static_cast<size_t>(shape_.dim));
    visit_.ops->read_rows(step(1).hidden, out);
    const auto seconds = [&](int n_calls) {
      for (int i = 0; i < 3; ++i) step(n_calls);  // the second is recorded
      return visit_.seconds_of([&] { step(n_calls); });
    };
    const int more = visit_.emulated ? 1 : kCalls;
    return (seconds(more + 1) - seconds(1)) / more;
  }

 private:
  Visit& visit_;
  Mixture shape_;
  std::vector<std::unique_ptr<Weight>> gate_, up_, down_;
  std::unique_ptr<KvCache> cache_;
};

// Mixtures of few and of many tokens, by streams and not. Expected of one token: four kernels, and
// the bytes at 4.1 TB/s.
Result<Json> measure_experts(Visit& visit, std::string_view only) {
  const std::vector<Mixture> shapes =
      visit.emulated ? std::vector<Mixture>{{"tiny", 256, 256, 4, 2}}
                     : std::vector<Mixture>{{"qwen3-30b-a3b", 2048, 768, 128, 8},
                                            {"qwen3-next-80b-a3b", 2048, 512, 512, 10},
                                            {"gpt-oss-120b", 2880, 2880, 128, 4}};
  const std::vector<int> tokens =
      visit.emulated ? std::vector<int>{1, 3} : std::vector<int>{1, 2, 4, 8, 64, 512, 2048};
  auto& ops = static_cast<cuda::CudaOps&>(*visit.ops);
  Json all = Json::array();
  for (const QuantType type : {QuantType::kBF16, QuantType::kQ8_0, QuantType::kQ4_K,
                               QuantType::kQ4_0, QuantType::kMXFP4}) {
    if (!only.empty() && only != quant_info(type).name) continue;
    for (const Mixture& shape : shapes) {
      if (shape.dim % quant_info(type).block_size != 0) continue;
      MixtureWork work(visit, shape);
      RETURN_IF_ERROR(work.open(type));
      for (const int n : tokens) {
        double seconds[2];
        std::vector<float> values[2];
        for (const bool streams : {false, true}) {
          ops.stream(streams);
          ASSIGN_OR_RETURN(seconds[streams], work.seconds_of(n, values[streams]));
        }
        all.push_back({{"type", quant_info(type).name},
                       {"of", shape.of},
                       {"tokens", n},
                       {"us", seconds[1] * 1e6},
                       {"us_not_through_shared_memory", seconds[0] * 1e6},
                       {"us_expected_by_bytes", 4 * 2.0 + work.bytes_of_token() / 4.1e6},
                       {"apart", distance(values[1], values[0])}});
      }
    }
  }
  return all;
}

// Fills a cache with numbers, of F16 from -1 to 1; a few blocks of which are repeated.
void fill_cache(KvCache& cache, int n_blocks) {
  const auto bytes = static_cast<size_t>(cache.block_bytes(0));
  std::vector<std::vector<std::byte>> blocks(7, std::vector<std::byte>(bytes));
  std::minstd_rand generator(3);
  const bool has_codes = cache.spec().dtype == KvDType::kI8 || cache.spec().dtype == KvDType::kF8;
  for (auto& block : blocks) {
    if (has_codes) {
      // Codes, and behind those of a unit as many scales as there are tokens, heads, keys and values.
      const auto unit = bytes * 16 / static_cast<size_t>(cache.spec().block_size);
      const auto& layer = cache.spec().layers[0];
      const size_t codes = size_t{2} * 16 * static_cast<size_t>(layer.n_kv_heads * layer.head_dim);
      for (size_t i = 0; i < bytes; ++i) block[i] = static_cast<std::byte>(generator() % 96);
      for (size_t at = 0; at + unit <= bytes; at += unit) {
        for (size_t i = at + codes; i + sizeof(float) <= at + unit; i += sizeof(float)) {
          const float scale = 0.01f;
          std::memcpy(block.data() + i, &scale, sizeof scale);
        }
      }
      continue;
    }
    for (size_t i = 0; i + 1 < bytes; i += 2) {
      const uint16_t half =
          to_half(static_cast<float>(static_cast<int>(generator() % 2001) - 1000) * 1e-3f).bits;
      std::memcpy(block.data() + i, &half, sizeof half);
    }
  }
  for (int b = 0; b < n_blocks; ++b)
    cache.write_block(0, BlockId{static_cast<uint32_t>(b)},
                      blocks[static_cast<size_t>(b) % blocks.size()]);
}

// What a layer's rotation, storing and attention take of a recorded step, in one kernel and in two:
// 32 heads over 8, 128 features. Expected: less by a boundary (0.4 to 0.5 us) and what a kernel
// takes to begin and to end.
Result<Json> measure_stores(Visit& visit, const Batch& batch, KvCache& cache) {
  constexpr int kDim = 128, kQueries = 32 * kDim, kKeys = 8 * kDim;
  auto& ops = static_cast<cuda::CudaOps&>(*visit.ops);
  std::vector<float> frequencies;
  for (int i = 0; i < kDim / 2; ++i)
    frequencies.push_back(std::pow(5e5f, -static_cast<float>(2 * i) / kDim));
  ASSIGN_OR_RETURN(const auto packed, ops.pack_vector(frequencies));
  const RopeParams rope{packed.get()};
  const int rows = ops.begin_step(&batch).tokens;
  const std::vector<float> values = random_values(static_cast<size_t>(rows) * kQueries);
  ASSIGN_OR_RETURN(const auto unrotated, ops.pack_vector(values));
  std::unique_ptr<Vector> queries, keys;
  const auto tensor_of = [rows](const auto& vector, int cols) {
    return Tensor{const_cast<float*>(cuda::device_data(vector.get())), DType::kF32, rows, cols,
                  cols};
  };
  const auto step = [&](int n) {
    const StepShape shape = ops.begin_step(&batch);
    const Tensor q = tensor_of(queries, kQueries), k = tensor_of(keys, kKeys);
    return ops.run({.cache = &cache, .shape = shape, .n_layers = n}, [&] {
      Tensor out;
      for (int i = 0; i < n; ++i) {
        out = visit.ops->new_tensor(shape.tokens, kQueries);
        ops.store_and_attend(q, k, tensor_of(unrotated, kKeys), &rope, cache, {0, 32, 0.088f, 0.0f},
                             out);
      }
      return StepOutputs{.hidden = out};
    });
  };
  const auto seconds_of = [&](int n) {
    for (int i = 0; i < 3; ++i) step(n);  // the second is recorded
    return visit.seconds_of([&] { step(n); });
  };
  Json row;
  std::vector<float> outputs[2];
  for (const bool within : {false, true}) {
    ops.attention().fuse_stores(within);
    for (auto* x : {&queries, &keys}) {  // which are rotated in place, or not
      ASSIGN_OR_RETURN(*x, ops.pack_vector(values));
    }
    const Tensor out = step(1).hidden;
    outputs[within].resize(static_cast<size_t>(out.rows) * kQueries);
    ops.read_rows(out, outputs[within]);
    const int more = visit.emulated ? 1 : 32;
    row[within ? "us_within_attention" : "us_by_itself"] =
        (seconds_of(4 + more) - seconds_of(4)) / more * 1e6;
  }
  row["same_bits"] = outputs[0] == outputs[1];
  return row;
}

// Attention of 32 heads over 8 of K and V, 128 features: by the kernels for caches of all types and
// by those of mma.
Result<Json> measure_attention(Visit& visit, KvDType dtype) {
  struct Case {
    // of each sequence: tokens in the cache after the step, tokens of the step
    int n_seqs, context, tokens;
  };
  const std::vector<Case> cases =
      visit.emulated
          ? std::vector<Case>{{2, 40, 1}, {1, 300, 1}, {1, 20, 20}}
          : std::vector<Case>{{1, 1024, 1},    {1, 2048, 1},   {1, 4096, 1}, {32, 4096, 1},
                              {1, 32768, 1},   {64, 1024, 1},  {8, 2048, 4}, {1, 512, 512},
                              {1, 2048, 2048}, {1, 8192, 8192}};
  Json all = Json::array();
  for (const Case& c : cases) {
    CacheSpec spec;
    spec.layers.assign(1, {8, 128});
    spec.dtype = dtype;
    const int per_seq = (c.context + spec.block_size - 1) / spec.block_size;
    const int n_blocks[] = {per_seq * c.n_seqs};
    ASSIGN_OR_RETURN(const auto cache, visit.ops->make_cache(spec, n_blocks));
    const std::vector<TokenId> tokens(static_cast<size_t>(c.tokens));
    std::vector<GroupBlocks> blocks;
    for (int s = 0; s < c.n_seqs; ++s)
      blocks.push_back(consecutive_blocks(s * per_seq, c.context, spec.block_size));
    BatchBuilder builder(spec);
    for (int s = 0; s < c.n_seqs; ++s)
      builder.add({.tokens = tokens,
                   .first = c.context - c.tokens,
                   .kv = {&blocks[static_cast<size_t>(s)], 1}});
    const Batch& batch = builder.build();
    fill_cache(*cache, n_blocks[0]);
    auto& ops = static_cast<cuda::CudaOps&>(*visit.ops);
    std::vector<float> values = random_values(static_cast<size_t>(batch.n_tokens()) * 32 * 128);
    for (float& value : values) value *= 10.0f;
    const int rows = ops.begin_step(&batch).tokens;
    values.resize(static_cast<size_t>(rows) * 32 * 128);
    ASSIGN_OR_RETURN(const auto queries, ops.pack_vector(values));
    const Tensor q{const_cast<float*>(cuda::device_data(queries.get())), DType::kF32, rows,
                   32 * 128, 32 * 128};
    // A step that attends n times, which is recorded where steps of so many tokens are.
    const auto attend = [&](int n) {
      const StepShape shape = ops.begin_step(&batch);
      return ops.run({.cache = cache.get(), .shape = shape, .n_layers = n}, [&] {
        Tensor out;
        for (int i = 0; i < n; ++i) {
          out = visit.ops->new_tensor(shape.tokens, 32 * 128);
          ops.attend(q, *cache, {0, 32, 0.088f, 0.0f}, out);
        }
        return StepOutputs{.hidden = out};
      });
    };
    const auto seconds_of = [&](int n) {
      for (int i = 0; i < 3; ++i) attend(n);  // the second is recorded
      return visit.seconds_of([&] { attend(n); });
    };
    const double read = static_cast<double>(CacheSpec::token_bytes(spec.layers[0], spec.dtype)) *
                        c.context * c.n_seqs;
    const double seen = c.tokens * (c.context - (c.tokens - 1) / 2.0) * c.n_seqs;
    Json row = {{"sequences", c.n_seqs}, {"context", c.context}, {"tokens", c.tokens}};
    std::vector<float> expected, got(values.size());
    for (const bool flash : {false, true}) {  // off: Attend and AttendPieces
      ops.attention().flash(flash);
      ops.read_rows(attend(1).hidden, got);
      // What one more in a row takes.
      double seconds = 0;
      if (c.tokens <= 8) {
        const int more = visit.emulated ? 1 : 32;
        seconds = (seconds_of(4 + more) - seconds_of(4)) / more;
      } else {
        seconds = visit.seconds_of([&] { attend(1); });
        if (flash) seconds = (visit.seconds_of([&] { attend(4); }) - seconds) / 3;
      }
      const std::string name = flash ? "flash" : "simple";
      row[name] = {{"us", seconds * 1e6},
                   {"cache_GB_per_s", read / seconds / 1e9},
                   {"Tflop_per_s", 4e-12 * 32 * 128 * seen / seconds}};
      if (!flash) {
        expected = got;
        continue;
      }
      row[name]["difference"] = distance(got, expected);
    }
    ops.attention().flash(true);
    if (c.tokens <= 8 && dtype == KvDType::kF16) {
      ASSIGN_OR_RETURN(row["storing"], measure_stores(visit, batch, *cache));
    }
    all.push_back(std::move(row));
  }
  return all;
}

// Draws from rows of as many tokens as Llama 3 has.
Result<Json> measure_draws(Visit& visit) {
  struct Case {
    const char* name;
    SampleRow row;
  };
  const Case cases[] = {
      {"greedy", {}},
      {"temperature", {.temperature = 0.8f, .u = 0.6}},
      {"top-k 40, top-p 0.9", {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .u = 0.6}},
      {"greedy, log-probability", {.report = true}}};
  const int vocab = visit.emulated ? 3000 : 128'256;
  Json all = Json::array();
  for (const int n : visit.emulated ? std::vector<int>{2} : std::vector<int>{1, 8, 64}) {
    visit.ops->begin_step(nullptr);
    const Tensor logits = visit.ops->new_tensor(n, vocab, TensorRole::kLogits);
    visit.ops->write_rows(random_values(static_cast<size_t>(n) * static_cast<size_t>(vocab)),
                          logits);
    for (const Case& c : cases) {
      std::vector<SampleRow> rows(static_cast<size_t>(n), c.row);
      std::vector<SampleResult> results(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) rows[i].row = static_cast<int32_t>(i);
      const auto draw = [&] { visit.ops->sample(logits, rows, results); };
      draw();
      const double seconds = visit.seconds_of(draw);
      all.push_back({{"rows", n}, {"of", c.name}, {"us", seconds * 1e6}});
    }
  }
  return all;
}

// Sequences that begin at some depth and are decoded greedily, the device draws.
class Decoding {
 public:
  Decoding(Visit& visit, const Model& model, int n_seqs, int depth, int n_steps)
      : visit_(visit),
        model_(model),
        n_seqs_(n_seqs),
        depth_(depth),
        spec_(model.cache_spec(KvDType::kF16, 16)) {
    const int longest = depth + n_steps + 2;
    per_seq_ = (longest + spec_.block_size - 1) / spec_.block_size;
    for (int s = 0; s < n_seqs; ++s)
      blocks_.push_back(consecutive_blocks(s * per_seq_, longest, spec_.block_size));
  }
  Status open() {
    const std::vector<int> n_blocks(static_cast<size_t>(std::max(1, spec_.n_groups())),
                                    per_seq_ * n_seqs_);
    ASSIGN_OR_RETURN(cache_, visit_.ops->make_cache(spec_, n_blocks));
    return {};
  }
  // To the end of the prompts, whose keys and values stay in the cache.
  void restart() { tokens_.assign(static_cast<size_t>(n_seqs_), 5), length_ = depth_; }
  // Computes the prompts; returns seconds of one of them.
  double prefill() {
    restart();
    std::vector<TokenId> prompt(static_cast<size_t>(depth_));
    for (size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = static_cast<TokenId>(static_cast<int>(i) * 131 % model_.config().vocab_size);
    double seconds = 0;
    for (int s = 0; s < n_seqs_; ++s) {
      BatchBuilder builder(spec_);
      builder.add({.tokens = prompt, .kv = {&blocks_[static_cast<size_t>(s)], 1}});
      const Batch& batch = builder.build();
      const auto compute = [&] { model_.forward(batch, *cache_, *visit_.ops); };
      if (s > 0) {
        compute();
        continue;
      }
      compute();
      seconds = visit_.seconds_of(compute);
    }
    return seconds;
  }
  // One token of every sequence. ahead: what the step before drew is named by reference, and waited
  // for behind this step's submission.
  void step(bool ahead) {
    BatchBuilder builder(spec_);
    for (int s = 0; s < n_seqs_; ++s) {
      builder.add({.tokens = {&tokens_[static_cast<size_t>(s)], 1},
                   .first = length_,
                   .kv = {&blocks_[static_cast<size_t>(s)], 1}});
    }
    ++length_;
    Step& step = steps_[length_ % 2];
    step.rows.assign(static_cast<size_t>(n_seqs_), {}), step.results.assign(step.rows.size(), {});
    for (size_t s = 0; s < step.rows.size(); ++s) step.rows[s].row = static_cast<int32_t>(s);
    Batch batch = builder.build();
    batch.draws = step.rows, batch.drawn = step.results;
    model_.forward(batch, *cache_, *visit_.ops);
    step.ticket = visit_.ops->submit();
    if (!ahead) return finish();
    Step& before = steps_[1 - length_ % 2];
    if (before.ticket != 0) take(before);
    for (int s = 0; s < n_seqs_; ++s) tokens_[static_cast<size_t>(s)] = -1 - s;
  }
  // The last step.
  void finish() {
    Step& last = steps_[length_ % 2];
    take(last);
    for (size_t s = 0; s < last.results.size(); ++s) tokens_[s] = last.results[s].token;
  }
  std::vector<TokenId>& text() { return text_; }

 private:
  struct Step {
    std::vector<SampleRow> rows;
    std::vector<SampleResult> results;
    StepTicket ticket = 0;
  };
  void take(Step& step) {
    visit_.ops->wait(std::exchange(step.ticket, 0));
    for (const SampleResult& result : step.results) text_.push_back(result.token);
  }

  Visit& visit_;
  const Model& model_;
  int n_seqs_, depth_, per_seq_ = 0, length_ = 0;
  CacheSpec spec_;
  std::unique_ptr<KvCache> cache_;
  std::vector<GroupBlocks> blocks_;
  std::vector<TokenId> tokens_, text_;
  Step steps_[2];
};

// Ways to ask for the same step.
struct Way {
  const char* name;
  bool records, early;  // StepGraphs::enable, start_early
  bool ahead;           // Decoding::step
  bool stores = true;   // CudaOps::fuse_stores
};
constexpr Way kWays[] = {
    {"no graphs", false, false, false},
    {"graphs", true, false, false},
    {"graphs, tokens by reference", true, false, true},
    {"graphs, early starts", true, true, false},
    {"graphs, early starts, tokens by reference", true, true, true},
    {"graphs, early starts, storing by itself", true, true, false, false},
};

Result<Json> measure_decoding(Visit& visit, const Model& model, int n_seqs, int depth) {
  const int n_steps = visit.emulated ? 4 : 48, n_warm = 3;
  Decoding decoding(visit, model, n_seqs, depth, n_steps + n_warm);
  RETURN_IF_ERROR(decoding.open());
  Json row = {{"sequences", n_seqs}, {"depth", depth}};
  std::vector<std::vector<TokenId>> texts;
  auto& ops = static_cast<cuda::CudaOps&>(*visit.ops);
  for (const Way& way : kWays) {
    ops.graphs().enable(way.records), ops.graphs().start_early(way.early);
    ops.attention().fuse_stores(way.stores);  // and forgets what is recorded
    if (texts.empty()) {
      row["prefill_tokens_per_s"] = depth / decoding.prefill();
      ops.wide().gate(true);
      row["prefill_with_gates_tokens_per_s"] = depth / decoding.prefill();
      ops.wide().gate(false);
    }
    decoding.restart();
    for (int i = 0; i < n_warm; ++i) decoding.step(way.ahead);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < n_steps; ++i) decoding.step(way.ahead);
    if (way.ahead) decoding.finish();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    row["tokens_per_s"][way.name] = n_seqs * n_steps / seconds;
    texts.push_back(std::exchange(decoding.text(), {}));
  }
  ops.attention().fuse_stores(true);
  row["same_tokens"] =
      std::ranges::all_of(texts, [&](const auto& text) { return text == texts[0]; });
  row["drawn"] = std::ranges::none_of(texts[0], [](TokenId token) { return token == kNoToken; });
  return row;
}

// only: SEQUENCESxDEPTH, several with commas, or "" for all.
Result<Json> measure_model(Visit& visit, std::string_view shape, std::string_view type,
                           std::string_view only) {
  ASSIGN_OR_RETURN(const auto source, make_synthetic_source(shape, type));
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const auto model, Model::load(*source, *visit.ops));
  const double load =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Json result = {{"shape", shape},
                 {"type", type},
                 {"load_s", load},
                 {"weight_bytes", model->weight_bytes()},
                 {"token_bytes", model->active_weight_bytes()},
                 {"decode", Json::array()}};
  const std::vector<std::pair<int, int>> cases =
      visit.emulated ? std::vector<std::pair<int, int>>{{1, 5}, {3, 5}}
                     : std::vector<std::pair<int, int>>{{1, 1024}, {1, 2048},  {8, 256},
                                                        {64, 128}, {256, 128}, {512, 128}};
  for (const auto& [n_seqs, depth] : cases) {
    const std::string name = fmt::format(",{}x{},", n_seqs, depth);
    const bool is_large = n_seqs > 64;  // only if it is named
    const bool is_named = fmt::format(",{},", only).find(name) != std::string::npos;
    if (only.empty() ? is_large : !is_named) continue;
    ASSIGN_OR_RETURN(Json row, measure_decoding(visit, *model, n_seqs, depth));
    result["decode"].push_back(std::move(row));
    RETURN_IF_ERROR(static_cast<cuda::CudaOps&>(*visit.ops).device().status());
  }
  return result;
}

Json measure_limits(Visit& visit) {
  Json all = Json::array();
  for (const DeviceLimit& limit : sample_device(*visit.ops).all)
    all.push_back({{"of", limit.name}, {"value", limit.value}, {"unit", limit.unit}});
  return all;
}

Result<Json> measure(Visit& visit, const std::vector<std::string>& words) {
  const std::string& what = words[0];
  if (what == "device") return Json(visit.ops->name());
  if (what == "limits") return measure_limits(visit);
  if (what == "products") return measure_products(visit);
  const auto word = [&](size_t i) { return i < words.size() ? words[i] : std::string(); };
  if (what == "wide") return measure_wide(visit, word(1));
  if (what == "stream") return measure_stream(visit, word(1), word(2));
  if (what == "experts") return measure_experts(visit, word(1));
  if (what == "attention") {
    const std::string cache = word(1);
    const std::map<std::string, KvDType> types = {
        {"", KvDType::kF16}, {"f16", KvDType::kF16}, {"int8", KvDType::kI8}, {"fp8", KvDType::kF8}};
    if (types.contains(cache)) return measure_attention(visit, types.at(cache));
  }
  if (what == "draws") return measure_draws(visit);
  if (what == "model" && (words.size() == 3 || words.size() == 4))
    return measure_model(visit, words[1], words[2], word(3));
  return errorf(ErrorCode::kInvalidArgument,
                "expected device, limits, products, wide [TYPE], stream [TYPE [OUTxIN]], "
                "experts [TYPE], attention [f16|int8|fp8], draws or model SHAPE TYPE "
                "[SEQUENCESxDEPTH,...], got {}",
                what);
}

int run(const std::string& backend, const std::vector<std::string>& words) {
  auto ops = make_ops(backend, {});
  if (!ops) return std::fprintf(stderr, "%s\n", ops.error().message.c_str()), 1;
  Visit visit{std::move(*ops), backend == "cuda_emulated"};
  Result<Json> result = measure(visit, words);
  if (result) {
    if (const Status status = static_cast<cuda::CudaOps&>(*visit.ops).device().status(); !status)
      result = tl::unexpected(status.error());
  }
  if (!result) return std::fprintf(stderr, "%s\n", result.error().message.c_str()), 1;
  std::printf("%s\n", Json({{words[0], *result}, {"device", visit.ops->name()}}).dump().c_str());
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc < 3 || (argv[1] != std::string("cuda") && argv[1] != std::string("cuda_emulated"))) {
    std::fprintf(stderr,
                 "usage: %s cuda|cuda_emulated device|limits|products|wide [TYPE]|stream [TYPE "
                 "[OUTxIN]]|experts [TYPE]|attention [CACHE]|draws|model SHAPE TYPE "
                 "[SEQUENCESxDEPTH,...]\n",
                 argv[0]);
    return 2;
  }
  return penstock::run(argv[1], {argv + 2, argv + argc});
}
