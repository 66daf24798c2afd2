#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "formats/prequantized.h"
#include "model/names.h"
#include "model/rope.h"

namespace penstock {

namespace {

std::string shown_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string with_index(std::string_view pattern, int index) {
  std::string name(pattern);
  const size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, std::to_string(index));
}

bool is_integer_type(QuantType type) {
  using enum QuantType;
  return type == kI8 || type == kI16 || type == kI32 || type == kI64 || type == kU8 || type == kBool;
}

// A matrix to pack: in the file, rewritten into `storage`, or as another quantizer stored it.
struct Matrix {
  QuantizedMatrix view;
  std::vector<std::byte> storage;
  std::optional<GroupedMatrix> grouped;  // then view is unused
  const TensorInfo* tensor = nullptr;
};

// What a matrix is for: tables are looked up, only projections are ternary in BitNet or transposed in GPT-2.
enum class Use : uint8_t { kTable, kOutput, kProjection };

class Loader {
 public:
  Loader(const WeightSource& source, const ModelConfig& config, Ops& ops, const Model::Progress& progress,
         PackedWeights* packed = nullptr)
      : source_(source),
        config_(config),
        ops_(ops),
        progress_(progress),
        packed_(packed),
        names_(tensor_names(config, source.naming())) {
    for (const TensorInfo& tensor : source.tensors())
      total_bytes_ += static_cast<int64_t>(tensor.bytes.size());
    prefix_ = names_.prefixes[0];
    for (const std::string_view prefix : names_.prefixes) {
      const std::string embedding = std::string(prefix) + std::string(names_.embedding) + ".weight";
      if (source.WeightSource::find(embedding) == nullptr) continue;  // of the list: find() may encode it
      prefix_ = prefix;
      break;
    }
  }

  Result<std::unique_ptr<ModelWeights>> load(int max_seq_len);
  Status open();  // before anything else
  Status load_frame(ModelWeights& weights, int max_seq_len);
  Status load_layer(int i, LayerWeights& layer);

 private:
  Status load_qkv(const std::string& at, LayerWeights& layer);
  Status load_dense(const std::string& at, LayerWeights& layer);
  Status load_experts(const std::string& at, LayerWeights& layer);
  Status load_ropes(ModelWeights& weights, int max_seq_len);
  Status divide_by_factors(const std::string& name, std::vector<float>& frequencies);
  Status check_unused() const;

  const TensorInfo* find(const std::string& name) const { return source_.find(name); }
  // A matrix; one that was packed before is not looked up, for that may encode it.
  bool has_matrix(const std::string& name) const {
    if (restores()) return packed_->from->find(stored_name(name, 0)) != nullptr;
    if (find(name) != nullptr) return true;
    const std::string stem = name.substr(0, name.size() - std::string_view(".weight").size());
    return prequantized_ != nullptr &&
           (find(stem + ".qweight") != nullptr || find(stem + ".weight_packed") != nullptr);
  }
  bool restores() const { return packed_ != nullptr && packed_->from != nullptr; }
  static std::string stored_name(const std::string& name, int first_row) {
    return fmt::format("{}:{}", name, first_row);
  }
  Result<std::unique_ptr<Weight>> restore(const std::string& name, int first, int rows, int cols);
  void keep(const std::string& name, int first, const Weight& weight) {
    if (packed_ != nullptr) packed_->made.push_back({stored_name(name, first), &weight});
  }
  Result<const TensorInfo*> require(const std::string& name, std::span<const int64_t> shape);
  Status check_type(const TensorInfo& tensor) const;
  Result<std::vector<float>> vector(const std::string& name, int64_t size);
  Result<std::vector<float>> optional_vector(const std::string& name, int64_t size);
  Status norm(const std::string& name, int64_t size, NormWeights& out);
  Result<Matrix> matrix(const std::string& name, int rows, int cols, Use use);
  Result<bool> find_prequantized(const std::string& stem, int rows, int cols, Matrix& out);
  Status unpack_ternary(const std::string& stem, int rows, int cols, Matrix& out);
  Status make_ternary(Matrix& out) const;
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& view, const std::string& name);
  Result<std::unique_ptr<Weight>> pack_rows(const Matrix& matrix, int first, int count,
                                            const std::string& name);
  Result<std::unique_ptr<Weight>> weight(const std::string& name, int rows, int cols, Use use);
  Status linear(const std::string& stem, int rows, int cols, LinearWeights& out);
  Status fused(const std::string& stem, std::span<const int> rows, int cols,
               std::span<LinearWeights* const> out);
  Status experts(const std::string& pattern, int rows, int cols, std::vector<std::unique_ptr<Weight>>& out);
  void done(const TensorInfo& tensor);

