// Scans of Mamba 2: x += out(norm(scan of silu(conv(x, B, C)) * silu(z))), where z, x, B, C and a time step for each head
// are one projection of h. There may be no norm, or the gate behind it.
#include "model/decoder.h"
#include "model/weight_loader.h"

namespace penstock {

Status RecurrenceLoader::load_scan_projections(const std::string& stem, DeltaNetWeights& out) {
  const DeltaConfig& ssm = config_.delta;
  const int values = ssm.values(), groups = ssm.keys(), heads = ssm.n_value_heads;
  if (!cuts_.cuts_recurrence()) {
    const int rows[] = {values, ssm.channels(), heads};
    LinearWeights* const parts[] = {&out.z, &out.qkv, &out.a};
    return fused(stem, rows, config_.model_dim, parts);
  }
  const int rows[] = {values, values, groups, groups, heads};
  LinearWeights* const parts[] = {&out.z, &out.q, &out.k, &out.v, &out.a};
  const Range own[] = {own_values(), own_values(), own_keys(), own_keys(), cuts_.value_heads()};
  return fused(stem, rows, config_.model_dim, parts, {}, own);
}

Status RecurrenceLoader::load_state_space(const std::string& at, DeltaNetWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const DeltaConfig& ssm = config_.delta;
  const int dim = config_.model_dim, channels = ssm.channels(), heads = ssm.n_value_heads;
  const Range own_heads = cuts_.value_heads();
  const Range own_channels[] = {own_values(), behind(ssm.values(), own_keys()),
                                behind(ssm.values() + ssm.keys(), own_keys())};
  RETURN_IF_ERROR(load_scan_projections(name(names_.ssm_in), out));
  const ConvPart conv{name(names_.ssm_conv) + ".weight", channels};
  ASSIGN_OR_RETURN(out.conv, conv_weights({&conv, 1}, config_.conv_taps, own_channels));
  ASSIGN_OR_RETURN(const std::vector<float> bias, optional_vector(name(names_.ssm_conv) + ".bias", channels));
  if (!bias.empty()) {
    std::vector<float> own;
    for (const Range& range : own_channels) {
      const auto part = part_of(bias, range);
      own.insert(own.end(), part.begin(), part.end());
    }
    ASSIGN_OR_RETURN(out.conv_bias, ops_.pack_vector(own));
  }
  // GGUF files have columns of them, and of the norm a row for each group.
  const auto numbers = [&](const std::string& of, int64_t n, int64_t per_row) -> Result<std::vector<float>> {
    const TensorInfo* found = find(of);
    const int64_t flat[] = {n}, deep[] = {n / per_row, per_row};
    const bool is_deep = found != nullptr && found->shape.size() == 2;
    return vector(of, is_deep ? std::span<const int64_t>(deep) : std::span<const int64_t>(flat));
  };
  ASSIGN_OR_RETURN(std::vector<float> rate, numbers(name(names_.ssm_rate), heads, 1));
  // Directories have the logarithm of what GGUF files have negated.
  if (source_.naming() == Naming::kHuggingFace) {
    for (float& value : rate) value = -std::exp(value);
  }
  ASSIGN_OR_RETURN(out.rate, ops_.pack_vector(part_of(rate, own_heads)));
  ASSIGN_OR_RETURN(const std::vector<float> skip, numbers(name(names_.ssm_skip), heads, 1));
  ASSIGN_OR_RETURN(out.skip, ops_.pack_vector(part_of(skip, own_heads)));
  ASSIGN_OR_RETURN(const std::vector<float> steps, vector(name(names_.ssm_bias), heads));
  ASSIGN_OR_RETURN(out.bias, ops_.pack_vector(part_of(steps, own_heads)));
  if (config_.scan_norm) {
    const int in_group = ssm.values() / ssm.n_key_heads;
    ASSIGN_OR_RETURN(const std::vector<float> norm,
                     numbers(name(names_.ssm_norm) + ".weight", ssm.values(), in_group));
    ASSIGN_OR_RETURN(out.norm, ops_.pack_vector(part_of(norm, own_values())));
  }
  return linear_columns(name(names_.ssm_out), dim, ssm.values(), own_values(), out.out);
}

void DecoderParts::state_space(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const DeltaNetWeights& net = weights_.layers[i].delta;
  const DeltaConfig& ssm = config_.delta;
  const Tensor scanned = conv_in_.columns(0, ssm.values()), b = conv_in_.columns(ssm.values(), ssm.keys()),
               c = conv_in_.columns(ssm.values() + ssm.keys(), ssm.keys());
  const LinearTarget z = net.z.into(delta_z_), step = net.a.into(delta_a_);
  const LinearTarget together[] = {z, net.qkv.into(conv_in_), step},
                     each[] = {z, net.q.into(scanned), net.k.into(b), net.v.into(c), step};
  ops_.norm_linear(rounded(h), net.qkv.weight ? std::span<const LinearTarget>(together) : each);
  const Multipliers& by = config_.multipliers;
  multiply(delta_z_, by.z);
  multiply(scanned, by.x);
  multiply(b, by.b);
  multiply(c, by.c);
  multiply(delta_a_, by.step);
  ops_.causal_conv(conv_in_, {net.conv.get(), net.conv_bias.get(), config_.conv_taps, i}, cache_, convolved_);
  ops_.activate(convolved_, Activation::kSilu);
  StateSpaceParams params;
  params.rate = net.rate.get(), params.bias = net.bias.get(), params.skip = net.skip.get();
  params.n_groups = ssm.n_key_heads, params.n_heads = ssm.n_value_heads;
  params.state_dim = ssm.key_dim, params.head_dim = ssm.value_dim;
  params.min_step = config_.min_time_step, params.max_step = config_.max_time_step;
  params.layer = i, params.state_offset = ssm.state_offset(config_.conv_taps);
  ops_.state_space(convolved_, delta_a_, delta_b_, params, cache_, delta_out_);
  const auto norm = [&] {
    const Tensor groups = delta_out_.reshaped(ssm.values() / ssm.n_key_heads);
    if (config_.scan_norm) ops_.norm(groups, {net.norm.get(), nullptr, config_.norm_eps}, groups);
  };
  if (config_.norm_before_gate) norm();
  ops_.activate_mul(delta_z_, delta_out_, Activation::kSilu, delta_out_);
  if (!config_.norm_before_gate) norm();
  add_product(delta_out_, net.out, x, weights_.layers[i].attn_post_norm, next, by.scan_out);
}

// x += attention(h) + scan(h), each of its own multiple of h.
void DecoderParts::attention_beside_scan(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const Tensor attention_in = ops_.materialize(h);
  ops_.copy(attention_in, scan_in_);
  multiply(attention_in, config_.multipliers.attention_in);
  multiply(scan_in_, config_.multipliers.scan_in);
  attention_of_heads(i, {attention_in, {}, attention_in}, x, nullptr);
  state_space(i, {scan_in_, {}, scan_in_}, x, next);
}

}  // namespace penstock
