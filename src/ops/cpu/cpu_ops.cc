#include "ops/cpu/cpu_ops.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/log.h"
#include "kernels/tile_unpacking.h"
#include "kernels/vector_kernels.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/ngrams.h"
#include "ops/cpu/recurrence.h"
#include "ops/cpu/watched_attention.h"

namespace penstock {
namespace {

// Elements per part of a divided operation: below this, starting the workers costs more than they
// save.
constexpr int64_t kGrain = 4096;

// Rows that stand for nothing: zeros, which are computed with as fast as anything.
void clear_rows(Tensor x, int first) {
  for (int row = first; row < x.rows; ++row) std::fill_n(f32(x, row), x.cols, 0.0f);
}

// Rows of `cols` elements per worker at least.
int64_t row_grain(int cols) { return std::max<int64_t>(1, kGrain / std::max(cols, 1)); }

float mean_square(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return static_cast<float>(sum / n);
}

}  // namespace

// Error: kInvalidArgument when PENSTOCK_ISA names no instruction set of this machine, or
// PENSTOCK_UNPACK no form of unpacking.
Result<std::unique_ptr<Ops>> make_cpu_ops(const OpsConfig& config) {
  ASSIGN_OR_RETURN(const KernelTable* kernels, select_kernels());
  ASSIGN_OR_RETURN(const TileUnpacking unpacking, tile_unpacking(*kernels));
  if (unpacking.measured) {
    log().info(
        "{}: weights are unpacked {} products of tiles ({:.0f} Gop/s of a thread before them, "
        "{:.0f} between them)",
        kernels->name, unpacking.time == UnpackTime::kBetween ? "between" : "before",
        unpacking.before / 1e9, unpacking.between / 1e9);
  }
  return std::make_unique<CpuOps>(*kernels, config);
}

CpuOps::CpuOps(const KernelTable& kernels, const OpsConfig& config)
    : kernels_(kernels),
      config_(config),
      pool_(config.n_threads, config.cpus),
      packer_(pool_),
      linear_{pool_, linear_scratch_, kernels_, gemm_traits(kernels, config.batch_invariant),
              &adapters_},
      attention_{pool_, attention_scratch_, *kernels.attention, config.batch_invariant},
      name_(std::string("cpu/") + kernels.name) {}

// Weights are not packed lazily for ranks, which read their parts when they load, and for engines
// that share weights, of which only this one would pack them.
Result<std::unique_ptr<Weight>> CpuOps::pack(const QuantizedMatrix& matrix) {
  const bool may_wait = config_.ranks == nullptr && config_.cpus.empty();
  return with_twin(config_.twins, packer_.pack(matrix, may_wait), matrix);
}

Result<std::unique_ptr<Weight>> CpuOps::pack_grouped(const GroupedMatrix& matrix, int first_row,
                                                     int n_rows) {
  return with_twin(config_.twins, packer_.pack(matrix, first_row, n_rows), matrix, first_row,
                   n_rows);
}

Result<std::unique_ptr<Vector>> CpuOps::pack_vector(std::span<const float> values) {
  return with_twin<Vector>(config_.twins, std::make_unique<CpuVector>(values), values);
}

std::string CpuOps::stored_form() const { return fmt::format("cpu panels {}", kPanelVersion); }

std::string CpuOps::describe(const Weight& weight) const {
  return static_cast<const CpuWeight&>(weight).description();
}

OwnedBytes CpuOps::store(const Weight& weight) const {
  packer_.pack_rest(static_cast<const CpuWeight&>(weight));
  return {static_cast<const CpuWeight&>(weight).bytes(), nullptr};
}

Result<std::unique_ptr<Weight>> CpuOps::restore(const StoredWeight& stored,
                                                std::shared_ptr<const void> owner) {
  return packer_.restore(stored, std::move(owner));
}

Result<std::unique_ptr<KvCache>> CpuOps::make_cache(const CacheSpec& spec,
                                                    std::span<const int> n_blocks) {
  return CpuKvCache::make(spec, n_blocks);
}

StepShape CpuOps::begin_step(const Batch* batch) {
  pool_.give_way(config_.thread_weight);
  arena_.reset();
  n_angles_ = 0;
  batch_ = batch != nullptr ? *batch : Batch{};
  adapters_.set(batch_);
  linear_.tokens = batch_.tokens;
  // Lazy packing: the first step packs nothing permanently, so that the first token is early; the
  // next few share the weights, one more completes them.
  constexpr int kShares = kPackingSteps - 2;
  linear_scratch_.bytes_to_keep = n_steps_++ > 0 ? packer_.late_bytes() / kShares : 0;
  const auto rows = [&](int n) {
    return (n + config_.row_multiple - 1) / config_.row_multiple * config_.row_multiple;
  };
  return shape_ = {rows(batch_.n_tokens()), rows(static_cast<int>(batch_.output_rows.size())),
                   !batch_.given.empty(), static_cast<int>(batch_.encoded.size())};
}

Tensor CpuOps::new_tensor(int rows, int cols, TensorRole) {
  auto* data = arena_.allocate_array<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  return {data, DType::kF32, rows, cols, cols};
}

template <class Fn>
void CpuOps::for_elements(Tensor x, Fn&& f) {
  if (x.cols >= 2 * kGrain && x.rows < pool_.size()) {  // few long rows: cut the rows
    for (int row = 0; row < x.rows; ++row) {
      pool_.for_ranges(x.cols, kGrain, [&](int64_t begin, int64_t end, int) {
        f(row, static_cast<int>(begin), static_cast<int>(end - begin));
      });
    }
    return;
  }
  pool_.for_ranges(x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) f(static_cast<int>(row), 0, x.cols);
  });
}