  const WeightSource& source_;
  const ModelConfig& config_;
  Ops& ops_;
  const Model::Progress& progress_;
  PackedWeights* packed_;
  NameTable names_;
  std::unique_ptr<Prequantized> opened_;
  const Prequantized* prequantized_ = nullptr;  // null: layers are plain tensors
  std::string prefix_;
  std::unordered_set<std::string_view> used_;
  int64_t done_bytes_ = 0, total_bytes_ = 0;
};

void Loader::done(const TensorInfo& tensor) {
  source_.drop(tensor);
  done_bytes_ += static_cast<int64_t>(tensor.bytes.size());
  if (progress_) progress_(done_bytes_, total_bytes_);
}

Result<const TensorInfo*> Loader::require(const std::string& name, std::span<const int64_t> shape) {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {} is missing (architecture {}, shape {})",
                  source_.path().string(), name, config_.arch, shown_shape(shape));
  }
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected shape {}, got {}",
                  source_.path().string(), name, shown_shape(shape), shown_shape(tensor->shape));
  }
  used_.insert(tensor->name);
  return tensor;
}

Status Loader::check_type(const TensorInfo& tensor) const {
  if (!is_integer_type(tensor.type)) return {};
  return errorf(ErrorCode::kUnsupported, "{}: tensor {}: expected an encoding of real numbers, got {}",
                source_.path().string(), tensor.name, quant_info(tensor.type).name);
}

Result<std::vector<float>> Loader::vector(const std::string& name, int64_t size) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(name, {&size, 1}));
  RETURN_IF_ERROR(check_type(*tensor));
  std::vector<float> values(static_cast<size_t>(size));
  dequantize_row(tensor->type, tensor->bytes.data(), values.data(), size);
  done(*tensor);
  return values;
}

Result<std::vector<float>> Loader::optional_vector(const std::string& name, int64_t size) {
  if (find(name) == nullptr) return std::vector<float>();
  return vector(name, size);
}

Status Loader::norm(const std::string& name, int64_t size, NormWeights& out) {
  ASSIGN_OR_RETURN(std::vector<float> weight, vector(name + ".weight", size));
  for (float& value : weight) value += config_.norm_offset;
  ASSIGN_OR_RETURN(out.weight, ops_.pack_vector(weight));
  if (!config_.layer_norm) return {};
  ASSIGN_OR_RETURN(const std::vector<float> bias, vector(name + ".bias", size));
  ASSIGN_OR_RETURN(out.bias, ops_.pack_vector(bias));
  return {};
}

