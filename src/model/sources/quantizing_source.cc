#include "model/sources/quantizing_source.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/text_hash.h"
#include "base/thread_pool.h"
#include "formats/hf_config.h"
#include "formats/prequantized.h"
#include "model/arch/names.h"
#include "model/arch/read_config.h"
#include "model/blocks/weights.h"
#include "model/sources/ftype.h"
#include "quant/group_types.h"

namespace penstock {

namespace {

struct Place {
  WeightRole role;
  int layer = 0;
};

bool is_wide(QuantType type) {
  return type == QuantType::kF32 || type == QuantType::kF16 || type == QuantType::kBF16;
}

bool is_head(WeightRole role) {
  return role == WeightRole::kOutput || role == WeightRole::kEmbedding;
}

// "layers.12.mlp" -> 12 and "mlp" for the pattern "layers.{}."
std::optional<std::pair<int, std::string_view>> split_layer(std::string_view name,
                                                            std::string_view pattern) {
  const size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos || !name.starts_with(pattern.substr(0, hole))) return {};
  size_t at = hole;
  int index = 0;
  while (at < name.size() && name[at] >= '0' && name[at] <= '9' && index < 100000)
    index = index * 10 + (name[at++] - '0');
  const std::string_view rest = pattern.substr(hole + 2);
  if (at == hole || !name.substr(at).starts_with(rest)) return {};
  return std::pair(index, name.substr(at + rest.size()));
}

bool is_part(std::string_view part, std::string_view pattern) {
  if (pattern.empty()) return false;
  if (part == pattern) return true;
  const auto split = split_layer(part, pattern);
  return split && split->second.empty();
}

std::optional<WeightRole> role_in_layer(std::string_view part, const NameTable& names) {
  if (part == names[tensor::kQ]) return WeightRole::kQ;
  if (part == names[tensor::kQkv] && !names[tensor::kQkv].empty()) return WeightRole::kQkv;
  if (part == names[tensor::kK]) return WeightRole::kK;
  if (part == names[tensor::kV]) return WeightRole::kV;
  if (part == names[tensor::kO]) return WeightRole::kO;
  if (is_part(part, names[tensor::kPerLayerGate]) ||
      is_part(part, names[tensor::kPerLayerProjection]))
    return WeightRole::kOther;
  for (const std::string_view down :
       {names[tensor::kDown], names[tensor::kExpertDown], std::string_view("ffn_down.{}")})
    if (is_part(part, down)) return WeightRole::kDown;
  for (const std::string_view wide :
       {names[tensor::kGate], names[tensor::kUp], names[tensor::kGateUp],
        names[tensor::kExpertGate], names[tensor::kExpertUp], std::string_view("ffn_gate.{}"),
        std::string_view("ffn_up.{}")}) {
    if (is_part(part, wide)) return WeightRole::kGateUp;
  }
  return {};
}

std::optional<Place> place_of(std::string_view name, const NameTable& names) {
  if (!name.ends_with(".weight")) return {};
  name.remove_suffix(std::string_view(".weight").size());
  if (name == names.lm_head) return Place{WeightRole::kOutput};
  for (const std::string_view prefix : names.prefixes) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view inner = name.substr(prefix.size());
    if (inner == names.embedding || inner == names[tensor::kPerLayerTable])
      return Place{WeightRole::kEmbedding};
    const auto split = split_layer(inner, names.layer);
    if (!split) continue;
    if (const auto role = role_in_layer(split->second, names)) return Place{*role, split->first};
  }
  return {};
}

// The role of a tensor of a directory with the matrices of all experts of a layer; their names do not
// end as those of linear layers do.
std::optional<Place> place_of_experts(std::string_view name, const NameTable& names) {
  const bool apart = names[tensor::kExpertGateUp].empty();
  if (apart && !names.experts_flat) return {};
  for (const std::string_view prefix : names.prefixes) {
    if (!name.starts_with(prefix)) continue;
    const auto split = split_layer(name.substr(prefix.size()), names.layer);
    if (!split) continue;
    const std::string_view part = split->second;
    const auto is = [&](const TensorName& name) {
      return !names[name].empty() && part == names[name];
    };
    if (is(tensor::kExpertDown) || is(tensor::kFusedExpertDown) || is(tensor::kPinnedDown))
      return Place{WeightRole::kDown, split->first};
    const bool wide = is(tensor::kExpertGate) || is(tensor::kExpertUp);
    if (apart ? wide : is(tensor::kExpertGateUp) || is(tensor::kPinnedGateUp))
      return Place{WeightRole::kGateUp, split->first};
  }
  return {};
}

// The encodings of tensors, by their index in the source.
struct Plan {
  NameTable names;
  std::unordered_map<size_t, QuantType> types;  // GGUF encodings
  std::unordered_map<size_t, GroupCoding> codings;
  // The same, of tensors with the matrices of several experts.
  std::unordered_map<size_t, QuantType> expert_types;
  std::unordered_map<size_t, GroupCoding> expert_codings;
  ActivationCoding activations;

