#include <numeric>

#include "quantize/tensor_mapper.h"

namespace penstock {
namespace {

// Heads of `each` rows behind `before` other rows, to where `groups` are in turn: row r is row result[r] of those that lie
// group by group.
std::vector<int> in_turn(int before, int n_heads, int each, int groups) {
  std::vector<int> rows(static_cast<size_t>(before));
  std::iota(rows.begin(), rows.end(), 0);
  for (int h = 0; h < n_heads; ++h) {
    const int from = h % groups * (n_heads / groups) + h / groups;
    for (int r = 0; r < each; ++r) rows.push_back(before + from * each + r);
  }
  return rows;
}

}  // namespace

// Layers of attention lie between: any may be the first of a convolution.
bool RecurrenceMapper::has_conv_bias() const {
  for (int i = 0; config_.has_states() && i < config_.n_layers; ++i) {
    if (has(in_name(in_.conv_in, i) + ".bias") || has(in_name(in_.conv, i) + ".bias")) return true;
  }
  return false;
}

void RecurrenceMapper::short_conv(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim;
  linear(list, layer, {in_.conv_in, out_.conv_in, WeightRole::kQ, 3 * dim, dim, Site::kAttention});
  matrix(list, layer, {in_.conv, out_.conv, WeightRole::kRouter, dim, config_.conv_taps}).out_deep =
      out_naming_ == Naming::kHuggingFace;
  if (has(in_name(in_.conv, layer) + ".bias"))
    vector(list, layer, std::string(in_.conv) + ".bias", std::string(out_.conv) + ".bias", dim);
  linear(list, layer, {in_.conv_out, out_.conv_out, WeightRole::kO, dim, dim, Site::kAttentionOut});
}

bool RecurrenceMapper::has_delta_in_one() const {
  for (int i = 0; !in_.delta_qkvz.empty() && i < config_.n_layers; ++i) {
    if (has_linear(in_name(in_.delta_qkvz, i))) return true;
  }
  return false;
}

// Where value heads lie otherwise in the output: its rows' order.
std::vector<int> RecurrenceMapper::value_heads(int before, int each) const {
  if (in_.key_heads_in_turn == out_.key_heads_in_turn) return {};
  const DeltaConfig& delta = config_.delta;
  std::vector<int> rows = in_turn(before, delta.n_value_heads, each, delta.n_key_heads);
  return out_.key_heads_in_turn ? rows : inverse_order(rows);
}

void RecurrenceMapper::delta_projections(std::vector<MappedTensor>& list, int layer) {
  const DeltaConfig& delta = config_.delta;
  const int dim = config_.model_dim, channels = delta.channels(), values = delta.values();
  const int heads = delta.n_value_heads;
  const auto add = [&](std::string_view in, std::string_view out, WeightRole role, int rows,
                       std::vector<int> order) {
    linear(list, layer, {in, out, role, rows, dim, Site::kAttention});
    list.back().rows_from = std::move(order);
  };
  const bool fused = !in_.delta_qkvz.empty() && has_linear(in_name(in_.delta_qkvz, layer));
  const bool apart = crossing_ && !out_.delta_qkv.empty();
  if (fused && !apart) {
    add(in_.delta_qkvz, out_.delta_qkvz, WeightRole::kQkv, channels + values, {});
  } else {
    const std::string_view z = fused ? in_.delta_qkvz : in_.delta_z;
    add(fused ? in_.delta_qkvz : in_.delta_qkv, out_.delta_qkv, WeightRole::kQkv, channels,
        value_heads(2 * delta.keys(), delta.value_dim));
    add(z, out_.delta_z, WeightRole::kLatent, values, value_heads(0, delta.value_dim));
  }
  if (fused && apart) {
    const std::vector<int> rows = qkvz_rows(delta);
    list[list.size() - 2].picked.assign(rows.begin(), rows.begin() + channels);
    list.back().picked.assign(rows.begin() + channels, rows.end());
    list[list.size() - 2].in_rows = list.back().in_rows = channels + values;
  }
  if (!in_.delta_ba.empty()) return add(in_.delta_ba, out_.delta_ba, WeightRole::kLatent, 2 * heads, {});
  add(in_.delta_a, out_.delta_a, WeightRole::kLatent, heads, value_heads(0, 1));
  add(in_.delta_b, out_.delta_b, WeightRole::kLatent, heads, value_heads(0, 1));
}

// Projections, convolutions and rates of Kimi Delta Attention. GGUF files have the rates in a column.
void RecurrenceMapper::delta_by_key(std::vector<MappedTensor>& list, int layer) {
  const DeltaConfig& delta = config_.delta;
  const int dim = config_.model_dim, keys = delta.keys(), values = delta.values(), inner = delta.key_dim;
  const auto add = [&](std::string_view in, std::string_view out, WeightRole role, int rows) {
    linear(list, layer, {in, out, role, rows, dim, Site::kAttention});
  };
  add(in_.q, out_.q, WeightRole::kQ, keys);
  add(in_.k, out_.k, WeightRole::kK, keys);
  add(in_.v, out_.v, WeightRole::kV, values);
  list.back().nth = n_values_++;
  add(in_.delta_a_in, out_.delta_a_in, WeightRole::kLatent, inner);
  add(in_.delta_z_in, out_.delta_z_in, WeightRole::kLatent, inner);
  add(in_.delta_b, out_.delta_b, WeightRole::kLatent, delta.n_value_heads);
  linear(list, layer, {in_.delta_a, out_.delta_a, WeightRole::kLatent, delta.decays(), inner});
  linear(list, layer, {in_.delta_z, out_.delta_z, WeightRole::kLatent, values, inner});
  for (const char letter : {'q', 'k', 'v'}) {
    const std::string in = with_letter(in_.delta_conv, letter), out = with_letter(out_.delta_conv, letter);
    const int rows = letter == 'v' ? values : keys;
    matrix(list, layer, {in, out, WeightRole::kRouter, rows, config_.conv_taps}).out_deep = true;
  }
  MappedTensor& rate =
      matrix(list, layer, {in_.delta_rate, out_.delta_rate, WeightRole::kRouter, delta.n_value_heads, 1});
  rate.in = in_name(in_.delta_rate, layer), rate.out = out_name(out_.delta_rate, layer);
}

void RecurrenceMapper::delta_by_head(std::vector<MappedTensor>& list, int layer) {
  const DeltaConfig& delta = config_.delta;
  delta_projections(list, layer);
  MappedTensor& conv =
      matrix(list, layer,
             {in_.delta_conv, out_.delta_conv, WeightRole::kRouter, delta.channels(), config_.conv_taps});
  conv.out_deep = out_naming_ != Naming::kGguf;
  conv.rows_from = value_heads(2 * delta.keys(), delta.value_dim);
  layer_vector(list, layer, in_.delta_rate, out_.delta_rate, delta.n_value_heads);
  list.back().rows_from = value_heads(0, 1);
}

void RecurrenceMapper::delta_net(std::vector<MappedTensor>& list, int layer) {
  using Function = MappedTensor::Function;
  const DeltaConfig& delta = config_.delta;
  if (delta.decay_by_key) {
    delta_by_key(list, layer);
  } else {
    delta_by_head(list, layer);
  }
  if (crossing_)
    list.back().function = out_naming_ == Naming::kGguf ? Function::kMinusExp : Function::kLogOfMinus;
  layer_vector(list, layer, in_.delta_bias, out_.delta_bias, delta.decays());
  if (!delta.decay_by_key) list.back().rows_from = value_heads(0, 1);
  layer_vector(list, layer, std::string(in_.delta_norm) + ".weight", std::string(out_.delta_norm) + ".weight",
               delta.value_dim);
  linear(list, layer,
         {in_.delta_out, out_.delta_out, WeightRole::kLatent, config_.model_dim, delta.values(),
          Site::kAttentionOut});
  list.back().cols_from = value_heads(0, delta.value_dim);
}

// GGUF files have columns of what is one number for each head, and of the norm a row for each group.
void RecurrenceMapper::state_space(std::vector<MappedTensor>& list, int layer) {
  using Function = MappedTensor::Function;
  const DeltaConfig& ssm = config_.delta;
  const int dim = config_.model_dim, heads = ssm.n_value_heads, values = ssm.values();
  const bool into_gguf = out_naming_ == Naming::kGguf;
  linear(list, layer,
         {in_.ssm_in, out_.ssm_in, WeightRole::kQkv, values + ssm.channels() + heads, dim, Site::kAttention,
          Part::kScanIn});
  matrix(list, layer, {in_.ssm_conv, out_.ssm_conv, WeightRole::kRouter, ssm.channels(), config_.conv_taps})
      .out_deep = !into_gguf;
  if (has(in_name(in_.ssm_conv, layer) + ".bias"))
    vector(list, layer, std::string(in_.ssm_conv) + ".bias", std::string(out_.ssm_conv) + ".bias",
           ssm.channels());
  const auto numbers = [&](std::string_view in, std::string_view out, int rows, int cols) {
    if (!into_gguf) return layer_vector(list, layer, in, out, rows * cols);
    MappedTensor& tensor = matrix(list, layer, {in, out, WeightRole::kRouter, rows, cols});
    tensor.in = in_name(in, layer), tensor.out = out_name(out, layer);
  };
  numbers(in_.ssm_rate, out_.ssm_rate, heads, 1);
  if (crossing_) list.back().function = into_gguf ? Function::kMinusExp : Function::kLogOfMinus;
  numbers(in_.ssm_skip, out_.ssm_skip, heads, 1);
  layer_vector(list, layer, in_.ssm_bias, out_.ssm_bias, heads);
  if (config_.scan_norm)
    numbers(std::string(in_.ssm_norm) + ".weight", std::string(out_.ssm_norm) + ".weight", ssm.n_key_heads,
            values / ssm.n_key_heads);
  linear(list, layer,
         {in_.ssm_out, out_.ssm_out, WeightRole::kLatent, dim, values, Site::kAttentionOut, Part::kScanOut});
}

}  // namespace penstock
