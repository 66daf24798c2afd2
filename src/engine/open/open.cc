#include "engine/open/open.h"
#include "engine/compute/cache_types.h"
#include "model/arch/read_config.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "draft/drafters.h"
#include "draft/synthetic.h"
#include "engine/compute/fingerprint.h"
#include "engine/open/cache_memory.h"
#include "engine/open/engine_group.h"
#include "engine/open/engine_impl.h"
#include "engine/open/load_placed.h"
#include "engine/ranks/meet_ranks.h"
#include "engine/ranks/rank_worker.h"
#include "engine/requests/prefix_salt.h"
#include "engine/steps/calibration.h"
#include "model/sources/packed_cache.h"
#include "model/sources/quantizing_source.h"

namespace penstock {
namespace {

void append_ids(const nlohmann::json& object, const char* key, std::vector<TokenId>& ids) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  if (found->is_number_integer()) ids.push_back(found->get<TokenId>());
  if (!found->is_array()) return;
  for (const auto& id : *found) {
    if (id.is_number_integer()) ids.push_back(id.get<TokenId>());
  }
}

std::vector<TokenId> end_ids(const WeightSource& source, int vocab_size) {
  std::vector<TokenId> ids;
  append_ids(source.generation_config(), "eos_token_id", ids);
  if (ids.empty()) append_ids(source.config(), "eos_token_id", ids);
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    append_ids(source.config(), key, ids);
  }
  std::erase_if(ids, [&](TokenId id) { return id < 0 || id >= vocab_size; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

CachePlan plan_cache(const CacheSpec& spec, int64_t budget, int max_num_seqs, int max_len,
                     int max_chunk) {
  // Sliding windows save memory from this length on; shorter sequences need the same blocks in all
  // groups.
  constexpr int kTypicalLength = 2048;
  constexpr int kStates = 2;  // its own, and a snapshot from which others continue
  CachePlan plan;
  const int n_groups = std::max(1, spec.n_groups());
  const auto blocks_for = [&](int64_t tokens) {
    return (tokens + spec.block_size - 1) / spec.block_size;
  };
  plan.windows.assign(n_groups, 0);
  for (const KvLayerSpec& layer : spec.layers)
    plan.windows[layer.group] = std::max(plan.windows[layer.group], layer.window);
  plan.windows[0] = 0;
  if (spec.has_states()) plan.windows[spec.state_group()] = kStateWindow;
  const int64_t whole = blocks_for(max_len);
  const int64_t typical = blocks_for(std::min(max_len, kTypicalLength));
  std::vector<int64_t> kept(n_groups);  // blocks per sequence
  double bytes_per_block = 0;           // per block of group 0, with its share of the other groups
  for (int g = 0; g < n_groups; ++g) {
    const int64_t window =
        plan.windows[g] > 0 ? int64_t{plan.windows[g]} + max_chunk + 2 * spec.block_size : max_len;
    kept[g] = g == spec.state_group() ? kStates : std::min(whole, blocks_for(window));
    bytes_per_block += static_cast<double>(spec.block_bytes(g)) *
                       static_cast<double>(std::min(kept[g], typical)) /
                       static_cast<double>(typical);
  }
  const double affordable =
      bytes_per_block > 0 ? static_cast<double>(budget) / bytes_per_block : 1e18;
  const int64_t most =
      std::min<int64_t>(whole * max_num_seqs, (int64_t{1} << 31) / spec.block_size - 1);
  const int64_t n0 = static_cast<int64_t>(std::min(affordable, static_cast<double>(most)));
  for (int g = 0; g < n_groups; ++g) {
    const double share =
        static_cast<double>(std::min(kept[g], typical)) / static_cast<double>(typical);
    int64_t n = static_cast<int64_t>(static_cast<double>(n0) * share);
    if (g > 0) n = std::min(std::max(n, std::min(n0, kept[g])), kept[g] * max_num_seqs);
    plan.n_blocks.push_back(static_cast<int>(n));
    plan.bytes += n * spec.block_bytes(g);
  }
  plan.max_tokens = n0 * spec.block_size;
  return plan;
}

Result<bool> gives_text(const WeightSource& source) {
  ASSIGN_OR_RETURN(const ModelConfig shape, read_config(source));
  return shape.output.has_head;
}

namespace {
int64_t token_bytes(const CacheSpec& spec) {
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) bytes += CacheSpec::token_bytes(layer, spec.dtype);
  return bytes;
}

// Whether a draft tree could fill a window: only chains store tokens in the order of
// positions.
bool has_short_window(const CacheSpec& spec) {
  return spec.has_states() || std::ranges::any_of(spec.layers, [](const KvLayerSpec& layer) {
           return layer.window > 0 && layer.window <= kMaxDraftNodes;
         });
}

Status check_gives_text(const WeightSource& source) {
  ASSIGN_OR_RETURN(const ModelConfig shape, read_config(source));
  if (shape.output.has_head) return {};
  return errorf(
      ErrorCode::kUnsupported,
      "{}: architecture {} is an encoder, which gives vectors and no text: penstock embed",
      source.path().string(), shape.arch);
}

Result<std::shared_ptr<Model>> load_model(const WeightSource& source, Ops& ops,
                                          const LoadProgress& progress,
                                          const EngineConfig& config) {
  const RankGrid grid = grid_of(config);
  if (grid.size() == 1) return load_whole(source, ops, config, progress);
  RETURN_IF_ERROR(check_one_rank(config, ops));
  RETURN_IF_ERROR(check_gives_text(source));
  return load_share(source, ops, config, grid.stage_of(0), progress);
}

// RoPE has rotations for all positions; learned positions are limited to those that were trained.
Status check_length(int max_model_len, const ModelConfig& shape) {
  if (max_model_len <= shape.max_seq_len) return {};
  if (shape.positions.learned) {
    return errorf(ErrorCode::kInvalidArgument,
                  "max_model_len: the model has {} learned positions and no others, got {}",
                  shape.max_seq_len, max_model_len);
  }
  log().warn(
      "max_model_len is {}, the model was made for {} tokens: what it says beyond them may make no "
      "sense",
      max_model_len, shape.max_seq_len);
  return {};
}

// Opens the drafter. Without one, text that grammars force is still drafted. Returns null if
// speculation is off.
Result<std::unique_ptr<Drafter>> open_drafter(const EngineConfig& config, KvDType dtype,
                                              const std::filesystem::path& packed_folder,
                                              SpeculationInputs inputs, const DraftTarget& target) {
  if (config.spec == "off") return nullptr;
  DrafterConfig draft;
  draft.engine = config;
  if (config.spec.empty()) draft.engine.spec = "grammar";
  draft.draft_source = std::move(inputs.draft_source);
  draft.corpus = std::move(inputs.corpus);
  draft.kv_dtype = dtype;
  draft.packed_cache = packed_folder;
  ASSIGN_OR_RETURN(auto drafter, make_drafter(std::move(draft), target));
  if (inputs.acceptance >= 0) return make_synthetic_drafter(std::move(drafter), inputs.acceptance);
  return drafter;
}

// Returns what the blocks of the config's store are of.
BlockHash identity_for(const EngineConfig& config, const WeightSource& source,
                       uint64_t fingerprint) {
  const auto store = parse_kv_store(config.kv_store);
  return store && store->redis ? shared_identity(source, fingerprint)
                               : store_identity(source, fingerprint);
}

// Opens the store of the config; null without one.
Result<std::unique_ptr<KvStore>> open_store(const EngineConfig& config, const StepModel& model,
                                            const BlockHash& identity, const CachePlan& plan) {
  if (config.kv_store.empty()) return nullptr;
  std::vector<int64_t> block_bytes;  // summed over all ranks
  for (size_t g = 0; g < plan.n_blocks.size(); ++g)
    block_bytes.push_back(model.block_bytes(static_cast<int>(g)));
  ASSIGN_OR_RETURN(KvStoreSpec spec, parse_kv_store(config.kv_store));
  spec.memory_bytes /= config.data_parallel_size;
  // Windows' blocks come and go as often as others, however few of them the cache holds at once.
  std::vector<int> shares = plan.n_blocks;
  for (size_t g = 0; g < shares.size(); ++g)
    if (plan.windows[g] != kStateWindow) shares[g] = std::max(shares[g], shares[0]);
  return KvStore::open(spec, BlockImages(identity, config.block_size, block_bytes),
                       config.block_size, shares);
}

// Returns the bytes for the target's cache; a drafter's cache gets its share by bytes per token.
// counts_drafter: `bytes` already excludes the drafter's weights.
int64_t cache_budget(const EngineConfig& config, int64_t bytes, bool counts_drafter,
                     const CacheSpec& spec, const Drafter* drafter) {
  int64_t budget = bytes;
  if (drafter != nullptr && config.kv_cache_memory == 0 && !counts_drafter)
    budget -= drafter->weight_bytes();
  if (drafter == nullptr) return budget;
  // Without attention, tokens take no memory.
  const auto own = static_cast<double>(token_bytes(spec)),
             theirs = static_cast<double>(drafter->kv_bytes_per_token());
  const double share = theirs > 0 ? own / (own + theirs) : 1.0;
  return static_cast<int64_t>(share * static_cast<double>(budget));
}

// Plans the cache within the budget. An automatic max_model_len is reduced to the cache's
// capacity.
Result<CachePlan> plan_within(int64_t budget, const CacheSpec& spec, bool automatic_length,
                              EngineConfig& config) {
  const CachePlan plan = plan_cache(spec, std::max<int64_t>(budget, 0), config.max_num_seqs,
                                    config.max_model_len, config.max_num_batched_tokens);
  if (plan.max_tokens < config.max_model_len) {
    if (!automatic_length || plan.max_tokens < config.block_size) {
      return errorf(ErrorCode::kResourceExhausted,
                    "the KV cache may take {} bytes, room for {} tokens; one sequence of "
                    "max_model_len {} needs more",
                    budget, plan.max_tokens, config.max_model_len);
    }
    config.max_model_len = static_cast<int>(plan.max_tokens);
    log().warn("max_model_len is {}: the KV cache has no room for more", config.max_model_len);
  }
  log().info("KV cache: {:.1f} MiB, {} tokens in blocks of {}",
             static_cast<double>(plan.bytes) / (1 << 20), plan.max_tokens, config.block_size);
  if (spec.has_states()) {
    log().info("states: {} of {:.1f} KiB, part of the cache", plan.n_blocks.back(),
               static_cast<double>(spec.state_bytes()) / 1024);
  }
  return plan;
}

// Returns the query features of a token over all layers.
int64_t attention_dims(const ModelConfig& config) {
  int64_t sum = 0;
  for (int i = 0; i < config.n_layers; ++i) sum += config.q_dim_of(i);
  return sum;
}

EngineInfo info_of(const EngineConfig& config, const Ops& ops, const Model& model,
                   const CachePlan& plan, const CacheSpec& spec, const WeightSource& source) {
  const ModelConfig& shape = model.config();
  return {.architecture = shape.arch,
          .backend = ops.name(),
          .vocab_size = shape.vocab_size,
          .model_dim = shape.model_dim,
          .embedding_levels = 1 + shape.embedding.deep_levels,
          .encoder_rows = shape.encoder_rows,
          .positions_have_axes = std::ranges::any_of(
              shape.ropes, [](const RopeConfig& rope) { return !rope.axes.empty(); }),
          .pictures_see_themselves = std::ranges::any_of(shape.layers, &LayerConfig::sees_parts),
          .given_token = shape.per_layer.given_token,
          .max_model_len = config.max_model_len,
          .short_rope_len = model.short_rope_len(),
          .block_size = config.block_size,
          .n_blocks = plan.n_blocks[0],
          .kv_bytes = plan.bytes,
          .weight_bytes = model.weight_bytes(),
          .offloaded_bytes = model.offloaded_bytes(),
          .cpu_experts = model.host_experts(),
          .expert_cache_bytes = ops.expert_traffic().room,
          .expert_twin_bytes = model.twin_bytes(),
          .n_threads = ops.n_host_threads(),
          .active_weight_bytes = model.active_weight_bytes(),
          .active_parameters = shape.n_active_parameters(),
          .active_float_parameters = model.active_float_weights(),
          .attention_dims = attention_dims(shape),
          .kv_bytes_per_token = token_bytes(spec),
          .state_bytes = spec.state_bytes(),
          .n_experts = shape.experts.count,
          .eos_token_ids = end_ids(source, shape.vocab_size)};
}

// Measures the times of steps of different sizes, on which draft lengths depend.
void measure_steps(EngineParts& parts, const CachePlan& plan, const CacheSpec& spec) {
  int64_t most = std::min<int64_t>(
      {parts.config.max_model_len, parts.config.max_num_batched_tokens, plan.max_tokens,
       std::max(parts.speculation->max_nodes(), ForcedText::kMost) + 1});
  for (int g = 0; g < static_cast<int>(plan.n_blocks.size()); ++g)
    if (g != spec.state_group())  // one of its blocks is for any number of tokens
      most = std::min(most, int64_t{plan.n_blocks[static_cast<size_t>(g)]} * spec.block_size);
  calibrate(*parts.model,
            {.n_groups = spec.n_groups(),
             .block_size = spec.block_size,
             .state_group = spec.state_group(),
             .max_rows = static_cast<int>(most)},
            *parts.speculation);
}

// Makes the backend of an engine. With several ranks or engines, its threads stay on the engine's
// CPUs.
Result<std::unique_ptr<Ops>> make_member_ops(const EngineConfig& config,
                                             const std::vector<int>& cpus, RankRun* ranks) {
  OpsConfig ops{config.threads, config.batch_invariant, config.thread_weight};
  ops.cpus = cpus;
  ops.eager = config.enforce_eager;
  if (ranks != nullptr) {
    ops.ranks = &ranks->communicator();
    ops.rank_wire = *wire_type(config.rank_wire_dtype);
  }
  return make_ops(config.backend, ops);
}
}  // namespace

SchedulerConfig scheduler_config(const EngineConfig& config, int max_model_len) {
  const bool paged = config.kv_layout == "paged";
  return {.max_num_seqs = config.max_num_seqs,
          .max_num_batched_tokens = config.max_num_batched_tokens,
          .prefix_caching = config.enable_prefix_caching && paged,
          .state_snapshot_interval = config.state_snapshot_interval,
          .paged = paged,
          .reserved_len = paged ? 0 : max_model_len};
}

PolicyConfig policy_config(const EngineConfig& config) {
  return {config.max_batch_size, config.max_wait_ms / 1e3, config.max_tokens_per_batch,
          config.priority_ageing_s};
}

Result<std::shared_ptr<Model>> load_whole(const WeightSource& source, Ops& ops,
                                          const EngineConfig& config,
                                          const LoadProgress& progress) {
  RETURN_IF_ERROR(check_gives_text(source));
  return load_placed(source, ops, config, progress);
}

// Starts the drafter beside the model's cache; null if nothing drafts.
Result<std::unique_ptr<Speculation>> start_speculation(std::unique_ptr<Drafter> drafter,
                                                       const EngineConfig& config, KvCache& cache,
                                                       int64_t max_tokens, const CacheSpec& spec) {
  if (!drafter) return nullptr;
  RETURN_IF_ERROR(drafter->start(cache, max_tokens));
  if (!config.spec.empty()) log().info("speculation: {}", drafter->name());
  return std::make_unique<Speculation>(std::move(drafter), spec_length(config.spec_length),
                                       config.batch_invariant || has_short_window(spec));
}

// Checks settings against the model. A prefix of a sequence that attends to an encoder's rows is that
// of no other: nothing is shared.
Status fit_to_model(const ModelConfig& model, EngineConfig& config) {
  RETURN_IF_ERROR(check_length(config.max_model_len, model));
  if (model.encoder_rows == 0) return {};
  if (!config.spec.empty()) {
    return errorf(ErrorCode::kUnsupported, "spec: nothing drafts for {}, got {}", model.arch,
                  config.spec);
  }
  if (!config.kv_store.empty())
    return errorf(ErrorCode::kUnsupported, "kv_store: {} shares no prefixes", model.arch);
  config.enable_prefix_caching = false;
  return {};
}

void log_long_rope(int max_model_len, const EngineInfo& info) {
  if (!takes_long_rope(max_model_len, info)) return;
  log().info(
      "longrope: requests whose prompt and max_tokens come to more than {} tokens take the long "
      "factors",
      info.short_rope_len);
}

Status check_cache_type(const Ops& ops, const EngineConfig& config, KvDType type) {
  if (ops.can_cache(type)) return {};
  return errorf(ErrorCode::kUnsupported,
                "kv_cache_dtype {} is not there on backend {}: expected f32, f16, bf16, int8 or "
                "int4",
                config.kv_cache_dtype, ops.name());
}

// Returns the places of experts on which bits depend: none where the device computes all of them.
std::string places_in_bits(const EngineConfig& config, const Model& model) {
  return config.batch_invariant && model.twin_bytes() > 0 ? "" : model.host_experts();
}

Result<std::unique_ptr<Engine>> open_member(EngineGroup& group, int index, ModelCopy given,
                                            EngineConfig config, const LoadProgress& progress,
                                            SpeculationInputs inputs) {
  ASSIGN_OR_RETURN(const CacheTypes types, cache_types(config));
  ASSIGN_OR_RETURN(auto policy, make_policy(config.policy, policy_config(config)));
  const EnginePlace& place = group.places[static_cast<size_t>(index)];
  ASSIGN_OR_RETURN(auto ranks,
                   begin_run(*given.source, config, RankTask::kText, {index, group.size()}));
  const std::vector<int> cpus = ranks != nullptr ? ranks->cpus() : place.cpus;
  // weights are packed where the engine's thread will compute with them
  const OnCpus here(cpus);
  ASSIGN_OR_RETURN(auto ops, make_member_ops(config, cpus, ranks.get()));
  RETURN_IF_ERROR(check_cache_type(*ops, config, types.kv));
  // Must be destroyed before the backend that packed its weights.
  ModelCopy copy = std::move(given);
  // Before loading, which reads the whole file: a few pages, which would wait behind the others.
  const uint64_t of_files = fingerprint_of(*copy.source, config, ops->name());
  const bool shares_model = copy.model != nullptr;
  if (!shares_model) {
    ASSIGN_OR_RETURN(copy.model, load_model(*copy.source, *ops, progress, config));
  }
  const RankGrid grid = grid_of(config);
  const Model& model = *copy.model;
  const uint64_t fingerprint = with_host_experts(of_files, places_in_bits(config, model));
  const BlockHash identity = identity_for(config, *copy.source, fingerprint);
  ASSIGN_OR_RETURN(
      const RanksHere of_host,
      meet_ranks(ranks.get(), grid, fingerprint, model.weight_bytes() - model.offloaded_bytes()));
  const bool automatic_length = config.max_model_len == 0;
  if (automatic_length) config.max_model_len = model.config().max_seq_len;
  RETURN_IF_ERROR(fit_to_model(model.config(), config));

  ASSIGN_OR_RETURN(const auto packed_folder, packed_cache_folder(config.packed_cache));
  ASSIGN_OR_RETURN(auto announce, announcer(ranks.get(), config, *copy.source, model));
  ASSIGN_OR_RETURN(auto drafter,
                   open_drafter(config, types.kv, packed_folder, std::move(inputs),
                                {&model, ops.get(), copy.source.get(), std::move(announce)}));
  const CacheSpec spec = model.pipeline_cache_spec(types, config.block_size);
  if (index == 0) {
    ASSIGN_OR_RETURN(group.cache_bytes, memory_for_cache(config, group, *ops, model, of_host));
    group.expert_room = ops->expert_traffic().room;
  } else {
    (void)ops->set_expert_room(group.expert_room);
  }
  const int64_t budget =
      cache_budget(config, group.cache_bytes, !ops->computes_here(), spec, drafter.get());
  ASSIGN_OR_RETURN(const CachePlan cache_plan, plan_within(budget, spec, automatic_length, config));
  CacheSpec own_spec = model.cache_spec(types, config.block_size);
  own_spec.longest = cache_plan.max_tokens;
  ASSIGN_OR_RETURN(auto cache, ops->make_cache(own_spec, cache_plan.n_blocks));
  ASSIGN_OR_RETURN(auto speculation, start_speculation(std::move(drafter), config, *cache,
                                                       cache_plan.max_tokens, spec));

  EngineParts parts;
  parts.info = info_of(config, *ops, model, cache_plan, spec, *copy.source);
  log_long_rope(config.max_model_len, parts.info);
  auto loaded = std::make_unique<LoadedModel>(std::move(copy.source), std::move(ops),
                                              std::move(copy.model), std::move(cache));
  ASSIGN_OR_RETURN(parts.model, with_ranks(std::move(ranks), grid, std::move(loaded),
                                           cache_plan.n_blocks, parts.info));
  if (speculation && speculation->drafter().wants_states())
    parts.model->keep_states(speculation->drafter().taps());
  parts.speculation = std::move(speculation);  // from here on destroyed before the model
  ASSIGN_OR_RETURN(parts.store, open_store(config, *parts.model, identity, cache_plan));
  parts.scheduler =
      std::make_unique<Scheduler>(scheduler_config(config, config.max_model_len), std::move(policy),
                                  cache_plan.n_blocks, cache_plan.windows, config.block_size);
  parts.max_num_seqs = config.max_num_seqs;
  parts.max_num_batched_tokens = config.max_num_batched_tokens;
  parts.fingerprint = fingerprint;
  parts.next_request = group.next_request;
  parts.cpus = cpus;
  parts.first_adapter_slot = shares_model ? index * config.max_loras : 0;
  parts.config = std::move(config);
  if (!parts.config.spec.empty() && parts.speculation && parts.speculation->automatic())
    measure_steps(parts, cache_plan, spec);
  RETURN_IF_ERROR(parts.model->status());
  return std::make_unique<EngineImpl>(std::move(parts));
}

Result<std::unique_ptr<Engine>> open_engine(std::unique_ptr<WeightSource> source,
                                            const EngineConfig& wanted,
                                            const LoadProgress& progress,
                                            SpeculationInputs inputs) {
  ASSIGN_OR_RETURN(EngineConfig config, resolve_preset(wanted));
  if (!config.quantize.empty()) {
    ASSIGN_OR_RETURN(source,
                     make_quantizing_source(std::move(source), config.quantize, config.threads));
  }
  // Engines open one at a time, since memory taken by one reduces the next one's budget.
  static std::mutex opening;
  const std::lock_guard one_at_a_time(opening);
  if (config.data_parallel_size > 1) {
    return open_engines(engine_places(host_cpus(), config.data_parallel_size), std::move(source),
                        config, progress, std::move(inputs));
  }
  EngineGroup alone;
  return open_member(alone, 0, {std::move(source), nullptr}, std::move(config), progress,
                     std::move(inputs));
}

Result<std::unique_ptr<Engine>> Engine::open(const EngineConfig& config) {
  ASSIGN_OR_RETURN(auto source, open_weights(config.model));
  return open_engine(std::move(source), config);
}

}  // namespace penstock
