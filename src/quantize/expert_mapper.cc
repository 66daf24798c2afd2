#include <algorithm>

#include "quantize/tensor_mapper.h"

namespace penstock {

// [n_experts, rows], where there is one.
void ExpertMapper::expert_biases(std::vector<MappedTensor>& list, int layer, std::string_view in,
                                 std::string_view out, int rows) {
  const std::string bias = std::string(in) + ".bias";
  if (bias.find("{}") != std::string::npos || !has(in_name(bias, layer))) return;
  for (int e = 0; e < config_.n_experts; ++e) {
    vector(list, layer, bias, std::string(out) + ".bias", rows);
    list.back().in_expert = list.back().expert = e;
    list.back().out_experts = config_.n_experts;
    list.back().is_bias = true;
  }
}

void ExpertMapper::shared_experts(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, ffn = config_.shared_ffn_dim;
  const WeightRole wide = WeightRole::kGateUp;
  const bool fused = !in_.shared_gate_up.empty();
  const std::string_view gate = fused ? in_.shared_gate_up : in_.shared_gate;
  const std::string_view up = fused ? in_.shared_gate_up : in_.shared_up;
  const int all = fused ? 2 * ffn : 0, second = fused ? ffn : 0;
  if (fused && !out_.shared_gate_up.empty()) {
    linear(list, layer, {gate, out_.shared_gate_up, wide, 2 * ffn, dim, Site::kFeedForward});
  } else {
    if (config_.gated_ffn)
      linear(list, layer, {gate, out_.shared_gate, wide, ffn, dim, Site::kFeedForward, Part::kOther, 0, all});
    linear(list, layer, {up, out_.shared_up, wide, ffn, dim, Site::kFeedForward, Part::kOther, second, all});
  }
  linear(list, layer, {in_.shared_down, out_.shared_down, WeightRole::kDown, dim, ffn});
  if (!config_.shared_expert_gate) return;
  linear(list, layer,
         {in_.shared_router, out_.shared_router, WeightRole::kRouter, 1, dim, Site::kFeedForward,
          Part::kRouter});
}

// Norms with weights of their own for every head: one tensor, or one for each.
void ExpertMapper::experts(std::vector<MappedTensor>& list, int layer, Spec spec) {
  const std::string in(spec.in), out(spec.out);
  for (int e = 0; e < config_.n_experts; ++e) {
    const std::string in_e = with_index(in, e), out_e = with_index(out, e);
    spec.in = in_e;
    spec.out = out_e;
    MappedTensor& tensor = matrix(list, layer, spec);
    if (is_whole(in_, source_.naming(), in)) tensor.in = in_name(in, layer);
    if (is_whole(out_, out_naming_, out)) tensor.out = out_name(out, layer);
    tensor.is_linear = true;
    tensor.expert = e;
    if (in.find("{}") == std::string::npos) tensor.in_expert = e;
    if (out.find("{}") == std::string::npos) tensor.out_experts = config_.n_experts;
  }
}

// Gate and up of an expert follow each other in one tensor.
void ExpertMapper::join_gate_and_up(std::span<MappedTensor> experts) {
  std::ranges::stable_sort(experts, {}, &MappedTensor::expert);
  for (MappedTensor& tensor : experts) {
    tensor.out_rows = 2 * tensor.rows;
    tensor.goes_on = tensor.part == Part::kUp;
  }
}

// Stored [in, out] in a tensor of all experts, with so many rows of each, of which these are some.
void ExpertMapper::turn(std::span<MappedTensor> experts) {
  for (MappedTensor& tensor : experts) {
    tensor.in_transposed = true;
    for (int r = 0; tensor.in_rows > 0 && r < tensor.rows; ++r)
      tensor.picked.push_back(tensor.in_first_row + r);
    tensor.in_first_row = 0;
  }
}

// What experts read of the stream, and what becomes of what they give.
void ExpertMapper::expert_latents(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, own = config_.expert_latent_dim;
  if (own == 0) return;
  linear(list, layer, {in_.experts_in, out_.experts_in, WeightRole::kLatent, own, dim});
  linear(list, layer, {in_.experts_out, out_.experts_out, WeightRole::kLatent, dim, own});
}

void ExpertMapper::beside(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim;
  norm(list, layer, in_.expert_norm, out_.expert_norm, dim);
  norm(list, layer, in_.dense_post_norm, out_.dense_post_norm, dim);
  norm(list, layer, in_.expert_post_norm, out_.expert_post_norm, dim);
  layer_vector(list, layer, in_.router_scale, out_.router_scale, dim);
  layer_vector(list, layer, in_.expert_scale, out_.expert_scale, config_.n_experts);
}

void ExpertMapper::routed_experts(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.expert_dim(), width = config_.expert_ffn_dim;
  std::string_view gate = in_.expert_gate, up = in_.expert_up, down = in_.expert_down;
  if (source_.naming() == Naming::kGguf && !has(in_name(down, layer) + ".weight"))
    gate = "ffn_gate.{}", up = "ffn_up.{}", down = "ffn_down.{}";
  const bool fused = !in_.expert_gate_up.empty() && has(in_name(in_.expert_gate_up, layer));
  const bool keep = !crossing_ && !fused;
  if (fused) gate = up = in_.expert_gate_up;
  const int all = fused ? 2 * width : 0, second = fused ? width : 0;
  const WeightRole wide = WeightRole::kGateUp, narrow = WeightRole::kDown;
  linear(list, layer,
         {in_.router, out_.router, WeightRole::kRouter, config_.n_experts, config_.model_dim,
          Site::kFeedForward, Part::kRouter});
  expert_latents(list, layer);
  const bool fused_out = out_naming_ == Naming::kHuggingFace && !out_.expert_gate_up.empty();
  const size_t first = list.size();
  if (config_.gated_ffn)
    experts(list, layer,
            {gate,
             fused_out ? out_.expert_gate_up
             : keep    ? gate
                       : out_.expert_gate,
             wide, width, dim, Site::kFeedForward, Part::kGate, 0, all});
  experts(list, layer,
          {up,
           fused_out ? out_.expert_gate_up
           : keep    ? up
                     : out_.expert_up,
           wide, width, dim, Site::kFeedForward, Part::kUp, second, all});
  if (fused_out) join_gate_and_up(std::span(list).subspan(first));
  experts(list, layer, {down, keep ? down : out_.expert_down, narrow, dim, width, Site::kDown, Part::kDown});
  if (in_.experts_transposed) turn(std::span(list).subspan(first));
  if (config_.gated_ffn) expert_biases(list, layer, gate, out_.expert_gate, width);
  expert_biases(list, layer, up, out_.expert_up, width);
  expert_biases(list, layer, down, out_.expert_down, dim);
  if (config_.expert_selection_bias)
    layer_vector(list, layer, in_.selection_bias, out_.selection_bias, config_.n_experts);
  if (config_.shared_ffn_dim > 0) shared_experts(list, layer);
}

}  // namespace penstock