void CpuOps::read_rows(Tensor x, std::span<float> out) {
  const auto cols = static_cast<size_t>(x.cols);
  PENSTOCK_CHECK(out.size() == cols * static_cast<size_t>(x.rows));
  for (int row = 0; row < x.rows; ++row) std::copy_n(f32(x, row), cols, out.data() + row * cols);
}

void CpuOps::write_rows(std::span<const float> values, Tensor x) {
  const auto cols = static_cast<size_t>(x.cols);
  PENSTOCK_CHECK(values.size() % cols == 0 && values.size() <= cols * static_cast<size_t>(x.rows));
  const int n = static_cast<int>(values.size() / cols);
  for (int row = 0; row < n; ++row) std::copy_n(values.data() + row * cols, cols, f32(x, row));
  clear_rows(x, n);
}

float* CpuOps::in_place(Tensor x) { return f32(x); }

void CpuOps::embed_tokens(const Weight& table, float scale, Tensor out) {
  cpu_embed(linear_, table, batch_.tokens, scale, out, false);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::embed_share(const Weight& table, int first, float scale, Tensor out) {
  const size_t n = batch_.tokens.size();
  int32_t* const rows = arena_.allocate_array<int32_t>(n);
  const auto is_here = [&](size_t t) {
    return batch_.tokens[t] >= first && batch_.tokens[t] < first + table.rows();
  };
  for (size_t t = 0; t < n; ++t) rows[t] = is_here(t) ? batch_.tokens[t] - first : 0;
  cpu_embed(linear_, table, {rows, n}, scale, out, false);
  for (size_t t = 0; t < n; ++t)
    if (!is_here(t)) std::fill_n(f32(out, static_cast<int>(t)), out.cols, 0.0f);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::embed_positions(const Weight& table, Tensor out) {
  cpu_embed(linear_, table, batch_.positions, 1.0f, out, true);
}

void CpuOps::embed_token_types(const Weight& table, Tensor out) {
  std::span<const int32_t> types = batch_.token_types;
  if (types.empty()) {
    const size_t n = batch_.tokens.size();
    int32_t* const first = arena_.allocate_array<int32_t>(n);
    std::fill_n(first, n, 0);
    types = {first, n};
  }
  cpu_embed(linear_, table, types, 1.0f, out, true);
}

void CpuOps::put_given(Tensor x) {
  for (const GivenRows& rows : batch_.given)
    for (int i = 0; i < rows.count; ++i)
      std::copy_n(rows.values + int64_t{i} * x.cols, x.cols, f32(x, rows.first + i));
}

void CpuOps::add_given(int level, Tensor x) {
  PENSTOCK_CHECK(level < batch_.given_levels);
  for (const GivenRows& rows : batch_.given) {
    const float* from = rows.values + level * rows.level_stride;
    for (int i = 0; i < rows.count; ++i)
      kernels_.vector->add_scaled(f32(x, rows.first + i), from + int64_t{i} * x.cols, 1.0f, x.cols);
  }
}

void CpuOps::gather_outputs(Tensor x, Tensor out) {
  const auto n = static_cast<int>(batch_.output_rows.size());
  PENSTOCK_CHECK(out.rows == shape_.outputs && out.cols == x.cols);
  for (int i = 0; i < n; ++i) {
    std::memcpy(f32(out, i), f32(x, batch_.output_rows[i]),
                static_cast<size_t>(x.cols) * sizeof(float));
  }
  clear_rows(out, n);
}

void CpuOps::norm_row(const float* x, const NormParams& params, int row, int cols,
                      float* out) const {
  const float *weight = data_of(params.weight), *bias = data_of(params.bias);
  if (weight != nullptr && params.weight->size() > cols)
    weight += static_cast<ptrdiff_t>(row % (params.weight->size() / cols)) * cols;
  if (params.layer_norm) {
    kernels_.vector->layer_norm(x, weight, bias, params.eps, cols, out);
  } else {
    kernels_.vector->rms_norm(x, weight, params.eps, cols, out);
  }
}

void CpuOps::norm(Tensor x, const NormParams& params, Tensor out) {
  PENSTOCK_CHECK(x.rows == out.rows && x.cols == out.cols);
  pool_.for_ranges(x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row)
      norm_row(f32(x, row), params, row, x.cols, f32(out, row));
  });
}