Result<Matrix> Loader::matrix(const std::string& stem, int rows, int cols, Use use) {
  const std::string name = stem + ".weight";
  const bool projection = use == Use::kProjection;
  Matrix result;
  if (restores()) {  // pack_rows() needs no more
    result.view = {QuantType::kF32, rows, cols, {}};
    return result;
  }
  const TensorInfo* tensor = find(name);
  if (use != Use::kTable && prequantized_ != nullptr) {
    ASSIGN_OR_RETURN(const bool found, find_prequantized(stem, rows, cols, result));
    if (found) return result;
  }
  if (projection && tensor != nullptr && tensor->type == QuantType::kU8 && config_.int8_activations) {
    RETURN_IF_ERROR(unpack_ternary(stem, rows, cols, result));
    return result;
  }
  const bool transpose = projection && names_.transposed;
  const int64_t shape[] = {transpose ? cols : rows, transpose ? rows : cols};
  ASSIGN_OR_RETURN(result.tensor, require(name, shape));
  RETURN_IF_ERROR(check_type(*result.tensor));
  result.view = {result.tensor->type, rows, cols, result.tensor->bytes};
  if (transpose) {
    std::vector<float> line(static_cast<size_t>(rows));
    result.storage.resize(static_cast<size_t>(rows) * cols * sizeof(float));
    float* out = reinterpret_cast<float*>(result.storage.data());
    const size_t stride = quant_bytes(result.tensor->type, rows);
    for (int c = 0; c < cols; ++c) {
      dequantize_row(result.tensor->type, result.tensor->bytes.data() + c * stride, line.data(), rows);
      for (int r = 0; r < rows; ++r) out[static_cast<size_t>(r) * cols + c] = line[r];
    }
    result.view = {QuantType::kF32, rows, cols, result.storage};
  }
  if (projection && config_.ternary_weights) RETURN_IF_ERROR(make_ternary(result));
  return result;
}

// A layer that another quantizer stored. False: it is stored plainly.
Result<bool> Loader::find_prequantized(const std::string& stem, int rows, int cols, Matrix& out) {
  ASSIGN_OR_RETURN(out.grouped, prequantized_->find_linear(stem));
  if (!out.grouped) return false;
  if (out.grouped->rows != rows || out.grouped->cols != cols) {
    return errorf(ErrorCode::kCorruptFile, "{}: layer {}: expected shape [{}, {}], got [{}, {}]",
                  source_.path().string(), stem, rows, cols, out.grouped->rows, out.grouped->cols);
  }
  for (const TensorInfo& tensor : source_.tensors()) {
    const bool part = tensor.name.starts_with(stem) && tensor.name.substr(stem.size()).starts_with(".");
    if (!part) continue;
    used_.insert(tensor.name);
    if (tensor.bytes.data() == out.grouped->packed.data()) out.tensor = &tensor;
  }
  return true;
}

// {-1, 0, 1} * scale in 2 bits, for activations with one scale per token. `packed`: codes 0 = -1.
GroupedMatrix ternary_matrix(int rows, int cols, float scale, CodeLayout layout,
                             std::span<const std::byte> packed) {
  GroupedMatrix m;
  m.rows = rows, m.cols = m.group_size = cols, m.bits = 2, m.uniform_zero = 1;
  m.scales.assign(static_cast<size_t>(rows), scale);
  m.activations.kind = ActivationCoding::Kind::kInt8PerToken;
  m.layout = layout;
  m.packed = packed;
  return m;
}

void store_ternary(std::span<const uint8_t> codes, int rows, int cols, float scale, Matrix& out) {
  const size_t row_bytes = (static_cast<size_t>(cols) + 15) / 16 * 4;
  out.storage.assign(static_cast<size_t>(rows) * row_bytes, std::byte{});
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      out.storage[static_cast<size_t>(r) * row_bytes + static_cast<size_t>(c / 4)] |=
          static_cast<std::byte>(codes[static_cast<size_t>(r) * cols + c] << (c % 4 * 2));
    }
  }
  out.grouped = ternary_matrix(rows, cols, scale, CodeLayout::kWordsByRow, out.storage);
}

// The master weights of BitNet training: rounded to {-1, 0, 1} times their mean magnitude.
Status Loader::make_ternary(Matrix& out) const {
  const QuantizedMatrix& view = out.view;
  std::vector<float> values(static_cast<size_t>(view.rows) * view.cols);
  dequantize_row(view.type, view.bytes.data(), values.data(), static_cast<int64_t>(values.size()));
  double sum = 0;
  for (const float value : values) sum += std::abs(value);
  if (!std::isfinite(sum)) {
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected finite numbers", source_.path().string(),
                  out.tensor->name);
  }
  const float scale = 1.0f / std::max(static_cast<float>(sum / static_cast<double>(values.size())), 1e-5f);
  std::vector<uint8_t> codes;
  codes.reserve(values.size());
  for (const float value : values) {
    codes.push_back(static_cast<uint8_t>(std::clamp(std::nearbyint(value * scale), -1.0f, 1.0f) + 1));
  }
  store_ternary(codes, view.rows, view.cols, 1.0f / scale, out);
  return {};
}

