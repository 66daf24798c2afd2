// Gated short convolutions (LFM2): x += out(c * conv(b * v)), where b, c and v are projections of h.
#include "model/decoder.h"
#include "model/weight_loader.h"

namespace penstock {

// [taps, channels] of what files hold by channel, in one tensor or several.
Result<std::unique_ptr<Vector>> RecurrenceLoader::conv_weights(std::span<const ConvPart> parts, int taps,
                                                               std::span<const Range> own) {
  size_t channels = 0, first = 0;
  for (const ConvPart& part : parts) channels += static_cast<size_t>(part.channels);
  std::vector<float> weight(channels * static_cast<size_t>(taps));
  for (const ConvPart& part : parts) {
    const TensorInfo* found = find(part.name);
    const size_t depth = found != nullptr ? found->shape.size() : 0;
    const bool line = taps == 1 && depth == 1;
    // [channels, 1, taps] as PyTorch keeps it, in llama.cpp's files of Kimi Linear with another one before.
    const int64_t shape[] = {1, part.channels, 1, taps}, flat[] = {part.channels, taps};
    const std::span<const int64_t> deep(shape);
    const std::span<const int64_t> wanted = depth == 4 ? deep : depth == 3 ? deep.subspan(1) : flat;
    ASSIGN_OR_RETURN(const std::vector<float> stored, vector(part.name, line ? wanted.first(1) : wanted));
    for (size_t c = 0; c < static_cast<size_t>(part.channels); ++c) {
      for (size_t k = 0; k < static_cast<size_t>(taps); ++k)
        weight[k * channels + first + c] = stored[c * static_cast<size_t>(taps) + k];
    }
    first += static_cast<size_t>(part.channels);
  }
  std::vector<float> of_rank;
  for (size_t k = 0; k < static_cast<size_t>(taps); ++k) {
    for (const Range& range : own) {
      const auto from = weight.begin() + static_cast<ptrdiff_t>(k * channels) + range.first;
      of_rank.insert(of_rank.end(), from, from + range.count);
    }
  }
  return ops_.pack_vector(of_rank);
}

Status RecurrenceLoader::load_short_conv(const std::string& at, ShortConvWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim, taps = config_.conv_taps;
  const Range own = cuts_.conv_channels();
  if (own.count == dim) {
    RETURN_IF_ERROR(linear(name(names_.conv_in), 3 * dim, dim, out.in));
  } else {
    const int rows[] = {dim, dim, dim};
    LinearWeights* const each[] = {&out.before, &out.behind, &out.values};
    const Range parts[] = {own, own, own};
    RETURN_IF_ERROR(fused(name(names_.conv_in), rows, dim, each, {}, parts));
  }
  RETURN_IF_ERROR(linear_columns(name(names_.conv_out), dim, dim, own, out.out));
  const ConvPart conv{name(names_.conv) + ".weight", dim};
  ASSIGN_OR_RETURN(out.weight, conv_weights({&conv, 1}, taps, {&own, 1}));
  ASSIGN_OR_RETURN(const std::vector<float> bias, optional_vector(name(names_.conv) + ".bias", dim));
  if (bias.empty()) return {};
  ASSIGN_OR_RETURN(out.bias, ops_.pack_vector(part_of(bias, own)));
  return {};
}

void DecoderParts::short_conv(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const ShortConvWeights& conv = weights_.layers[i].conv;
  const int dim = config_.short_conv_dim();
  const Tensor before = conv_in_.columns(0, dim), behind = conv_in_.columns(dim, dim),
               values = conv_in_.columns(2 * dim, dim);
  const LinearTarget together[] = {conv.in.into(conv_in_)},
                     each[] = {conv.before.into(before), conv.behind.into(behind), conv.values.into(values)};
  ops_.norm_linear(rounded(h), conv.in.weight ? std::span<const LinearTarget>(together) : each);
  ops_.multiply(values, before);
  ops_.causal_conv(values, {conv.weight.get(), conv.bias.get(), config_.conv_taps, i}, cache_, convolved_);
  ops_.multiply(convolved_, behind);
  add_product(convolved_, conv.out, x, weights_.layers[i].attn_post_norm, next);
}

}  // namespace penstock