  bool empty() const {
    return types.empty() && codings.empty() && expert_types.empty() && expert_codings.empty();
  }
};

int group_for(const GroupType& type, int64_t cols) {
  if (type.group_size == 0) return 0;
  for (const int size : {type.group_size, 64, 32})
    if (size <= type.group_size && cols % size == 0) return size;
  return 0;
}

class QuantizingSource final : public WeightSource, public Prequantized {
 public:
  QuantizingSource(std::unique_ptr<WeightSource> source, Plan plan, int threads)
      : source_(std::move(source)), plan_(std::move(plan)), pool_(threads) {
    tensors_.assign(source_->tensors().begin(), source_->tensors().end());
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  }

  Naming naming() const override { return source_->naming(); }
  const std::filesystem::path& path() const override { return source_->path(); }
  const nlohmann::json& config() const override { return source_->config(); }
  const nlohmann::json& generation_config() const override { return source_->generation_config(); }
  // Matrices that were not looked up yet have the source's encoding and bytes.
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::optional<std::string> side_file(std::string_view name) const override {
    return source_->side_file(name);
  }
  std::vector<SourceFile> files() const override { return source_->files(); }
  const Prequantized* grouped_layers() const override {
    return plan_.codings.empty() ? nullptr : this;
  }
  std::string_view method() const override { return "quantized at load"; }

  const TensorInfo* find(std::string_view name) const override {
    const auto found = index_.find(name);
    if (found == index_.end()) return nullptr;
    TensorInfo& tensor = tensors_[found->second];
    if (const auto type = plan_.types.find(found->second);
        type != plan_.types.end() && tensor.type != type->second)
      encode(tensor, found->second, type->second);
    return &tensor;
  }

  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override;

  bool encodes_experts(const TensorInfo& tensor) const override {
    const auto found = index_.find(tensor.name);
    return found != index_.end() && (plan_.expert_types.contains(found->second) ||
                                     plan_.expert_codings.contains(found->second));
  }
  Result<EncodedMatrix> encode_expert(const TensorInfo& tensor,
                                      const QuantizedMatrix& rows) const override;

  void drop(const TensorInfo& tensor) const override {
    const auto found = index_.find(tensor.name);
    if (found == index_.end()) return;
    const TensorInfo* original = source_->find(tensor.name);
    TensorInfo& mine = tensors_[found->second];
    mine.type = original->type;
    mine.bytes = original->bytes;
    encoded_.erase(found->second);
    source_->drop(*original);
  }

 private:
  static QuantizedMatrix all_rows(const TensorInfo& tensor) {
    const int64_t cols = tensor.shape.back();
    return {tensor.type, static_cast<int>(tensor.n_elements() / std::max<int64_t>(cols, 1)),
            static_cast<int>(cols), tensor.bytes};
  }