// 2-bit codes, 0 = -1: byte (r, c) holds rows r, r + rows / 4, ... from its lowest bits up.
Status Loader::unpack_ternary(const std::string& stem, int rows, int cols, Matrix& out) {
  const int64_t shape[] = {(rows + 3) / 4, cols};
  ASSIGN_OR_RETURN(out.tensor, require(stem + ".weight", shape));
  ASSIGN_OR_RETURN(const std::vector<float> stored, vector(stem + ".weight_scale", 1));
  const float scale = config_.divide_weight_scale ? 1.0f / stored[0] : stored[0];
  if (!(std::abs(scale) <= 1e30f)) {
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {}.weight_scale: expected a positive number, got {}",
                  source_.path().string(), stem, stored[0]);
  }
  if (rows % 4 == 0) {
    out.grouped = ternary_matrix(rows, cols, scale, CodeLayout::kCrumbsAcrossRows, out.tensor->bytes);
    return {};
  }
  std::vector<uint8_t> codes;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const auto byte = static_cast<uint8_t>(out.tensor->bytes[static_cast<size_t>(r % shape[0] * cols + c)]);
      codes.push_back(byte >> (2 * (r / shape[0])) & 3);
    }
  }
  store_ternary(codes, rows, cols, scale, out);
  return {};
}

Result<std::unique_ptr<Weight>> Loader::pack(const QuantizedMatrix& view, const std::string& name) {
  auto packed = ops_.pack(view);
  if (!packed) {
    return errorf(packed.error().code, "{}: tensor {}: {}", source_.path().string(), name,
                  packed.error().message);
  }
  return packed;
}

Result<std::unique_ptr<Weight>> Loader::pack_rows(const Matrix& matrix, int first, int count,
                                                  const std::string& name) {
  if (restores()) return restore(name, first, count, matrix.view.cols);
  if (!matrix.grouped) {
    // A part only of a matrix that is whole; pack() tells what is wrong with others.
    const bool part = count < matrix.view.rows && matrix.view.bytes.size() >= matrix.view.size_bytes();
    ASSIGN_OR_RETURN(auto packed, pack(part ? matrix.view.row_range(first, count) : matrix.view, name));
    keep(name, first, *packed);
    return packed;
  }
  auto packed = ops_.pack_grouped(*matrix.grouped, first, count);
  if (!packed) {
    return errorf(packed.error().code, "{}: layer {}: {}", source_.path().string(), name,
                  packed.error().message);
  }
  keep(name, first, **packed);
  return packed;
}

Result<std::unique_ptr<Weight>> Loader::restore(const std::string& name, int first, int rows, int cols) {
  const PackedPart* part = packed_->from->find(stored_name(name, first));
  if (part == nullptr) return errorf(ErrorCode::kCorruptFile, "packed weights: {} is missing", name);
  ASSIGN_OR_RETURN(auto weight, ops_.restore({std::string(part->description), part->bytes}, packed_->from));
  if (weight->rows() != rows || weight->cols() != cols) {
    return errorf(ErrorCode::kCorruptFile, "packed weights: {}: expected {} x {}, got {} x {}", name, rows,
                  cols, weight->rows(), weight->cols());
  }
  return weight;
}

Result<std::unique_ptr<Weight>> Loader::weight(const std::string& stem, int rows, int cols, Use use) {
  ASSIGN_OR_RETURN(const Matrix m, matrix(stem, rows, cols, use));
  ASSIGN_OR_RETURN(auto packed, pack_rows(m, 0, rows, stem + ".weight"));
  if (m.tensor != nullptr) done(*m.tensor);
  return packed;
}

Status Loader::linear(const std::string& stem, int rows, int cols, LinearWeights& out) {
  LinearWeights* const one[] = {&out};
  return fused(stem, {&rows, 1}, cols, one);
}

