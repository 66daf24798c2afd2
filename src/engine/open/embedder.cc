#include "engine/open/embedder.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "base/check.h"
#include "base/thread_pool.h"
#include "engine/compute/fingerprint.h"
#include "engine/compute/pooler.h"
#include "engine/open/engine_group.h"
#include "engine/open/open.h"
#include "engine/ranks/meet_ranks.h"
#include "engine/ranks/pipeline_start.h"
#include "engine/ranks/state_ranks.h"
#include "engine/requests/adapter_pool.h"
#include "engine/requests/metrics_recorder.h"
#include "model/batch_builder.h"
#include "model/sources/quantizing_source.h"
#include "parallel/host_cpus.h"

namespace penstock {

namespace {
constexpr int kEmbedderBlock = kStateBlockTokens, kMostEmbedderTokens = 2048;

// Limit of a step's tokens times weight bytes below which it takes at most a millisecond or two.
constexpr int64_t kShortStep = 100 << 20;

int blocks_of(size_t n_tokens) {
  return static_cast<int>((n_tokens + kEmbedderBlock - 1) / kEmbedderBlock);
}
}  // namespace

Result<std::unique_ptr<Embedder>> Embedder::open(std::unique_ptr<WeightSource> opened,
                                                 const EngineConfig& wanted) {
  EngineConfig config = wanted;
  RETURN_IF_ERROR(check_ranks(config));
  if (config.experts_offload) {
    return make_error(
        ErrorCode::kUnsupported,
        "experts_offload: expected a model that gives text; for vectors it is not there");
  }
  config.backend = backend_of(config);
  if (config.data_parallel_size == 0)
    config.data_parallel_size = mpi_place() ? 1 : n_nodes(host_cpus());
  const int n_engines = config.data_parallel_size;
  if (!config.quantize.empty()) {
    ASSIGN_OR_RETURN(opened,
                     make_quantizing_source(std::move(opened), config.quantize, config.threads));
  }
  const std::shared_ptr<WeightSource> source = std::move(opened);
  std::shared_ptr<Model> model;
  if (n_engines == 1) return open_one(source, config, 0, {}, model);
  if (mpi_place()) {
    return errorf(ErrorCode::kUnsupported,
                  "data_parallel_size {}: ranks that MPI has started are of one engine", n_engines);
  }
  const std::vector<EnginePlace> places = engine_places(host_cpus(), n_engines);
  const bool shares = grid_of(config).size() == 1;
  if (shares && config.threads == 0) config.threads = std::max(1, available_cpus() / n_engines);
  std::map<int, std::shared_ptr<Model>> models;  // by NUMA node
  std::unique_ptr<Embedder> first;
  for (int i = 0; i < n_engines; ++i) {
    const EnginePlace& place = places[static_cast<size_t>(i)];
    model = shares ? models[place.node] : nullptr;
    ASSIGN_OR_RETURN(auto engine, open_one(source, config, i, place, model));
    models[place.node] = model;
    if (!engine->model_->computes_here()) {
      return errorf(
          ErrorCode::kUnsupported,
          "data_parallel_size {}: expected 1 on backend {}, whose engines share no weights",
          n_engines, config.backend);
    }
    if (first == nullptr) {
      first = std::move(engine);
    } else {
      first->beside_.push_back(std::move(engine));
    }
  }
  return first;
}

Result<std::unique_ptr<Embedder>> Embedder::open_one(const std::shared_ptr<WeightSource>& source,
                                                     EngineConfig config, int index,
                                                     const EnginePlace& place,
                                                     std::shared_ptr<Model>& model) {
  const RankGrid grid = grid_of(config);
  ASSIGN_OR_RETURN(
      auto run, begin_run(*source, config, RankTask::kStates, {index, config.data_parallel_size}));
  OpsConfig where{config.threads, config.batch_invariant, config.thread_weight};
  where.cpus = place.cpus;
  where.eager = config.enforce_eager;
  if (run != nullptr) {
    where = rank_ops(config, run->communicator());
    where.cpus = run->cpus();
  }
  const OnCpus here(where.cpus);
  ASSIGN_OR_RETURN(auto ops, make_ops(config.backend, where));
  if (model == nullptr) {
    ASSIGN_OR_RETURN(model, Model::load_states(*source, *ops, grid.stage_of(0)));
  }
  if (run != nullptr) {
    RETURN_IF_ERROR(hear_shares(run->communicator(), {fingerprint_of(*source, config, ops->name()),
                                                      model->weight_bytes()}));
  }
  auto loaded = std::make_unique<LoadedModel>(source, std::move(ops), model, nullptr);
  std::unique_ptr<StateRanks> ranks;
  if (run != nullptr) ranks = std::make_unique<StateRanks>(std::move(run), grid, *loaded);
  auto embedder =
      std::unique_ptr<Embedder>(new Embedder(source, std::move(loaded), std::move(ranks), config));
  embedder->cpus_ = where.cpus;
  return embedder;
}

Embedder::Embedder(std::shared_ptr<WeightSource> source, std::unique_ptr<LoadedModel> model,
                   std::unique_ptr<StateRanks> ranks, const EngineConfig& config)
    : source_(std::move(source)),
      model_(std::move(model)),
      ranks_(std::move(ranks)),
      most_tokens_(config.max_num_batched_tokens > 0 ? config.max_num_batched_tokens
                                                     : kMostEmbedderTokens),
      max_lora_rank_(config.max_lora_rank),
      adapters_(std::make_unique<AdapterPool>(*model_, config.max_loras)) {}

// The backend computes all-reduces over the ranks, so it must go first.
Embedder::~Embedder() { model_.reset(); }

Status Embedder::status() const {
  if (ranks_ != nullptr) RETURN_IF_ERROR(ranks_->status());
  for (const auto& engine : beside_) RETURN_IF_ERROR(engine->status());
  return {};
}

void Embedder::set_ranks(Metrics& metrics) const {
  if (ranks_ == nullptr) return;
  std::vector<CommunicatorUse> uses = ranks_->communication();
  for (const auto& engine : beside_)
    for (const CommunicatorUse& use : engine->ranks_->communication()) uses.push_back(use);
  uses.resize(std::min<size_t>(uses.size(), kMaxMetricRanks));
  penstock::set_ranks(uses, metrics);
}

Result<Embedder::AdapterRef> Embedder::open_adapter(const std::string& path) const {
  if (ranks_ != nullptr)
    return errorf(
        ErrorCode::kUnsupported,
        "{}: adapters of a model that gives vectors and that several processes share are not "
        "supported",
        path);
  return Adapter::open(path, *model_, max_lora_rank_);
}

Status Embedder::check(Inputs inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<TokenId>& tokens = inputs[i].tokens;
    if (tokens.empty())
      return errorf(ErrorCode::kInvalidArgument,
                    "sequence {}: expected at least one token, got none", i);
    if (tokens.size() > static_cast<size_t>(max_tokens())) {
      return errorf(ErrorCode::kContextOverflow, "sequence {}: expected at most {} tokens, got {}",
                    i, max_tokens(), tokens.size());
    }
    for (const TokenId id : tokens) {
      if (id < 0 || id >= vocab_size()) {
        return errorf(ErrorCode::kInvalidArgument, "sequence {}: token id {}: expected 0 to {}", i,
                      id, vocab_size() - 1);
      }
    }
  }
  return {};
}

