#include "model/load/tensor_loader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "model/load/ternary.h"

namespace penstock {

namespace {

bool is_integer_type(QuantType type) {
  using enum QuantType;
  return type == kI8 || type == kI16 || type == kI32 || type == kI64 || type == kU8 ||
         type == kBool;
}

}  // namespace

TensorLoader::TensorLoader(const WeightSource& source, const ModelConfig& config, Ops& ops,
                           const LoadProgress& progress, PackedWeights* packed,
                           const ShardOptions& shard)
    : source_(source),
      config_(config),
      cuts_(config, shard.shard, shard.cuts_vocabulary),
      reads_parts_(shard.is_part()),
      device_(ops),
      ops_(&ops),
      progress_(progress),
      packed_(packed),
      names_(tensor_names(config, source.naming())) {
  for (const PackedPart& part :
       restores() ? packed->from->parts() : std::span<const PackedPart>()) {
    const size_t mark = part.name.rfind(kLeadMark), first_row = part.name.rfind(':');
    int lead = 0;
    stored_.insert(part.name.substr(0, first_row));
    if (mark == part.name.npos || first_row == part.name.npos || mark < first_row) continue;
    std::from_chars(part.name.data() + mark + 1, part.name.data() + part.name.size(), lead);
    with_lead_[part.name.substr(0, mark)] = {&part, lead};
  }
  for (const TensorInfo& tensor : source.tensors())
    total_bytes_ += static_cast<int64_t>(tensor.bytes.size());
  prefix_ = names_.prefixes[0];
  for (const std::string_view prefix : names_.prefixes) {
    const std::string embedding = std::string(prefix) + std::string(names_.embedding) + ".weight";
    // the list of tensors; find() may encode
    if (source.WeightSource::find(embedding) == nullptr) continue;
    prefix_ = prefix;
    break;
  }
  choose_names(names_, source, prefix_, config.n_layers);
}

Status TensorLoader::open() {
  if (config_.rounding.activations) return {};
  ASSIGN_OR_RETURN(opened_, open_prequantized(source_));
  prequantized_ = opened_ != nullptr ? opened_.get() : source_.grouped_layers();
  return {};
}

void TensorLoader::pass_over(const std::string& stem) {
  for (const TensorInfo& tensor : source_.tensors()) {
    if (tensor.name.starts_with(stem)) used_.insert(tensor.name);
  }
}

void TensorLoader::done(const TensorInfo& tensor) {
  source_.drop(tensor);
  // Some tensors are read for several layers.
  done_bytes_ = std::min(total_bytes_, done_bytes_ + static_cast<int64_t>(tensor.bytes.size()));
  if (progress_) progress_(done_bytes_, total_bytes_);
}

Result<const TensorInfo*> TensorLoader::require(const std::string& name,
                                                std::span<const int64_t> shape) {
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

Status TensorLoader::check_type(const TensorInfo& tensor) const {
  if (!is_integer_type(tensor.type)) return {};
  return errorf(ErrorCode::kUnsupported,
                "{}: tensor {}: expected an encoding of real numbers, got {}",
                source_.path().string(), tensor.name, quant_info(tensor.type).name);
}

Result<std::vector<float>> TensorLoader::vector(const std::string& name,
                                                std::span<const int64_t> shape) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(name, shape));
  RETURN_IF_ERROR(check_type(*tensor));
  std::vector<float> values(static_cast<size_t>(tensor->n_elements()));
  read_ahead({tensor->bytes});
  dequantize_row(tensor->type, tensor->bytes.data(), values.data(), tensor->n_elements());
  done(*tensor);
  return values;
}

Result<std::vector<float>> TensorLoader::indices(const std::string& name,
                                                 std::span<const int64_t> shape, int n) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(name, shape));
  const bool wide = tensor->type == QuantType::kI64;
  const auto count = static_cast<size_t>(tensor->n_elements());
  const size_t each = wide ? sizeof(int64_t) : sizeof(int32_t);
  if ((!wide && tensor->type != QuantType::kI32) || tensor->bytes.size() != count * each) {
    return errorf(ErrorCode::kUnsupported, "{}: tensor {}: expected whole numbers, got {}",
                  source_.path().string(), name, quant_info(tensor->type).name);
  }
  read_ahead({tensor->bytes});
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    int64_t value = 0;
    int32_t narrow = 0;
    std::memcpy(wide ? static_cast<void*>(&value) : &narrow, tensor->bytes.data() + i * each, each);
    if (!wide) value = narrow;
    if (value < 0 || value >= n) {
      return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected numbers in 0..{}, got {}",
                    source_.path().string(), name, n - 1, value);
    }
    values[i] = static_cast<float>(value);
  }
  done(*tensor);
  return values;
}

