// Gated delta networks (Qwen3-Next): x += out(norm(delta rule of silu(conv(q, k, v))) * silu(z)), where q, k, v, z and two
// numbers for each value head are projections of h.
#include "model/decoder.h"
#include "model/names.h"
#include "model/weight_loader.h"

namespace penstock {

Status RecurrenceLoader::load_delta_projections(const std::string& at, DeltaNetWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const DeltaConfig& delta = config_.delta;
  const int dim = config_.model_dim, channels = delta.channels(), values = delta.values();
  const auto apart = [&](std::string_view fused, std::string_view separate) {
    return fused.empty() || (!separate.empty() && !has_matrix(name(fused) + ".weight"));
  };
  if (apart(names_.delta_qkvz, names_.delta_qkv)) {
    RETURN_IF_ERROR(linear(name(names_.delta_qkv), channels, dim, out.qkv));
    RETURN_IF_ERROR(linear(name(names_.delta_z), values, dim, out.z));
  } else {
    const int rows[] = {channels, values};
    LinearWeights* const parts[] = {&out.qkv, &out.z};
    RETURN_IF_ERROR(fused(name(names_.delta_qkvz), rows, dim, parts, qkvz_rows(delta)));
  }
  if (apart(names_.delta_ba, names_.delta_a)) {
    RETURN_IF_ERROR(linear(name(names_.delta_a), delta.n_value_heads, dim, out.a));
    return linear(name(names_.delta_b), delta.n_value_heads, dim, out.b);
  }
  const int rows[] = {delta.n_value_heads, delta.n_value_heads};
  LinearWeights* const parts[] = {&out.b, &out.a};
  return fused(name(names_.delta_ba), rows, dim, parts, ba_rows(delta));
}

Status RecurrenceLoader::load_delta_net(const std::string& at, DeltaNetWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const DeltaConfig& delta = config_.delta;
  RETURN_IF_ERROR(load_delta_projections(at, out));
  ASSIGN_OR_RETURN(out.conv,
                   conv_weights(name(names_.delta_conv) + ".weight", delta.channels(), config_.conv_taps));
  ASSIGN_OR_RETURN(std::vector<float> rate, vector(name(names_.delta_rate), delta.n_value_heads));
  // Directories have the logarithm of what GGUF files have negated.
  if (source_.naming() == Naming::kHuggingFace) {
    for (float& value : rate) value = -std::exp(value);
  }
  ASSIGN_OR_RETURN(out.rate, ops_.pack_vector(rate));
  ASSIGN_OR_RETURN(const std::vector<float> bias, vector(name(names_.delta_bias), delta.n_value_heads));
  ASSIGN_OR_RETURN(out.bias, ops_.pack_vector(bias));
  ASSIGN_OR_RETURN(const std::vector<float> norm,
                   vector(name(names_.delta_norm) + ".weight", delta.value_dim));
  ASSIGN_OR_RETURN(out.norm, ops_.pack_vector(norm));  // stored as it is applied
  return linear(name(names_.delta_out), config_.model_dim, delta.values(), out.out);
}

void DecoderParts::delta_net(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const DeltaNetWeights& net = weights_.layers[i].delta;
  const DeltaConfig& delta = config_.delta;
  const LinearTarget projections[] = {net.qkv.into(conv_in_), net.z.into(delta_z_), net.a.into(delta_a_),
                                      net.b.into(delta_b_)};
  ops_.norm_linear(rounded(h), projections);
  ops_.causal_conv(conv_in_, {net.conv.get(), nullptr, config_.conv_taps, i}, cache_, convolved_);
  ops_.activate(convolved_, config_.activation);
  const DeltaParams params{net.rate.get(),
                           net.bias.get(),
                           delta.n_key_heads,
                           delta.n_value_heads,
                           delta.key_dim,
                           delta.value_dim,
                           delta.key_heads_in_turn,
                           i,
                           delta.state_offset(config_.conv_taps)};
  ops_.gated_delta(convolved_, delta_a_, delta_b_, params, cache_, delta_out_);
  const Tensor heads = delta_out_.reshaped(delta.value_dim);
  ops_.norm(heads, {net.norm.get(), nullptr, config_.norm_eps}, heads);
  ops_.activate_mul(delta_z_, delta_out_, Activation::kSilu, delta_out_);
  add_product(delta_out_, net.out, x, weights_.layers[i].attn_post_norm, next);
}

}  // namespace penstock
