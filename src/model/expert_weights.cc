// Weights of experts, in every form that files hold them in.
#include <bit>

#include "model/names.h"
#include "model/weight_loader.h"

namespace penstock {

Status ExpertLoader::expert_ups(const std::string& pattern, ExpertWeights& out) {
  const int rows = config_.expert_ffn_dim, cols = config_.expert_dim();
  Part part{.rows = cuts_.expert_ffn(), .columns = {0, cols}, .experts = true};
  RETURN_IF_ERROR(many_weights(pattern, config_.n_experts, rows, cols, part, out.weights));
  out.mapped = maps_experts();
  return expert_biases(pattern + ".bias", rows, part.rows, out.biases);
}

// Biases belong to the sum, once.
Status ExpertLoader::expert_downs(const std::string& pattern, ExpertWeights& out) {
  const int rows = config_.expert_dim(), cols = config_.expert_ffn_dim;
  Part part{.rows = {0, rows}, .columns = cuts_.expert_ffn(), .experts = true};
  RETURN_IF_ERROR(many_weights(pattern, config_.n_experts, rows, cols, part, out.weights));
  out.mapped = maps_experts();
  out.partial = part.columns.count < cols, out.lead = part.lead;
  RETURN_IF_ERROR(expert_biases(pattern + ".bias", rows, part.rows, out.biases));
  if (out.partial && cuts_.shard().rank > 0) out.biases.clear();
  return {};
}

// One tensor for each expert or head, or one [count, rows, cols] for all.
Status ExpertLoader::many_weights(const std::string& pattern, int count, int rows, int cols,
                                  std::vector<std::unique_ptr<Weight>>& out) {
  Part all{.rows = {0, rows}, .columns = {0, cols}};
  return many_weights(pattern, count, rows, cols, all, out);
}

Status ExpertLoader::many_weights(const std::string& pattern, int count, int rows, int cols, Part& part,
                                  std::vector<std::unique_ptr<Weight>>& out) {
  out.resize(static_cast<size_t>(count));
  const auto narrowed = [&](const std::string& name, FileMatrix& m) -> Status {
    if (part.columns.count == cols) return {};
    ASSIGN_OR_RETURN(part.lead, narrow(name, part.columns, m));
    return {};
  };
  if (pattern.find("{}") != std::string::npos) {
    for (int e = 0; e < count; ++e) {
      const std::string stem = with_index(pattern, e);
      if (restores()) {
        ASSIGN_OR_RETURN(out[e], restore_part(stem + ".weight", part.rows.first, cols, part));
        continue;
      }
      ASSIGN_OR_RETURN(FileMatrix one, matrix(stem, rows, cols, WeightUse::kOutput));
      RETURN_IF_ERROR(narrowed(stem, one));
      const std::string name = stem + ".weight";
      ASSIGN_OR_RETURN(auto packed, pack_part(one, part.rows.first, part.rows.count, name));
      ASSIGN_OR_RETURN(out[e], placed(std::move(packed), part, name, part.rows.first));
      if (one.tensor != nullptr) done(*one.tensor);
    }
    return {};
  }
  for (int e = 0; restores() && e < count; ++e) {
    ASSIGN_OR_RETURN(out[e], restore_part(pattern + ".weight", e * rows + part.rows.first, cols, part));
  }
  if (restores()) return {};
  if (prequantized_ != nullptr) {
    FileMatrix all;
    ASSIGN_OR_RETURN(const bool found, find_prequantized(pattern, count * rows, cols, all));
    if (found) RETURN_IF_ERROR(narrowed(pattern, all));
    for (int e = 0; found && e < count; ++e) {
      const int first = e * rows + part.rows.first;
      ASSIGN_OR_RETURN(auto packed, pack_part(all, first, part.rows.count, pattern + ".weight"));
      ASSIGN_OR_RETURN(out[e], placed(std::move(packed), part, pattern + ".weight", first));
    }
    if (found && all.tensor != nullptr) done(*all.tensor);
    if (found) return {};
  }
  const int64_t shape[] = {count, rows, cols};
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(pattern + ".weight", shape));
  RETURN_IF_ERROR(check_type(*tensor));
  const size_t size = tensor->bytes.size() / static_cast<size_t>(count);
  for (int e = 0; e < count; ++e) {
    FileMatrix one;
    one.view = {tensor->type, rows, cols, tensor->bytes.subspan(e * size, size)};
    RETURN_IF_ERROR(narrowed(tensor->name, one));
    ASSIGN_OR_RETURN(auto packed, pack(one.view.row_range(part.rows.first, part.rows.count), tensor->name));
    ASSIGN_OR_RETURN(out[e], placed(std::move(packed), part, tensor->name, e * rows + part.rows.first));
  }
  done(*tensor);
  return {};
}