Result<std::vector<float>> TensorLoader::optional_vector(const std::string& name, int64_t size) {
  if (find(name) == nullptr) return std::vector<float>();
  return vector(name, size);
}

Status TensorLoader::norm(const std::string& name, int64_t size, NormWeights& out, float offset) {
  return norm(name, size, config_.norm.layer_norm && config_.norm.biases, out, offset);
}

Status TensorLoader::norm(const std::string& name, int64_t size, bool has_bias, NormWeights& out) {
  return norm(name, size, has_bias, out, config_.norm.offset);
}

Status TensorLoader::norm(const std::string& name, int64_t size, bool has_bias, NormWeights& out,
                          float offset) {
  std::vector<float> weight(static_cast<size_t>(size), 1.0f);
  if (!config_.norm.bare) {
    ASSIGN_OR_RETURN(weight, vector(name + ".weight", size));
  }
  for (float& value : weight) value += offset;
  ASSIGN_OR_RETURN(out.weight, ops_->pack_vector(weight));
  if (!has_bias) return {};
  ASSIGN_OR_RETURN(const std::vector<float> bias, vector(name + ".bias", size));
  ASSIGN_OR_RETURN(out.bias, ops_->pack_vector(bias));
  return {};
}

// Loads norm weights by head: one tensor [n_heads, head_dim], or one per head.
Status TensorLoader::head_norm(const std::string& pattern, std::string_view ending, Heads heads,
                               NormWeights& out) {
  const auto [n_heads, part] = heads;
  std::vector<float> weights;
  if (pattern.find("{}") != std::string::npos) {
    for (int h = 0; h < n_heads; ++h) {
      ASSIGN_OR_RETURN(const std::vector<float> one,
                       vector(with_index(pattern, h) + std::string(ending), config_.head_dim));
      weights.insert(weights.end(), one.begin(), one.end());
    }
  } else {
    const int64_t shape[] = {n_heads, config_.head_dim};
    ASSIGN_OR_RETURN(weights, vector(pattern + std::string(ending), shape));
  }
  const auto dim = static_cast<size_t>(config_.head_dim);
  const auto own = std::span(weights).subspan(static_cast<size_t>(part.first) * dim,
                                              static_cast<size_t>(part.count) * dim);
  ASSIGN_OR_RETURN(out.weight, ops_->pack_vector(own));
  return {};
}

// Reorders rows: row r of the result is row order[r] of the file.
Status TensorLoader::order_rows(const std::string& stem, std::span<const int> order,
                                FileMatrix& out) const {
  if (restores()) return {};  // packed in this order
  if (out.grouped) {
    out.grouped = out.grouped->ordered(order, out.storage);
    return {};
  }
  if (out.view.size_bytes() > out.view.bytes.size()) {
    return errorf(ErrorCode::kCorruptFile, "{}: layer {}: expected {} bytes, got {}",
                  source_.path().string(), stem, out.view.size_bytes(), out.view.bytes.size());
  }
  if (order.size() != static_cast<size_t>(out.view.rows)) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: layer {}: a fused projection of {} rows: expected {}, as in other layers",
                  source_.path().string(), stem, out.view.rows, order.size());
  }
  const size_t row_bytes = quant_bytes(out.view.type, out.view.cols);
  std::vector<std::byte> rows(row_bytes * order.size());
  for (size_t r = 0; r < order.size(); ++r) {
    const auto from = out.view.bytes.subspan(row_bytes * static_cast<size_t>(order[r]), row_bytes);
    std::ranges::copy(from, rows.begin() + static_cast<ptrdiff_t>(row_bytes * r));
  }
  out.storage = std::move(rows);
  out.view.bytes = out.storage;
  return {};
}