// One tensor that holds several matrices, row after row; each is packed from its rows without a copy.
Status Loader::fused(const std::string& stem, std::span<const int> rows, int cols,
                     std::span<LinearWeights* const> out) {
  int total = 0;
  for (const int count : rows) total += count;
  ASSIGN_OR_RETURN(const Matrix m, matrix(stem, total, cols, Use::kProjection));
  ASSIGN_OR_RETURN(const std::vector<float> bias, optional_vector(stem + ".bias", total));
  int first = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSIGN_OR_RETURN(out[i]->weight, pack_rows(m, first, rows[i], stem + ".weight"));
    if (!bias.empty()) {
      const auto part = std::span(bias).subspan(static_cast<size_t>(first), static_cast<size_t>(rows[i]));
      ASSIGN_OR_RETURN(out[i]->bias, ops_.pack_vector(part));
    }
    first += rows[i];
  }
  if (m.tensor != nullptr) done(*m.tensor);
  return {};
}

Status Loader::load_qkv(const std::string& at, LayerWeights& layer) {
  const int q = config_.q_dim(), kv = config_.kv_dim(), dim = config_.model_dim;
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  if (!names_.qkv.empty() && has_matrix(name(names_.qkv) + ".weight")) {
    const int rows[] = {q, kv, kv};
    LinearWeights* const parts[] = {&layer.q, &layer.k, &layer.v};
    return fused(name(names_.qkv), rows, dim, parts);
  }
  RETURN_IF_ERROR(linear(name(names_.q), q, dim, layer.q));
  RETURN_IF_ERROR(linear(name(names_.k), kv, dim, layer.k));
  return linear(name(names_.v), kv, dim, layer.v);
}

Status Loader::load_dense(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const bool separate = !names_.gate.empty() && has_matrix(name(names_.gate) + ".weight");
  const bool both = !names_.gate_up.empty() && has_matrix(name(names_.gate_up) + ".weight");
  if (!config_.gated_ffn) {
    RETURN_IF_ERROR(linear(name(names_.up), config_.ffn_dim, config_.model_dim, layer.up));
  } else if (!separate && both) {
    const int rows[] = {config_.ffn_dim, config_.ffn_dim};
    LinearWeights* const parts[] = {&layer.gate, &layer.up};
    RETURN_IF_ERROR(fused(name(names_.gate_up), rows, config_.model_dim, parts));
  } else {
    RETURN_IF_ERROR(linear(name(names_.gate), config_.ffn_dim, config_.model_dim, layer.gate));
    RETURN_IF_ERROR(linear(name(names_.up), config_.ffn_dim, config_.model_dim, layer.up));
  }
  if (config_.sub_norms)
    RETURN_IF_ERROR(norm(name(names_.ffn_sub_norm), config_.ffn_dim, layer.ffn_sub_norm));
  return linear(name(names_.down), config_.model_dim, config_.ffn_dim, layer.down);
}

// One tensor for each expert, or one [n_experts, rows, cols] for all.
Status Loader::experts(const std::string& pattern, int rows, int cols,
                       std::vector<std::unique_ptr<Weight>>& out) {
  out.resize(static_cast<size_t>(config_.n_experts));
  if (pattern.find("{}") != std::string::npos) {
    for (int e = 0; e < config_.n_experts; ++e) {
      ASSIGN_OR_RETURN(out[e], weight(with_index(pattern, e), rows, cols, Use::kOutput));
    }
    return {};
  }
  for (int e = 0; restores() && e < config_.n_experts; ++e) {
    ASSIGN_OR_RETURN(out[e], restore(pattern + ".weight", e * rows, rows, cols));
  }
  if (restores()) return {};
  if (prequantized_ != nullptr) {
    Matrix all;
    ASSIGN_OR_RETURN(const bool found, find_prequantized(pattern, config_.n_experts * rows, cols, all));
    for (int e = 0; found && e < config_.n_experts; ++e) {
      ASSIGN_OR_RETURN(out[e], pack_rows(all, e * rows, rows, pattern + ".weight"));
    }
    if (found && all.tensor != nullptr) done(*all.tensor);
    if (found) return {};
  }
  const int64_t shape[] = {config_.n_experts, rows, cols};
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(pattern + ".weight", shape));
  RETURN_IF_ERROR(check_type(*tensor));
  const size_t size = tensor->bytes.size() / static_cast<size_t>(config_.n_experts);
  for (int e = 0; e < config_.n_experts; ++e) {
    const QuantizedMatrix view{tensor->type, rows, cols, tensor->bytes.subspan(e * size, size)};
    ASSIGN_OR_RETURN(out[e], pack(view, tensor->name));
    keep(tensor->name, e * rows, *out[e]);
  }
  done(*tensor);
  return {};
}