Result<std::unique_ptr<Weight>> ExpertLoader::placed(std::unique_ptr<Weight> weight, const Part& part,
                                                     const std::string& name, int first) {
  if (part.experts && maps_experts() && packed_->experts != nullptr) {
    ASSIGN_OR_RETURN(weight, packed_->experts->move(std::move(weight), ops_));
  }
  keep(name, first, *weight, part.lead);
  return weight;
}

// [n_experts, rows] or nothing.
Status ExpertLoader::expert_biases(const std::string& name, int rows, Range part,
                                   std::vector<std::unique_ptr<Vector>>& out) {
  if (name.find("{}") != std::string::npos || find(name) == nullptr) return {};
  const int64_t shape[] = {config_.n_experts, rows};
  ASSIGN_OR_RETURN(const std::vector<float> values, vector(name, shape));
  for (int e = 0; e < config_.n_experts; ++e) {
    const auto own = std::span(values).subspan(static_cast<size_t>(e) * rows + part.first,
                                               static_cast<size_t>(part.count));
    ASSIGN_OR_RETURN(out.emplace_back(), ops_.pack_vector(own));
  }
  return {};
}

namespace {

// Rows first, first + step, ... of what a tensor holds of an expert, and inputs of each.
struct ExpertPart {
  int first, step, rows;
  int first_input, inputs;
};

// The bytes of one expert; where a file has rows of it second, or (transposed) inputs, so many bytes for each.
struct ExpertBytes {
  ExpertBytes(const TensorInfo& tensor, int expert)
      : bytes(tensor.bytes.subspan(
            tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]) * static_cast<size_t>(expert),
            tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]))),
        line(bytes.size() / static_cast<size_t>(tensor.shape[1])) {}
  std::span<const std::byte> bytes;
  size_t line;
};

// Where they lie: lines of inputs, from the block that holds the first row on.
ByteLines transposed_lines(const TensorInfo& tensor, int expert, const ExpertPart& part) {
  const ExpertBytes own(tensor, expert);
  if (part.rows == 0 || part.inputs == 0) return {};
  const int block = quant_info(tensor.type).block_size;
  const int first = part.first / block * block, end = part.first + (part.rows - 1) * part.step + 1;
  return {
      own.bytes.subspan(static_cast<size_t>(part.first_input) * own.line + quant_bytes(tensor.type, first),
                        quant_bytes(tensor.type, (end - first + block - 1) / block * block)),
      own.line, static_cast<size_t>(part.inputs)};
}

QuantizedMatrix transposed(const TensorInfo& tensor, int expert, const ExpertPart& part,
                           std::vector<std::byte>& storage) {
  const ByteLines lines = transposed_lines(tensor, expert, part);
  const int block = quant_info(tensor.type).block_size;
  std::vector<float> line(lines.first.size() / quant_bytes(tensor.type, block) * static_cast<size_t>(block));
  storage.resize(static_cast<size_t>(part.rows) * static_cast<size_t>(part.inputs) * sizeof(float));
  float* const out = reinterpret_cast<float*>(storage.data());
  for (int64_t c = 0; c < part.inputs && !line.empty(); ++c) {
    dequantize_row(tensor.type, lines.first.data() + static_cast<size_t>(c) * lines.stride, line.data(),
                   static_cast<int64_t>(line.size()));
    for (int64_t r = 0; r < part.rows; ++r)
      out[r * part.inputs + c] = line[static_cast<size_t>(part.first % block + r * part.step)];
  }
  return {QuantType::kF32, part.rows, part.inputs, storage};
}

// MXFP4 as published: codes of neighbouring inputs in one byte, scales beside. Here a block has its scale first, and
// codes i and i + 16 in one byte.
constexpr int kMxfp4Inputs = 32;