// Reorders columns. Plain numbers keep their type; codes become F32, those with scales beside them F16.
void TensorLoader::order_columns(std::span<const int> order, FileMatrix& m) const {
  if (restores()) return;                                               // packed in this order
  if (!m.grouped && m.view.bytes.size() < m.view.size_bytes()) return;  // pack() says so
  const int rows = m.grouped ? m.grouped->rows : m.view.rows;
  const auto cols = static_cast<int>(order.size());
  const QuantType type = m.grouped                                 ? QuantType::kF16
                         : quant_info(m.view.type).block_size == 1 ? m.view.type
                                                                   : QuantType::kF32;
  const size_t to_bytes = quant_bytes(type, cols);
  std::vector<std::byte> lines(to_bytes * static_cast<size_t>(rows));
  std::vector<float> stored(order.size()), ordered(order.size());
  if (!m.grouped) read_ahead({m.view.bytes});
  for (int r = 0; r < rows; ++r) {
    const auto row = static_cast<size_t>(r);
    if (m.grouped) m.grouped->dequantize(r, 1, stored.data());
    if (!m.grouped)
      dequantize_row(m.view.type, m.view.bytes.data() + row * m.view.stride(), stored.data(), cols);
    for (size_t c = 0; c < order.size(); ++c) ordered[c] = stored[static_cast<size_t>(order[c])];
    quantize_row(type, ordered.data(), lines.data() + row * to_bytes, cols);
  }
  m.grouped.reset();
  m.storage = std::move(lines);
  m.view = {type, rows, cols, m.storage};
}

Result<FileMatrix> TensorLoader::matrix(const std::string& stem, int rows, int cols,
                                        WeightUse use) {
  const std::string name = stem + ".weight";
  const bool projection = use == WeightUse::kProjection;
  FileMatrix result;
  if (restores()) {  // pack_rows() needs only this
    result.view = {QuantType::kF32, rows, cols, {}};
    return result;
  }
  const TensorInfo* tensor = find(name);
  if (use != WeightUse::kTable && prequantized_ != nullptr) {
    ASSIGN_OR_RETURN(const bool found, find_prequantized(stem, rows, cols, result));
    if (found) return result;
  }
  if (projection && tensor != nullptr && tensor->type == QuantType::kU8 &&
      config_.rounding.activations) {
    RETURN_IF_ERROR(unpack_ternary(stem, rows, cols, result));
    return result;
  }
  const bool transpose = projection && names_.transposed;
  const int64_t shape[] = {transpose ? cols : rows, transpose ? rows : cols};
  // GGUF tools write a one-row matrix as a vector.
  const bool line = rows == 1 && tensor != nullptr && tensor->shape.size() == 1 && !transpose;
  ASSIGN_OR_RETURN(result.tensor, require(name, std::span(shape).subspan(line ? 1 : 0)));
  RETURN_IF_ERROR(check_type(*result.tensor));
  result.view = {result.tensor->type, rows, cols, result.tensor->bytes};
  if (transpose || (projection && config_.rounding.ternary_weights))
    read_ahead({result.tensor->bytes});
  if (transpose) {
    std::vector<float> line(static_cast<size_t>(rows));
    result.storage.resize(static_cast<size_t>(rows) * cols * sizeof(float));
    float* out = reinterpret_cast<float*>(result.storage.data());
    const size_t stride = quant_bytes(result.tensor->type, rows);
    for (int c = 0; c < cols; ++c) {
      dequantize_row(result.tensor->type, result.tensor->bytes.data() + c * stride, line.data(),
                     rows);
      for (int r = 0; r < rows; ++r) out[static_cast<size_t>(r) * cols + c] = line[r];
    }
    result.view = {QuantType::kF32, rows, cols, result.storage};
  }
  if (projection && config_.rounding.ternary_weights)
    RETURN_IF_ERROR(make_ternary(source_.path().string(), result));
  return result;
}

// Finds a layer in another quantizer's form; false: it is stored plainly.
Result<bool> TensorLoader::find_prequantized(const std::string& stem, int rows, int cols,
                                             FileMatrix& out) {
  ASSIGN_OR_RETURN(out.grouped, prequantized_->find_linear(stem));
  if (!out.grouped) return false;
  if (out.grouped->rows != rows || out.grouped->cols != cols) {
    return errorf(ErrorCode::kCorruptFile, "{}: layer {}: expected shape [{}, {}], got [{}, {}]",
                  source_.path().string(), stem, rows, cols, out.grouped->rows, out.grouped->cols);
  }
  for (const TensorInfo& tensor : source_.tensors()) {
    const bool part =
        tensor.name.starts_with(stem) && tensor.name.substr(stem.size()).starts_with(".");
    if (!part) continue;
    used_.insert(tensor.name);
    if (tensor.bytes.data() == out.grouped->packed.data()) out.tensor = &tensor;
  }
  return true;
}