// Returns the end of the sequences that fit one step, at least one.
size_t Embedder::batch_end(Inputs inputs, size_t first) const {
  size_t end = first, n_tokens = 0;
  while (end < inputs.size()) {
    n_tokens += inputs[end].tokens.size();
    if (end > first && n_tokens > static_cast<size_t>(most_tokens_)) break;
    ++end;
  }
  return end;
}

// Divides the inputs into steps of whole sequences. A single sequence may be longer than a step:
// causal models compute it in chunks.
std::vector<Embedder::Step> Embedder::steps_of(Inputs inputs) const {
  std::vector<Step> steps;
  for (size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
    end = batch_end(inputs, begin);
    const int whole = static_cast<int>(inputs[begin].tokens.size());
    if (!causal() || end - begin > 1) {
      steps.push_back({begin, end, 0, 0});
      continue;
    }
    for (int first = 0; first < whole; first += most_tokens_)
      steps.push_back({begin, end, first, std::min(most_tokens_, whole - first)});
  }
  return steps;
}

Status Embedder::make_room(Inputs inputs) {
  const CacheSpec spec = model_->model().pipeline_cache_spec(KvDType::kF32, kEmbedderBlock);
  std::vector<int> wanted(static_cast<size_t>(std::max(1, spec.n_groups())), 0);
  for (size_t first = 0; first < inputs.size();) {
    const size_t end = batch_end(inputs, first);
    int blocks = 0;
    for (size_t i = first; i < end; ++i) blocks += blocks_of(inputs[i].tokens.size());
    for (size_t g = 0; g < wanted.size(); ++g) {
      const bool states = static_cast<int>(g) == spec.state_group();
      wanted[g] = std::max(wanted[g], states ? static_cast<int>(end - first) : blocks);
    }
    first = end;
  }
  bool enough = !n_blocks_.empty();
  for (size_t g = 0; enough && g < wanted.size(); ++g) enough = n_blocks_[g] >= wanted[g];
  if (enough) return {};
  n_blocks_.clear();
  RETURN_IF_ERROR(ranks_ != nullptr ? ranks_->make_cache(wanted)
                                    : make_state_cache(*model_, wanted));
  n_blocks_ = wanted;
  builder_ = std::make_unique<BatchBuilder>(spec);
  return {};
}