// Rows of a tensor that has so many bytes for each block.
ByteLines mxfp4_lines(const TensorInfo& tensor, int expert, const ExpertPart& part) {
  const ExpertBytes own(tensor, expert);
  if (part.rows == 0 || part.inputs == 0) return {};
  const size_t block = own.line / static_cast<size_t>(tensor.shape[2]);
  return {own.bytes.subspan(static_cast<size_t>(part.first) * own.line +
                                static_cast<size_t>(part.first_input / kMxfp4Inputs) * block,
                            static_cast<size_t>(part.inputs / kMxfp4Inputs) * block),
          own.line * static_cast<size_t>(part.step), static_cast<size_t>(part.rows)};
}

QuantizedMatrix gathered_mxfp4(const TensorInfo& blocks, const TensorInfo& scales, int expert,
                               const ExpertPart& part, std::vector<std::byte>& storage) {
  constexpr size_t kCodes = kMxfp4Inputs / 2;
  const ByteLines codes = mxfp4_lines(blocks, expert, part), factors = mxfp4_lines(scales, expert, part);
  storage.clear();
  for (size_t r = 0; r < codes.count && !codes.first.empty(); ++r) {
    for (size_t g = 0; g < factors.first.size(); ++g) {
      storage.push_back(factors.first.data()[r * factors.stride + g]);
      const std::byte* pairs = codes.first.data() + r * codes.stride + g * kCodes;
      const auto code = [&](size_t i) { return pairs[i / 2] >> (i % 2 * 4) & std::byte{15}; };
      for (size_t i = 0; i < kCodes; ++i) storage.push_back(code(i) | code(i + kCodes) << 4);
    }
  }
  return {QuantType::kMXFP4, part.rows, part.inputs, storage};
}

// Rows that follow one another, with all inputs.
QuantizedMatrix expert_rows(const TensorInfo& tensor, int expert, const ExpertPart& part) {
  const ExpertBytes own(tensor, expert);
  const QuantizedMatrix all{tensor.type, static_cast<int>(tensor.shape[1]), part.inputs, own.bytes};
  return all.row_range(part.first, part.rows);
}

}  // namespace

// One matrix of every expert from a tensor that holds total_rows rows of each.
Status ExpertLoader::fused_experts(const std::string& name, const FusedRows& lie, int rows, int cols,
                                   Part& part, std::vector<std::unique_ptr<Weight>>& out) {
  const std::string stored = fmt::format("{}/{}", name, lie.first);
  const int total_rows = lie.total;
  const TensorInfo *plain = nullptr, *blocks = nullptr, *scales = nullptr;
  if (!restores() && find(name + "_blocks") != nullptr) {
    const int64_t shape[] = {config_.n_experts, total_rows, cols / 32, 16};
    ASSIGN_OR_RETURN(blocks, require(name + "_blocks", shape));
    ASSIGN_OR_RETURN(scales, require(name + "_scales", std::span(shape).first(3)));
    for (const TensorInfo* tensor : {blocks, scales}) {
      if (tensor->type != QuantType::kU8 || cols % 32 != 0)
        return errorf(ErrorCode::kCorruptFile,
                      "{}: tensor {}: expected bytes, for a multiple of 32 inputs, got {}",
                      source_.path().string(), tensor->name, quant_info(tensor->type).name);
    }
  } else if (!restores()) {
    const bool turned = names_.experts_transposed;
    const int64_t shape[] = {config_.n_experts, turned ? cols : total_rows, turned ? total_rows : cols};
    ASSIGN_OR_RETURN(plain, require(name, shape));
    RETURN_IF_ERROR(check_type(*plain));
  }
  // Rows that lie apart are gathered, of the inputs that this rank has; of others the inputs are cut behind.
  const bool gathers = blocks != nullptr || names_.experts_transposed;
  const int unit = blocks != nullptr ? kMxfp4Inputs : 1;
  const Range columns = gathers ? part.columns : Range{0, cols};
  const int first_input = columns.first / unit * unit,
            end_input = (columns.first + columns.count + unit - 1) / unit * unit;
  const ExpertPart own{lie.first + part.rows.first * lie.step, lie.step, part.rows.count, first_input,
                       std::min(end_input, cols) - first_input};
  if (!restores()) part.lead = columns.first - first_input;
  std::vector<std::byte> storage;
  for (int e = 0; e < config_.n_experts; ++e) {
    if (restores()) {
      ASSIGN_OR_RETURN(out.emplace_back(), restore_part(stored, e * rows, cols, part));
      continue;
    }
    FileMatrix one;
    if (blocks != nullptr) {
      read_ahead(mxfp4_lines(*blocks, e, own));
      read_ahead(mxfp4_lines(*scales, e, own));
      one.view = gathered_mxfp4(*blocks, *scales, e, own, storage);
    } else if (names_.experts_transposed) {
      read_ahead(transposed_lines(*plain, e, own));
      one.view = transposed(*plain, e, own, storage);
    } else {
      one.view = expert_rows(*plain, e, own);
      if (part.columns.count < cols) {
        ASSIGN_OR_RETURN(part.lead, narrow(name, part.columns, one));
      }
    }
    ASSIGN_OR_RETURN(auto packed, pack(one.view, name));
    ASSIGN_OR_RETURN(out.emplace_back(), placed(std::move(packed), part, stored, e * rows));
  }
  if (lie.first == 0 && !restores()) done(plain != nullptr ? *plain : *blocks);
  return {};
}

