#include "model/medusa_heads.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "model/arch/config_reader.h"

namespace penstock {

namespace {

constexpr int kMaxLayersOfHead = 8, kMaxRanks = 64;

// Returns the matrix in Q8_0 if its rows are whole blocks, else unchanged.
QuantizedMatrix in_8_bits(const QuantizedMatrix& matrix, std::vector<std::byte>& storage) {
  if (matrix.cols % quant_info(QuantType::kQ8_0).block_size != 0) return matrix;
  const size_t row_bytes = quant_bytes(QuantType::kQ8_0, matrix.cols);
  storage.resize(row_bytes * static_cast<size_t>(matrix.rows));
  std::vector<float> row(static_cast<size_t>(matrix.cols));
  for (int r = 0; r < matrix.rows; ++r) {
    dequantize_row(matrix.type, matrix.bytes.data() + r * matrix.row_bytes(), row.data(),
                   matrix.cols);
    quantize_row(QuantType::kQ8_0, row.data(), storage.data() + r * row_bytes, matrix.cols);
  }
  return {QuantType::kQ8_0, matrix.rows, matrix.cols, storage};
}

bool is_real(QuantType type) {
  using enum QuantType;
  return type == kF32 || type == kF16 || type == kBF16;
}

}  // namespace

class MedusaHeads::Loader {
 public:
  Loader(const WeightSource& source, const ModelConfig& target, Ops& ops)
      : source_(source), target_(target), ops_(ops), where_(source.path().string()) {}

  Status load(MedusaHeads& out) {
    ConfigReader reader(source_.config(), Naming::kHuggingFace, "", where_ + ": config.json");
    const int n_heads = reader.integer({"", "medusa_num_heads"}, 1, kMaxMedusaHeads);
    const int n_layers = reader.integer({"", "medusa_num_layers"}, 1, kMaxLayersOfHead, 1);
    const bool shared =
        reader.flag({"", "shared_lm_head"}, source_.find(output_name(0, n_layers)) == nullptr);
    RETURN_IF_ERROR(reader.status());
    for (int k = 0; k < n_heads; ++k) {
      Head& head = out.heads_.emplace_back();
      for (int i = 0; i < n_layers; ++i)
        RETURN_IF_ERROR(load_layer(fmt::format("{}.{}.linear", k, i), head));
      if (shared) continue;
      ASSIGN_OR_RETURN(head.output, matrix(output_name(k, n_layers), target_.vocab_size));
    }
    for (const TensorInfo& tensor : source_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      return errorf(ErrorCode::kCorruptFile,
                    "{}: tensor {}: not expected in {} Medusa heads of {} layers{}", where_,
                    tensor.name, n_heads, n_layers,
                    shared ? " that share the target's output matrix" : "");
    }
    RETURN_IF_ERROR(read_accuracy(n_heads, out.accuracy_));
    out.weight_bytes_ = weight_bytes_;
    return {};
  }

 private:
  static std::string output_name(int head, int n_layers) {
    return fmt::format("{}.{}.weight", head, n_layers);
  }

  Status load_layer(const std::string& stem, Head& head) {
    Layer& layer = head.layers.emplace_back();
    ASSIGN_OR_RETURN(layer.weight, matrix(stem + ".weight", target_.model_dim));
    const int64_t shape[] = {target_.model_dim};
    ASSIGN_OR_RETURN(const TensorInfo* tensor, require(stem + ".bias", shape));
    std::vector<float> bias(static_cast<size_t>(target_.model_dim));
    dequantize_row(tensor->type, tensor->bytes.data(), bias.data(), target_.model_dim);
    ASSIGN_OR_RETURN(layer.bias, ops_.pack_vector(bias));
    weight_bytes_ += target_.model_dim * static_cast<int64_t>(sizeof(float));
    return {};
  }

  Result<std::unique_ptr<Weight>> matrix(const std::string& name, int rows) {
    const int64_t shape[] = {rows, target_.model_dim};
    ASSIGN_OR_RETURN(const TensorInfo* tensor, require(name, shape));
    std::vector<std::byte> storage;
    ASSIGN_OR_RETURN(
        auto weight,
        ops_.pack(in_8_bits({tensor->type, rows, target_.model_dim, tensor->bytes}, storage)));
    weight_bytes_ += weight->packed_bytes();
    source_.drop(*tensor);
    return weight;
  }