// Unpacks 2-bit codes, of which 0 means -1, with one scale.
Status TensorLoader::unpack_ternary(const std::string& stem, int rows, int cols, FileMatrix& out) {
  const int64_t shape[] = {(rows + 3) / 4, cols};
  ASSIGN_OR_RETURN(out.tensor, require(stem + ".weight", shape));
  ASSIGN_OR_RETURN(const std::vector<float> stored, vector(stem + ".weight_scale", 1));
  const float scale = config_.rounding.divide_scale ? 1.0f / stored[0] : stored[0];
  read_ahead({out.tensor->bytes});
  if (!(std::abs(scale) <= 1e30f)) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: tensor {}.weight_scale: expected a positive number, got {}",
                  source_.path().string(), stem, stored[0]);
  }
  unpack_codes(rows, cols, scale, out);
  return {};
}

Result<std::unique_ptr<Weight>> TensorLoader::pack(const QuantizedMatrix& view,
                                                   const std::string& name) {
  if (view.bytes.size() >= view.size_bytes())
    read_ahead({view.bytes.first(std::min(view.row_bytes(), view.bytes.size())), view.stride(),
                static_cast<size_t>(view.rows)});
  auto packed = ops_->pack(view);
  if (!packed) {
    return errorf(packed.error().code, "{}: tensor {}: {}", source_.path().string(), name,
                  packed.error().message);
  }
  return packed;
}

Result<std::unique_ptr<Weight>> TensorLoader::pack_rows(const FileMatrix& matrix, int first,
                                                        int count, const std::string& name,
                                                        int lead) {
  if (restores()) return restore(name, first, count, matrix.view.cols);
  ASSIGN_OR_RETURN(auto packed, pack_part(matrix, first, count, name));
  keep(name, first, *packed, lead);
  return packed;
}

Result<std::unique_ptr<Weight>> TensorLoader::pack_part(const FileMatrix& matrix, int first,
                                                        int count, const std::string& name) {
  if (!matrix.grouped) {
    // Takes a part only of a complete matrix; pack() reports incomplete ones.
    const bool part =
        count < matrix.view.rows && matrix.view.bytes.size() >= matrix.view.size_bytes();
    return pack(part ? matrix.view.row_range(first, count) : matrix.view, name);
  }
  if (matrix.storage.empty()) read_ahead(matrix.grouped->lines_of_rows(first, count));
  auto packed = ops_->pack_grouped(*matrix.grouped, first, count);
  if (!packed) {
    return errorf(packed.error().code, "{}: layer {}: {}", source_.path().string(), name,
                  packed.error().message);
  }
  return packed;
}

Result<std::unique_ptr<Weight>> TensorLoader::transposed_rows(const FileMatrix& from, int first,
                                                              int count, const std::string& name) {
  const int cols = from.view.cols > 0 ? from.view.cols : from.grouped->cols;
  if (restores()) return restore(name, first, cols, count);
  std::vector<float> values(static_cast<size_t>(count) * static_cast<size_t>(cols));
  if (from.grouped) {
    from.grouped->dequantize(first, count, values.data());
  } else {
    const QuantizedMatrix part = from.view.row_range(first, count);
    dequantize_row(part.type, part.bytes.data(), values.data(),
                   static_cast<int64_t>(values.size()));
  }
  std::vector<float> turned(values.size());
  for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
    for (size_t c = 0; c < static_cast<size_t>(cols); ++c)
      turned[c * static_cast<size_t>(count) + r] = values[r * static_cast<size_t>(cols) + c];
  }
  const QuantizedMatrix view{QuantType::kF32, cols, count, std::as_bytes(std::span(turned))};
  ASSIGN_OR_RETURN(auto packed, pack(view, name));
  keep(name, first, *packed);
  return packed;
}

Result<std::unique_ptr<Weight>> TensorLoader::restore(const std::string& name, int first, int rows,
                                                      int cols) {
  const PackedPart* part = packed_->from->find(stored_name(name, first));
  if (part == nullptr)
    return errorf(ErrorCode::kCorruptFile, "packed weights: {} is missing", name);
  ASSIGN_OR_RETURN(auto weight,
                   ops_->restore({std::string(part->description), part->bytes}, packed_->from));
  if (weight->rows() != rows || weight->cols() != cols) {
    return errorf(ErrorCode::kCorruptFile, "packed weights: {}: expected {} x {}, got {} x {}",
                  name, rows, cols, weight->rows(), weight->cols());
  }
  return weight;
}