void CpuOps::add_norm(Tensor x, Tensor delta, float delta_scale, const NormParams& params,
                      Tensor out) {
  PENSTOCK_CHECK(x.rows == delta.rows && x.cols == delta.cols && x.rows == out.rows &&
                 x.cols == out.cols);
  pool_.for_ranges(x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row) {
      kernels_.vector->add_scaled(f32(x, row), f32(delta, row), delta_scale, x.cols);
      norm_row(f32(x, row), params, row, x.cols, f32(out, row));
    }
  });
}

void CpuOps::add(Tensor x, Tensor delta, float delta_scale) {
  PENSTOCK_CHECK(x.rows == delta.rows && x.cols == delta.cols);
  for_elements(x, [&](int row, int first, int n) {
    kernels_.vector->add_scaled(f32(x, row) + first, f32(delta, row) + first, delta_scale, n);
  });
}

void CpuOps::scale(Tensor x, float factor, float softcap) {
  for_elements(x, [&](int row, int first, int n) {
    kernels_.vector->scale_softcap(f32(x, row) + first, factor, softcap, n);
  });
}

void CpuOps::linear(Tensor x, std::span<const LinearTarget> targets) {
  cpu_linear(linear_, x, targets);
}

void CpuOps::linear_by_head(Tensor x, std::span<const std::unique_ptr<Weight>> weights,
                            Tensor out) {
  cpu_linear_by_head(linear_, x, weights, out);
}

void CpuOps::copy(Tensor from, Tensor to) {
  PENSTOCK_CHECK(from.rows == to.rows && from.cols == to.cols);
  for_elements(to, [&](int row, int first, int n) {
    std::copy_n(f32(from, row) + first, n, f32(to, row) + first);
  });
}

