#include "engine/embedder.h"

#include <algorithm>

#include "engine/fingerprint.h"
#include "engine/metrics_recorder.h"
#include "engine/open.h"
#include "engine/pooler.h"
#include "engine/ranks/meet_ranks.h"
#include "engine/ranks/pipeline_start.h"
#include "engine/ranks/state_ranks.h"
#include "model/batch_builder.h"
#include "model/sources/quantizing_source.h"

namespace penstock {

namespace {
constexpr int kEmbedderBlock = kStateBlockTokens, kMostEmbedderTokens = 2048;

int blocks_of(size_t n_tokens) { return static_cast<int>((n_tokens + kEmbedderBlock - 1) / kEmbedderBlock); }
}  // namespace

Result<std::unique_ptr<Embedder>> Embedder::open(std::unique_ptr<WeightSource> opened,
                                                 const EngineConfig& wanted) {
  EngineConfig config = wanted;
  RETURN_IF_ERROR(check_ranks(config));
  if (config.data_parallel_size > 1) {
    return errorf(ErrorCode::kUnsupported,
                  "data_parallel_size: expected 1 for models that give vectors, got {}",
                  config.data_parallel_size);
  }
  config.backend = backend_of(config);
  if (!config.quantize.empty()) {
    ASSIGN_OR_RETURN(opened, make_quantizing_source(std::move(opened), config.quantize, config.threads));
  }
  const std::shared_ptr<WeightSource> source = std::move(opened);
  const RankGrid grid = grid_of(config);
  ASSIGN_OR_RETURN(auto run, begin_run(*source, config, RankTask::kStates));
  OpsConfig where{config.threads, config.batch_invariant, config.thread_weight};
  where.eager = config.enforce_eager;
  if (run != nullptr) {
    where = rank_ops(config, run->communicator());
    where.cpus = run->cpus();
  }
  ASSIGN_OR_RETURN(auto ops, make_ops(config.backend, where));
  ASSIGN_OR_RETURN(auto weights, Model::load_states(*source, *ops, grid.stage_of(0)));
  if (run != nullptr) {
    RETURN_IF_ERROR(hear_shares(run->communicator(),
                                {fingerprint_of(*source, config, ops->name()), weights->weight_bytes()}));
  }
  auto model = std::make_unique<LoadedModel>(source, std::move(ops), std::move(weights), nullptr);
  std::unique_ptr<StateRanks> ranks;
  if (run != nullptr) ranks = std::make_unique<StateRanks>(std::move(run), grid, *model);
  const int most = config.max_num_batched_tokens > 0 ? config.max_num_batched_tokens : kMostEmbedderTokens;
  return std::unique_ptr<Embedder>(new Embedder(source, std::move(model), std::move(ranks), most));
}

Embedder::Embedder(std::shared_ptr<WeightSource> source, std::unique_ptr<LoadedModel> model,
                   std::unique_ptr<StateRanks> ranks, int most_tokens)
    : source_(std::move(source)),
      model_(std::move(model)),
      ranks_(std::move(ranks)),
      most_tokens_(most_tokens) {}

// Its backend takes sums by what the ranks have.
Embedder::~Embedder() { model_.reset(); }

Status Embedder::status() const { return ranks_ != nullptr ? ranks_->status() : Status(); }

void Embedder::set_ranks(Metrics& metrics) const {
  if (ranks_ != nullptr) penstock::set_ranks(ranks_->communication(), metrics);
}

Status Embedder::check(Inputs inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<TokenId>& tokens = inputs[i].tokens;
    if (tokens.empty())
      return errorf(ErrorCode::kInvalidArgument, "sequence {}: expected at least one token, got none", i);
    if (tokens.size() > static_cast<size_t>(max_tokens())) {
      return errorf(ErrorCode::kContextOverflow, "sequence {}: expected at most {} tokens, got {}", i,
                    max_tokens(), tokens.size());
    }
    for (const TokenId id : tokens) {
      if (id < 0 || id >= vocab_size()) {
        return errorf(ErrorCode::kInvalidArgument, "sequence {}: token id {}: expected 0 to {}", i, id,
                      vocab_size() - 1);
      }
    }
  }
  return {};
}

