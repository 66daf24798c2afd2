#include "engine/open/load_placed.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <ranges>

#include "base/log.h"
#include "base/memory.h"
#include "engine/compute/cache_types.h"
#include "model/arch/read_config.h"
#include "model/load/expert_places.h"
#include "model/sources/expert_file.h"
#include "model/sources/packed_cache.h"

namespace penstock {
namespace {

ExpertWishes wishes_of(const EngineConfig& config) {
  return {config.n_cpu_moe, config.cpu_moe, config.override_tensor};
}

bool has_host(const ExpertPlaces& places) {
  return std::ranges::find(places, true) != places.end();
}

// Returns the places that the configuration asks for; none: nothing is asked for, or the backend
// has all experts on the host anyway.
Result<ExpertPlaces> asked_places(const WeightSource& source, const ModelConfig& shape,
                                  const EngineConfig& config, Ops& ops) {
  const ExpertWishes wishes = wishes_of(config);
  if (!wishes.any()) return ExpertPlaces();
  ASSIGN_OR_RETURN(const ExpertPlaces places, wished_places(source, shape, wishes));
  if (ops.computes_here()) {
    if (wishes.override_tensor.find("=CUDA0") == std::string::npos) return ExpertPlaces();
    return errorf(ErrorCode::kInvalidArgument,
                  "override_tensor: {}: CUDA0: expected backend cuda, got {}",
                  wishes.override_tensor, ops.name());
  }
  const bool whole =
      !std::ranges::any_of(std::views::iota(size_t{0}, places.size()),
                           [&](size_t i) { return shape.layers[i].moe && !places[i]; });
  if (config.experts_offload && !whole)
    return errorf(ErrorCode::kInvalidArgument,
                  "experts_offload: all experts are mapped and computed by the CPU: expected no "
                  "n_cpu_moe or override_tensor that leaves some on {}",
                  ops.name());
  return places;
}

int64_t sequence_bytes(const CacheSpec& spec, int length) {
  int64_t bytes = spec.state_bytes();
  for (const KvLayerSpec& layer : spec.layers) {
    const int kept = layer.window > 0 ? std::min(layer.window, length) : length;
    bytes += kept * CacheSpec::token_bytes(layer, spec.dtype);
  }
  return bytes;
}

// Returns the bytes that the device has for weights, beside a step and one sequence.
Result<int64_t> room_for_weights(const ModelConfig& shape, const EngineConfig& config, Ops& ops) {
  constexpr int kTypicalTokens = 4096;
  const MemoryState memory = ops.memory();
  const auto allowed =
      static_cast<int64_t>(config.memory_utilization * static_cast<double>(memory.total));
  ASSIGN_OR_RETURN(const CacheTypes types, cache_types(config));
  const int length =
      config.max_model_len > 0 ? config.max_model_len : std::min(shape.max_seq_len, kTypicalTokens);
  const int64_t cache = config.kv_cache_memory > 0
                            ? config.kv_cache_memory
                            : sequence_bytes(shape.cache_spec(types, config.block_size), length);
  return allowed - (memory.total - memory.free) - cache -
         step_bytes(shape, config.max_num_batched_tokens, config.max_num_seqs);
}

// Returns the places if nothing is asked for; empty: no experts can be on the host. What
// config.quantize makes of the weights is not known before it is made, so then none are, at first.
Result<ExpertPlaces> automatic_places(const WeightSource& source, const ModelConfig& shape,
                                      const EngineConfig& config, Ops& ops) {
  const bool asked = wishes_of(config).any() || config.experts_offload;
  if (asked || ops.computes_here() || shape.experts.count == 0 || ops.host() == nullptr)
    return ExpertPlaces();
  if (!config.quantize.empty()) return ExpertPlaces(static_cast<size_t>(shape.n_layers), false);
  ASSIGN_OR_RETURN(const int64_t room, room_for_weights(shape, config, ops));
  const DeviceBytes bytes = device_bytes(source, shape);
  // Experts that take turns on the device need two places.
  const bool turns = config.batch_invariant && config.expert_cache_memory != 0;
  const int64_t slots = turns ? 2 * std::ranges::max(bytes.experts) / shape.experts.count : 0;
  return fitting_places(bytes, bytes.all() <= room ? room : room - slots);
}

// Puts a tenth more of the layers' experts on the host. Returns false if all are there.
bool place_more(const ModelConfig& shape, ExpertPlaces& places) {
  int left = (shape.n_layers + 9) / 10;
  bool more = false;
  for (size_t i = 0; i < places.size() && left > 0; ++i) {
    if (places[i] || !shape.layers[i].moe) continue;
    places[i] = more = true, --left;
  }
  return more;
}

// Whether the experts of these places get twins, of which the device keeps the most used.
Result<bool> wants_twins(const WeightSource& source, const ModelConfig& shape,
                         const EngineConfig& config, bool has_cache, const ExpertPlaces& places) {
  if (config.expert_cache_memory == 0 || !has_host(places)) return false;
  const bool asked = config.expert_cache_memory > 0;
  if (has_cache || config.experts_offload) {
    if (!asked) return false;
    return errorf(
        ErrorCode::kUnsupported,
        "expert_cache_memory: expected no {}, whose file has the experts in the CPU's form "
        "only, got {} bytes",
        has_cache ? "packed_cache" : "experts_offload", config.expert_cache_memory);
  }
  constexpr double kShare = 0.8;  // of what is free
  const DeviceBytes bytes = device_bytes(source, shape);
  int64_t own = 0;
  for (size_t i = 0; i < places.size(); ++i) own += places[i] ? bytes.experts[i] : 0;
  if (static_cast<double>(2 * own) <= kShare * static_cast<double>(available_memory())) return true;
  log().log(
      asked ? spdlog::level::warn : spdlog::level::info,
      "the host's memory has no room for experts of {} MiB in the GPU's form too: none of them "
      "is kept on the GPU (expert_cache_memory)",
      own >> 20);
  return false;
}

}  // namespace

Status check_one_rank(const EngineConfig& config, const Ops& ops) {
  if (ops.computes_here() || !wishes_of(config).any()) return {};
  return errorf(ErrorCode::kUnsupported,
                "n_cpu_moe, cpu_moe, override_tensor: expected one rank of a GPU's backend, got {} "
                "of {}",
                config.tensor_parallel_size * config.pipeline_parallel_size, ops.name());
}

Result<std::shared_ptr<Model>> load_placed(const WeightSource& source, Ops& ops,
                                           const EngineConfig& config,
                                           const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const auto folder, packed_cache_folder(config.packed_cache));
  ASSIGN_OR_RETURN(const ModelConfig shape, read_config(source));
  const PackedCache cache(folder);
  ShardLoad how;
  how.packed = {folder.empty() ? nullptr : &cache, config.quantize};
  if (config.experts_offload) {
    ASSIGN_OR_RETURN(how.packed.experts_folder, expert_folder(config.packed_cache));
  }
  ASSIGN_OR_RETURN(const ExpertPlaces asked, asked_places(source, shape, config, ops));
  ASSIGN_OR_RETURN(ExpertPlaces places, automatic_places(source, shape, config, ops));
  for (;;) {
    how.packed.host_experts = has_host(asked) ? asked : places;
    if (has_host(how.packed.host_experts))
      log().info("experts of layers {} are computed by the CPU", describe(how.packed.host_experts));
    ASSIGN_OR_RETURN(const bool twins,
                     wants_twins(source, shape, config, !folder.empty(), how.packed.host_experts));
    ops.keep_twins(twins);
    auto model = Model::load_shard(source, ops, progress, how);
    ops.keep_twins(false);
    if (model) return std::shared_ptr<Model>(std::move(model).value());
    // The estimate was too low.
    if (model.error().code != ErrorCode::kResourceExhausted || !place_more(shape, places) ||
        !ops.recover())
      return tl::unexpected(model.error());
    log().info("{}", model.error().message);
  }
}

}  // namespace penstock
