// EAGLE-3's draft layer (Li et al. 2025, arXiv 2503.01840). From the residual streams that three
// layers of the target read at a token, and the embedding of the next token, it predicts the token
// after that:
//   s = fc [streams];  x = s + attention(norm(embedding), norm(s));  x = x + feed_forward(norm(x));
//   logits = output(norm(x))
// Queries, keys and values are projected from both norms, concatenated. To continue from its own
// guess, the layer reads x in the place of s.
//
// It is loaded from a directory as the reference implementation writes it. config.json describes a
// Llama with one layer, and draft_vocab_size. Tensors: fc.weight [dim, 3 * dim]; midlayer.* (or
// layers.0.*) like a Llama's layer, with hidden_norm beside input_layernorm and q_proj, k_proj and
// v_proj [.., 2 * dim]; norm.weight; lm_head.weight [draft_vocab_size, dim]; d2t
// [draft_vocab_size], which is added to the index of a row to give the target's token; t2d, which
// is not read; embed_tokens.weight [vocab_size, dim], by default the target's.
// eagle_config.eagle_aux_hidden_state_layer_ids names the layers whose inputs are read, by default
// 2, n / 2 and n - 3. norm_before_residual: x = norm(s) + attention(...).
#pragma once
#include <memory>
#include <vector>

#include "model/guess_layer.h"

namespace penstock {

struct EagleWeights;

class EagleLayer : public GuessLayer {
 public:
  // REQUIRES: `target` outlives the layer. Errors: kCorruptFile (missing, unknown or misshapen
  // tensors, numbers out of range), kUnsupported (made for a target of another width or vocabulary,
  // or the layers of the target cannot be tapped).
  static Result<std::unique_ptr<EagleLayer>> load(std::unique_ptr<WeightSource> source,
                                                  const Model& target, Ops& ops);
  ~EagleLayer() override;

  CacheSpec cache_spec(KvDType dtype, int block_size) const override {
    return config_.cache_spec(dtype, block_size);
  }
  bool takes_long_rope(int64_t reach) const override;
  int64_t weight_bytes() const override { return weight_bytes_; }
  std::span<const int> taps() const override { return taps_; }
  std::span<const TokenId> vocabulary() const override { return vocabulary_; }
  // REQUIRES: !options.all_states: no layer reads its states but itself.
  StepOutputs forward(const Batch& batch, std::span<const float> states, GuessOptions options,
                      KvCache& cache, Ops& ops) const override;

 private:
  EagleLayer(std::unique_ptr<WeightSource> source, const Model& target, ModelConfig config);
  Status read_taps();
  Status read_vocabulary();

  std::unique_ptr<WeightSource> source_;  // a backend may keep views into it
  const Model& target_;
  const ModelConfig config_;  // of one layer
  int draft_vocab_ = 0;
  bool norm_before_residual_ = false;
  std::vector<int> taps_;
  std::vector<TokenId> vocabulary_;
  std::unique_ptr<EagleWeights> weights_;
  int64_t weight_bytes_ = 0;
};

}  // namespace penstock
