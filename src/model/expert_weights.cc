// Weights of experts, in every form that files hold them in.
#include <bit>

#include "model/names.h"
#include "model/weight_loader.h"

namespace penstock {

Status ExpertLoader::experts(const std::string& pattern, int rows, int cols, ExpertWeights& out) {
  RETURN_IF_ERROR(many_weights(pattern, config_.n_experts, rows, cols, out.weights));
  return expert_biases(pattern + ".bias", rows, out.biases);
}

// One tensor for each expert or head, or one [count, rows, cols] for all.
Status ExpertLoader::many_weights(const std::string& pattern, int count, int rows, int cols,
                                  std::vector<std::unique_ptr<Weight>>& out) {
  out.resize(static_cast<size_t>(count));
  if (pattern.find("{}") != std::string::npos) {
    for (int e = 0; e < count; ++e) {
      ASSIGN_OR_RETURN(out[e], weight(with_index(pattern, e), rows, cols, WeightUse::kOutput));
    }
    return {};
  }
  for (int e = 0; restores() && e < count; ++e) {
    ASSIGN_OR_RETURN(out[e], restore(pattern + ".weight", e * rows, rows, cols));
  }
  if (restores()) return {};
  if (prequantized_ != nullptr) {
    FileMatrix all;
    ASSIGN_OR_RETURN(const bool found, find_prequantized(pattern, count * rows, cols, all));
    for (int e = 0; found && e < count; ++e) {
      ASSIGN_OR_RETURN(out[e], pack_rows(all, e * rows, rows, pattern + ".weight"));
    }
    if (found && all.tensor != nullptr) done(*all.tensor);
    if (found) return {};
  }
  const int64_t shape[] = {count, rows, cols};
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(pattern + ".weight", shape));
  RETURN_IF_ERROR(check_type(*tensor));
  const size_t size = tensor->bytes.size() / static_cast<size_t>(count);
  for (int e = 0; e < count; ++e) {
    const QuantizedMatrix view{tensor->type, rows, cols, tensor->bytes.subspan(e * size, size)};
    ASSIGN_OR_RETURN(out[e], pack(view, tensor->name));
    keep(tensor->name, e * rows, *out[e]);
  }
  done(*tensor);
  return {};
}

// [n_experts, rows] or nothing.
Status ExpertLoader::expert_biases(const std::string& name, int rows,
                                   std::vector<std::unique_ptr<Vector>>& out) {
  if (name.find("{}") != std::string::npos || find(name) == nullptr) return {};
  const int64_t shape[] = {config_.n_experts, rows};
  ASSIGN_OR_RETURN(const std::vector<float> values, vector(name, shape));
  for (int e = 0; e < config_.n_experts; ++e) {
    const auto part = std::span(values).subspan(static_cast<size_t>(e) * rows, static_cast<size_t>(rows));
    ASSIGN_OR_RETURN(out.emplace_back(), ops_.pack_vector(part));
  }
  return {};
}

namespace {

// Rows first, first + step, ... of what a tensor holds of an expert.
struct ExpertRows {
  int first, step;
};

QuantizedMatrix gathered(const TensorInfo& tensor, bool transposed, int expert, const ExpertRows& part,
                         int rows, int cols, std::vector<std::byte>& storage) {
  const int64_t all = tensor.shape[1] * tensor.shape[2], width = tensor.shape[2];
  if (!transposed && part.step == 1) {
    const auto bytes = tensor.bytes.subspan(quant_bytes(tensor.type, all) * static_cast<size_t>(expert) +
                                            quant_bytes(tensor.type, part.first * width));
    return {tensor.type, rows, cols, bytes.first(quant_bytes(tensor.type, rows * width))};
  }
  std::vector<float> stored(static_cast<size_t>(all));
  dequantize_row(tensor.type,
                 tensor.bytes.data() + quant_bytes(tensor.type, all) * static_cast<size_t>(expert),
                 stored.data(), all);
  storage.resize(static_cast<size_t>(rows) * cols * sizeof(float));
  float* out = reinterpret_cast<float*>(storage.data());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = part.first + r * part.step;
    for (int64_t c = 0; c < cols; ++c)
      out[r * cols + c] = stored[static_cast<size_t>(transposed ? c * width + row : row * width + c)];
  }
  return {QuantType::kF32, rows, cols, storage};
}

// MXFP4 as published: codes of neighbouring inputs in one byte, scales beside. Here a block has its scale first, and
// codes i and i + 16 in one byte.
QuantizedMatrix gathered_mxfp4(const TensorInfo& blocks, const TensorInfo& scales, int expert,
                               const ExpertRows& part, int rows, int cols, std::vector<std::byte>& storage) {
  constexpr int kCodes = 16;
  const int groups = cols / 32;
  storage.clear();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = expert * blocks.shape[1] + part.first + r * part.step;
    for (int64_t g = row * groups; g < (row + 1) * groups; ++g) {
      storage.push_back(scales.bytes[static_cast<size_t>(g)]);
      const std::byte* pairs = blocks.bytes.data() + g * kCodes;
      const auto code = [&](int i) { return pairs[i / 2] >> (i % 2 * 4) & std::byte{15}; };
      for (int i = 0; i < kCodes; ++i) storage.push_back(code(i) | code(i + kCodes) << 4);
    }
  }
  return {QuantType::kMXFP4, rows, cols, storage};
}

}  // namespace