  // fn(r, values of row r) over a matrix's rows. False when a value is not finite.
  template <class F>
  bool each_row(const QuantizedMatrix& m, F&& fn) const {
    std::atomic<bool> finite = true;
    pool_.for_ranges(m.rows, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<size_t>(m.cols));
      for (int64_t r = begin; r < end; ++r) {
        dequantize_row(m.type, m.bytes.data() + static_cast<size_t>(r) * m.stride(), row.data(),
                       m.cols);
        if (!std::ranges::all_of(row, [](float value) { return std::isfinite(value); }))
          finite = false;
        else
          fn(r, row.data());
      }
    });
    return finite;
  }

  // Empty: a value is not finite.
  std::vector<std::byte> encoded(const QuantizedMatrix& rows, QuantType type) const {
    const size_t row_bytes = quant_bytes(type, rows.cols);
    std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(rows.rows));
    const bool finite = each_row(rows, [&](int64_t r, const float* row) {
      quantize_row(type, row, bytes.data() + static_cast<size_t>(r) * row_bytes, rows.cols);
    });
    return finite ? std::move(bytes) : std::vector<std::byte>();
  }

  void encode(TensorInfo& tensor, size_t index, QuantType type) const {
    std::vector<std::byte> bytes = encoded(all_rows(tensor), type);
    if (bytes.empty()) return;
    tensor.type = type;
    tensor.bytes = encoded_[index] = std::move(bytes);
  }

  // A matrix by group before its rows are encoded.
  GroupedMatrix grouped(const GroupCoding& coding, int64_t rows, int64_t cols) const {
    GroupedMatrix m;
    m.rows = static_cast<int>(rows), m.cols = static_cast<int>(cols);
    m.bits = coding.bits;
    m.group_size = coding.group_of(m.cols);
    m.codebook = coding.codebook;
    m.uniform_zero = static_cast<int16_t>(coding.codebook.empty() ? 1 << (coding.bits - 1) : 0);
    m.activations = plan_.activations;
    m.scales.resize(static_cast<size_t>(rows) * static_cast<size_t>(m.n_groups()));
    m.layout = m.bits == 8 ? CodeLayout::kBytes : CodeLayout::kWordsByRow;
    return m;
  }
  static size_t row_bytes(const GroupedMatrix& m) {
    return GroupedMatrix::packed_bytes(m.layout, 1, m.cols, m.bits);
  }
  // Encodes row r. packed: [rows, row_bytes(m)]
  static void encode_row(const GroupCoding& coding, size_t r, const float* row, GroupedMatrix& m,
                         std::vector<std::byte>& packed) {
    const auto n_groups = static_cast<size_t>(m.n_groups());
    std::vector<GroupScale> scales(n_groups);
    std::vector<uint8_t> codes(static_cast<size_t>(m.cols));
    encode_grouped_row(coding, row, nullptr, m.cols, false, codes.data(), scales.data());
    for (size_t g = 0; g < n_groups; ++g) m.scales[r * n_groups + g] = scales[g].scale;
    const std::vector<std::byte> line = pack_codes(m.layout, codes, 1, m.cols, m.bits);
    std::ranges::copy(line, packed.begin() + static_cast<ptrdiff_t>(r * row_bytes(m)));
  }
  Error not_finite(const TensorInfo& tensor) const {
    return {ErrorCode::kCorruptFile,
            fmt::format("{}: tensor {}: expected finite numbers", path().string(), tensor.name)};
  }

  std::unique_ptr<WeightSource> source_;
  const Plan plan_;
  mutable ThreadPool pool_;
  mutable std::vector<TensorInfo> tensors_;
  mutable std::unordered_map<size_t, std::vector<std::byte>> encoded_;
  ViewMap<size_t> index_;
};

// Codes of the matrix that take the place of the tensor's bytes until it is dropped. Experts in one
// tensor are one matrix.
Result<std::optional<GroupedMatrix>> QuantizingSource::find_linear(std::string_view layer) const {
  const auto found = index_.find(fmt::format("{}.weight", layer));
  if (found == index_.end()) return std::nullopt;
  const auto planned = plan_.codings.find(found->second);
  if (planned == plan_.codings.end()) return std::nullopt;
  const GroupCoding& coding = planned->second;
  TensorInfo& tensor = tensors_[found->second];
  const TensorInfo& original = *source_->find(tensor.name);
  const bool transposed = plan_.names.transposed;
  const int64_t cols = transposed ? original.shape[0] : original.shape.back();
  GroupedMatrix m = grouped(coding, original.n_elements() / cols, cols);
  const auto n_rows = static_cast<size_t>(m.rows), n_cols = static_cast<size_t>(m.cols);
  std::vector<std::byte> packed(n_rows * row_bytes(m));
  bool finite = true;
  if (transposed) {
    std::vector<float> values(n_rows * n_cols);
    finite = each_row(all_rows(original), [&](int64_t c, const float* row) {
      for (size_t r = 0; r < n_rows; ++r) values[r * n_cols + static_cast<size_t>(c)] = row[r];
    });
    pool_.for_ranges(m.rows, 1, [&](int64_t begin, int64_t end, int) {
      for (auto r = static_cast<size_t>(begin); finite && r < static_cast<size_t>(end); ++r)
        encode_row(coding, r, values.data() + r * n_cols, m, packed);
    });
  } else {
    finite = each_row(all_rows(original), [&](int64_t r, const float* row) {
      encode_row(coding, static_cast<size_t>(r), row, m, packed);
    });
  }
  if (!finite) return tl::unexpected(not_finite(tensor));
  tensor.type = QuantType::kU8;
  tensor.bytes = m.packed = encoded_[found->second] = std::move(packed);
  return m;
}

Result<EncodedMatrix> QuantizingSource::encode_expert(const TensorInfo& tensor,
                                                      const QuantizedMatrix& rows) const {
  const size_t index = index_.at(tensor.name);
  EncodedMatrix made;
  if (const auto type = plan_.expert_types.find(index); type != plan_.expert_types.end()) {
    made.storage = encoded(rows, type->second);
    if (made.storage.empty() && rows.rows > 0) {  // as other matrices are left as they are
      made.view = rows;
      return made;
    }
    made.view = {type->second, rows.rows, rows.cols, made.storage};
    return made;
  }
  const GroupCoding& coding = plan_.expert_codings.at(index);
  GroupedMatrix& m = made.grouped.emplace(grouped(coding, rows.rows, rows.cols));
  made.storage.resize(static_cast<size_t>(rows.rows) * row_bytes(m));
  const bool finite = each_row(rows, [&](int64_t r, const float* row) {
    encode_row(coding, static_cast<size_t>(r), row, m, made.storage);
  });
  if (!finite) return tl::unexpected(not_finite(tensor));
  m.packed = made.storage;
  return made;
}