Status Loader::load_experts(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim, ffn = config_.expert_ffn_dim;
  RETURN_IF_ERROR(linear(name(names_.router), config_.n_experts, dim, layer.router));
  std::string_view gate = names_.expert_gate, up = names_.expert_up, down = names_.expert_down;
  // Older GGUF files have one tensor for each expert.
  if (source_.naming() == Naming::kGguf && !has_matrix(name(gate) + ".weight"))
    gate = "ffn_gate.{}", up = "ffn_up.{}", down = "ffn_down.{}";
  RETURN_IF_ERROR(experts(name(gate), ffn, dim, layer.expert_gate));
  RETURN_IF_ERROR(experts(name(up), ffn, dim, layer.expert_up));
  return experts(name(down), dim, ffn, layer.expert_down);
}

Status Loader::load_layer(int i, LayerWeights& layer) {
  const std::string at = prefix_ + with_index(names_.layer, i);
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim;
  const bool pre = config_.norms != NormPlacement::kPost, post = config_.norms != NormPlacement::kPre;
  if (pre) RETURN_IF_ERROR(norm(name(names_.attn_norm), dim, layer.attn_norm));
  RETURN_IF_ERROR(load_qkv(at, layer));
  if (config_.qk_norm != QkNorm::kNone) {
    const bool heads = config_.qk_norm == QkNorm::kHead;
    RETURN_IF_ERROR(norm(name(names_.q_norm), heads ? config_.head_dim : config_.q_dim(), layer.q_norm));
    RETURN_IF_ERROR(norm(name(names_.k_norm), heads ? config_.head_dim : config_.kv_dim(), layer.k_norm));
  }
  if (config_.sub_norms)
    RETURN_IF_ERROR(norm(name(names_.attn_sub_norm), config_.q_dim(), layer.attn_sub_norm));
  RETURN_IF_ERROR(linear(name(names_.o), dim, config_.q_dim(), layer.o));
  if (post) RETURN_IF_ERROR(norm(name(names_.attn_post_norm), dim, layer.attn_post_norm));
  if (pre) RETURN_IF_ERROR(norm(name(names_.ffn_norm), dim, layer.ffn_norm));
  RETURN_IF_ERROR(config_.layers[i].moe ? load_experts(at, layer) : load_dense(at, layer));
  if (post) RETURN_IF_ERROR(norm(name(names_.ffn_post_norm), dim, layer.ffn_post_norm));
  return {};
}

Status Loader::divide_by_factors(const std::string& name, std::vector<float>& frequencies) {
  ASSIGN_OR_RETURN(const std::vector<float> factors, vector(name, static_cast<int64_t>(frequencies.size())));
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0)) {
      return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected positive factors, got {} at {}",
                    source_.path().string(), name, factors[i], i);
    }
    frequencies[i] /= factors[i];
  }
  return {};
}

// GGUF gives llama3's and longrope's factors as tensors.
Status Loader::load_ropes(ModelWeights& weights, int max_seq_len) {
  if (max_seq_len <= 0) max_seq_len = config_.max_seq_len;
  for (const RopeConfig& rope : config_.ropes) {
    std::vector<float> frequencies = rope_frequencies(rope, max_seq_len);
    std::string name = "rope_freqs.weight";
    if (find(name) == nullptr)
      name =
          max_seq_len > rope.original_max_seq_len ? "rope_factors_long.weight" : "rope_factors_short.weight";
    if (source_.naming() == Naming::kGguf && find(name) != nullptr) {
      RETURN_IF_ERROR(divide_by_factors(name, frequencies));
    }
    ASSIGN_OR_RETURN(auto packed, ops_.pack_vector(frequencies));
    weights.ropes.push_back({packed.get(), rope_magnitude(rope), config_.rope_interleaved});
    weights.rope_frequencies.push_back(std::move(packed));
  }
  return {};
}

