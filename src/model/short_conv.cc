// Gated short convolutions (LFM2): x += out(c * conv(b * v)), where b, c and v are projections of h.
#include "model/decoder.h"
#include "model/weight_loader.h"

namespace penstock {

// [taps, channels] of what files hold by channel.
Result<std::unique_ptr<Vector>> RecurrenceLoader::conv_weights(const std::string& name, int channels,
                                                               int taps) {
  const TensorInfo* found = find(name);
  const bool deep = found != nullptr && found->shape.size() == 3;  // as PyTorch keeps it
  const bool line = taps == 1 && found != nullptr && found->shape.size() == 1;
  const int64_t shape[] = {channels, 1, taps}, flat[] = {channels, taps};
  const std::span<const int64_t> wanted = deep ? std::span<const int64_t>(shape) : flat;
  ASSIGN_OR_RETURN(const std::vector<float> stored, vector(name, line ? wanted.first(1) : wanted));
  std::vector<float> weight(stored.size());
  for (int c = 0; c < channels; ++c) {
    for (int k = 0; k < taps; ++k) {
      weight[static_cast<size_t>(k) * static_cast<size_t>(channels) + static_cast<size_t>(c)] =
          stored[static_cast<size_t>(c) * static_cast<size_t>(taps) + static_cast<size_t>(k)];
    }
  }
  return ops_.pack_vector(weight);
}

Status RecurrenceLoader::load_short_conv(const std::string& at, ShortConvWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim, taps = config_.conv_taps;
  RETURN_IF_ERROR(linear(name(names_.conv_in), 3 * dim, dim, out.in));
  RETURN_IF_ERROR(linear(name(names_.conv_out), dim, dim, out.out));
  ASSIGN_OR_RETURN(out.weight, conv_weights(name(names_.conv) + ".weight", dim, taps));
  ASSIGN_OR_RETURN(const std::vector<float> bias, optional_vector(name(names_.conv) + ".bias", dim));
  if (bias.empty()) return {};
  ASSIGN_OR_RETURN(out.bias, ops_.pack_vector(bias));
  return {};
}

void DecoderParts::short_conv(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const ShortConvWeights& conv = weights_.layers[i].conv;
  const int dim = config_.model_dim;
  const LinearTarget in = conv.in.into(conv_in_);
  ops_.norm_linear(rounded(h), {&in, 1});
  const Tensor before = conv_in_.columns(0, dim), behind = conv_in_.columns(dim, dim),
               values = conv_in_.columns(2 * dim, dim);
  ops_.multiply(values, before);
  ops_.causal_conv(values, {conv.weight.get(), conv.bias.get(), config_.conv_taps, i}, cache_, convolved_);
  ops_.multiply(convolved_, behind);
  add_product(convolved_, conv.out, x, weights_.layers[i].attn_post_norm, next);
}

}  // namespace penstock
