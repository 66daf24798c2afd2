#include <spdlog/spdlog.h>
#include <algorithm>
#include <set>

#include "base/log.h"
#include "model/arch/names.h"
#include "model/blocks/layer_tensors.h"
#include "model/load/frame_loader.h"
#include "model/load/layer_loader.h"
#include "model/load/load_weights.h"
#include "model/load/relative_terms.h"
#include "model/load/stages.h"

namespace penstock {

Status load_layer(TensorLoader& tensors, int layer, const std::string& at, LayerWeights& out) {
  LayerLoader loader(tensors, at, layer);
  visit_layer(loader, out);
  RETURN_IF_ERROR(loader.status());
  return make_relative_terms(tensors, out.attention);
}

namespace {

Status check_all_used(const TensorLoader& tensors) {
  if (tensors.restores()) return {};  // checked when the weights were packed
  const WeightSource& source = tensors.source();
  const std::string layer = tensors.layer_pattern();
  const std::string prefix = tensors.name("");
  const auto n_others = std::ranges::count_if(source.tensors(), [&](const TensorInfo& tensor) {
    return is_of_another_modality(tensor.name, prefix);
  });
  if (n_others > 0) {
    log().warn("{}: the text part is read, {} tensors of other modalities are passed over",
               source.path().string(), n_others);
  }
  const auto n_further = std::ranges::count_if(source.tensors(), [&](const TensorInfo& tensor) {
    return is_of_further_tokens(tensor.name) ||
           is_of_later_layer(tensors.config(), layer, tensor.name);
  });
  if (n_further > 0) {
    log().info(
        "{}: {} tensors of layers that predict further tokens are passed over here (--spec mtp "
        "drafts with them)",
        source.path().string(), n_further);
  }
  return check_unused(source, tensors.config(), prefix, layer, tensors.used());
}

// The query of residuals over blocks, one of n in its tensor.
Result<std::unique_ptr<Weight>> block_query(TensorLoader& tensors, std::span<const float> all,
                                            int index) {
  const int dim = tensors.config().model_dim;
  const auto own =
      all.subspan(static_cast<size_t>(index) * static_cast<size_t>(dim), static_cast<size_t>(dim));
  return tensors.ops().pack({QuantType::kF32, 1, dim, std::as_bytes(own)});
}

// Loads what residuals over blocks are read with (block_residuals.h). Tensors lie outside of the
// layers, and the first layer's attention reads no mean.
Status load_block_queries(TensorLoader& tensors, ModelWeights& weights) {
  const ModelConfig& config = tensors.config();
  if (config.block_residuals.layers == 0) return {};
  const int64_t dim = config.model_dim, three[] = {3, dim};
  const auto name = [&](std::string_view part, int index) {
    return tensors.name(fmt::format("attn_res.{}_queries.{}", part, index));
  };
  for (int i = 0; i < config.n_layers; ++i) {
    BlockQueries& queries = weights.layers[static_cast<size_t>(i)].block_queries;
    ASSIGN_OR_RETURN(const auto mlp, tensors.vector(name("mlp", i), dim));
    ASSIGN_OR_RETURN(queries.feed_forward, block_query(tensors, mlp, 0));
    if (i == 0) continue;
    const int n = config.layers[static_cast<size_t>(i)].window > 0 ? 1 : 3;
    const std::span<const int64_t> shape(three);
    ASSIGN_OR_RETURN(const auto attention,
                     tensors.vector(name("attn", i - 1), shape.subspan(n == 1 ? 1 : 0)));
    for (int q = 0; q < n; ++q) {
      ASSIGN_OR_RETURN(queries.attention.emplace_back(), block_query(tensors, attention, q));
    }
  }
  ASSIGN_OR_RETURN(const auto last, tensors.vector(tensors.name("attn_res.output_query"), dim));
  ASSIGN_OR_RETURN(weights.last_block_query, block_query(tensors, last, 0));
  return {};
}

// Loads all layers, or those of this stage; the others stay empty.
Status load_layers(TensorLoader& tensors, FrameLoader& frame, Stage stage, ModelWeights& weights) {
  const ModelConfig& config = tensors.config();
  Shard::Range own{0, config.n_layers};
  if (stage.count > 1) {
    ASSIGN_OR_RETURN(const auto stages,
                     cut_stages(config, layer_bytes(tensors.source(), config), stage.count));
    weights.own_layers = own = stages[static_cast<size_t>(stage.index)];
    frame.pass_over_other_stages(own);
  }
  weights.layers.resize(config);
  std::set<int> loaded;
  for (int i = own.first; i < own.first + own.count; ++i) {
    const int of = config.repeats(i) ? config.layers[static_cast<size_t>(i)].weights_layer : i;
    if (!loaded.insert(of).second) continue;
    RETURN_IF_ERROR(
        load_layer(tensors, of, tensors.at_layer(of), weights.layers[static_cast<size_t>(of)]));
  }
  return {};
}

Result<std::unique_ptr<ModelWeights>> load_all(TensorLoader& tensors, const ShardOptions& shard) {
  auto weights = std::make_unique<ModelWeights>();
  FrameLoader frame(tensors, shard);
  const ModelConfig& config = tensors.config();
  const std::string_view what = !tensors.ops().can_select() && !config.needs_select().empty()
                                    ? config.needs_select()
                                : !tensors.ops().has_all() ? config.needs_all()
                                                           : "";
  if (!what.empty()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: architecture {} {}, which backend {} cannot: expected backend cpu",
                  tensors.source().path().string(), config.arch, what, tensors.ops().name());
  }
  const bool crosses = tensors.config().encoder_rows > 0;
  if (crosses && (!tensors.ops().can_cross_attend() || shard.is_part())) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: architecture {} attends to the rows of an encoder: expected backend cpu and "
                  "one rank, got backend {}{}",
                  tensors.source().path().string(), tensors.config().arch, tensors.ops().name(),
                  shard.is_part() ? " and several ranks" : "");
  }
  RETURN_IF_ERROR(tensors.open());
  RETURN_IF_ERROR(frame.load(*weights));
  RETURN_IF_ERROR(load_layers(tensors, frame, shard.stage, *weights));
  RETURN_IF_ERROR(load_block_queries(tensors, *weights));
  weights->padding = tensors.padding();
  return weights;
}

}  // namespace

