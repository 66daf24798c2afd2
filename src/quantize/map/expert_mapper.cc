// Map entries of experts.
#include <algorithm>

#include "quantize/map/tensor_mapper.h"

namespace penstock {
namespace {

// Joins gate and up of each expert in one tensor.
void join_gate_and_up(std::span<MappedTensor> experts) {
  std::ranges::stable_sort(experts, {}, &MappedTensor::expert);
  for (MappedTensor& tensor : experts) {
    tensor.out_rows = 2 * tensor.rows;
    tensor.goes_on = tensor.part == Part::kUp;
  }
}

// Marks experts as stored transposed, [in, out], in a tensor of all experts; in_rows: rows per
// expert in the tensor, of which an entry may be a part.
void turn(std::span<MappedTensor> experts) {
  for (MappedTensor& tensor : experts) {
    tensor.in_transposed = true;
    for (int r = 0; tensor.in_rows > 0 && r < tensor.rows; ++r)
      tensor.picked.push_back(tensor.in_first_row + r);
    tensor.in_first_row = 0;
  }
}

}  // namespace

bool TensorMapper::is_whole(const NameTable& names, Naming naming, std::string_view name) {
  if (names.experts_flat) return true;
  if (names[tensor::kExpertGateUp].empty()) return false;
  return name == names[tensor::kExpertGateUp] ||
         (naming == Naming::kHuggingFace && name == names[tensor::kExpertDown]);
}

// Maps biases [n_experts, rows], if there are any.
void TensorMapper::expert_biases(int n_experts, std::string_view in, std::string_view out,
                                 int rows) {
  const std::string bias = std::string(in) + ".bias";
  if (bias.find("{}") != std::string::npos || !has(in_name(bias, layer_))) return;
  for (int e = 0; e < n_experts; ++e) {
    MappedTensor& tensor = vector(bias, std::string(out) + ".bias", rows);
    tensor.in_expert = tensor.expert = e;
    tensor.out_experts = n_experts;
    tensor.is_bias = true;
  }
}

void TensorMapper::each_expert(const ExpertsSpec& experts, Spec spec) {
  const std::string in(spec.in), out(spec.out);
  for (int e = 0; e < experts.n_experts; ++e) {
    const std::string in_e = with_index(in, e), out_e = with_index(out, e);
    spec.in = in_e;
    spec.out = out_e;
    MappedTensor& tensor = matrix(spec);
    if (is_whole(in_, source_.naming(), in)) tensor.in = in_name(in, layer_);
    if (is_whole(out_, out_naming_, out)) tensor.out = out_name(out, layer_);
    tensor.is_linear = true;
    tensor.expert = e;
    if (in_.experts_flat) {
      const int lines = spec.part == Part::kDown ? spec.cols : spec.rows;
      tensor.in_first_row = e * lines, tensor.in_rows = experts.n_experts * lines;
      tensor.in_transposed = spec.part == Part::kDown;
    } else if (in.find("{}") == std::string::npos) {
      tensor.in_expert = e;
    }
    if (out.find("{}") == std::string::npos) tensor.out_experts = experts.n_experts;
  }
}

void TensorMapper::experts(const ExpertsSpec& spec, ExpertWeights&, ExpertWeights&,
                           ExpertWeights&) {
  const int dim = spec.dim, width = spec.width;
  std::string_view gate = in_[*spec.gate], up = in_[*spec.up], down = in_[*spec.down];
  if (source_.naming() == Naming::kGguf && !spec.is_shared &&
      !has(in_name(down, layer_) + ".weight"))
    gate = "ffn_gate.{}", up = "ffn_up.{}", down = "ffn_down.{}";
  const bool fused = !spec.is_shared && !in_[tensor::kExpertGateUp].empty() &&
                     has(in_name(in_[tensor::kExpertGateUp], layer_));
  const bool keep = !crossing_ && !fused;
  if (fused) gate = up = in_[tensor::kExpertGateUp];
  const int all = fused ? 2 * width : 0, second = fused ? width : 0;
  const WeightRole wide = WeightRole::kGateUp, narrow = WeightRole::kDown;
  const bool fused_out = !spec.is_shared && out_naming_ == Naming::kHuggingFace &&
                         !out_[tensor::kExpertGateUp].empty();
  const auto out = [&](std::string_view own, std::string_view theirs) {
    return fused_out ? out_[tensor::kExpertGateUp] : keep ? own : theirs;
  };
  const size_t first = list_->size();
  if (spec.gated)
    each_expert(spec, {gate, out(gate, out_[*spec.gate]), wide, width, dim, Site::kFeedForward,
                       Part::kGate, 0, all});
  each_expert(spec, {up, out(up, out_[*spec.up]), wide, width, dim, Site::kFeedForward, Part::kUp,
                     second, all});
  if (fused_out) join_gate_and_up(std::span(*list_).subspan(first));
  each_expert(spec,
              {down, keep ? down : out_[*spec.down], narrow, dim, width, Site::kDown, Part::kDown});
  if (in_.experts_transposed) turn(std::span(*list_).subspan(first));
  if (spec.gated) expert_biases(spec.n_experts, gate, out_[*spec.gate], width);
  expert_biases(spec.n_experts, up, out_[*spec.up], width);
  expert_biases(spec.n_experts, down, out_[*spec.down], dim);
}

}  // namespace penstock