// Inputs of matrices that several experts have in one tensor.
int inputs_of(const Place& place, const ModelConfig& config) {
  return place.role == WeightRole::kDown ? config.experts.ffn_dim : config.expert_dim();
}

// Never a wider encoding than the file's.
void plan_file_type(const WeightSource& source, const ModelConfig& config, const FileType& ftype,
                    Plan& plan) {
  const std::span<const TensorInfo> tensors = source.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    const bool wide = tensor.shape.size() >= 2 && tensor.n_elements() > 0 && is_wide(tensor.type);
    if (!wide) continue;
    if (const auto experts = place_of_experts(tensor.name, plan.names)) {
      const QuantType type = choose_type(ftype, MixedModel::of(config), experts->role,
                                         experts->layer, inputs_of(*experts, config));
      if (quant_bytes(type, 1024) < quant_bytes(tensor.type, 1024))
        plan.expert_types.emplace(i, type);
      continue;
    }
    const auto place = place_of(tensor.name, plan.names);
    if (!place) continue;
    // Rows of length one are made of plain numbers.
    if (place->role == WeightRole::kOutput && config.output.unit_rows) continue;
    const QuantType type = choose_type(ftype, MixedModel::of(config), place->role, place->layer,
                                       static_cast<int>(tensor.shape.back()));
    if (quant_bytes(type, 1024) < quant_bytes(tensor.type, 1024)) plan.types.emplace(i, type);
  }
}

void plan_groups(const WeightSource& source, const ModelConfig& config, const GroupType& type,
                 Plan& plan) {
  plan.activations.kind = type.activations;
  const std::span<const TensorInfo> tensors = source.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.shape.size() < 2 || tensor.n_elements() == 0 || !is_wide(tensor.type)) continue;
    GroupCoding coding = coding_of(type);
    if (const auto experts = place_of_experts(tensor.name, plan.names)) {
      coding.group_size = group_for(type, inputs_of(*experts, config));
      plan.expert_codings.emplace(i, std::move(coding));
      continue;
    }
    const auto place = place_of(tensor.name, plan.names);
    if (!place || is_head(place->role)) continue;
    coding.group_size =
        group_for(type, plan.names.transposed ? tensor.shape[0] : tensor.shape.back());
    plan.codings.emplace(i, std::move(coding));
  }
}

Result<Plan> make_plan(const WeightSource& source, std::string_view type) {
  ASSIGN_OR_RETURN(const ModelConfig config, read_config(source));
  const std::string where = source.path().string();
  const bool coded =
      source.naming() == Naming::kHuggingFace && quantization_config_of(source.config()) != nullptr;
  if (coded || config.rounding.activations || config.rounding.ternary_weights ||
      source.grouped_layers() != nullptr)
    return errorf(ErrorCode::kUnsupported, "{}: quantize: the checkpoint is quantized already",
                  where);
  Plan plan;
  plan.names = tensor_names(config, source.naming());
  if (!plan.names.layer_prefixes.empty() || !plan.names.first_blocks.empty()) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: quantize: layers of {} are computed several times, and are not encoded at load", where,
        config.arch);
  }
  if (const GroupType* group_type = find_group_type(type); group_type != nullptr) {
    if (group_type->codebook == "ternary" ||
        group_type->activations == ActivationCoding::Kind::kInt8Static) {
      return errorf(ErrorCode::kInvalidArgument,
                    "quantize: {} cannot be made at load, only by penstock quantize", type);
    }
    plan_groups(source, config, *group_type, plan);
  } else {
    auto ftype = find_file_type(type);
    if (!ftype) {
      return errorf(ErrorCode::kInvalidArgument,
                    "quantize: expected int8 to int2, nf4, fp4, fp8, w8a8 or one of {}, got '{}'",
                    file_type_names(), type);
    }
    if (plan.names.transposed) {
      return errorf(ErrorCode::kUnsupported,
                    "{}: quantize: {} matrices are stored transposed: int8 to int2, nf4, fp4, fp8 "
                    "or w8a8 at load, or {} by penstock quantize",
                    where, config.arch, type);
    }
    plan_file_type(source, config, *ftype, plan);
  }
  if (plan.empty())
    return errorf(ErrorCode::kUnsupported, "{}: quantize: the weights are in no more bits than {}",
                  where, type);
  return plan;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> make_quantizing_source(std::unique_ptr<WeightSource> source,
                                                             std::string_view type, int threads) {
  ASSIGN_OR_RETURN(Plan plan, make_plan(*source, type));
  return std::make_unique<QuantizingSource>(std::move(source), std::move(plan), threads);
}

}  // namespace penstock
