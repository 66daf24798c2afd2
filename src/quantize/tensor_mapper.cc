#include "quantize/tensor_mapper.h"

#include <algorithm>
#include <unordered_set>

#include "base/log.h"
#include "model/arch/archs.h"
#include "model/sources/synthetic.h"

namespace penstock {
namespace {

// Row r of a GGUF file's heads of adjacent pairs is row pair_rows()[r] of Hugging Face's heads of halves.
std::vector<int> pair_rows(const ModelConfig& config, int n_rows) {
  const int rotary_dim = config.ropes.empty() ? config.head_dim : config.ropes[0].rotary_dim;
  std::vector<int> rows;
  for (int row = 0; row < n_rows; ++row) {
    const int place = row % config.head_dim;
    const int half = place < rotary_dim ? place / 2 + place % 2 * (rotary_dim / 2) : place;
    rows.push_back(row - place + half);
  }
  return rows;
}

}  // namespace

std::vector<int> inverse_order(const std::vector<int>& rows) {
  std::vector<int> result(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) result[static_cast<size_t>(rows[r])] = static_cast<int>(r);
  return result;
}

TensorMapper::TensorMapper(const WeightSource& source, const ModelConfig& config, Naming out)
    : source_(source), config_(config), out_naming_(out), in_(tensor_names(config, source.naming())) {
  ModelConfig there = config;
  there.arch = arch_in(config, out);
  out_ = out == source.naming() ? in_ : tensor_names(there, out);
  in_prefix_ = prefix_of(in_);
  if (!out_.fused_expert_down.empty()) out_.expert_gate_up = "";  // written one by one
  choose_names(in_, source, in_prefix_, config.n_layers);
  out_prefix_ = out == source.naming() ? in_prefix_ : std::string(out_.prefixes[0]);
  crossing_ = out != source.naming();
}

void TensorMapper::begin_names_with(std::string_view in, std::string_view out) {
  in_ = tensor_names(config_, source_.naming());
  in_.layer = in, out_.layer = out;
  in_prefix_ = out_prefix_ = "";
  choose_names(in_, source_, "", 1);
}

MappedTensor TensorMapper::base(std::string_view in, std::string_view out, int layer) const {
  MappedTensor tensor;
  tensor.in = in_name(in, layer);
  tensor.out = out_name(out, layer);
  tensor.layer = layer;
  return tensor;
}

void TensorMapper::vector(std::vector<MappedTensor>& list, int layer, std::string in, std::string out,
                          int size) {
  MappedTensor tensor = base(in, out, layer);
  tensor.rows = 1;
  tensor.cols = size;
  list.push_back(std::move(tensor));
}

void TensorMapper::norm(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                        int size, Part part) {
  if (config_.bare_norms) return;
  vector(list, layer, std::string(in) + ".weight", std::string(out) + ".weight", size);
  list.back().part = part;
  if (crossing_ && find_architecture(config_.arch)->hf_norms_less_one)
    list.back().add = out_naming_ == Naming::kGguf ? 1.0f : -1.0f;
  if (!config_.layer_norm || !config_.norm_bias) return;
  vector(list, layer, std::string(in) + ".bias", std::string(out) + ".bias", size);
  list.back().part = part;
  list.back().is_bias = true;
}

MappedTensor& TensorMapper::matrix(std::vector<MappedTensor>& list, int layer, const Spec& spec) {
  MappedTensor tensor = base(std::string(spec.in) + ".weight", std::string(spec.out) + ".weight", layer);
  tensor.is_matrix = true;
  tensor.role = spec.role;
  tensor.rows = spec.rows;
  tensor.cols = spec.cols;
  tensor.site = spec.site;
  tensor.part = spec.part;
  tensor.in_first_row = spec.in_first_row;
  tensor.in_rows = spec.in_rows;
  list.push_back(std::move(tensor));
  return list.back();
}

void TensorMapper::linear(std::vector<MappedTensor>& list, int layer, const Spec& spec) {
  MappedTensor& weight = matrix(list, layer, spec);
  weight.is_linear = spec.part != Part::kRouter;
  weight.in_transposed = in_.transposed;
  weight.out_transposed = out_.transposed;
  reorder(weight, spec.rows);
  if (!has(in_name(std::string(spec.in) + ".bias", layer))) return;
  vector(list, layer, std::string(spec.in) + ".bias", std::string(spec.out) + ".bias", spec.rows);
  list.back().part = spec.part;
  list.back().is_bias = true;
  reorder(list.back(), spec.rows);
}

void TensorMapper::reorder(MappedTensor& tensor, int n_rows) const {
  if (!crossing_) return;
  const Architecture& row = *find_architecture(config_.arch);
  std::vector<int> rows;
  const bool rotated = tensor.part == Part::kQ || tensor.part == Part::kK;
  if (rotated && row.gguf_pairs) rows = pair_rows(config_, n_rows);
  if (tensor.part == Part::kQkv && row.hf_qkv_by_group) rows = rows_by_group(config_);
  tensor.rows_from = out_naming_ == Naming::kGguf ? std::move(rows) : inverse_order(rows);
}

void TensorMapper::layer_vector(std::vector<MappedTensor>& list, int layer, std::string_view in,
                                std::string_view out, int size) {
  vector(list, layer, std::string(in), std::string(out), size);
}

Status TensorMapper::check_unused(const TensorMap& map) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<Prequantized> prequantized, open_prequantized(source_));
  std::unordered_set<std::string_view> used;
  std::unordered_set<std::string> stems;  // of which every tensor is used
  const auto use = [&](const MappedTensor& tensor) {
    if (const TensorInfo* found = source_.find(tensor.in)) used.insert(found->name);
    if (prequantized != nullptr && tensor.in.ends_with(".weight"))
      stems.insert(tensor.in.substr(0, tensor.in.size() - std::string_view("weight").size()));
  };
  std::ranges::for_each(map.outside, use);
  for (int i = 0; i < config_.n_layers; ++i) {
    std::ranges::for_each(map.layers[static_cast<size_t>(i)], use);
    const LayerConfig& kind = config_.layers[static_cast<size_t>(i)];
    if (kind.activation.kind == Activation::kXielu) stems.insert(in_name(in_.activation, i));
    if (kind.kv_layer < 0) continue;
    for (const std::string_view part : {in_.k, in_.v, in_.k_norm}) stems.insert(in_name(part, i) + ".");
  }
  for (const TensorInfo& tensor : source_.tensors()) {
    for (size_t dot = tensor.name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = tensor.name.rfind('.', dot - 1)) {
      if (stems.contains(tensor.name.substr(0, dot + 1))) used.insert(tensor.name);
    }
  }
  const std::string layer = in_prefix_ + std::string(in_.layer);
  const auto further = std::ranges::count_if(source_.tensors(), [&](const TensorInfo& tensor) {
    return (is_of_further_tokens(tensor.name) || is_of_later_layer(config_, layer, tensor.name)) &&
           !used.contains(tensor.name);
  });
  const auto left_out = further - static_cast<std::ptrdiff_t>(map.copies.size());
  if (left_out > 0) {
    log().warn("{}: {} tensors of layers that predict further tokens are left out: {}",
               source_.path().string(), left_out,
               map.has_next_token ? "--spec mtp uses the first such layer" : "--spec mtp does not know them");
  }
  return penstock::check_unused(source_, config_, in_prefix_, layer, used);
}

}  // namespace penstock