// One matrix of every expert from a tensor that holds total_rows rows of each.
Status ExpertLoader::fused_experts(const std::string& name, int total_rows, int first, int step, int rows,
                                   int cols, std::vector<std::unique_ptr<Weight>>& out) {
  const std::string part = fmt::format("{}/{}", name, first);
  const ExpertRows which{first, step};
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
  std::vector<std::byte> storage;
  for (int e = 0; e < config_.n_experts; ++e) {
    if (restores()) {
      ASSIGN_OR_RETURN(out.emplace_back(), restore(part, e * rows, rows, cols));
      continue;
    }
    const QuantizedMatrix view =
        blocks != nullptr ? gathered_mxfp4(*blocks, *scales, e, which, rows, cols, storage)
                          : gathered(*plain, names_.experts_transposed, e, which, rows, cols, storage);
    ASSIGN_OR_RETURN(out.emplace_back(), pack(view, name));
    keep(part, e * rows, *out.back());
  }
  if (first == 0 && !restores()) done(plain != nullptr ? *plain : *blocks);
  return {};
}

// Gate and up in one tensor, and their biases likewise.
Status ExpertLoader::load_fused_experts(const std::string& at, LayerWeights& layer) {
  const std::string gate_up = at + std::string(names_.expert_gate_up),
                    down = at + std::string(names_.expert_down) +
                           (source_.naming() == Naming::kGguf ? ".weight" : "");
  const int dim = config_.model_dim, ffn = config_.expert_ffn_dim;
  const int step = names_.experts_interleaved ? 2 : 1, up = names_.experts_interleaved ? 1 : ffn;
  RETURN_IF_ERROR(fused_experts(gate_up, 2 * ffn, up, step, ffn, dim, layer.expert_up.weights));
  RETURN_IF_ERROR(fused_experts(gate_up, 2 * ffn, 0, step, ffn, dim, layer.expert_gate.weights));
  RETURN_IF_ERROR(fused_experts(down, dim, 0, 1, dim, ffn, layer.expert_down.weights));
  if (!names_.fused_expert_biases) return {};
  const int64_t narrow[] = {config_.n_experts, dim};
  ASSIGN_OR_RETURN(const std::vector<float> downs, vector(down + "_bias", narrow));
  const int64_t shape[] = {config_.n_experts, 2 * ffn};
  ASSIGN_OR_RETURN(const std::vector<float> both, vector(gate_up + "_bias", shape));
  for (int e = 0; e < config_.n_experts; ++e) {
    std::vector<float> gates, ups;
    for (int r = 0; r < ffn; ++r) {
      gates.push_back(both[static_cast<size_t>(e) * 2 * ffn + static_cast<size_t>(r * step)]);
      ups.push_back(both[static_cast<size_t>(e) * 2 * ffn + static_cast<size_t>(up + r * step)]);
    }
    const auto down_bias = std::span(downs).subspan(static_cast<size_t>(e) * dim, static_cast<size_t>(dim));
    ASSIGN_OR_RETURN(layer.expert_down.biases.emplace_back(), ops_.pack_vector(down_bias));
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

Status ExpertLoader::load_experts(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.expert_dim(), ffn = config_.expert_ffn_dim;
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
    if (config_.gated_ffn) RETURN_IF_ERROR(experts(name(gate), ffn, dim, layer.expert_gate));
    RETURN_IF_ERROR(experts(name(up), ffn, dim, layer.expert_up));
    RETURN_IF_ERROR(experts(name(down), dim, ffn, layer.expert_down));
  }
  return config_.shared_ffn_dim > 0 ? load_shared_experts(at, layer) : Status();
}

Status ExpertLoader::load_shared_experts(const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim, ffn = config_.shared_ffn_dim;
  if (names_.shared_gate_up.empty()) {
    if (config_.gated_ffn) RETURN_IF_ERROR(linear(name(names_.shared_gate), ffn, dim, layer.shared_gate));
    RETURN_IF_ERROR(linear(name(names_.shared_up), ffn, dim, layer.shared_up));
  } else {
    const int rows[] = {ffn, ffn};
    LinearWeights* const parts[] = {&layer.shared_gate, &layer.shared_up};
    RETURN_IF_ERROR(fused(name(names_.shared_gate_up), rows, dim, parts));
  }
  RETURN_IF_ERROR(linear(name(names_.shared_down), dim, ffn, layer.shared_down));
  if (!config_.shared_expert_gate) return {};
  return linear(name(names_.shared_router), 1, dim, layer.shared_router);
}

}  // namespace penstock
