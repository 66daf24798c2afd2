// Gated delta networks (Qwen3-Next): x += out(norm(delta rule of silu(conv(q, k, v))) * silu(z)), where q, k, v, z and two
// numbers for each value head are projections of h. Kimi Delta Attention (arXiv 2510.26692): decays by key, and sigmoid(z).
#include "model/decoder.h"
#include "model/names.h"
#include "model/weight_loader.h"

namespace penstock {

// Those of Kimi Delta Attention, each by itself.
Status RecurrenceLoader::load_delta_by_key(const std::string& at, DeltaNetWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const DeltaConfig& delta = config_.delta;
  const int dim = config_.model_dim, inner = delta.key_dim;
  const Range decays = times(cuts_.value_heads(), delta.key_dim);
  RETURN_IF_ERROR(linear_rows(name(names_.q), delta.keys(), dim, own_keys(), out.q));
  RETURN_IF_ERROR(linear_rows(name(names_.k), delta.keys(), dim, own_keys(), out.k));
  RETURN_IF_ERROR(linear_rows(name(names_.v), delta.values(), dim, own_values(), out.v));
  RETURN_IF_ERROR(linear(name(names_.delta_a_in), inner, dim, out.a_in));
  RETURN_IF_ERROR(linear_rows(name(names_.delta_a), delta.decays(), inner, decays, out.a));
  RETURN_IF_ERROR(linear(name(names_.delta_z_in), inner, dim, out.z_in));
  RETURN_IF_ERROR(linear_rows(name(names_.delta_z), delta.values(), inner, own_values(), out.z));
  return linear_rows(name(names_.delta_b), delta.n_value_heads, dim, cuts_.value_heads(), out.b);
}

// Queries, keys and values in one tensor.
Status RecurrenceLoader::load_channels(const std::string& stem, DeltaNetWeights& out) {
  const DeltaConfig& delta = config_.delta;
  if (!cuts_.cuts_recurrence()) return linear(stem, delta.channels(), config_.model_dim, out.qkv);
  const int rows[] = {delta.keys(), delta.keys(), delta.values()};
  LinearWeights* const parts[] = {&out.q, &out.k, &out.v};
  const Range own[] = {own_keys(), own_keys(), own_values()};
  return fused(stem, rows, config_.model_dim, parts, {}, own);
}

Status RecurrenceLoader::load_delta_projections(const std::string& at, DeltaNetWeights& out) {
  if (config_.delta.decay_by_key) return load_delta_by_key(at, out);
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const DeltaConfig& delta = config_.delta;
  const int dim = config_.model_dim, keys = delta.keys(), values = delta.values();
  const Range own[] = {own_keys(), own_keys(), own_values(), own_values()}, heads = cuts_.value_heads();
  const auto apart = [&](std::string_view fused, std::string_view separate) {
    return fused.empty() || (!separate.empty() && !has_matrix(name(fused) + ".weight"));
  };
  if (apart(names_.delta_qkvz, names_.delta_qkv)) {
    RETURN_IF_ERROR(load_channels(name(names_.delta_qkv), out));
    RETURN_IF_ERROR(linear_rows(name(names_.delta_z), values, dim, own_values(), out.z));
  } else if (cuts_.cuts_recurrence()) {
    const int rows[] = {keys, keys, values, values};
    LinearWeights* const parts[] = {&out.q, &out.k, &out.v, &out.z};
    RETURN_IF_ERROR(fused(name(names_.delta_qkvz), rows, dim, parts, qkvz_rows(delta), own));
  } else {
    const int rows[] = {delta.channels(), values};
    LinearWeights* const parts[] = {&out.qkv, &out.z};
    RETURN_IF_ERROR(fused(name(names_.delta_qkvz), rows, dim, parts, qkvz_rows(delta)));
  }
  if (apart(names_.delta_ba, names_.delta_a)) {
    RETURN_IF_ERROR(linear_rows(name(names_.delta_a), delta.n_value_heads, dim, heads, out.a));
    return linear_rows(name(names_.delta_b), delta.n_value_heads, dim, heads, out.b);
  }
  const int rows[] = {delta.n_value_heads, delta.n_value_heads};
  LinearWeights* const parts[] = {&out.b, &out.a};
  const Range own_heads[] = {heads, heads};
  return fused(name(names_.delta_ba), rows, dim, parts, ba_rows(delta), own_heads);
}

// Of decays by key they are [1, 1, heads, 1], in GGUF files perhaps without the outer dimensions.
Result<std::vector<float>> RecurrenceLoader::delta_rates(const std::string& name) {
  const int64_t heads = config_.delta.n_value_heads, shape[] = {1, 1, heads, 1};
  if (!config_.delta.decay_by_key) return vector(name, heads);
  const TensorInfo* found = find(name);
  const bool flat = found != nullptr && found->shape.size() == 2;
  return vector(name, std::span<const int64_t>(shape).subspan(flat ? 2 : 0));
}

Status RecurrenceLoader::load_delta_net(const std::string& at, DeltaNetWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const DeltaConfig& delta = config_.delta;
  RETURN_IF_ERROR(load_delta_projections(at, out));
  const ConvPart together[] = {{name(names_.delta_conv) + ".weight", delta.channels()}};
  const ConvPart apart[] = {{with_letter(name(names_.delta_conv), 'q') + ".weight", delta.keys()},
                            {with_letter(name(names_.delta_conv), 'k') + ".weight", delta.keys()},
                            {with_letter(name(names_.delta_conv), 'v') + ".weight", delta.values()}};
  const std::span<const ConvPart> parts = delta.decay_by_key ? std::span<const ConvPart>(apart) : together;
  const Range own[] = {own_keys(), behind(delta.keys(), own_keys()), behind(2 * delta.keys(), own_values())};
  ASSIGN_OR_RETURN(out.conv, conv_weights(parts, config_.conv_taps, own));
  ASSIGN_OR_RETURN(std::vector<float> rate, delta_rates(name(names_.delta_rate)));
  // Directories have the logarithm of what GGUF files have negated.
  if (source_.naming() == Naming::kHuggingFace) {
    for (float& value : rate) value = -std::exp(value);
  }
  const Range heads = cuts_.value_heads();
  ASSIGN_OR_RETURN(out.rate, ops_.pack_vector(part_of(rate, heads)));
  ASSIGN_OR_RETURN(const std::vector<float> bias, vector(name(names_.delta_bias), delta.decays()));
  ASSIGN_OR_RETURN(out.bias,
                   ops_.pack_vector(part_of(bias, times(heads, delta.decays() / delta.n_value_heads))));
  ASSIGN_OR_RETURN(const std::vector<float> norm,
                   vector(name(names_.delta_norm) + ".weight", delta.value_dim));
  ASSIGN_OR_RETURN(out.norm, ops_.pack_vector(norm));  // stored as it is applied
  return linear_columns(name(names_.delta_out), config_.model_dim, delta.values(), own_values(), out.out);
}

// conv_in_, delta_a_, delta_b_ and delta_z_ of h.
void DecoderParts::project_delta(const DeltaNetWeights& net, const NormedInput& h) {
  const DeltaConfig& delta = config_.delta;
  const int keys = delta.keys();
  const Tensor q = conv_in_.columns(0, keys), k = conv_in_.columns(keys, keys),
               v = conv_in_.columns(2 * keys, delta.values());
  if (!delta.decay_by_key) {
    const LinearTarget rest[] = {net.z.into(delta_z_), net.a.into(delta_a_), net.b.into(delta_b_)};
    if (net.qkv.weight) {
      const LinearTarget all[] = {net.qkv.into(conv_in_), rest[0], rest[1], rest[2]};
      return ops_.norm_linear(rounded(h), all);
    }
    const LinearTarget all[] = {net.q.into(q), net.k.into(k), net.v.into(v), rest[0], rest[1], rest[2]};
    return ops_.norm_linear(rounded(h), all);
  }
  const LinearTarget projections[] = {net.q.into(q),
                                      net.k.into(k),
                                      net.v.into(v),
                                      net.a_in.into(delta_a_in_),
                                      net.z_in.into(delta_z_in_),
                                      net.b.into(delta_b_)};
  ops_.norm_linear(rounded(h), projections);
  const LinearTarget decays = net.a.into(delta_a_), gates = net.z.into(delta_z_);
  ops_.linear(delta_a_in_, {&decays, 1});
  ops_.linear(delta_z_in_, {&gates, 1});
}

void DecoderParts::delta_net(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const DeltaNetWeights& net = weights_.layers[i].delta;
  const DeltaConfig& delta = config_.delta;
  project_delta(net, h);
  ops_.causal_conv(conv_in_, {net.conv.get(), nullptr, config_.conv_taps, i}, cache_, convolved_);
  ops_.activate(convolved_, config_.activation);
  const DeltaParams params{net.rate.get(),
                           net.bias.get(),
                           delta.n_key_heads,
                           delta.n_value_heads,
                           delta.key_dim,
                           delta.value_dim,
                           delta.key_heads_in_turn,
                           delta.decay_by_key,
                           i,
                           delta.state_offset(config_.conv_taps)};
  ops_.gated_delta(convolved_, delta_a_, delta_b_, params, cache_, delta_out_);
  const Tensor heads = delta_out_.reshaped(delta.value_dim);
  ops_.norm(heads, {net.norm.get(), nullptr, config_.norm_eps}, heads);
  ops_.activate_mul(delta_z_, delta_out_, delta.decay_by_key ? Activation::kSigmoid : Activation::kSilu,
                    delta_out_);
  add_product(delta_out_, net.out, x, weights_.layers[i].attn_post_norm, next);
}

}  // namespace penstock