void CpuOps::clear(Tensor x) {
  for_elements(x, [&](int row, int first, int n) { std::fill_n(f32(x, row) + first, n, 0.0f); });
}

void CpuOps::round_int8(Tensor x) {
  pool_.for_ranges(x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      kernels_.vector->round_int8(f32(x, static_cast<int>(row)), x.cols);
  });
}

void CpuOps::activate(Tensor x, const ActivationFunction& f) {
  for_elements(
      x, [&](int row, int first, int n) { kernels_.vector->activate(f32(x, row) + first, f, n); });
}

void CpuOps::gate_rows(Tensor x, Tensor gate, Activation f) {
  PENSTOCK_CHECK(x.rows == gate.rows && gate.cols == 1);
  for_elements(x, [&](int row, int first, int n) {
    float weight = *f32(gate, row);
    if (f == Activation::kSigmoid)
      weight = 1.0f / (1.0f + std::exp(-weight));
    else
      kernels_.vector->activate(&weight, f, 1);
    kernels_.vector->scale_softcap(f32(x, row) + first, weight, 0.0f, n);
  });
}

void CpuOps::multiply(Tensor x, Tensor by) {
  PENSTOCK_CHECK(x.rows == by.rows && x.cols == by.cols);
  for_elements(x, [&](int row, int first, int n) {
    float* const to = f32(x, row) + first;
    const float* const factor = f32(by, row) + first;
    for (int i = 0; i < n; ++i) to[i] *= factor[i];
  });
}

void CpuOps::scale_columns(Tensor x, const Vector& by) {
  PENSTOCK_CHECK(x.cols == by.size());
  const float* const factors = values_of(by).data();
  for_elements(x, [&](int row, int first, int n) {
    float* const to = f32(x, row) + first;
    for (int i = 0; i < n; ++i) to[i] *= factors[first + i];
  });
}

void CpuOps::add_columns(Tensor x, const Vector& by) {
  PENSTOCK_CHECK(x.cols == by.size());
  const float* const values = values_of(by).data();
  for_elements(x, [&](int row, int first, int n) {
    float* const to = f32(x, row) + first;
    for (int i = 0; i < n; ++i) to[i] += values[first + i];
  });
}

void CpuOps::add_mixed(Tensor from, Tensor by, int width, Tensor to) {
  const int n_from = from.cols / width, n_to = to.cols / width;
  PENSTOCK_CHECK(from.cols == n_from * width && to.cols == n_to * width &&
                 by.cols == n_from * n_to);
  PENSTOCK_CHECK(from.rows == to.rows && from.rows == by.rows);
  pool_.for_ranges(to.rows, row_grain(n_from * to.cols), [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row) {
      for (int i = 0; i < n_from * n_to; ++i)
        kernels_.vector->add_scaled(f32(to, row) + i / n_from * width,
                                    f32(from, row) + i % n_from * width, f32(by, row)[i], width);
    }
  });
}

void CpuOps::match_magnitude(Tensor x, Tensor like, float least) {
  PENSTOCK_CHECK(x.rows == like.rows);
  pool_.for_ranges(x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row) {
      const float own = mean_square(f32(x, row), x.cols),
                  wanted = mean_square(f32(like, row), like.cols);
      kernels_.vector->scale_softcap(f32(x, row), std::sqrt(wanted / std::max(own, least)), 0.0f,
                                     x.cols);
    }
  });
}

void CpuOps::keep_above(Tensor x, float deviations) {
  pool_.for_ranges(x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row) {
      float* const values = f32(x, row);
      double sum = 0, squares = 0;
      for (int i = 0; i < x.cols; ++i) sum += values[i];
      const double mean = sum / x.cols;
      for (int i = 0; i < x.cols; ++i) squares += (values[i] - mean) * (values[i] - mean);
      const auto cutoff = static_cast<float>(mean + deviations * std::sqrt(squares / x.cols));
      for (int i = 0; i < x.cols; ++i) values[i] = std::max(values[i] - cutoff, 0.0f);
    }
  });
}

