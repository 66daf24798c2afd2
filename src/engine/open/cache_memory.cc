#include "engine/open/cache_memory.h"
#include "model/arch/read_config.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "engine/compute/cache_types.h"
#include "engine/open/open.h"
#include "engine/store/kv_store.h"
#include "model/batch_builder.h"
#include "model/load/stages.h"

namespace penstock {
namespace {

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Gives the engine's share of the device to copies of the host's experts, of `left` bytes for them
// and the KV cache. Returns how much it is.
int64_t room_for_experts(const EngineConfig& config, const EngineGroup& group, Ops& ops,
                         const Model& model, int64_t left) {
  if (model.twin_bytes() == 0) return 0;
  const int64_t most = std::max<int64_t>(left, 0) / group.size();
  const int64_t room = ops.set_expert_room(
      config.expert_cache_memory > 0 ? std::min(config.expert_cache_memory, most) : most / 2);
  log().info(
      "experts on the host: {:.1f} MiB once more in the GPU's form, of which the GPU keeps "
      "{:.1f} MiB that are used most",
      mib(model.twin_bytes()), mib(room));
  return room * group.size();
}

}  // namespace

int64_t offloaded_file_bytes(const EngineConfig& config) {
  if (!config.experts_offload) return 0;
  const auto source = open_weights(config.model);
  if (!source) return 0;
  const auto shape = read_config(**source);
  return shape ? expert_bytes(**source, *shape) : 0;
}

Status compute_largest_step(const EngineConfig& config, Ops& ops, const Model& model) {
  ASSIGN_OR_RETURN(const CacheTypes types, cache_types(config));
  const int n_seqs = config.max_num_seqs;
  const auto n_tokens = static_cast<int>(
      std::min<int64_t>(config.max_num_batched_tokens, int64_t{n_seqs} * config.max_model_len));
  const int longest = (n_tokens + n_seqs - 1) / n_seqs;
  // All sequences write the same blocks, whose content is never read.
  const CacheSpec spec = model.cache_spec(types, config.block_size);
  const GroupBlocks blocks = consecutive_blocks(0, longest, config.block_size);
  const std::vector<int> n_blocks(static_cast<size_t>(std::max(1, spec.n_groups())),
                                  static_cast<int>(blocks.blocks.size()));
  ASSIGN_OR_RETURN(const auto cache, ops.make_cache(spec, n_blocks));
  const std::vector<TokenId> tokens(static_cast<size_t>(longest));
  BatchBuilder builder(spec);
  for (int left = n_tokens; left > 0; left -= longest) {
    builder.add({.tokens = std::span(tokens).first(static_cast<size_t>(std::min(left, longest))),
                 .kv = {&blocks, 1}});
  }
  const int64_t free = ops.memory().free;
  model.forward(builder.build(), *cache, ops);
  ops.wait(ops.submit());
  log().info("a step of {} tokens takes {:.1f} MiB beside weights and cache", n_tokens,
             mib(std::max<int64_t>(free - ops.memory().free, 0)));
  return ops.status();
}

Result<int64_t> memory_for_cache(const EngineConfig& config, const EngineGroup& group, Ops& ops,
                                 const Model& model, const RanksHere& here) {
  if (!ops.computes_here()) RETURN_IF_ERROR(compute_largest_step(config, ops, model));
  const MemoryState memory = ops.memory();
  const auto allowed =
      static_cast<int64_t>(config.memory_utilization * static_cast<double>(memory.total));
  const int64_t used = memory.total - memory.free;
  if (config.kv_cache_memory > 0) {
    (void)room_for_experts(config, group, ops, model, allowed - used - config.kv_cache_memory);
    return config.kv_cache_memory / config.tensor_parallel_size / config.data_parallel_size;
  }
  if (!ops.computes_here()) {
    if (allowed <= used) {
      return errorf(
          ErrorCode::kResourceExhausted,
          "{}: memory_utilization {} is {:.1f} of {:.1f} MiB; weights ({:.1f} MiB), a step of {} "
          "tokens and other programs take {:.1f} MiB, which leaves nothing for the KV cache",
          ops.name(), config.memory_utilization, mib(allowed), mib(memory.total),
          mib(here.weight_bytes), config.max_num_batched_tokens, mib(used));
    }
    const int64_t left = allowed - used;
    return (left - room_for_experts(config, group, ops, model, left)) / group.size();
  }
  const int64_t weights = group.n_copies * here.weight_bytes;
  // The system counts pages of a mapped file as available memory.
  const int64_t mapped = std::max<int64_t>(model.mapped_bytes() - model.offloaded_bytes(), 0);
  const auto total = static_cast<double>(memory.free + here.weight_bytes - mapped);
  int64_t left = static_cast<int64_t>(config.memory_utilization * total) - weights;
  if (const int64_t experts =
          group.n_copies * here.n * (model.offloaded_bytes() - model.table_bytes());
      experts > 0 && left > 0) {
    const int64_t own = std::min(experts, left / 2);
    log().info("of {:.1f} MiB beside weights that stay in memory, {:.1f} are left to experts",
               mib(left), mib(own));
    left -= own;
  }
  if (const auto store = parse_kv_store(config.kv_store)) left -= store->memory_bytes;
  return left * config.pipeline_parallel_size / (here.n * group.size());
}

}  // namespace penstock