// Adds tokens first to first + count of the step's sequence `index`, whose blocks begin at
// first_block.
void Embedder::add(const std::vector<TokenId>& tokens, int first, int count, int first_block,
                   int index, bool all_rows) {
  const CacheSpec& spec = model_->cache().spec();
  std::vector<GroupBlocks> kv(static_cast<size_t>(std::max(1, spec.n_groups())),
                              consecutive_blocks(first_block, first + count, kEmbedderBlock));
  if (spec.has_states())
    kv[static_cast<size_t>(spec.state_group())] = {{static_cast<BlockId>(index)}};
  builder_->add(
      {.tokens = std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
       .first = first,
       .kv = kv,
       .rows = all_rows ? BatchPart::Rows::kAll : BatchPart::Rows::kLast,
       .adapter = adapter_slot_,
       .long_rope = model_->model().takes_long_rope(static_cast<int64_t>(tokens.size()))});
}

// Sets positions if they do not begin at 0, or if some tokens have none.
Batch Embedder::with_positions(const Batch& batch) {
  const ModelConfig& config = shape();
  Batch changed = batch;
  if (config.positions.first == 0) return changed;
  positions_.assign(batch.positions.begin(), batch.positions.end());
  for (int s = 0; s < batch.n_seqs(); ++s) {
    int next = config.positions.first;
    for (int t = batch.seq_offsets[s]; t < batch.seq_offsets[s + 1]; ++t) {
      const bool none = batch.tokens[static_cast<size_t>(t)] == config.positions.uncounted;
      positions_[static_cast<size_t>(t)] = none ? config.positions.first - 1 : next++;
    }
  }
  changed.positions = positions_;
  return changed;
}

void Embedder::add_token_types(Inputs inputs, int first, Batch& batch) {
  if (n_token_types() < 2) return;
  token_types_.clear();
  for (int s = 0; s < batch.n_seqs(); ++s) {
    const size_t n_first = inputs[static_cast<size_t>(s)].n_first_type;
    const auto n = static_cast<size_t>(batch.seq_offsets[s + 1] - batch.seq_offsets[s]);
    for (size_t t = 0; t < n; ++t)
      token_types_.push_back(static_cast<size_t>(first) + t >= n_first ? 1 : 0);
  }
  batch.token_types = token_types_;
}

Batch Embedder::batch_of(Inputs inputs, const Step& step, bool all_rows) {
  builder_->clear();
  int next_block = 0;
  for (size_t i = step.begin; i < step.end; ++i) {
    const auto n = static_cast<int>(inputs[i].tokens.size());
    add(inputs[i].tokens, step.first, step.count > 0 ? step.count : n, next_block,
        static_cast<int>(i - step.begin), all_rows);
    next_block += blocks_of(inputs[i].tokens.size());
  }
  Batch batch = with_positions(builder_->build());
  add_token_types(inputs.subspan(step.begin, step.end - step.begin), step.first, batch);
  return batch;
}

Status Embedder::compute(const Batch& batch) {
  if (ranks_ != nullptr) return ranks_->run(batch);
  std::optional<OneTurn> one_turn;
  if (model_->computes_here() &&
      batch.n_tokens() * model_->model().active_weight_bytes() < kShortStep)
    one_turn.emplace();
  model_->submit(batch);
  model_->wait();
  Status status = model_->status();
  if (!status) model_->recover();  // after refused memory, smaller requests may succeed
  return status;
}

// Steps are sent to other ranks ahead of this rank's computation, and sent steps are always
// computed.
Status Embedder::run(
    Inputs inputs, bool all_rows, const Progress& progress,
    const std::function<void(size_t sequence, std::span<const float> state)>& take) {
  RETURN_IF_ERROR(check(inputs));
  const OnCpus here(cpus_);
  RETURN_IF_ERROR(make_room(inputs));
  const std::vector<Step> steps = steps_of(inputs);
  const auto end_told = [&](size_t i) {
    return ranks_ == nullptr ? 0
                             : std::min(steps.size(), i + static_cast<size_t>(ranks_->n_at_once()));
  };
  bool goes_on = true;
  for (size_t i = 0, told = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (goes_on && progress && step.first == 0) goes_on = progress(step.begin, inputs.size());
    for (; goes_on && told < end_told(i); ++told)
      ranks_->tell(batch_of(inputs, steps[told], all_rows));
    if (!goes_on && i >= told) break;
    const Batch batch = batch_of(inputs, step, all_rows);
    RETURN_IF_ERROR(compute(batch));
    int row = 0;
    for (size_t s = step.begin; goes_on && s < step.end; ++s) {
      const size_t at = s - step.begin;
      const int n_rows = all_rows ? batch.seq_offsets[at + 1] - batch.seq_offsets[at] : 1;
      for (int r = 0; r < n_rows; ++r) take(s, model_->hidden(row++));
    }
  }
  return goes_on ? Status() : make_error(ErrorCode::kCancelled, "cancelled");
}