RecurrenceContext CpuOps::recurrence(KvCache& cache) {
  return {pool_,
          kernels_,
          batch_,
          static_cast<CpuKvCache&>(cache),
          attention_scratch_,  // no attention is under way
          config_.batch_invariant};
}

void CpuOps::causal_conv(Tensor x, const ConvParams& params, KvCache& cache, Tensor out) {
  cpu_causal_conv(recurrence(cache), x, params, out);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::state_space(Tensor x, Tensor dt, Tensor scratch, const StateSpaceParams& params,
                         KvCache& cache, Tensor out) {
  cpu_state_space(recurrence(cache), {x, scratch, dt, out}, params);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::gated_delta(Tensor qkv, Tensor a, Tensor b, const DeltaParams& params, KvCache& cache,
                         Tensor out) {
  cpu_gated_delta(recurrence(cache), {qkv, a, b, out}, params);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::scale_by_position(Tensor x, const PositionScale& scale) {
  for_elements(x, [&](int row, int first, int n) {
    if (row >= batch_.n_tokens()) return;
    const float periods = static_cast<float>(batch_.positions[row] + scale.offset) / scale.period;
    const float grown = scale.smooth ? std::max(1.0f, periods) : 1.0f + std::floor(periods);
    kernels_.vector->scale_softcap(f32(x, row) + first, 1.0f + scale.beta * std::log(grown), 0.0f,
                                   n);
  });
}

void CpuOps::scale_heads_by_position(Tensor x, const Vector& slopes, const Vector& biases) {
  const int n_heads = slopes.size(), dim = x.cols / n_heads;
  PENSTOCK_CHECK(x.cols == n_heads * dim && biases.size() == n_heads);
  const float *const slope = data_of(&slopes), *const bias = data_of(&biases);
  pool_.for_pieces(batch_.n_tokens(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const float grown = std::log(1.0f + static_cast<float>(batch_.positions[row]));
      for (int h = 0; h < n_heads; ++h)
        kernels_.vector->scale_softcap(f32(x, static_cast<int>(row)) + int64_t{h} * dim,
                                       slope[h] * grown + bias[h], 0.0f, dim);
    }
  });
}

void CpuOps::activate_mul(Tensor gate, Tensor up, const ActivationFunction& f, Tensor out) {
  PENSTOCK_CHECK(gate.rows == up.rows && gate.cols == up.cols && gate.rows == out.rows &&
                 gate.cols == out.cols);
  for_elements(gate, [&](int row, int first, int n) {
    kernels_.vector->activate_mul(f32(gate, row) + first, f32(up, row) + first, f, n,
                                  f32(out, row) + first);
  });
}

void CpuOps::moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) {
  cpu_moe(linear_, x, router_logits, params, out);
}

const CpuOps::Angles& CpuOps::angles(const RopeParams& rope) {
  const int half = rope.inv_freq->size(), n_tokens = batch_.n_tokens();
  for (int i = 0; i < n_angles_; ++i) {
    const Angles& a = angles_[i];
    if (a.inv_freq == rope.inv_freq && a.axes == rope.axes && a.scale == rope.scale &&
        a.offset == rope.offset)
      return a;
  }
  auto* cos = arena_.allocate_array<float>(static_cast<size_t>(n_tokens) * half);
  auto* sin = arena_.allocate_array<float>(static_cast<size_t>(n_tokens) * half);
  const bool by_axis = rope.axes != nullptr && !batch_.axis_positions.empty();
  const float* axes = by_axis ? values_of(*rope.axes).data() : nullptr;
  const auto turn = [&](const Vector& frequencies, int64_t begin, int64_t end) {
    const float* inv_freq = values_of(frequencies).data();
    for (int64_t t = begin; t < end; ++t) {
      for (int i = 0; i < half; ++i) {
        const int32_t position =
            by_axis ? batch_.axis_positions[t][static_cast<size_t>(axes[i])] : batch_.positions[t];
        const float angle = static_cast<float>(position + rope.offset) * inv_freq[i];
        cos[t * half + i] = std::cos(angle) * rope.scale;
        sin[t * half + i] = std::sin(angle) * rope.scale;
      }
    }
  };
  const bool two_kinds = rope.long_inv_freq != nullptr && !batch_.long_ropes.empty();
  pool_.for_ranges(n_tokens, row_grain(16 * half), [&](int64_t begin, int64_t end, int) {
    if (!two_kinds) return turn(*rope.inv_freq, begin, end);
    for (size_t s = 0; s < batch_.long_ropes.size(); ++s) {
      const Vector& frequencies = batch_.long_ropes[s] != 0 ? *rope.long_inv_freq : *rope.inv_freq;
      turn(frequencies, std::max<int64_t>(begin, batch_.seq_offsets[s]),
           std::min<int64_t>(end, batch_.seq_offsets[s + 1]));
    }
  });
  const int slot = n_angles_ < static_cast<int>(angles_.size()) ? n_angles_++ : 0;
  angles_[slot] = {rope.inv_freq, rope.axes, half, rope.scale, rope.offset, cos, sin};
  return angles_[slot];
}

void CpuOps::rotate_heads(float* x, int n_heads, int head_dim, int t, const Angles& angles,
                          const RopeParams& rope) const {
  const ptrdiff_t at = static_cast<ptrdiff_t>(t) * angles.half;
  for (int h = 0; h < n_heads; ++h) {
    kernels_.vector->rope(x + static_cast<ptrdiff_t>(h) * head_dim + rope.first, angles.cos + at,
                          angles.sin + at, angles.half, rope.interleaved);
  }
}

void CpuOps::rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) {
  const Angles& angle = angles(rope);
  pool_.for_ranges(batch_.n_tokens(), row_grain(q.cols + k.cols),
                   [&](int64_t begin, int64_t end, int) {
                     for (int t = static_cast<int>(begin); t < end; ++t) {
                       rotate_heads(f32(q, t), q.cols / head_dim, head_dim, t, angle, rope);
                       rotate_heads(f32(k, t), k.cols / head_dim, head_dim, t, angle, rope);
                     }
                   });
}