Result<std::unique_ptr<Weight>> TensorLoader::restore_columns(const std::string& name, int first,
                                                              int rows, Range columns, int& lead) {
  const std::string stored = stored_name(name, first);
  const auto found = with_lead_.find(stored);
  const PackedPart* part =
      found != with_lead_.end() ? found->second.part : packed_->from->find(stored);
  lead = found != with_lead_.end() ? found->second.lead : 0;
  if (part == nullptr)
    return errorf(ErrorCode::kCorruptFile, "packed weights: {} is missing", name);
  ASSIGN_OR_RETURN(auto weight,
                   ops_->restore({std::string(part->description), part->bytes}, packed_->from));
  if (weight->rows() != rows || lead < 0 || weight->cols() - columns.count < lead) {
    return errorf(ErrorCode::kCorruptFile,
                  "packed weights: {}: expected {} x {} behind {}, got {} x {}", name, rows,
                  columns.count, lead, weight->rows(), weight->cols());
  }
  return weight;
}

// Divides rows by their lengths, in numbers of the same type.
Status TensorLoader::make_unit_rows(const std::string& stem, FileMatrix& m) {
  constexpr float kLeastLength = 1e-12f;  // as torch's normalize()
  const QuantType type = m.view.type;
  if (m.grouped || (type != QuantType::kF32 && type != QuantType::kF16 && type != QuantType::kBF16))
    return errorf(ErrorCode::kUnsupported,
                  "{}: tensor {}.weight: expected plain numbers, since its rows are divided by "
                  "their lengths",
                  source_.path().string(), stem);
  const auto cols = static_cast<int64_t>(m.view.cols);
  const size_t line = quant_bytes(type, cols);
  m.storage.assign(m.view.bytes.begin(), m.view.bytes.end());
  std::vector<float> row(static_cast<size_t>(cols));
  for (int r = 0; r < m.view.rows; ++r) {
    std::byte* const at = m.storage.data() + static_cast<size_t>(r) * line;
    dequantize_row(type, at, row.data(), cols);
    double square = 0;
    for (const float value : row) square += static_cast<double>(value) * value;
    const float length = std::max(static_cast<float>(std::sqrt(square)), kLeastLength);
    for (float& value : row) value /= length;
    quantize_row(type, row.data(), at, cols);
  }
  m.view.bytes = m.storage;
  return {};
}

Result<std::unique_ptr<Weight>> TensorLoader::weight_rows(const std::string& stem, int rows,
                                                          int cols, Range part, WeightUse use) {
  ASSIGN_OR_RETURN(FileMatrix m, matrix(stem, rows, cols, use));
  if (use == WeightUse::kOutput && config_.output.unit_rows && !restores())
    RETURN_IF_ERROR(make_unit_rows(stem, m));
  ASSIGN_OR_RETURN(auto packed, pack_rows(m, part.first, part.count, stem + ".weight"));
  if (m.tensor != nullptr) done(*m.tensor);
  return packed;
}

Status TensorLoader::linear_rows(const std::string& stem, int rows, int cols, Range part,
                                 LinearWeights& out) {
  LinearWeights* const one[] = {&out};
  return fused(stem, {&rows, 1}, cols, one, {}, {&part, 1});
}

// Only one rank adds the bias to the partial sum.
Status TensorLoader::linear_columns(const std::string& stem, int rows, int cols, Range part,
                                    LinearWeights& out, std::span<const int> order) {
  if (part.count == cols && order.empty()) return linear(stem, rows, cols, out);
  ASSIGN_OR_RETURN(FileMatrix m, matrix(stem, rows, cols, WeightUse::kProjection));
  if (!order.empty()) order_columns(order, m);
  ASSIGN_OR_RETURN(const std::vector<float> bias, optional_vector(stem + ".bias", rows));
  if (restores()) {
    ASSIGN_OR_RETURN(out.weight, restore_columns(stem + ".weight", 0, rows, part, out.lead));
  } else {
    ASSIGN_OR_RETURN(out.lead, narrow(stem, part, m));
    ASSIGN_OR_RETURN(out.weight, pack_rows(m, 0, rows, stem + ".weight", out.lead));
  }
  out.partial = part.count < cols;
  padding_ = std::max(padding_, out.weight->cols() - part.count);
  if (order.empty()) add_site(stem, rows, {0, rows}, cols, {}, out, part.first - out.lead);
  if (m.tensor != nullptr) done(*m.tensor);
  if (bias.empty() || (out.partial && cuts_.shard().rank > 0)) return {};
  ASSIGN_OR_RETURN(out.bias, ops_->pack_vector(bias));
  return {};
}

