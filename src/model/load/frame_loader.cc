#include "model/load/frame_loader.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/arch/rope.h"
#include "model/load/expert_loader.h"
#include "model/load/layer_loader.h"

namespace penstock {
Status FrameLoader::divide_by_factors(const std::string& name, std::vector<float>& frequencies) {
  // Files have the factors of their widest rotation; others take the first ones.
  const TensorInfo* found = tensors_.find(name);
  const auto n = static_cast<int64_t>(frequencies.size());
  const bool wider = found != nullptr && found->shape.size() == 1 && found->shape[0] > n &&
                     found->shape[0] <= config_.head_dim / 2;
  ASSIGN_OR_RETURN(const std::vector<float> factors,
                   tensors_.vector(name, wider ? found->shape[0] : n));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    if (!(factors[i] > 0)) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: tensor {}: expected positive factors, got {} at {}",
                    tensors_.source().path().string(), name, factors[i], i);
    }
    frequencies[i] /= factors[i];
  }
  return {};
}

// Multiplies them by exp of the numbers of a tensor.
Status FrameLoader::multiply_by_learned(std::vector<float>& frequencies) {
  ASSIGN_OR_RETURN(const std::vector<float> logs,
                   tensors_.vector(tensors_.name(names_[tensor::kRopeLogs]),
                                   static_cast<int64_t>(frequencies.size())));
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] *= std::exp(logs[i]);
  return {};
}

// GGUF stores the factors of llama3 and longrope as tensors.
Result<std::vector<float>> FrameLoader::frequencies_of(const RopeConfig& rope, bool is_long) {
  std::vector<float> frequencies = rope_frequencies(rope, is_long);
  if (rope.learned) RETURN_IF_ERROR(multiply_by_learned(frequencies));
  std::string name = "rope_freqs.weight";
  if (tensors_.find(name) == nullptr)
    name = is_long ? "rope_factors_long.weight" : "rope_factors_short.weight";
  if (tensors_.source().naming() == Naming::kGguf && rope.tensor_factors &&
      tensors_.find(name) != nullptr)
    RETURN_IF_ERROR(divide_by_factors(name, frequencies));
  return frequencies;
}

// All layers with a rotation have latents of equal sizes, before which nothing is rotated.
int FrameLoader::first_rotated(int rope) const {
  const auto layer = std::ranges::find(config_.layers, rope, &LayerConfig::rope);
  return layer == config_.layers.end() || layer->latent == nullptr ? config_.latent.kv_rank
                                                                   : layer->latent->kv_rank;
}

Status FrameLoader::load_ropes(ModelWeights& weights) {
  const auto pack = [&](std::span<const float> frequencies) -> Result<const Vector*> {
    ASSIGN_OR_RETURN(auto packed, tensors_.ops().pack_vector(frequencies));
    return weights.rope_frequencies.emplace_back(std::move(packed)).get();
  };
  for (int index = 0; const RopeConfig& rope : config_.ropes) {
    ASSIGN_OR_RETURN(const std::vector<float> frequencies, frequencies_of(rope, false));
    ASSIGN_OR_RETURN(const std::vector<float> of_long, frequencies_of(rope, true));
    RopeParams& params = weights.ropes.emplace_back();
    params.scale = rope_magnitude(rope);
    params.interleaved = config_.positions.rope_interleaved, params.first = first_rotated(index++);
    ASSIGN_OR_RETURN(params.inv_freq, pack(frequencies));
    if (!rope.axes.empty()) {
      const std::vector<float> axes(rope.axes.begin(), rope.axes.end());
      ASSIGN_OR_RETURN(params.axes, pack(axes));
    }
    if (of_long == frequencies) continue;
    ASSIGN_OR_RETURN(params.long_inv_freq, pack(of_long));
    weights.short_rope_len = rope.original_max_seq_len;
  }
  if (config_.indexer().top_k > 0 && !weights.ropes.empty()) {
    weights.index_rope = weights.ropes[0];
    const IndexerConfig& indexer = config_.indexer();
    weights.index_rope.first =
        indexer.rotates_last ? indexer.head_dim - config_.ropes[0].rotary_dim : 0;
    weights.index_rope.interleaved = indexer.interleaved;
  }
  return {};
}

Status FrameLoader::load_per_layer(PerLayerFrame& out) {
  const int all = config_.n_layers * config_.per_layer.dim;
  ASSIGN_OR_RETURN(out.table, tensors_.weight(tensors_.name(names_[tensor::kPerLayerTable]),
                                              config_.per_layer_rows(), all, WeightUse::kTable));
  RETURN_IF_ERROR(tensors_.linear(tensors_.name(names_[tensor::kPerLayerFrame]), all,
                                  config_.model_dim, out.projection));
  return tensors_.norm(tensors_.name(names_[tensor::kPerLayerFrameNorm]), config_.per_layer.dim,
                       out.norm);
}

