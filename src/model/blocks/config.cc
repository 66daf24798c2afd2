#include "model/blocks/config.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace penstock {

std::string_view ModelConfig::needs_select() const {
  if (indexer().top_k > 0 || compressed.query_rank > 0)
    return "selects the tokens that it attends to";
  if (mixed_streams.count > 0) return "has streams that are read by shares";
  return experts.n_identities > 0 ? "has experts without weights" : "";
}

std::string_view ModelConfig::needs_all() const {
  if (block_residuals.layers > 0) return "has residuals over blocks of layers";
  if (experts.normed_latent) return "norms what its experts give";
  if (experts.routing.left_out_as_zero) return "chooses experts of groups that are left out";
  if (convolved.taps > 0) return "convolves queries and keys over heads";
  if (residual.weighing != ResidualWeighing::kNone) return "weighs the columns of its stream";
  const bool of_mixers = std::ranges::any_of(
      layers, [](const LayerConfig& layer) { return layer.mixer && layer.mixer->needs_all(); });
  return of_mixers ? "has RWKV's recurrence" : "";
}

bool ModelConfig::has_states() const {
  return std::ranges::any_of(layers, &LayerConfig::carries_state) || indexer().pool > 1 ||
         !ngrams.hashes.empty() || has_entries() || profiles.width > 0 || convolved.taps > 0;
}

int64_t ModelConfig::state_values_of(int i) const {
  const LayerConfig& layer = layers[static_cast<size_t>(i)];
  int64_t values = layer.mixer != nullptr ? layer.mixer->state_values(*this) : 0;
  if (compressed.query_rank > 0) return entry_state_values(*this, i);
  if (layer.attention && layer.selecting_layer == i) values += indexer().state_values();
  values += profile_state_values(*this, i);
  if (layer.attention && convolved.taps > 0)
    values += convolved.state_values(q_dim_of(i), kv_dim_of(i));
  if (layer.ngrams >= 0) values += ngrams.state_values(n_streams() * model_dim);
  return values;
}

bool ModelConfig::has_entries() const {
  return std::ranges::any_of(layers,
                             [](const LayerConfig& layer) { return layer.entry_ratio > 0; });
}

void ModelConfig::replace_mixers(
    const std::function<std::shared_ptr<const Mixer>(const Mixer&)>& other) {
  std::map<const Mixer*, std::shared_ptr<const Mixer>> others;
  for (LayerConfig& layer : layers) {
    if (layer.mixer == nullptr) continue;
    const auto [found, is_new] = others.try_emplace(layer.mixer.get());
    if (is_new) found->second = other(*layer.mixer);
    if (found->second != nullptr) layer.mixer = found->second;
  }
}

bool ModelConfig::layers_differ() const {
  return std::ranges::any_of(layers, [](const LayerConfig& layer) {
    return layer.head_dim > 0 || layer.n_kv_heads > 0 || layer.ffn_dim > 0 || layer.kv_layer >= 0 ||
           layer.latent != nullptr;
  });
}

int ModelConfig::largest(int (ModelConfig::*size)(int) const, int least) const {
  for (size_t i = 0; i < layers.size(); ++i)
    least = std::max(least, (this->*size)(static_cast<int>(i)));
  return least;
}

int ModelConfig::stage_dim(int first_layer) const {
  return model_dim * n_streams() + (n_layers - first_layer) * per_layer.dim + carried_dim;
}

CacheSpec ModelConfig::cache_spec(CacheTypes types, int block_size) const {
  CacheSpec spec;
  spec.dtype = types.kv, spec.state_dtype = types.states;
  spec.block_size = block_size;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerConfig& layer = layers[i];
    const bool stores = layer.attention && layer.kv_layer < 0;
    const int at = static_cast<int>(i);
    spec.layers.push_back(
        {stores ? n_kv_heads_of(at) : 0, head_dim_of(at), layer.window, layer.group,
         compressed.query_rank > 0 ? head_dim : latent_of(at).kv_rank, layer.chunked,
         !attention.causal, latent.kv_rank > 0 ? 0 : attention.value_dim, layer.sees_parts});
    if (has_states()) spec.state_values.push_back(state_values_of(at));
  }
  if (indexer().top_k > 0) spec.first_index_layer = n_layers;
  for (int i = 0; i < n_layers && indexer().top_k > 0; ++i) {
    const LayerConfig& layer = layers[static_cast<size_t>(i)];
    const int dim = indexer().head_dim;
    spec.layers.push_back({layer.selecting_layer == i ? 1 : 0, dim, 0, 0, dim});
  }
  if (has_entries()) spec.first_entry_layer = static_cast<int>(spec.layers.size());
  for (int i = 0; i < n_layers && has_entries(); ++i) {
    const int ratio = layers[static_cast<size_t>(i)].entry_ratio;
    KvLayerSpec& entries = spec.layers.emplace_back(KvLayerSpec{
        .n_kv_heads = ratio > 0 ? 1 : 0, .head_dim = head_dim, .values_in_keys = head_dim});
    // a divisor of both, so that places in blocks are the same everywhere
    if (ratio > 0) entries.every = std::gcd(ratio, block_size);
  }
  return spec;
}

}  // namespace penstock
