// Cross-attention (Whisper): x += out(attention of q(norm(x)) over keys and values of an encoder's
// rows), behind the attention of a layer.
//
// Keys and values are made of the rows when a sequence begins (Batch::encoded), and are its state.
#pragma once
#include "model/blocks/mixer.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kCrossNorm{"cross_attn_norm", "encoder_attn_layer_norm"};
inline constexpr TensorName kCrossQ{"cross_attn_q", "encoder_attn.q_proj"};
inline constexpr TensorName kCrossK{"cross_attn_k", "encoder_attn.k_proj"};
inline constexpr TensorName kCrossV{"cross_attn_v", "encoder_attn.v_proj"};
inline constexpr TensorName kCrossO{"cross_attn_output", "encoder_attn.out_proj"};
}  // namespace tensor

// The model's heads attend to ModelConfig::encoder_rows rows of model_dim features.
std::shared_ptr<const Mixer> cross_attention(int encoder_rows);

}  // namespace penstock
