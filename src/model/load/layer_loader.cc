#include "model/load/layer_loader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/arch/archs.h"

namespace penstock {
namespace {

// Returns this rank's part of n rows.
Shard::Range own_rows(const Cut& cut, int n) {
  return cut.axis == Cut::Axis::kRows ? cut.part : Shard::Range{0, n};
}

// Returns the channels in these ranges of rows [n_rows, n_channels].
std::vector<float> picked(std::span<const float> values, size_t n_channels,
                          std::span<const Shard::Range> own) {
  std::vector<float> result;
  for (size_t at = 0; at < values.size(); at += n_channels) {
    for (const Shard::Range& range : own) {
      const auto from = values.begin() + static_cast<ptrdiff_t>(at) + range.first;
      result.insert(result.end(), from, from + range.count);
    }
  }
  return result;
}

// Index in the file of each row of heads in groups, where the file has a head of every group in turn.
std::vector<int> group_by_group(const GroupedHeads& heads) {
  const int per_group = heads.n_heads / heads.n_groups;
  std::vector<int> rows;
  for (int h = 0; h < heads.n_heads; ++h) {
    const int from = h % per_group * heads.n_groups + h / per_group;
    for (int r = 0; r < heads.each; ++r) rows.push_back(from * heads.each + r);
  }
  return rows;
}

float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace

std::string LayerLoader::name_of(const TensorName* name) const {
  const std::string_view part = name == nullptr ? std::string_view() : tensors_.names()[*name];
  return part.empty() ? std::string() : at_ + in_layer(tensors_.names(), layer_, part);
}

void LayerLoader::norm(const NormSpec& spec, NormWeights& out) {
  if (!ok()) return;
  const std::string name = name_of(spec.name);
  if (!tensors_.names().ending(*spec.name).empty()) {
    const Architecture* const row = find_architecture(config().arch);
    const float less = row != nullptr ? hf_norm_less(*row, *spec.name) : 1.0f;
    state_ = tensors_.norm(name, spec.size, out, config().norm.offset * less);
    return;
  }
  const auto weights = tensors_.vector(name, spec.size);
  auto packed = weights ? tensors_.ops().pack_vector(*weights)
                        : Result<std::unique_ptr<Vector>>(tl::unexpected(weights.error()));
  if (packed) out.weight = std::move(*packed);
  if (!packed) state_ = tl::unexpected(packed.error());
}

void LayerLoader::head_norm(const HeadNormSpec& spec, NormWeights& out) {
  if (!ok()) return;
  state_ = tensors_.head_norm(name_of(spec.name), tensors_.names().ending(*spec.name),
                              {spec.n_heads, spec.part}, out);
}

void LayerLoader::linear(const LinearSpec& spec, LinearWeights& out) {
  if (!ok()) return;
  const std::string stem = name_of(spec.name);
  if (spec.turned) {
    state_ = load_turned(spec, stem, out);
    return;
  }
  const bool hf = tensors_.source().naming() == Naming::kHuggingFace;
  if (spec.inputs_first && hf) {
    ByHead one;
    state_ = inputs_first(spec, stem, 0, one);
    if (ok()) out.weight = std::move(one[0]);
    return;
  }
  if (spec.bare && hf) {
    state_ = tensors_.bare_linear(stem, spec.rows, spec.cols, own_rows(spec.cut, spec.rows), out);
    return;
  }
  const bool in_turn = config().attention.heads_in_turn && tensors_.names().groups_in_turn;
  if (in_turn && spec.row_heads.each > 0) {
    const Range own = own_rows(spec.cut, spec.rows);
    LinearWeights* const one[] = {&out};
    state_ = tensors_.fused(stem, {&spec.rows, 1}, spec.cols, one, group_by_group(spec.row_heads),
                            {&own, 1});
    return;
  }
  if (in_turn && spec.col_heads.each > 0) {
    const bool cut = spec.cut.axis == Cut::Axis::kColumns;
    state_ = tensors_.linear_columns(stem, spec.rows, spec.cols,
                                     cut ? spec.cut.part : Range{0, spec.cols}, out,
                                     group_by_group(spec.col_heads));
    return;
  }
  state_ =
      spec.cut.axis == Cut::Axis::kColumns
          ? tensors_.linear_columns(stem, spec.rows, spec.cols, spec.cut.part, out)
          : tensors_.linear_rows(stem, spec.rows, spec.cols, own_rows(spec.cut, spec.rows), out);
}

Status LayerLoader::load_turned(const LinearSpec& spec, const std::string& name,
                                LinearWeights& out) {
  const int64_t rows = spec.rows, cols = spec.cols, stored = rows - spec.zeros;
  const int64_t shape[] = {cols, stored};
  ASSIGN_OR_RETURN(const std::vector<float> values,
                   tensors_.vector(name + (spec.bare ? "" : ".weight"), shape));
  std::vector<float> turned(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < stored; ++r)
    for (int64_t c = 0; c < cols; ++c)
      turned[static_cast<size_t>(r * cols + c)] = values[static_cast<size_t>(c * stored + r)];
  ASSIGN_OR_RETURN(out.weight, tensors_.ops().pack({QuantType::kF32, spec.rows, spec.cols,
                                                    std::as_bytes(std::span(turned))}));
  return {};
}

void LayerLoader::joined(const JoinedSpec& spec, std::initializer_list<JoinedPart> parts) {
  if (ok()) state_ = load_joined(spec, parts);
}

Status LayerLoader::load_joined(const JoinedSpec& spec, std::span<const JoinedPart> parts) {
  const std::string all = name_of(spec.name), first = name_of(parts.front().spec.name),
                    inner = name_of(spec.inner);
  const auto has = [&](const std::string& stem) {
    return !stem.empty() && tensors_.has_matrix(stem + ".weight");
  };
  const bool has_own = !first.empty() || !inner.empty();
  const bool together =
      !all.empty() && (!has_own || (has(all) && !(spec.alone_first && has(first))));
  if (together) {
    std::vector<JoinedPart> in_file(parts.begin(), parts.end());
    if (spec.reversed != nullptr && tensors_.names().*spec.reversed) std::ranges::reverse(in_file);
    std::vector<int> order = spec.order;
    const auto n_parts = static_cast<int>(parts.size());
    if (spec.alternating != nullptr && tensors_.names().*spec.alternating)
      for (int part = 0; part < n_parts; ++part)
        for (int r = 0; r < parts.front().spec.rows; ++r) order.push_back(r * n_parts + part);
    return fuse(all, in_file, order);
  }
  size_t n_inner = 0;
  if (spec.n_inner > 0) {
    n_inner = static_cast<size_t>(spec.n_inner);
    RETURN_IF_ERROR(fuse(inner, parts.first(n_inner), {}));
  }
  for (const JoinedPart& part : parts.subspan(n_inner)) linear(part.spec, *part.weights);
  return state_;
}

Status LayerLoader::fuse(const std::string& stem, std::span<const JoinedPart> parts,
                         std::span<const int> order) {
  std::vector<int> rows;
  std::vector<LinearWeights*> out;
  std::vector<Range> own;
  for (const JoinedPart& part : parts) {
    rows.push_back(part.spec.rows);
    out.push_back(part.weights);
    own.push_back(own_rows(part.spec.cut, part.spec.rows));
  }
  return tensors_.fused(stem, rows, parts.front().spec.cols, out, order, own);
}

// Reads a vector in any of its shapes.
Result<std::vector<float>> LayerLoader::numbers(const VectorSpec& spec, const std::string& name) {
  using Shape = VectorSpec::Shape;
  const TensorInfo* found = tensors_.find(name);
  const size_t depth = found != nullptr ? found->shape.size() : 0;
  const int64_t n = spec.size - spec.n_more, matrix[] = {n / spec.per_row, spec.per_row},
                row[] = {1, n}, deep[] = {1, 1, n, 1};
  if (spec.form == VectorSpec::Form::kIndices)
    return tensors_.indices(name, matrix, spec.n_indices);
  if (spec.shape == Shape::kDeepColumn && depth != 1)
    return tensors_.vector(name, std::span<const int64_t>(deep).subspan(depth == 2 ? 2 : 0));
  if (depth == 2 && spec.shape == Shape::kMatrix) return tensors_.vector(name, matrix);
  if (depth == 2 && spec.shape == Shape::kRow) return tensors_.vector(name, row);
  if (spec.shape == Shape::kDeepRow) return with_leading(name, 1, spec.size);
  return tensors_.vector(name, n);
}

void LayerLoader::vector(const VectorSpec& spec, std::unique_ptr<Vector>& out) {
  if (!ok()) return;
  const TensorLoader::WithExperts place(tensors_, spec.with_experts ? layer_ : -1);
  state_ = load_vector(spec, out);
}

Status LayerLoader::load_vector(const VectorSpec& spec, std::unique_ptr<Vector>& out) {
  ASSIGN_OR_RETURN(std::vector<float> values,
                   numbers(spec, name_of(spec.name) + std::string(spec.suffix)));
  if (spec.form == VectorSpec::Form::kIgnored) return {};
  if (spec.form == VectorSpec::Form::kZeros) {
    if (std::ranges::all_of(values, [](float value) { return value == 0.0f; })) return {};
    return errorf(ErrorCode::kUnsupported, "{}: tensor {}: expected zeros",
                  tensors_.source().path().string(), name_of(spec.name));
  }
  const bool positive = spec.form == VectorSpec::Form::kPositiveRate;
  const bool by_log = tensors_.source().naming() == Naming::kHuggingFace;
  if (by_log && (positive || spec.form == VectorSpec::Form::kRate))
    for (float& value : values) value = -std::exp(value);
  if (positive && !by_log)
    for (float& value : values) value = -value;
  if (spec.divisor != 1.0f)
    for (float& value : values) value /= spec.divisor;
  for (float& value : values) {
    if (spec.form == VectorSpec::Form::kSquares) value *= value;
    if (spec.form == VectorSpec::Form::kMagnitudes) value = std::abs(value);
  }
  values.resize(values.size() + static_cast<size_t>(spec.n_more), spec.more);
  const auto own = part_of(values, spec.part);
  std::vector<float> repeated;
  for (size_t i = 0; spec.repeats > 1 && i < own.size(); ++i)
    repeated.insert(repeated.end(), static_cast<size_t>(spec.repeats), own[i]);
  ASSIGN_OR_RETURN(
      out, tensors_.ops().pack_vector(spec.repeats > 1 ? std::span<const float>(repeated) : own));
  return {};
}

void LayerLoader::shares(const SharesSpec& spec, std::unique_ptr<Vector>& kept,
                         std::unique_ptr<Vector>& added) {
  if (ok()) state_ = load_shares(spec, kept, added);
}

Status LayerLoader::load_shares(const SharesSpec& spec, std::unique_ptr<Vector>& kept,
                                std::unique_ptr<Vector>& added) {
  ASSIGN_OR_RETURN(std::vector<float> values, tensors_.vector(name_of(spec.name), spec.size));
  std::vector<float> rest;
  for (float& value : values) {
    const float against = 1.0f / (1.0f + std::exp(value / spec.temperature));
    value = 1.0f / (1.0f + std::exp(-value / spec.temperature));
    rest.push_back(std::sqrt(std::max(against * (1.0f + value), spec.least)));
  }
  ASSIGN_OR_RETURN(kept, tensors_.ops().pack_vector(rest));
  ASSIGN_OR_RETURN(added, tensors_.ops().pack_vector(values));
  return {};
}

// n vectors [size] in one tensor, one after the other: with dimensions of 1 before the last one.
Result<std::vector<float>> LayerLoader::with_leading(const std::string& name, int n, int size) {
  const TensorInfo* found = tensors_.find(name);
  const int64_t all = int64_t{n} * size;
  const bool fits = found != nullptr && !found->shape.empty() && found->n_elements() == all &&
                    found->shape.back() == size;
  return fits ? tensors_.vector(name, found->shape) : tensors_.vector(name, all);
}

void LayerLoader::token_shifts(const TokenShiftSpec& spec,
                               std::span<std::unique_ptr<Vector>* const> mixtures,
                               std::unique_ptr<Vector>* shares) {
  if (ok()) state_ = load_token_shifts(spec, mixtures, shares);
}

Status LayerLoader::load_token_shifts(const TokenShiftSpec& spec,
                                      std::span<std::unique_ptr<Vector>* const> mixtures,
                                      std::unique_ptr<Vector>* shares) {
  const auto size = static_cast<size_t>(spec.size);
  const std::string together = name_of(spec.together);
  std::vector<float> all;
  if (!together.empty() && tensors_.find(together) != nullptr) {
    ASSIGN_OR_RETURN(all, with_leading(together, static_cast<int>(spec.each.size()), spec.size));
  } else {
    for (const TensorName* each : spec.each) {
      ASSIGN_OR_RETURN(const std::vector<float> one, with_leading(name_of(each), 1, spec.size));
      all.insert(all.end(), one.begin(), one.end());
    }
  }
  if (shares != nullptr) {
    ASSIGN_OR_RETURN(*shares, tensors_.ops().pack_vector(all));
    return {};
  }
  for (size_t i = 0; i < mixtures.size(); ++i) {
    std::vector<float> taps(all.begin() + static_cast<ptrdiff_t>(i * size),
                            all.begin() + static_cast<ptrdiff_t>((i + 1) * size));
    for (size_t c = 0; c < size; ++c) taps.push_back(1.0f - taps[c]);
    ASSIGN_OR_RETURN(*mixtures[i], tensors_.ops().pack_vector(taps));
  }
  return {};
}

void LayerLoader::affine(const AffineSpec& spec, std::span<std::unique_ptr<Vector>* const> scales,
                         std::unique_ptr<Vector>& offset) {
  if (ok()) state_ = load_affine(spec, scales, offset);
}

Status LayerLoader::load_affine(const AffineSpec& spec,
                                std::span<std::unique_ptr<Vector>* const> scales,
                                std::unique_ptr<Vector>& offset) {
  std::vector<float> sum(static_cast<size_t>(spec.size));
  for (size_t i = 0; i < spec.parts.size(); ++i) {
    ASSIGN_OR_RETURN(const std::vector<float> by,
                     tensors_.vector(name_of(spec.parts[i].scale), spec.size));
    ASSIGN_OR_RETURN(const std::vector<float> plus,
                     tensors_.vector(name_of(spec.parts[i].offset), spec.size));
    for (size_t c = 0; c < sum.size(); ++c) sum[c] += by[c] * plus[c];
    ASSIGN_OR_RETURN(*scales[i], tensors_.ops().pack_vector(by));
  }
  ASSIGN_OR_RETURN(offset, tensors_.ops().pack_vector(sum));
  return {};
}

// Reads one tensor [channels, taps].
Result<std::vector<float>> LayerLoader::channels(const ConvSpec& spec, const std::string& name,
                                                 int n_channels) {
  const TensorInfo* found = tensors_.find(name);
  const size_t depth = found != nullptr ? found->shape.size() : 0;
  const bool line = spec.taps == 1 && depth == 1;
  // [channels, 1, taps] as in PyTorch; llama.cpp's Kimi Linear files have another leading 1.
  const int64_t shape[] = {1, n_channels, 1, spec.taps}, flat[] = {n_channels, spec.taps};
  const std::span<const int64_t> deep(shape);
  const std::span<const int64_t> wanted = depth == 4 ? deep : depth == 3 ? deep.subspan(1) : flat;
  return tensors_.vector(name, line ? wanted.first(1) : wanted);
}

void LayerLoader::conv(const ConvSpec& spec, std::unique_ptr<Vector>& out,
                       std::unique_ptr<Vector>* bias) {
  if (ok()) state_ = load_conv(spec, out, bias);
}

Status LayerLoader::load_conv(const ConvSpec& spec, std::unique_ptr<Vector>& out,
                              std::unique_ptr<Vector>* bias) {
  const auto taps = static_cast<size_t>(spec.taps), apart = static_cast<size_t>(spec.dilation);
  const std::string stem = name_of(spec.name);
  size_t n_channels = 0, first = 0;
  for (const int count : spec.channels) n_channels += static_cast<size_t>(count);
  std::vector<float> weight(n_channels * ((taps - 1) * apart + 1));
  if (spec.by_lag) {
    const int64_t shape[] = {spec.taps, static_cast<int64_t>(n_channels)};
    ASSIGN_OR_RETURN(const std::vector<float> stored, tensors_.vector(stem, shape));
    for (size_t k = 0; k < taps; ++k)
      std::copy_n(stored.begin() + static_cast<ptrdiff_t>(k * n_channels), n_channels,
                  weight.begin() + static_cast<ptrdiff_t>((taps - 1 - k) * n_channels));
    return finish_conv(spec, weight, out);
  }
  for (size_t part = 0; part < spec.channels.size(); ++part) {
    const std::string name = spec.letters.empty() ? stem : with_letter(stem, spec.letters[part]);
    ASSIGN_OR_RETURN(const std::vector<float> stored,
                     channels(spec, name + ".weight", spec.channels[part]));
    for (size_t c = 0; c < static_cast<size_t>(spec.channels[part]); ++c) {
      for (size_t k = 0; k < taps; ++k)
        weight[k * apart * n_channels + first + c] = stored[c * taps + k];
    }
    first += static_cast<size_t>(spec.channels[part]);
  }
  RETURN_IF_ERROR(finish_conv(spec, weight, out));
  if (bias == nullptr) return {};
  ASSIGN_OR_RETURN(const std::vector<float> stored,
                   tensors_.optional_vector(stem + ".bias", static_cast<int64_t>(n_channels)));
  if (stored.empty()) return {};
  ASSIGN_OR_RETURN(*bias, tensors_.ops().pack_vector(picked(stored, n_channels, spec.own)));
  return {};
}

// Adds what is added to the last taps, which are those of the token itself.
Status LayerLoader::finish_conv(const ConvSpec& spec, std::vector<float>& weight,
                                std::unique_ptr<Vector>& out) {
  size_t n_channels = 0;
  for (const int count : spec.channels) n_channels += static_cast<size_t>(count);
  for (size_t c = 0; c < n_channels; ++c) weight[weight.size() - n_channels + c] += spec.identity;
  for (float& value : weight) value *= spec.factor;
  ASSIGN_OR_RETURN(out, tensors_.ops().pack_vector(picked(weight, n_channels, spec.own)));
  return {};
}

void LayerLoader::experts(const ExpertsSpec& spec, ExpertWeights& gate, ExpertWeights& up,
                          ExpertWeights& down) {
  if (!ok()) return;
  const TensorLoader::WithExperts place(tensors_, layer_);
  state_ = ExpertLoader(tensors_).load(at_, spec, gate, up, down);
}

void LayerLoader::heads(const HeadsSpec& spec, ByHead& keys, ByHead& values) {
  if (ok()) state_ = load_heads(spec, keys, values);
}

Status LayerLoader::load_heads(const HeadsSpec& spec, ByHead& keys, ByHead& values) {
  const std::string key_name = name_of(spec.keys);
  if (key_name.empty() || tensors_.find(key_name + ".weight") == nullptr)
    return split_heads(spec, keys, values);
  ExpertLoader many(tensors_);
  RETURN_IF_ERROR(many.many_weights(key_name, spec.n_heads, spec.kv_rank, spec.plain_dim, keys));
  RETURN_IF_ERROR(
      many.many_weights(name_of(spec.values), spec.n_heads, spec.value_dim, spec.kv_rank, values));
  for (ByHead* by_head : {&keys, &values}) {
    by_head->erase(by_head->begin() + spec.part.first + spec.part.count, by_head->end());
    by_head->erase(by_head->begin(), by_head->begin() + spec.part.first);
  }
  return {};
}

// Splits a matrix [n_heads * (plain_dim + value_dim), kv_rank] by head.
Status LayerLoader::split_heads(const HeadsSpec& spec, ByHead& keys, ByHead& values) {
  const int each = spec.plain_dim + spec.value_dim;
  const std::string stem = name_of(spec.both), name = stem + ".weight";
  ASSIGN_OR_RETURN(const FileMatrix all, tensors_.matrix(stem, spec.n_heads * each, spec.kv_rank,
                                                         WeightUse::kProjection));
  for (int h = spec.part.first; h < spec.part.first + spec.part.count; ++h) {
    ASSIGN_OR_RETURN(keys.emplace_back(),
                     tensors_.transposed_rows(all, h * each, spec.plain_dim, name));
    ASSIGN_OR_RETURN(values.emplace_back(),
                     tensors_.pack_rows(all, h * each + spec.plain_dim, spec.value_dim, name));
  }
  if (all.tensor != nullptr) tensors_.done(*all.tensor);
  return {};
}

void LayerLoader::diagonal(const LinearSpec& spec, int n_blocks, ByHead& w) {
  if (ok()) state_ = load_diagonal(spec, n_blocks, w);
}

Status LayerLoader::load_diagonal(const LinearSpec& spec, int n_blocks, ByHead& w) {
  const std::string stem = name_of(spec.name);
  const bool hf = tensors_.source().naming() == Naming::kHuggingFace;
  if (spec.inputs_first && hf) return inputs_first(spec, stem, n_blocks, w);
  if (spec.inputs_first)  // GGUF files have matrices of three dimensions
    return ExpertLoader(tensors_).many_weights(stem, n_blocks, spec.rows / n_blocks, spec.cols, w);
  const Range own = own_rows(spec.cut, spec.rows);
  const int each = spec.rows / n_blocks;
  const bool reorders = spec.taps > 1 && !tensors_.restores();
  ASSIGN_OR_RETURN(const FileMatrix all,
                   reorders ? taps_in_order(spec, stem)
                            : tensors_.matrix(stem, spec.rows, spec.cols, WeightUse::kProjection));
  for (int first = own.first; first < own.first + own.count; first += each) {
    ASSIGN_OR_RETURN(w.emplace_back(), tensors_.pack_rows(all, first, each, stem + ".weight"));
  }
  if (all.tensor != nullptr) tensors_.done(*all.tensor);
  return {};
}

// Transposes the own ones of the matrices of a tensor [n_blocks, cols, rows / n_blocks]; n_blocks
// 0: one matrix [cols, rows].
Status LayerLoader::inputs_first(const LinearSpec& spec, const std::string& name, int n_blocks,
                                 ByHead& w) {
  const int n = std::max(n_blocks, 1), each = spec.rows / n;
  const Range own = own_rows(spec.cut, spec.rows);
  FileMatrix m;
  m.view = {QuantType::kF32, n * spec.cols, each, {}};
  if (!tensors_.restores()) {
    const int64_t shape[] = {n, spec.cols, each};
    ASSIGN_OR_RETURN(m.tensor,
                     tensors_.require(name, std::span(shape).subspan(n_blocks > 0 ? 0 : 1)));
    RETURN_IF_ERROR(tensors_.check_type(*m.tensor));
    m.view = {m.tensor->type, n * spec.cols, each, m.tensor->bytes};
  }
  for (int i = own.first / each; i < (own.first + own.count) / each; ++i) {
    ASSIGN_OR_RETURN(w.emplace_back(), tensors_.transposed_rows(m, i * spec.cols, spec.cols, name));
  }
  if (m.tensor != nullptr) tensors_.done(*m.tensor);
  return {};
}

// The inputs of a token become neighbours. Plain numbers keep their type; codes become F32.
Result<FileMatrix> LayerLoader::taps_in_order(const LinearSpec& spec, const std::string& stem) {
  const int64_t per_tap = spec.cols / spec.taps, shape[] = {spec.rows, per_tap, spec.taps};
  FileMatrix m;
  ASSIGN_OR_RETURN(m.tensor, tensors_.require(stem + ".weight", shape));
  RETURN_IF_ERROR(tensors_.check_type(*m.tensor));
  const QuantType type =
      quant_info(m.tensor->type).block_size == 1 ? m.tensor->type : QuantType::kF32;
  const size_t from_bytes = quant_bytes(m.tensor->type, spec.cols),
               to_bytes = quant_bytes(type, spec.cols);
  if (m.tensor->bytes.size() != from_bytes * static_cast<size_t>(spec.rows))
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected {} bytes, got {}",
                  tensors_.source().path().string(), m.tensor->name,
                  from_bytes * static_cast<size_t>(spec.rows), m.tensor->bytes.size());
  m.storage.resize(to_bytes * static_cast<size_t>(spec.rows));
  std::vector<float> stored(static_cast<size_t>(spec.cols)), ordered(stored.size());
  const auto taps = static_cast<size_t>(spec.taps), n = static_cast<size_t>(per_tap);
  tensors_.read_ahead({m.tensor->bytes});
  for (size_t r = 0; r < static_cast<size_t>(spec.rows); ++r) {
    dequantize_row(m.tensor->type, m.tensor->bytes.data() + r * from_bytes, stored.data(),
                   spec.cols);
    for (size_t i = 0; i < n; ++i)
      for (size_t k = 0; k < taps; ++k) ordered[k * n + i] = stored[i * taps + k];
    quantize_row(type, ordered.data(), m.storage.data() + r * to_bytes, spec.cols);
  }
  m.view = {type, spec.rows, spec.cols, m.storage};
  return m;
}

void LayerLoader::number(const TensorName* name, float& out) {
  if (!ok()) return;
  const auto values = tensors_.vector(name_of(name), 1);
  if (values) out = (*values)[0];
  if (!values) state_ = tl::unexpected(values.error());
}

void LayerLoader::values(const VectorSpec& spec, std::vector<float>& out) {
  if (!ok()) return;
  auto read = numbers(spec, name_of(spec.name));
  if (read) out = std::move(*read);
  if (!read) state_ = tl::unexpected(read.error());
}

void LayerLoader::activation(ActivationFunction& out) {
  if (ok()) state_ = load_activation(out);
}

// xIELU's parameters are stored in Hugging Face checkpoints before the functions that make them
// positive.
Status LayerLoader::load_activation(ActivationFunction& out) {
  out = config().layers[static_cast<size_t>(layer_)].activation;
  if (out.kind != Activation::kXielu) return {};
  float* const stored = out.parameters;
  if (tensors_.source().naming() == Naming::kHuggingFace) {
    constexpr std::string_view kParts[] = {"alpha_p", "alpha_n", "beta", "eps"};
    for (int p = 0; p < 4; ++p) {
      const std::string name = name_of(&tensor::kActivation) + std::string(kParts[p]);
      const int64_t one = 1;
      const TensorInfo* found = tensors_.find(name);
      const bool scalar = found != nullptr && found->shape.empty();
      ASSIGN_OR_RETURN(const std::vector<float> value,
                       tensors_.vector(name, std::span(&one, scalar ? 0 : 1)));
      stored[p] = value[0];
    }
  }
  stored[0] = softplus(stored[0]);
  stored[1] = stored[2] + softplus(stored[1]);
  return {};
}

void LayerLoader::table(const TableSpec& spec, RowTable& out) {
  if (ok()) state_ = load_table(spec, out);
}

// The list of tensors is looked up: find() may encode what it finds.
Status LayerLoader::load_table(const TableSpec& spec, RowTable& out) {
  const WeightSource& source = tensors_.source();
  const bool gguf = source.naming() == Naming::kGguf;
  const std::string stem = gguf ? tensors_.name(tensors_.names()[*spec.name]) : name_of(spec.name);
  if (const TensorInfo* whole = source.WeightSource::find(stem + ".weight")) {
    RETURN_IF_ERROR(append_rows(*whole, spec.cols, out));
  }
  for (int i = 0; out.n_rows() < spec.rows; ++i) {
    const std::string name = fmt::format("{}.shard_{}.weight", stem, i);
    const TensorInfo* part = source.WeightSource::find(name);
    if (part == nullptr) {
      return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected {} rows in all, found {}",
                    source.path().string(), i > 0 ? name : stem + ".weight", spec.rows,
                    out.n_rows());
    }
    RETURN_IF_ERROR(append_rows(*part, spec.cols, out));
  }
  tensors_.pass_over(stem + ".");
  return {};
}

Status LayerLoader::append_rows(const TensorInfo& tensor, int cols, RowTable& out) {
  RETURN_IF_ERROR(tensors_.check_type(tensor));
  constexpr int64_t kMostRows = std::numeric_limits<int>::max();
  if (tensor.shape.size() != 2 || tensor.shape[1] != cols || tensor.shape[0] < 1 ||
      tensor.shape[0] > kMostRows || cols % quant_info(tensor.type).block_size != 0 ||
      tensor.bytes.size() != quant_bytes(tensor.type, tensor.n_elements())) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: tensor {}: expected rows of {} values in whole blocks, got {}",
                  tensors_.source().path().string(), tensor.name, cols, shown_shape(tensor.shape));
  }
  out.append({tensor.type, static_cast<int>(tensor.shape[0]), cols, tensor.bytes});
  tensors_.done(tensor);
  return {};
}

void LayerLoader::constants(std::vector<float> values, std::unique_ptr<Vector>& out) {
  if (!ok()) return;
  auto packed = tensors_.ops().pack_vector(values);
  if (packed) out = std::move(*packed);
  if (!packed) state_ = tl::unexpected(packed.error());
}

}  // namespace penstock
