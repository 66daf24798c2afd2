// Tensor parallelism: which part of a model each rank has. Attention is cut by heads: rows of the
// query, key and value matrices, columns of the output projection. Feed-forwards and experts are
// cut by features: rows of the first matrices, columns of the last. Embedding and output layer are
// cut by rows of the vocabulary. A matrix cut by columns gives a partial sum, which is reduced over
// the ranks (LinearWeights::partial); a matrix that is not cut is complete on every rank and not
// reduced.
//
// Cuts depend on the configuration alone, so that all ranks agree on them. The loader widens a cut
// to whole encoding blocks (LinearWeights::lead).
#pragma once
#include "model/blocks/config.h"
#include "parallel/shard.h"

namespace penstock {

struct ShardOptions {
  Shard shard;
  bool cuts_vocabulary = true;
  Stage stage;
  bool is_part() const { return shard.n_ranks > 1 || stage.count > 1; }
};

class ModelCuts {
 public:
  // cuts_vocabulary: false if code on rank 0 looks tokens up and computes logits by itself
  // (drafters that share these matrices). REQUIRES: `whole` outlives this object.
  explicit ModelCuts(const ModelConfig& whole, Shard shard = {}, bool cuts_vocabulary = true);

  Shard shard() const { return shard_; }
  const ModelConfig& whole() const { return whole_; }
  // Returns the configuration of one rank's model, with its numbers of heads and features.
  ModelConfig rank_config() const;

  // Heads of queries of this rank. They are not cut if a norm reads all heads of a token, if
  // activations are rounded by rows, or if there are fewer heads than ranks. Otherwise every KV
  // head of a rank has equally many queries: KV heads are distributed, or, if there are fewer KV
  // heads than ranks, each is on several ranks. The latent of latent attention is on all ranks.
  Shard::Range heads(int layer) const;
  Shard::Range kv_heads(int layer) const;
  // Groups of heads whose output has a projection of its own (CompressedConfig): a rank's heads are
  // those of its groups.
  Shard::Range output_groups() const;
  // Features of dense feed-forwards. They are not cut if a norm or a cutoff reads all features of a
  // token, or if activations are rounded by rows.
  Shard::Range ffn(int layer) const;
  Shard::Range expert_ffn() const { return expert_features(whole_.experts.ffn_dim); }
  Shard::Range expert_features(int n) const;  // of experts that have n
  Shard::Range shared_ffn() const;            // cut if experts are
  // Heads of a mixer that form groups of neighbours, cut as heads of attention and their KV heads.
  // They are not cut if activations are rounded by rows or if there are fewer heads than ranks.
  struct HeadCut {
    Shard::Range heads, groups;
  };
  HeadCut cut_groups(int n_heads, int n_groups) const;
  // Part of n features that a block computes independently of each other; all of them if
  // activations are rounded by rows.
  Shard::Range features(int n) const;
  Shard::Range vocabulary() const {
    return cuts_vocabulary_ ? shard_.range(whole_.vocab_size) : Shard::Range{0, whole_.vocab_size};
  }

 private:
  bool can_cut_heads() const;
  bool layers_of_heads_differ() const;
  bool can_cut_experts() const;
  Shard::Range cut_features(int n) const;

  const ModelConfig& whole_;
  Shard shard_;
  bool cuts_vocabulary_ = true, cuts_heads_ = false, cuts_experts_ = false;
};

}  // namespace penstock
