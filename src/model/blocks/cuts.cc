#include "model/blocks/cuts.h"

#include <algorithm>

namespace penstock {
namespace {

// Block sizes of encodings: the largest, the most common, and one.
constexpr int kUnits[] = {256, 32, 1};

using HeadCut = ModelCuts::HeadCut;

// REQUIRES: at most as many ranks as heads.
HeadCut cut_heads(int n_heads, int n_kv_heads, Shard shard) {
  const int group = n_heads / n_kv_heads;
  if (shard.n_ranks <= n_kv_heads) {
    const Shard::Range kv = shard.range(n_kv_heads);
    return {{kv.first * group, kv.count * group}, kv};
  }
  for (int kv = 0;; ++kv) {
    const Shard::Range ranks = Shard{kv, n_kv_heads}.range(shard.n_ranks);
    if (shard.rank >= ranks.first + ranks.count) continue;
    const Shard::Range own = Shard{shard.rank - ranks.first, ranks.count}.range(group);
    return {{kv * group + own.first, own.count}, {kv, 1}};
  }
}

}  // namespace

ModelCuts::ModelCuts(const ModelConfig& whole, Shard shard, bool cuts_vocabulary)
    : whole_(whole), shard_(shard), cuts_vocabulary_(cuts_vocabulary && whole.output.rows == 0) {
  cuts_heads_ = can_cut_heads();
  cuts_experts_ = can_cut_experts();
}

Shard::Range ModelCuts::heads(int layer) const {
  const int n = whole_.n_heads_of(layer);
  if (!cuts_heads_) return {0, n};
  if (whole_.compressed.n_groups > 0) {
    const Shard::Range groups = output_groups();
    const int each = n / whole_.compressed.n_groups;
    return {groups.first * each, groups.count * each};
  }
  return whole_.latent.kv_rank > 0 ? shard_.range(n)
                                   : cut_heads(n, whole_.n_kv_heads_of(layer), shard_).heads;
}

Shard::Range ModelCuts::output_groups() const {
  const int n = whole_.compressed.n_groups;
  return cuts_heads_ ? shard_.range(n) : Shard::Range{0, n};
}

ModelCuts::HeadCut ModelCuts::cut_groups(int n_heads, int n_groups) const {
  const bool whole = shard_.n_ranks == 1 || shard_.n_ranks > n_heads || whole_.rounding.activations;
  return whole ? HeadCut{{0, n_heads}, {0, n_groups}} : cut_heads(n_heads, n_groups, shard_);
}

bool ModelCuts::can_cut_heads() const {
  if (shard_.n_ranks == 1) return false;
  if (whole_.attention.differential || whole_.shared.ffn_dim > 0 ||
      whole_.attention.qk_norm == QkNorm::kRow || whole_.norm.sub_norms ||
      whole_.rounding.activations)
    return false;
  if (whole_.convolved.taps > 0) return false;
  if (whole_.compressed.query_rank > 0 && shard_.n_ranks > whole_.compressed.n_groups) return false;
  bool attends = false;
  for (int i = 0; i < whole_.n_layers; ++i) {
    if (!whole_.layers[static_cast<size_t>(i)].attention) continue;
    if (shard_.n_ranks > whole_.n_heads_of(i)) return false;
    attends = true;
  }
  return attends && (whole_.attention.alibi_max_bias == 0.0f || !layers_of_heads_differ());
}

// Whether layers cut heads differently: ALiBi slopes are loaded once per rank.
bool ModelCuts::layers_of_heads_differ() const {
  for (int i = 1; i < whole_.n_layers; ++i) {
    if (whole_.n_heads_of(i) != whole_.n_heads_of(0) ||
        whole_.n_kv_heads_of(i) != whole_.n_kv_heads_of(0))
      return true;
  }
  return false;
}

bool ModelCuts::can_cut_experts() const {
  const bool shared_too =
      whole_.experts.shared_dim == 0 || whole_.experts.shared_dim >= shard_.n_ranks;
  return shard_.n_ranks > 1 && whole_.experts.count > 0 &&
         whole_.experts.ffn_dim >= shard_.n_ranks &&
         (whole_.experts.group_size == 0 || whole_.experts.group_dim >= shard_.n_ranks) &&
         whole_.experts.latent_dim == 0 && whole_.experts.n_identities == 0 &&
         !whole_.rounding.activations && shared_too;
}

Shard::Range ModelCuts::cut_features(int n) const {
  const auto unit =
      std::ranges::find_if(kUnits, [&](int size) { return n / size >= shard_.n_ranks; });
  return unit == std::end(kUnits) ? Shard::Range{0, n} : shard_.range(n, *unit);
}

Shard::Range ModelCuts::kv_heads(int layer) const {
  const int n = whole_.n_kv_heads_of(layer);
  return cuts_heads_ && whole_.latent.kv_rank == 0
             ? cut_heads(whole_.n_heads_of(layer), n, shard_).groups
             : Shard::Range{0, n};
}

Shard::Range ModelCuts::ffn(int layer) const {
  const int n = whole_.ffn_dim_of(layer);
  const bool reads_all = whole_.norm.sub_norms || whole_.rounding.activations ||
                         whole_.layers[static_cast<size_t>(layer)].gate_cutoff != kNoCutoff;
  return reads_all ? Shard::Range{0, n} : cut_features(n);
}

Shard::Range ModelCuts::expert_features(int n) const {
  return cuts_experts_ ? cut_features(n) : Shard::Range{0, n};
}

Shard::Range ModelCuts::shared_ffn() const {
  const int n = whole_.experts.shared_dim;
  return cuts_experts_ ? cut_features(n) : Shard::Range{0, n};
}

Shard::Range ModelCuts::features(int n) const {
  return whole_.rounding.activations ? Shard::Range{0, n} : cut_features(n);
}

ModelConfig ModelCuts::rank_config() const {
  ModelConfig config = whole_;
  if (shard_.n_ranks == 1) return config;
  config.experts.ffn_dim = expert_ffn().count;
  config.experts.shared_dim = shared_ffn().count;
  // layers state larger numbers
  if (cuts_heads_) config.n_heads = config.n_kv_heads = 1;
  config.compressed.n_groups = output_groups().count;
  config.replace_mixers([&](const Mixer& mixer) { return mixer.of_rank(*this); });
  for (int i = 0; i < whole_.n_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    if (cuts_heads_ && layer.attention) {
      layer.n_heads = heads(i).count, layer.n_kv_heads = kv_heads(i).count;
      config.n_heads = std::max(config.n_heads, layer.n_heads);
    }
    if (const Shard::Range features = ffn(i); features.count > 0) layer.ffn_dim = features.count;
  }
  config.ffn_dim = 0;
  for (int i = 0; i < whole_.n_layers; ++i) config.ffn_dim = std::max(config.ffn_dim, ffn(i).count);
  return config;
}

}  // namespace penstock