Status Loader::check_unused() const {
  if (restores()) return {};  // whoever packed them has checked
  for (const TensorInfo& tensor : source_.tensors()) {
    if (used_.contains(tensor.name) || is_ignorable_tensor(tensor.name)) continue;
    if (config_.tied_embeddings && tensor.name.ends_with("lm_head.weight")) continue;
    return errorf(ErrorCode::kUnsupported,
                  "{}: tensor {} {} is not part of architecture {}: this file holds another kind of model",
                  source_.path().string(), tensor.name, shown_shape(tensor.shape), config_.arch);
  }
  return {};
}

Status Loader::open() {
  if (config_.int8_activations) return {};
  ASSIGN_OR_RETURN(opened_, open_prequantized(source_));
  prequantized_ = opened_ != nullptr ? opened_.get() : source_.grouped_layers();
  return {};
}

Status Loader::load_frame(ModelWeights& weights, int max_seq_len) {
  const int dim = config_.model_dim, vocab = config_.vocab_size;
  const auto name = [&](std::string_view part) { return prefix_ + std::string(part); };
  RETURN_IF_ERROR(load_ropes(weights, max_seq_len));
  ASSIGN_OR_RETURN(weights.embedding, weight(name(names_.embedding), vocab, dim, Use::kTable));
  if (config_.learned_positions) {
    ASSIGN_OR_RETURN(weights.positions,
                     weight(name(names_.positions), config_.max_seq_len, dim, Use::kTable));
  }
  RETURN_IF_ERROR(norm(name(names_.final_norm), dim, weights.final_norm));
  if (config_.tied_embeddings) return {};
  ASSIGN_OR_RETURN(weights.lm_head, weight(std::string(names_.lm_head), vocab, dim, Use::kOutput));
  return {};
}

Result<std::unique_ptr<ModelWeights>> Loader::load(int max_seq_len) {
  auto weights = std::make_unique<ModelWeights>();
  RETURN_IF_ERROR(open());
  RETURN_IF_ERROR(load_frame(*weights, max_seq_len));
  for (int i = 0; i < config_.n_layers; ++i) {
    RETURN_IF_ERROR(load_layer(i, weights->layers.emplace_back()));
  }
  RETURN_IF_ERROR(check_unused());
  if (restores() && progress_) progress_(total_bytes_, total_bytes_);
  return weights;
}

}  // namespace

Result<std::unique_ptr<ModelWeights>> load_weights(const WeightSource& source, const ModelConfig& config,
                                                   Ops& ops, const Model::Progress& progress, int max_seq_len,
                                                   PackedWeights* packed) {
  return Loader(source, config, ops, progress, packed).load(max_seq_len);
}

Result<std::unique_ptr<ModelWeights>> load_frame(const WeightSource& source, const ModelConfig& config,
                                                 Ops& ops, int max_seq_len) {
  const Model::Progress none;
  Loader loader(source, config, ops, none);
  auto weights = std::make_unique<ModelWeights>();
  RETURN_IF_ERROR(loader.open());
  RETURN_IF_ERROR(loader.load_frame(*weights, max_seq_len));
  weights->layers.resize(static_cast<size_t>(config.n_layers));
  return weights;
}

Result<LayerWeights> load_layer(const WeightSource& source, const ModelConfig& config, Ops& ops, int layer) {
  const Model::Progress none;
  Loader loader(source, config, ops, none);
  LayerWeights weights;
  RETURN_IF_ERROR(loader.open());
  RETURN_IF_ERROR(loader.load_layer(layer, weights));
  return weights;
}

}  // namespace penstock