Status FrameLoader::load(ModelWeights& weights) {
  const int dim = config_.model_dim, vocab = config_.vocab_size;
  const int width = config_.embedding.width > 0 ? config_.embedding.width : dim;
  RETURN_IF_ERROR(load_ropes(weights));
  const Range own = tensors_.cuts().vocabulary();
  weights.first_token = own.first, weights.shares_vocabulary = own.count < vocab;
  // The last stage has the embedding too if it is the output matrix or other code (drafters) looks
  // tokens up.
  const bool on_last =
      stage_.last() && config_.output.has_head && (config_.embedding.tied || !cuts_vocabulary_);
  if (stage_.first() || on_last) {
    ASSIGN_OR_RETURN(weights.embedding,
                     tensors_.weight_rows(tensors_.name(names_.embedding), config_.rows_in_file(),
                                          width, own, WeightUse::kTable));
  }
  RETURN_IF_ERROR(load_streams(weights));
  if (const std::string_view first = names_[tensor::kFirstState]; !first.empty()) {
    ASSIGN_OR_RETURN(const std::vector<float> state, tensors_.vector(tensors_.name(first), dim));
    ASSIGN_OR_RETURN(weights.first_state, tensors_.ops().pack_vector(state));
  }
  if (config_.attention.alibi_max_bias > 0) {
    std::vector<float> slopes = alibi_slopes(config_.n_heads, config_.attention.alibi_max_bias);
    for (float& slope : slopes)
      slope *= config_.attention.alibi_scaled ? config_.attention.scale : 1.0f;
    ASSIGN_OR_RETURN(weights.alibi_slopes,
                     tensors_.ops().pack_vector(part_of(slopes, tensors_.cuts().heads(0))));
  }
  RETURN_IF_ERROR(load_relative(weights));
  if (!stage_.last()) return {};
  if (config_.streams.count > 0) {
    LayerLoader loader(tensors_, tensors_.name(""), 0);
    visit_last(loader, weights.last_gates);
    RETURN_IF_ERROR(loader.status());
  }
  if (config_.mixed_streams.ends_by_shares) {
    LayerLoader loader(tensors_, tensors_.name(""), 0);
    visit_last(loader, weights.last_shares);
    RETURN_IF_ERROR(loader.status());
  }
  if (!names_.final_norm.empty()) {
    const float offset = config_.norm.plain_final ? 0.0f : config_.norm.offset;
    RETURN_IF_ERROR(
        tensors_.norm(tensors_.name(names_.final_norm), dim, weights.final_norm, offset));
  }
  return load_head(weights);
}

Status FrameLoader::load_relative(ModelWeights& weights) {
  const RelativeConfig& relative = config_.attention.relative;
  if (relative.columns.empty()) return {};
  const std::vector<float> columns(relative.columns.begin(), relative.columns.end());
  ASSIGN_OR_RETURN(weights.relative_columns, tensors_.ops().pack_vector(columns));
  if (relative.has_embeddings()) return {};  // layers make their terms of them
  const auto n = static_cast<size_t>(relative.n_columns),
             n_heads = static_cast<size_t>(config_.n_heads);
  ASSIGN_OR_RETURN(const std::vector<float> stored,
                   tensors_.vector(tensors_.name(names_[tensor::kRelative]) + ".weight",
                                   std::array<int64_t, 2>{relative.n_columns, config_.n_heads}));
  std::vector<float> table;  // by head
  const Range own = tensors_.cuts().heads(0);
  for (auto h = static_cast<size_t>(own.first); h < static_cast<size_t>(own.first + own.count); ++h)
    for (size_t c = 0; c < n; ++c) table.push_back(stored[c * n_heads + h]);
  ASSIGN_OR_RETURN(weights.relative_table, tensors_.ops().pack_vector(table));
  return {};
}

// Loads the weights that make the input of the first layer, and those that merge several streams.
Status FrameLoader::load_streams(ModelWeights& weights) {
  const int dim = config_.model_dim;
  const int width = config_.embedding.width > 0 ? config_.embedding.width : dim;
  const int others = config_.altup.n_streams - 1;
  if (others >= 0 && stage_.last())
    RETURN_IF_ERROR(ExpertLoader(tensors_).many_weights(tensors_.name(names_[tensor::kStreamsOut]),
                                                        others, dim, dim, weights.streams_out));
  if (!stage_.first()) return {};
  if (config_.positions.computed) {
    ASSIGN_OR_RETURN(weights.positions, wave_table());
  } else if (config_.positions.learned) {
    const int skipped = config_.positions.skipped,
              rows = config_.positions.first + config_.max_seq_len;
    ASSIGN_OR_RETURN(weights.positions,
                     tensors_.weight_rows(tensors_.name(names_.positions), skipped + rows, width,
                                          {skipped, rows}, WeightUse::kTable));
  }
  if (config_.embedding.n_token_types > 0) {
    ASSIGN_OR_RETURN(weights.token_types,
                     tensors_.weight(tensors_.name(names_.token_types),
                                     config_.embedding.n_token_types, width, WeightUse::kTable));
  }
  if (config_.embedding.norm)
    RETURN_IF_ERROR(
        tensors_.norm(tensors_.name(names_.embedding_norm), width, weights.embedding_norm));
  if (config_.embedding.width > 0)
    RETURN_IF_ERROR(tensors_.linear(tensors_.name(names_.embedding_projection), dim, width,
                                    weights.embedding_projection));
  if (config_.per_layer.dim > 0) RETURN_IF_ERROR(load_per_layer(weights.per_layer));
  if (config_.residual.weighing == ResidualWeighing::kScales) {
    LayerLoader loader(tensors_, tensors_.name(""), 0);
    visit_input(loader, weights.input);
    RETURN_IF_ERROR(loader.status());
  }
  if (others < 0) return {};
  return ExpertLoader(tensors_).many_weights(tensors_.name(names_[tensor::kStreamsIn]), others, dim,
                                             dim, weights.streams_in);
}

