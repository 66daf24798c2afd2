// Which part of a model each of several ranks has (tensor parallelism): heads of attention with their rows of the query, key and
// value matrices and their columns of the output projection; features of feed-forwards and experts, rows of the first matrices and
// columns of the last; rows of the vocabulary. What is cut gives a share of a sum over the ranks (LinearWeights::partial), what is
// not is whole on every rank and no sum is taken.
//
// It follows from the configuration alone, so that all ranks agree; how encodings lie is for the loader (LinearWeights::lead).
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
  // cuts_vocabulary: false where somebody on rank 0 looks tokens up and makes logits by itself (drafters that share these matrices).
  explicit ModelCuts(const ModelConfig& whole, Shard shard = {}, bool cuts_vocabulary = true);

  Shard shard() const { return shard_; }
  const ModelConfig& whole() const { return whole_; }
  // Of one rank's model: its numbers of heads and features.
  ModelConfig rank_config() const;

  // Whole: where a norm reads all heads of a token, where activations are rounded by rows, and where there are fewer heads than
  // ranks. Heads are cut so that on every rank each KV head has equally many: by KV heads, or where there are fewer of these than
  // ranks, each KV head is on several ranks. The latent of attention over latents is on all.
  Shard::Range heads() const { return heads_; }
  Shard::Range kv_heads(int layer) const;
  // Whole: where a norm or a cutoff reads all features of a token, where activations are rounded by rows.
  Shard::Range ffn(int layer) const;
  Shard::Range expert_ffn() const;
  Shard::Range shared_ffn() const;  // cut where experts are
  // Of a mixer's heads, whose neighbours are groups: cut as heads of attention and their KV heads. Whole: where activations are rounded by
  // rows, and where there are fewer heads than ranks.
  struct HeadCut {
    Shard::Range heads, groups;
  };
  HeadCut cut_groups(int n_heads, int n_groups) const;
  // Of n features of a block that are computed each by itself: whole where activations are rounded by rows.
  Shard::Range features(int n) const;
  Shard::Range vocabulary() const {
    return cuts_vocabulary_ ? shard_.range(whole_.vocab_size) : Shard::Range{0, whole_.vocab_size};
  }

 private:
  bool can_cut_heads() const;
  bool can_cut_experts() const;
  Shard::Range cut_features(int n) const;

  const ModelConfig& whole_;
  Shard shard_;
  bool cuts_vocabulary_ = true, cuts_heads_ = false, cuts_experts_ = false;
  Shard::Range heads_;
};

}  // namespace penstock
