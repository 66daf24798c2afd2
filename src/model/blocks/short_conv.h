// Gated short convolutions (LFM2): x += out(c * conv(b * v)), where b, c and v are projections of h.
#pragma once
#include "model/blocks/mixer.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kConvIn{"shortconv.in_proj", "conv.in_proj"};
inline constexpr TensorName kConv{"shortconv.conv", "conv.conv"};
inline constexpr TensorName kConvOut{"shortconv.out_proj", "conv.out_proj"};
}  // namespace tensor

// taps: tokens that a convolution sees, itself included.
std::shared_ptr<const Mixer> short_conv(int taps);
// Of the first layer that has one; 0: there is none.
int short_conv_taps(const ModelConfig& config);

}  // namespace penstock