// Gate and up in one tensor, and their biases likewise.
Status ExpertLoader::load_fused_experts(const std::string& at, LayerWeights& layer) {
  const std::string gate_up = at + std::string(names_.expert_gate_up),
                    down = at + std::string(names_.expert_down) +
                           (source_.naming() == Naming::kGguf ? ".weight" : "");
  const int dim = config_.model_dim, ffn = config_.expert_ffn_dim;
  const int step = names_.experts_interleaved ? 2 : 1, up = names_.experts_interleaved ? 1 : ffn;
  Part ups{.rows = cuts_.expert_ffn(), .columns = {0, dim}, .experts = true},
      downs{.rows = {0, dim}, .columns = cuts_.expert_ffn(), .experts = true};
  RETURN_IF_ERROR(fused_experts(gate_up, {2 * ffn, up, step}, ffn, dim, ups, layer.expert_up.weights));
  RETURN_IF_ERROR(fused_experts(gate_up, {2 * ffn, 0, step}, ffn, dim, ups, layer.expert_gate.weights));
  RETURN_IF_ERROR(fused_experts(down, {dim, 0, 1}, dim, ffn, downs, layer.expert_down.weights));
  layer.expert_down.partial = downs.columns.count < ffn, layer.expert_down.lead = downs.lead;
  for (ExpertWeights* own : {&layer.expert_up, &layer.expert_gate, &layer.expert_down})
    own->mapped = maps_experts();
  return names_.fused_expert_biases ? fused_expert_biases(gate_up, down, layer) : Status();
}

Status ExpertLoader::fused_expert_biases(const std::string& gate_up, const std::string& down,
                                         LayerWeights& layer) {
  const int dim = config_.model_dim, ffn = config_.expert_ffn_dim;
  const int step = names_.experts_interleaved ? 2 : 1, up = names_.experts_interleaved ? 1 : ffn;
  const Range own = cuts_.expert_ffn();
  const int64_t narrow[] = {config_.n_experts, dim};
  ASSIGN_OR_RETURN(const std::vector<float> downs, vector(down + "_bias", narrow));
  const int64_t shape[] = {config_.n_experts, 2 * ffn};
  ASSIGN_OR_RETURN(const std::vector<float> both, vector(gate_up + "_bias", shape));
  for (int e = 0; e < config_.n_experts; ++e) {
    std::vector<float> gates, ups;
    for (int r = own.first; r < own.first + own.count; ++r) {
      gates.push_back(both[static_cast<size_t>(e) * 2 * ffn + static_cast<size_t>(r * step)]);
      ups.push_back(both[static_cast<size_t>(e) * 2 * ffn + static_cast<size_t>(up + r * step)]);
    }
    const auto down_bias = std::span(downs).subspan(static_cast<size_t>(e) * dim, static_cast<size_t>(dim));
    if (!layer.expert_down.partial || cuts_.shard().rank == 0) {
      ASSIGN_OR_RETURN(layer.expert_down.biases.emplace_back(), ops_.pack_vector(down_bias));
    }
    ASSIGN_OR_RETURN(layer.expert_gate.biases.emplace_back(), ops_.pack_vector(gates));
    ASSIGN_OR_RETURN(layer.expert_up.biases.emplace_back(), ops_.pack_vector(ups));
  }
  return {};
}

// In GGUF files gate and up may lie in one tensor or in two.
bool ExpertLoader::has_fused_experts(const std::string& at) const {
  if (names_.expert_gate_up.empty()) return false;
  return source_.naming() == Naming::kHuggingFace ||
         source_.WeightSource::find(at + std::string(names_.expert_gate_up)) != nullptr;
}