  Result<const TensorInfo*> require(const std::string& name, std::span<const int64_t> shape) {
    const TensorInfo* tensor = source_.find(name);
    if (tensor == nullptr) {
      return errorf(ErrorCode::kCorruptFile, "{}: tensor {} is missing (Medusa heads, shape [{}])",
                    where_, name, fmt::join(shape, ", "));
    }
    if (!std::ranges::equal(shape, tensor->shape)) {
      return errorf(
          ErrorCode::kUnsupported,
          "{}: tensor {}: the target has width {} and {} tokens: expected shape [{}], got [{}]",
          where_, name, target_.model_dim, target_.vocab_size, fmt::join(shape, ", "),
          fmt::join(tensor->shape, ", "));
    }
    if (!is_real(tensor->type)) {
      return errorf(ErrorCode::kUnsupported, "{}: tensor {}: expected F32, F16 or BF16, got {}",
                    where_, name, quant_info(tensor->type).name);
    }
    used_.insert(name);
    return tensor;
  }

  // medusa_accuracy: for each head a descending list of probabilities whose sum is at most 1.
  Status read_accuracy(int n_heads, std::vector<std::vector<float>>& out) const {
    const auto found = source_.config().find("medusa_accuracy");
    if (found == source_.config().end()) return {};
    const auto wrong = [&](const std::string& got) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: config.json: medusa_accuracy: expected for each of the {} heads a list of "
                    "shares in [0, 1], the most likely token's first, got {}",
                    where_, n_heads, got);
    };
    if (!found->is_array() || found->size() != static_cast<size_t>(n_heads)) {
      return wrong(found->is_array() ? fmt::format("{} lists", found->size()) : found->type_name());
    }
    for (const auto& row : *found) {
      if (!row.is_array() || row.empty() || row.size() > kMaxRanks)
        return wrong("a head without 1 to 64 numbers");
      std::vector<float>& shares = out.emplace_back();
      double sum = 0;
      for (const auto& value : row) {
        const double share = value.is_number() ? value.get<double>() : -1;
        if (!(share >= 0 && share <= 1))
          return wrong(value.is_number() ? fmt::format("{}", share) : value.type_name());
        sum += share;
        shares.push_back(static_cast<float>(share));
      }
      if (sum > 1.001) return wrong(fmt::format("shares that sum to {:.3f}", sum));
    }
    return {};
  }

  const WeightSource& source_;
  const ModelConfig& target_;
  Ops& ops_;
  const std::string where_;
  std::set<std::string> used_;
  int64_t weight_bytes_ = 0;
};

Result<std::unique_ptr<MedusaHeads>> MedusaHeads::load(const WeightSource& source,
                                                       const Model& target, Ops& ops) {
  auto heads = std::make_unique<MedusaHeads>();
  heads->target_ = &target;
  RETURN_IF_ERROR(Loader(source, target.config(), ops).load(*heads));
  return heads;
}

Tensor MedusaHeads::forward(Tensor states, int n_heads, Ops& ops) const {
  const int n = states.rows;
  n_heads = std::min(n_heads, this->n_heads());
  const int dim = states.cols, n_rows = n_heads * n;
  // Computes one head after the other; a layer maps x to the next x.
  Tensor x = ops.new_tensor(n_rows, dim), next = ops.new_tensor(n_rows, dim);
  const Tensor logits = ops.new_tensor(n_rows, target_->config().vocab_size, TensorRole::kLogits);
  std::array<LinearTarget, kMaxMedusaHeads> targets{};
  for (size_t layer = 0; layer < heads_[0].layers.size(); ++layer) {
    const bool first = layer == 0;  // all heads read the same states: one product
    const auto input = [&](int k) { return first ? states : x.row_range(k * n, n); };
    for (int k = 0; k < n_heads; ++k) {
      const Layer& of_head = heads_[static_cast<size_t>(k)].layers[layer];
      const auto place = static_cast<size_t>(k);
      targets[place] = {of_head.weight.get(), of_head.bias.get(), next.row_range(k * n, n)};
      if (!first) ops.linear(input(k), {&targets[place], 1});
    }
    if (first) ops.linear(states, std::span(targets).first(static_cast<size_t>(n_heads)));
    ops.activate(next, Activation::kSilu);
    for (int k = 0; k < n_heads; ++k) ops.add(next.row_range(k * n, n), input(k), 1.0f);
    std::swap(x, next);
  }
  for (int k = 0; k < n_heads; ++k) {
    const Head& head = heads_[static_cast<size_t>(k)];
    if (head.output == nullptr) continue;
    const LinearTarget target{head.output.get(), nullptr, logits.row_range(k * n, n)};
    ops.linear(x.row_range(k * n, n), {&target, 1});
  }
  // Multiplies all heads' states by the shared output matrix in one pass.
  if (heads_[0].output == nullptr) target_->project(x, logits, ops);
  return logits;
}

}  // namespace penstock