Result<Embedder::Vectors> Embedder::shared_out(Inputs inputs, const Progress& progress,
                                               const Work& work) {
  if (beside_.empty()) return work(*this, inputs, progress);
  RETURN_IF_ERROR(check(inputs));
  Vectors out(inputs.size());
  std::mutex mutex;
  size_t next = 0;
  Status status;
  // Takes the next steps; none if all are taken, or one has failed.
  const auto take = [&](const Embedder& engine) {
    const std::lock_guard lock(mutex);
    const size_t begin = next;
    if (status && begin < inputs.size() && progress && !progress(begin, inputs.size()))
      status = make_error(ErrorCode::kCancelled, "cancelled");
    const int n_steps = engine.ranks_ != nullptr ? engine.ranks_->n_at_once() : 1;
    for (int i = 0; status && i < n_steps && next < inputs.size(); ++i)
      next = batch_end(inputs, next);
    return std::pair(begin, status ? next : begin);
  };
  const auto compute = [&](Embedder& engine) {
    for (auto [begin, end] = take(engine); begin < end; std::tie(begin, end) = take(engine)) {
      auto part = work(engine, inputs.subspan(begin, end - begin), {});
      const std::lock_guard lock(mutex);
      if (part) {
        std::ranges::move(*part, out.begin() + static_cast<ptrdiff_t>(begin));
      } else if (status) {
        status = tl::unexpected(part.error());
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (const auto& engine : beside_) threads.emplace_back([&] { compute(*engine); });
    compute(*this);
  }
  RETURN_IF_ERROR(status);
  return out;
}

Result<Embedder::Vectors> Embedder::adapted(Inputs inputs, const Progress& progress,
                                            const Work& work, const AdapterRef& adapter) {
  if (adapter == nullptr) return shared_out(inputs, progress, work);
  if (&adapter->model() != model_.get())
    return errorf(ErrorCode::kInvalidArgument, "adapter {}: was opened for another model",
                  adapter->path());
  ASSIGN_OR_RETURN(const std::optional<int> slot, adapters_->take(adapter));
  PENSTOCK_CHECK(slot.has_value());  // calls are serialized, so there is a free slot
  adapter_slot_ = *slot;
  auto vectors = work(*this, inputs, progress);
  adapter_slot_ = -1;
  adapters_->give_back(*slot);
  return vectors;
}

Result<std::vector<std::vector<float>>> Embedder::embed(Inputs inputs,
                                                        std::span<const Pooling> poolings,
                                                        const Progress& progress,
                                                        AdapterRef adapter) {
  adapters_->drop_forgotten();
  const Work work = [&](Embedder& engine, Inputs part, const Progress& own) {
    return engine.pooled(part, poolings, own);
  };
  return adapted(inputs, progress, work, adapter);
}

Result<std::vector<std::vector<float>>> Embedder::states(Inputs inputs, const Progress& progress,
                                                         AdapterRef adapter) {
  adapters_->drop_forgotten();
  const Work work = [](Embedder& engine, Inputs part, const Progress& own) {
    return engine.all_states(part, own);
  };
  return adapted(inputs, progress, work, adapter);
}

Result<Embedder::Vectors> Embedder::pooled(Inputs inputs, std::span<const Pooling> poolings,
                                           const Progress& progress) {
  const bool all_rows =
      std::ranges::any_of(poolings, [](Pooling p) { return p != Pooling::kLast; });
  std::vector<std::vector<float>> out;
  Pooler pooler(poolings, dim());  // of sequence out.size()
  const auto end_sequence = [&] {
    out.push_back(pooler.result());
    pooler = Pooler(poolings, dim());
  };
  RETURN_IF_ERROR(run(inputs, all_rows, progress, [&](size_t i, std::span<const float> state) {
    if (i > out.size()) end_sequence();
    pooler.add(state);
  }));
  if (!inputs.empty()) end_sequence();
  return out;
}

Result<Embedder::Vectors> Embedder::all_states(Inputs inputs, const Progress& progress) {
  Vectors out(inputs.size());
  RETURN_IF_ERROR(run(inputs, true, progress, [&](size_t i, std::span<const float> state) {
    out[i].insert(out[i].end(), state.begin(), state.end());
  }));
  return out;
}

}  // namespace penstock