void CpuOps::rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                            int layer) {
  auto& cpu_cache = static_cast<CpuKvCache&>(cache);
  const KvLayerSpec& spec = cache.spec().layers[layer];
  const int dim = spec.head_dim, n_heads = q.cols / dim, n_tokens = batch_.n_tokens();
  const bool has_values = spec.values_in_keys == 0;
  const int value_dim = has_values ? spec.value_dim() : 0;
  PENSTOCK_CHECK(k.cols == spec.n_kv_heads * dim && v.cols == spec.n_kv_heads * value_dim &&
                 q.cols % dim == 0);
  const Angles* angle = rope != nullptr ? &angles(*rope) : nullptr;
  const KvUnitLayout& layout = cpu_cache.layout(layer);
  const auto store = kernels_.attention->store[static_cast<int>(layout.format)];
  const std::span<const int32_t> slots = batch_.kv[spec.group].slots;
  const auto rotate = [&](float* x, int n, int t) {
    if (angle != nullptr && t < n_tokens) rotate_heads(x, n, dim, t, *angle, *rope);
  };
  // Neighbouring tokens share units: parts of 16 tokens keep threads off each other's cache lines.
  const int64_t grain = q.rows >= 16 * pool_.size() ? kUnitTokens : row_grain(2 * q.cols);
  pool_.for_ranges(q.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int t = static_cast<int>(begin); t < end; ++t) {
      const int slot = t < n_tokens ? slots[t] : cpu_cache.spare_slot(spec.group, t - n_tokens);
      rotate(f32(q, t), n_heads, t);
      for (int h = 0; h < spec.n_kv_heads; ++h) {
        float* key = f32(k, t) + static_cast<ptrdiff_t>(h) * dim;
        rotate(key, 1, t);
        const float* value =
            has_values ? f32(v, t) + static_cast<ptrdiff_t>(h) * value_dim : nullptr;
        if (!cpu_cache.stores(layer, slot)) continue;
        store(layout, key, value, cpu_cache.unit_of_slot(layer, h, slot),
              cpu_cache.lane_of_slot(layer, slot));
      }
    }
  });
}