// As many sequences as fit a step; at least one.
size_t Embedder::batch_end(Inputs inputs, size_t first) const {
  size_t end = first, n_tokens = 0;
  while (end < inputs.size()) {
    n_tokens += inputs[end].tokens.size();
    if (end > first && n_tokens > static_cast<size_t>(most_tokens_)) break;
    ++end;
  }
  return end;
}

// A step takes whole sequences. One that is alone may be longer; where tokens do not see what is behind them it is taken in pieces.
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
  RETURN_IF_ERROR(ranks_ != nullptr ? ranks_->make_cache(wanted) : make_state_cache(*model_, wanted));
  n_blocks_ = wanted;
  builder_ = std::make_unique<BatchBuilder>(spec);
  return {};
}

// Tokens first to first + count of the index-th sequence of the step, whose blocks begin at first_block.
void Embedder::add(const std::vector<TokenId>& tokens, int first, int count, int first_block, int index,
                   bool all_rows) {
  const CacheSpec& spec = model_->cache().spec();
  std::vector<GroupBlocks> kv(static_cast<size_t>(std::max(1, spec.n_groups())),
                              consecutive_blocks(first_block, first + count, kEmbedderBlock));
  if (spec.has_states()) kv[static_cast<size_t>(spec.state_group())] = {{static_cast<BlockId>(index)}};
  builder_->add({.tokens = std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
                 .first = first,
                 .kv = kv,
                 .rows = all_rows ? BatchPart::Rows::kAll : BatchPart::Rows::kLast});
}

// Where positions do not begin with 0, or some tokens have none.
Batch Embedder::with_positions(const Batch& batch) {
  const ModelConfig& config = shape();
  Batch changed = batch;
  if (config.first_position == 0) return changed;
  positions_.assign(batch.positions.begin(), batch.positions.end());
  for (int s = 0; s < batch.n_seqs(); ++s) {
    int next = config.first_position;
    for (int t = batch.seq_offsets[s]; t < batch.seq_offsets[s + 1]; ++t) {
      const bool none = batch.tokens[static_cast<size_t>(t)] == config.no_position;
      positions_[static_cast<size_t>(t)] = none ? config.first_position - 1 : next++;
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
    for (size_t t = 0; t < n; ++t) token_types_.push_back(static_cast<size_t>(first) + t >= n_first ? 1 : 0);
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
  model_->submit(batch);
  model_->wait();
  Status status = model_->status();
  if (!status) model_->recover();  // after memory was refused others may ask for less
  return status;
}

// Other ranks hear of a step before it is this one's turn, and what they were told is computed whatever comes.
Status Embedder::run(Inputs inputs, bool all_rows, const Progress& progress,
                     const std::function<void(size_t sequence, std::span<const float> state)>& take) {
  RETURN_IF_ERROR(check(inputs));
  RETURN_IF_ERROR(make_room(inputs));
  const std::vector<Step> steps = steps_of(inputs);
  const auto end_told = [&](size_t i) {
    return ranks_ == nullptr ? 0 : std::min(steps.size(), i + static_cast<size_t>(ranks_->n_at_once()));
  };
  bool goes_on = true;
  for (size_t i = 0, told = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (goes_on && progress && step.first == 0) goes_on = progress(step.begin, inputs.size());
    for (; goes_on && told < end_told(i); ++told) ranks_->tell(batch_of(inputs, steps[told], all_rows));
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

Result<std::vector<std::vector<float>>> Embedder::embed(Inputs inputs, std::span<const Pooling> poolings,
                                                        const Progress& progress) {
  const bool all_rows = std::ranges::any_of(poolings, [](Pooling p) { return p != Pooling::kLast; });
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

Result<std::vector<std::vector<float>>> Embedder::states(Inputs inputs, const Progress& progress) {
  std::vector<std::vector<float>> out(inputs.size());
  RETURN_IF_ERROR(run(inputs, true, progress, [&](size_t i, std::span<const float> state) {
    out[i].insert(out[i].end(), state.begin(), state.end());
  }));
  return out;
}

}  // namespace penstock
