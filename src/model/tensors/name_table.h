// The names of tensors in files.
#pragma once
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

// What a tensor is called in GGUF files and in Hugging Face directories, where an architecture does not call it otherwise; "" = such files do
// not have it. Without ".weight" and ".bias" but where a name is said to be whole. Names in layers follow NameTable::layer. A constant:
// its address is its identity.
struct TensorName {
  std::string_view gguf, hf;
};

namespace tensor {
// Of a layer, around its blocks. activation: what names of xIELU's parameters begin with.
inline constexpr TensorName kAttnNorm{"attn_norm", "input_layernorm"};
inline constexpr TensorName kAttnPostNorm{"post_attention_norm", "post_attention_layernorm"};
inline constexpr TensorName kFfnNorm{"ffn_norm", ""};
inline constexpr TensorName kFfnPostNorm{"post_ffw_norm", "post_feedforward_layernorm"};
inline constexpr TensorName kOutputScale{"layer_output_scale.weight", ""};
inline constexpr TensorName kActivation{"", "mlp.act_fn."};
}  // namespace tensor

// The names that one naming has for an architecture.
class NameTable {
 public:
  explicit NameTable(bool gguf = true) : gguf_(gguf) {}

  std::string_view operator[](const TensorName& name) const {
    for (const auto& [changed, own] : changed_)
      if (changed == &name) return own;
    return gguf_ ? name.gguf : name.hf;
  }
  // Of an architecture that calls it otherwise.
  std::string_view& operator[](const TensorName& name) {
    for (auto& [changed, own] : changed_)
      if (changed == &name) return own;
    return changed_.emplace_back(&name, gguf_ ? name.gguf : name.hf).second;
  }

  std::string_view embedding, embedding_norm, positions, token_types, final_norm, lm_head;
  std::string_view layer;       // what names of a layer's tensors begin with; {} is the layer's index
  bool groups_in_turn = false;  // GroupedHeads lie as the first of every group, then the second, and so on
  bool bare_ffn_norm = false;   // ffn_norm has no ".weight"
  bool up_before_gate = false;  // in gate_up
  std::string_view other_gate, other_up,
      other_down;  // of gate, up and down in some files; see choose_names()
  // Fused experts: transposed, [n_experts, in, out]; interleaved, gate and up in turn, not one after the other.
  bool experts_transposed = false, experts_interleaved = false;
  bool fused_expert_biases = false;  // named as the matrices, with _bias behind
  // What names of the layer that predicts a token further begin with, where it is not simply behind the last.
  std::string_view next_token;
  std::vector<std::string_view> prefixes = {
      ""};                  // of all names but lm_head; the first that fits the file is used
  bool transposed = false;  // matrices are stored [in, out] (Conv1D)

 private:
  bool gguf_;
  std::deque<std::pair<const TensorName*, std::string_view>> changed_;  // references to them last
};

}  // namespace penstock