Status TensorLoader::bare_linear(const std::string& name, int rows, int cols, Range part,
                                 LinearWeights& out) {
  FileMatrix m;
  m.view = {QuantType::kF32, rows, cols, {}};
  if (!restores()) {  // else pack_rows() needs only this
    const int64_t shape[] = {rows, cols};
    ASSIGN_OR_RETURN(m.tensor, require(name, shape));
    RETURN_IF_ERROR(check_type(*m.tensor));
    m.view = {m.tensor->type, rows, cols, m.tensor->bytes};
  }
  ASSIGN_OR_RETURN(out.weight, pack_rows(m, part.first, part.count, name));
  if (m.tensor != nullptr) done(*m.tensor);
  return {};
}

// Reduces the matrix to the columns of the encoding blocks that contain `part`. Returns the number
// of columns before `part`.
Result<int> TensorLoader::narrow(const std::string& name, Range part, FileMatrix& m) {
  const int cols = m.grouped ? m.grouped->cols : m.view.cols;
  // pack() reports the error
  if (!m.grouped && m.view.bytes.size() < m.view.size_bytes()) return 0;
  if (m.grouped && !m.grouped->input_order.empty()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: layer {}: its groups lie in act-order, over all inputs, and are not cut for "
                  "tensor_parallel_size; pipeline_parallel_size cuts no matrix",
                  source_.path().string(), name);
  }
  const int group = m.grouped ? m.grouped->group_size : quant_info(m.view.type).block_size;
  const int block = group == cols && m.grouped ? 1 : group;
  const int first = part.first / block * block;
  const int end = std::min(cols, (part.first + part.count + block - 1) / block * block);
  if (m.grouped) {
    read_ahead(m.grouped->lines_of_inputs(first, end - first));
    m.grouped = m.grouped->columns(first, end - first, m.storage);
  } else {
    m.view = m.view.column_range(first, end - first);
  }
  return part.first - first;
}

// Packs several matrices from one tensor that holds their rows consecutively, or in `order`.
Status TensorLoader::fused(const std::string& stem, std::span<const int> rows, int cols,
                           std::span<LinearWeights* const> out, std::span<const int> order,
                           std::span<const Range> parts) {
  int total = 0;
  for (const int count : rows) total += count;
  ASSIGN_OR_RETURN(FileMatrix m, matrix(stem, total, cols, WeightUse::kProjection));
  ASSIGN_OR_RETURN(std::vector<float> bias, optional_vector(stem + ".bias", total));
  if (!order.empty()) {
    RETURN_IF_ERROR(order_rows(stem, order, m));
    const std::vector<float> stored = bias;
    for (size_t r = 0; r < bias.size(); ++r) bias[r] = stored[static_cast<size_t>(order[r])];
  }
  int first = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Range part = parts.empty() ? Range{0, rows[i]} : parts[i];
    ASSIGN_OR_RETURN(out[i]->weight,
                     pack_rows(m, first + part.first, part.count, stem + ".weight"));
    if (!bias.empty()) {
      const auto own = std::span(bias).subspan(static_cast<size_t>(first + part.first),
                                               static_cast<size_t>(part.count));
      ASSIGN_OR_RETURN(out[i]->bias, ops_->pack_vector(own));
    }
    add_site(stem, total, {first + part.first, part.count}, cols, order, *out[i]);
    first += rows[i];
  }
  if (m.tensor != nullptr) done(*m.tensor);
  return {};
}

void TensorLoader::add_site(const std::string& stem, int matrix_rows, Range rows, int cols,
                            std::span<const int> order, LinearWeights& out, int first_col) {
  if (!keeps_sites_) return;
  LinearSite& site = sites_.emplace_back();
  site.name = stem + ".weight";
  site.matrix_rows = matrix_rows, site.first_row = rows.first, site.n_rows = rows.count,
  site.cols = cols;
  site.first_col = first_col, site.n_cols = out.weight->cols();
  if (!order.empty()) {
    const auto part =
        order.subspan(static_cast<size_t>(rows.first), static_cast<size_t>(rows.count));
    site.rows.assign(part.begin(), part.end());
  }
  site.wide = out.weight->packed_bytes() >= int64_t{4} * rows.count * site.n_cols;
  site.terms = std::make_unique<AdapterTerms[]>(1);
  out.adapters = site.terms.get();
}

}  // namespace penstock