void CpuOps::root_gates(Tensor a, Tensor b, float scale, Tensor out) {
  PENSTOCK_CHECK(a.rows == b.rows && a.cols == b.cols && out.rows == a.rows && out.cols == 1);
  constexpr float kLeast = 1e-6f;
  pool_.for_ranges(a.rows, row_grain(2 * a.cols), [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row) {
      const float s =
          scale * std::inner_product(f32(a, row), f32(a, row) + a.cols, f32(b, row), 0.0f);
      const float root = std::sqrt(std::max(std::fabs(s), kLeast));
      const float signed_root = s > 0 ? root : s < 0 ? -root : 0.0f;
      *f32(out, row) = 1.0f / (1.0f + std::exp(-signed_root));
    }
  });
}

void CpuOps::embed_ngrams(const NgramParams& params, KvCache& cache, Tensor out) {
  cpu_embed_ngrams(recurrence(cache), params, out);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::pool_keys(Tensor keys, Tensor scores, const PoolParams& params, KvCache& cache,
                       Tensor out) {
  cpu_pool_keys(recurrence(cache), keys, scores, params, out);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out) {
  const auto& cpu_cache = static_cast<const CpuKvCache&>(cache);
  if (params.entries.ratio == 0) cpu_attend(attention_, q, batch_, cpu_cache, params, out);
  if (params.selected.cols > 0 || params.entries.ratio > 0)
    cpu_attend_selected(attention_, q, batch_, cpu_cache, params, out);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::put_encoded(int index, Tensor rows) {
  write_rows(batch_.encoded[static_cast<size_t>(index)].values, rows);
}

void CpuOps::attend_encoded(Tensor q, const EncodedParams& params, const KvCache& cache,
                            Tensor out) {
  const auto& states = static_cast<const CpuKvCache&>(cache);
  cpu_attend_encoded(attention_, q, batch_, params, states, out);
  cpu_watch_encoded(attention_, q, batch_, params, states);
  clear_rows(out, batch_.n_tokens());
}

void CpuOps::move_kv(KvCache& cache, int group, std::span<const int32_t> from,
                     std::span<const int32_t> to) {
  PENSTOCK_CHECK(from.size() == to.size());
  auto& cpu_cache = static_cast<CpuKvCache&>(cache);
  const CacheSpec& spec = cache.spec();
  if (group == spec.state_group()) return cpu_cache.copy_states(from, to);
  const auto n_layers = static_cast<int64_t>(spec.layers.size());
  // Moves may overlap (a path is compacted towards its start), so each layer does them in order.
  pool_.for_ranges(n_layers, 1, [&](int64_t begin, int64_t end, int) {
    for (int layer = static_cast<int>(begin); layer < end; ++layer) {
      if (spec.layers[layer].group != group) continue;
      for (int h = 0; h < spec.layers[layer].n_kv_heads; ++h) {
        for (size_t i = 0; i < from.size(); ++i) {
          if (from[i] == to[i] || !cpu_cache.stores(layer, from[i])) continue;
          PENSTOCK_CHECK(cpu_cache.stores(layer, to[i]));
          copy_unit_token(cpu_cache.layout(layer), cpu_cache.unit_of_slot(layer, h, from[i]),
                          cpu_cache.lane_of_slot(layer, from[i]),
                          cpu_cache.unit_of_slot(layer, h, to[i]),
                          cpu_cache.lane_of_slot(layer, to[i]));
        }
      }
    }
  });
}

}  // namespace penstock
