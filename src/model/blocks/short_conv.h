// Gated short convolutions (LFM2): x += out(c * conv(b * v)), where b, c and v are projections of
// h.
#pragma once
#include "model/blocks/mixer.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kConvIn{"shortconv.in_proj", "conv.in_proj"};
inline constexpr TensorName kConv{"shortconv.conv", "conv.conv"};
inline constexpr TensorName kConvOut{"shortconv.out_proj", "conv.out_proj"};
}  // namespace tensor

// taps: number of tokens that the convolution reads, the current one included.
std::shared_ptr<const Mixer> short_conv(int taps);
// Returns the taps of the first layer with a short convolution; 0 if no layer has one.
int short_conv_taps(const ModelConfig& config);

}  // namespace penstock