Result<std::unique_ptr<ModelWeights>> load_weights(const WeightSource& source,
                                                   const ModelConfig& config, Ops& ops,
                                                   const LoadProgress& progress,
                                                   PackedWeights* packed,
                                                   const ShardOptions& shard) {
  TensorLoader tensors(source, config, ops, progress, packed, shard);
  tensors.keep_sites();
  ASSIGN_OR_RETURN(auto weights, load_all(tensors, shard));
  RETURN_IF_ERROR(check_all_used(tensors));
  weights->sites = std::move(*tensors.sites());
  tensors.finish_progress();
  return weights;
}

Result<std::unique_ptr<ModelWeights>> load_some_layers(const WeightSource& source,
                                                       const ModelConfig& config, Ops& ops,
                                                       const ShardOptions& shard) {
  const LoadProgress none;
  TensorLoader tensors(source, config, ops, none, nullptr, shard);
  return load_all(tensors, shard);
}

Result<std::unique_ptr<ModelWeights>> load_frame(const WeightSource& source,
                                                 const ModelConfig& config, Ops& ops,
                                                 const ShardOptions& shard) {
  const LoadProgress none;
  TensorLoader tensors(source, config, ops, none, nullptr, shard);
  auto weights = std::make_unique<ModelWeights>();
  RETURN_IF_ERROR(tensors.open());
  RETURN_IF_ERROR(FrameLoader(tensors, shard).load(*weights));
  weights->layers.resize(config);
  return weights;
}

Result<LayerWeights> load_layer(const WeightSource& source, const ModelConfig& config, Ops& ops,
                                int layer, const ShardOptions& shard) {
  const LoadProgress none;
  TensorLoader tensors(source, config, ops, none, nullptr, shard);
  LayerWeights weights;
  RETURN_IF_ERROR(tensors.open());
  RETURN_IF_ERROR(load_layer(tensors, layer, tensors.at_layer(layer), weights));
  return weights;
}

}  // namespace penstock