// What adapters may add to: rows and inputs that this rank has, of every expert the same.
void ExpertLoader::add_site(const std::string& at, ExpertProjection projection, ExpertWeights& out) {
  if (!keeps_sites_ || out.weights.empty()) return;
  const bool down = projection == ExpertProjection::kDown;
  const Range own = cuts_.expert_ffn();
  const Weight& first = *out.weights.front();
  LinearSite& site = sites_.emplace_back();
  site.name = at, site.projection = projection, site.n_experts = config_.n_experts;
  site.matrix_rows = down ? config_.expert_dim() : config_.expert_ffn_dim;
  site.cols = down ? config_.expert_ffn_dim : config_.expert_dim();
  site.first_row = down ? 0 : own.first, site.n_rows = first.rows();
  site.first_col = down ? own.first - out.lead : 0, site.n_cols = first.cols();
  site.wide = first.packed_bytes() >= int64_t{4} * first.rows() * first.cols();
  site.terms = std::make_unique<AdapterTerms[]>(out.weights.size());
  out.adapters = site.all_terms();
}

Status ExpertLoader::load_experts(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.expert_dim();
  RETURN_IF_ERROR(linear(name(names_.router), config_.n_experts, config_.model_dim, layer.router));
  if (config_.expert_latent_dim > 0) {
    RETURN_IF_ERROR(linear(name(names_.experts_in), dim, config_.model_dim, layer.experts_in));
    RETURN_IF_ERROR(linear(name(names_.experts_out), config_.model_dim, dim, layer.experts_out));
  }
  if (config_.expert_selection_bias) {
    const TensorInfo* found = find(name(names_.selection_bias));
    const int64_t row[] = {1, config_.n_experts};  // ERNIE has it as a row
    const bool is_row = found != nullptr && found->shape.size() == 2;
    ASSIGN_OR_RETURN(const std::vector<float> bias,
                     vector(name(names_.selection_bias), std::span(row).subspan(is_row ? 0 : 1)));
    ASSIGN_OR_RETURN(layer.selection_bias, ops_.pack_vector(bias));
  }
  std::string_view gate = names_.expert_gate, up = names_.expert_up, down = names_.expert_down;
  // Older GGUF files have one tensor for each expert.
  if (source_.naming() == Naming::kGguf && !has_matrix(name(down) + ".weight"))
    gate = "ffn_gate.{}", up = "ffn_up.{}", down = "ffn_down.{}";
  if (has_fused_experts(at)) {
    RETURN_IF_ERROR(load_fused_experts(at, layer));
  } else {
    if (config_.gated_ffn) RETURN_IF_ERROR(expert_ups(name(gate), layer.expert_gate));
    RETURN_IF_ERROR(expert_ups(name(up), layer.expert_up));
    RETURN_IF_ERROR(expert_downs(name(down), layer.expert_down));
  }
  add_site(at, ExpertProjection::kGate, layer.expert_gate);
  add_site(at, ExpertProjection::kUp, layer.expert_up);
  add_site(at, ExpertProjection::kDown, layer.expert_down);
  return config_.shared_ffn_dim > 0 ? load_shared_experts(at, layer) : Status();
}

Status ExpertLoader::load_shared_experts(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim, ffn = config_.shared_ffn_dim;
  const Range own = cuts_.shared_ffn();
  if (names_.shared_gate_up.empty()) {
    if (config_.gated_ffn)
      RETURN_IF_ERROR(linear_rows(name(names_.shared_gate), ffn, dim, own, layer.shared_gate));
    RETURN_IF_ERROR(linear_rows(name(names_.shared_up), ffn, dim, own, layer.shared_up));
  } else {
    const int rows[] = {ffn, ffn};
    LinearWeights* const parts[] = {&layer.shared_gate, &layer.shared_up};
    const Range owns[] = {own, own};
    RETURN_IF_ERROR(fused(name(names_.shared_gate_up), rows, dim, parts, {}, owns));
  }
  RETURN_IF_ERROR(linear_columns(name(names_.shared_down), dim, ffn, own, layer.shared_down));
  if (!config_.shared_expert_gate) return {};
  return linear(name(names_.shared_router), 1, dim, layer.shared_router);
}

}  // namespace penstock
