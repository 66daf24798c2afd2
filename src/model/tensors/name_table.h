// The names of tensors in files.
#pragma once
#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

// Names of one tensor in GGUF files and in Hugging Face directories, for architectures that do not
// rename it; "" means that such files do not have it. Names are without ".weight" and ".bias"
// unless a comment calls them whole names. Names of a layer's tensors follow NameTable::layer.
// Every TensorName is a constant whose address identifies it.
struct TensorName {
  std::string_view gguf, hf;
};

namespace tensor {
// Tensors of a layer that belong to none of its blocks: the norms between them and the scale of its
// output. kActivation is the prefix of xIELU's parameters.
inline constexpr TensorName kAttnNorm{"attn_norm", "input_layernorm"};
// whole name, outside of layers
inline constexpr TensorName kRopeLogs{"", ""};
inline constexpr TensorName kFirstState{"", ""};  // likewise
inline constexpr TensorName kAttnPostNorm{"post_attention_norm", "post_attention_layernorm"};
inline constexpr TensorName kAttnAgainNorm{"attn_norm_2", "layer_norm_1"};
inline constexpr TensorName kFfnNorm{"ffn_norm", ""};
inline constexpr TensorName kFfnPostNorm{"post_ffw_norm", "post_feedforward_layernorm"};
inline constexpr TensorName kOutputScale{"layer_output_scale.weight", ""};
// kAttnScale, kFfnScale: whole names of what the sub-layers' outputs are multiplied by.
inline constexpr TensorName kAttnScale{"ls1.weight", "lambda_1"};
inline constexpr TensorName kFfnScale{"ls2.weight", "lambda_2"};
inline constexpr TensorName kActivation{"", "mlp.act_fn."};
}  // namespace tensor

// Tensor names of one architecture in one file format. Thread-compatible: const calls from any
// thread.
class NameTable {
 public:
  explicit NameTable(bool gguf = true) : gguf_(gguf) {}

  std::string_view operator[](const TensorName& name) const {
    for (const auto& [changed, own] : changed_)
      if (changed == &name) return own;
    return gguf_ ? name.gguf : name.hf;
  }
  // Returns the name to overwrite, for an architecture that renames this tensor.
  std::string_view& operator[](const TensorName& name) {
    for (auto& [changed, own] : changed_)
      if (changed == &name) return own;
    return changed_.emplace_back(&name, gguf_ ? name.gguf : name.hf).second;
  }

  std::string_view embedding, embedding_norm, embedding_projection, positions, token_types,
      final_norm, lm_head;
  // prefix of a layer's tensors; {} is the index of the layer
  std::string_view layer;
  // Layers that have one index in the file; which of them a tensor belongs to is @ in its name
  // (LongCat).
  int layers_per_index = 1;
  // Prefix of each layer's tensors, where neither `layer` nor its index says it; empty: they do.
  std::vector<std::string> layer_prefixes;
  // Index of each layer's first block, in files where blocks of a layer have an index each: names then
  // begin with @ and the number of their block (Dory). Empty: layers have one index.
  std::vector<int> first_blocks;
  // By layer, what @ stands for instead (Zamba 2: layers inside others).
  std::vector<std::string> at_layers;
  // Heads of GroupedHeads are stored strided: the first head of every group, then the second of
  // every group, and so on. False: group after group.
  bool groups_in_turn = false;
  // Norms that are stored without ".weight", and without the offset of others (NormConfig::offset).
  std::vector<const TensorName*> bare_norms;
  // What follows the name of a norm.
  std::string_view ending(const TensorName& norm) const {
    const bool bare = std::ranges::find(bare_norms, &norm) != bare_norms.end();
    return bare ? "" : ".weight";
  }
  // Rows of a fused gate_up matrix alternate, of dense feed-forwards.
  bool gate_and_up_alternate = false;
  // Order of the rows of a fused gate_up matrix: up rows first.
  bool up_before_gate = false;
  // Alternative names of gate, up and down projections, which some files have; see choose_names().
  std::string_view other_gate, other_up, other_down;
  // Layout of fused experts. experts_transposed: [n_experts, in, out]. experts_interleaved: gate
  // and up rows alternate; false: all gate rows, then all up rows.
  bool experts_transposed = false, experts_interleaved = false;
  // Matrices of all experts are one, in tensors of whole names: gate and up [n_experts * ffn, dim],
  // down transposed to the same shape (DBRX).
  bool experts_flat = false;
  // biases have the names of fused matrices with the suffix "_bias"
  bool fused_expert_biases = false;
  // Prefix of the tensors of the layer that predicts one token further (NextTokenLayer); "" where
  // that layer is stored as the layer after the last one.
  std::string_view next_token;
  // Prefixes of all names but lm_head. The first one that fits the file is used.
  std::vector<std::string_view> prefixes = {""};
  bool transposed = false;  // matrices are stored [in, out] (Conv1D)

 private:
  bool gguf_;
  // A deque, so that references to its elements stay valid.
  std::deque<std::pair<const TensorName*, std::string_view>> changed_;
};

}  // namespace penstock
