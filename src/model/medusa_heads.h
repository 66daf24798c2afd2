// Medusa heads (Cai et al. 2024). Head k predicts the token k places after the next one from the
// target's final state: one or more residual layers x + silu(W x + b), then an output matrix of its
// own or the target's. The target predicts the next token itself.
//
// They are loaded from a safetensors file as the reference implementation writes it:
// "{k-1}.{i}.linear.weight" [dim, dim] and ".bias" [dim] for residual layer i,
// "{k-1}.{n_layers}.weight" [vocab, dim] for an output matrix. config.json beside it has
// medusa_num_heads and medusa_num_layers, and may have two additions by Penstock: shared_lm_head
// (there are no output matrices) and medusa_accuracy (see accuracy()).
#pragma once
#include <memory>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "model/model.h"
#include "ops/ops.h"

namespace penstock {

inline constexpr int kMaxMedusaHeads = 16;

class MedusaHeads {
 public:
  // Packs the heads for `ops` in 8 bits, which is enough for a draft. REQUIRES: `target` and `ops`
  // outlive the heads. Errors: kCorruptFile (missing, unknown or misshapen tensors, a config that
  // contradicts them), kUnsupported (made for a target of another width or vocabulary).
  static Result<std::unique_ptr<MedusaHeads>> load(const WeightSource& source, const Model& target,
                                                   Ops& ops);

  int n_heads() const { return static_cast<int>(heads_.size()); }
  int64_t weight_bytes() const { return weight_bytes_; }
  // accuracy()[k][r]: measured probability that the (r + 1)-th most likely token of head k + 1 is
  // right if all tokens before it are; empty if config.json does not say.
  const std::vector<std::vector<float>>& accuracy() const { return accuracy_; }

  // states: F32 [n, model_dim], after the final norm. Returns logits F32 [n_heads * n, vocab_size]
  // of the first n_heads heads; row k * n + i is head k + 1 on state i.
  Tensor forward(Tensor states, int n_heads, Ops& ops) const;

 private:
  struct Layer {
    std::unique_ptr<Weight> weight;  // [dim, dim]
    std::unique_ptr<Vector> bias;    // [dim]
  };
  struct Head {
    std::vector<Layer> layers;
    std::unique_ptr<Weight> output;  // [vocab, dim], null = the target's
  };
  class Loader;

  const Model* target_ = nullptr;
  std::vector<Head> heads_;
  std::vector<std::vector<float>> accuracy_;
  int64_t weight_bytes_ = 0;
};

}  // namespace penstock