// Row p has sines, then cosines of (p + 2) w for w from 1 down to 1/10000, and a final zero if the
// width is odd.
Result<std::unique_ptr<Weight>> FrameLoader::wave_table() {
  const int rows = config_.max_seq_len, dim = config_.model_dim, half = dim / 2;
  const std::string name = "computed_positions.weight";
  FileMatrix table;
  std::vector<float> values(
      tensors_.restores() ? 0 : static_cast<size_t>(rows) * static_cast<size_t>(dim));
  const float step = std::log(10000.0f) / static_cast<float>(std::max(half - 1, 1));
  for (int p = 0; p < rows && !values.empty(); ++p) {
    float* const row = values.data() + static_cast<size_t>(p) * static_cast<size_t>(dim);
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p + config_.positions.skipped) *
                          std::exp(static_cast<float>(i) * -step);
      row[i] = std::sin(angle), row[half + i] = std::cos(angle);
    }
  }
  table.view = {QuantType::kF32, rows, dim, std::as_bytes(std::span(values))};
  return tensors_.pack_rows(table, 0, rows, name);
}

Status FrameLoader::load_head(ModelWeights& weights) {
  if (!config_.output.has_head) return {};
  const int dim = config_.model_dim, vocab = config_.vocab_size;
  const std::string head(names_.lm_head);
  ASSIGN_OR_RETURN(const std::vector<float> bias, tensors_.optional_vector(head + ".bias", vocab));
  if (!bias.empty()) {
    ASSIGN_OR_RETURN(weights.output_bias,
                     tensors_.ops().pack_vector(part_of(bias, tensors_.cuts().vocabulary())));
  }
  if (config_.sphere.stored > 0) {
    ASSIGN_OR_RETURN(std::vector<float> scale,
                     tensors_.vector(std::string(names_[tensor::kLogitScale]), vocab));
    for (float& factor : scale) factor /= config_.sphere.stored;
    ASSIGN_OR_RETURN(weights.output_scale,
                     tensors_.ops().pack_vector(part_of(scale, tensors_.cuts().vocabulary())));
  }
  if (config_.embedding.tied && config_.output.unit_rows)
    return errorf(ErrorCode::kUnsupported,
                  "{}: norm_head: expected an output layer of its own, got tie_word_embeddings",
                  tensors_.source().path().string());
  if (config_.embedding.tied) return {};
  const Range own =
      config_.output.rows > 0 ? Range{0, config_.output_rows()} : tensors_.cuts().vocabulary();
  ASSIGN_OR_RETURN(weights.lm_head,
                   tensors_.weight_rows(head, config_.output_rows(), dim, own, WeightUse::kOutput));
  return {};
}

void FrameLoader::pass_over_other_stages(Range own) {
  for (int i = 0; i < config_.n_layers; ++i) {
    if (i < own.first || i >= own.first + own.count) tensors_.pass_over(tensors_.at_layer(i));
  }
  const auto frame = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names)
      if (!name.empty()) tensors_.pass_over(tensors_.name(name.substr(0, name.find("{}"))));
  };
  frame({names_[tensor::kNgramTable]});  // of one stage's layer
  if (!stage_.first()) {
    frame({names_.embedding, names_.positions, names_.token_types, names_.embedding_norm,
           names_.embedding_projection, names_[tensor::kPerLayerTable],
           names_[tensor::kPerLayerFrame], names_[tensor::kPerLayerFrameNorm],
           names_[tensor::kStreamsIn], names_[tensor::kInputScale], names_[tensor::kInputOffset]});
  }
  if (stage_.last()) return;
  frame({names_.final_norm, names_[tensor::kStreamsOut], names_[tensor::kLastStreamsNorm],
         names_[tensor::kLastStreamsDown], names_[tensor::kLastStreamsUp],
         names_[tensor::kLastMixWeights], names_[tensor::kLastMixBase],
         names_[tensor::kLastMixScale]});
  for (const TensorInfo& tensor : tensors_.source().tensors())
    if (is_of_a_head(tensor.name)) tensors_.pass_over(tensor.name);
  tensors_.pass_over(std::string(names_.lm_head) + ".");
}

}  // namespace penstock
