#include "engine/embedder.h"

#include <algorithm>

#include "engine/pooler.h"
#include "model/batch_builder.h"
#include "model/sources/quantizing_source.h"
#include "ops/host_rows.h"

namespace penstock {

namespace {
constexpr int kEmbedderBlock = 16, kMostEmbedderTokens = 2048;

int blocks_of(size_t n_tokens) { return static_cast<int>((n_tokens + kEmbedderBlock - 1) / kEmbedderBlock); }
}  // namespace

Result<std::unique_ptr<Embedder>> Embedder::open(std::unique_ptr<WeightSource> source,
                                                 const EngineConfig& config) {
  if (config.tensor_parallel_size != 1) {
    return errorf(ErrorCode::kUnsupported,
                  "tensor_parallel_size: expected 1 for models that give vectors, got {}",
                  config.tensor_parallel_size);
  }
  if (config.pipeline_parallel_size != 1) {
    return errorf(ErrorCode::kUnsupported,
                  "pipeline_parallel_size: expected 1 for models that give vectors, got {}",
                  config.pipeline_parallel_size);
  }
  if (config.data_parallel_size > 1) {
    return errorf(ErrorCode::kUnsupported,
                  "data_parallel_size: expected 1 for models that give vectors, got {}",
                  config.data_parallel_size);
  }
  if (!config.quantize.empty()) {
    ASSIGN_OR_RETURN(source, make_quantizing_source(std::move(source), config.quantize, config.threads));
  }
  ASSIGN_OR_RETURN(auto ops,
                   make_ops(config.backend, {config.threads, config.batch_invariant, config.thread_weight}));
  ASSIGN_OR_RETURN(auto model, Model::load_states(*source, *ops));
  const int most = config.max_num_batched_tokens > 0 ? config.max_num_batched_tokens : kMostEmbedderTokens;
  return std::unique_ptr<Embedder>(new Embedder(std::move(source), std::move(ops), std::move(model), most));
}

Embedder::Embedder(std::unique_ptr<WeightSource> source, std::unique_ptr<Ops> ops,
                   std::unique_ptr<Model> model, int most_tokens)
    : source_(std::move(source)), ops_(std::move(ops)), model_(std::move(model)), most_tokens_(most_tokens) {}

Embedder::~Embedder() = default;

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

Status Embedder::make_room(Inputs inputs) {
  const CacheSpec spec = model_->cache_spec(KvDType::kF32, kEmbedderBlock);
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
  bool enough = cache_ != nullptr;
  for (size_t g = 0; enough && g < wanted.size(); ++g) enough = n_blocks_[g] >= wanted[g];
  if (enough) return {};
  cache_.reset();
  ASSIGN_OR_RETURN(cache_, ops_->make_cache(spec, wanted));
  n_blocks_ = wanted;
  builder_ = std::make_unique<BatchBuilder>(cache_->spec());
  return {};
}

// Tokens first to first + count of the index-th sequence of the step, whose blocks begin at first_block.
void Embedder::add(const std::vector<TokenId>& tokens, int first, int count, int first_block, int index,
                   bool all_rows) {
  const CacheSpec& spec = cache_->spec();
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
  const ModelConfig& config = model_->config();
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

Status Embedder::run(Inputs inputs, bool all_rows, const Progress& progress,
                     const std::function<void(size_t sequence, std::span<const float> state)>& take) {
  RETURN_IF_ERROR(check(inputs));
  RETURN_IF_ERROR(make_room(inputs));
  HostRows hidden(*ops_);
  for (size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
    if (progress && !progress(begin, inputs.size())) return make_error(ErrorCode::kCancelled, "cancelled");
    end = batch_end(inputs, begin);
    // A sequence that is alone may be longer than a step.
    const int whole = static_cast<int>(inputs[begin].tokens.size());
    const int piece = causal() && end - begin == 1 ? std::min(whole, most_tokens_) : 0;
    for (int first = 0; first < (piece > 0 ? whole : 1); first += std::max(piece, 1)) {
      builder_->clear();
      int next_block = 0;
      for (size_t i = begin; i < end; ++i) {
        const auto n = static_cast<int>(inputs[i].tokens.size());
        add(inputs[i].tokens, first, piece > 0 ? std::min(piece, n - first) : n, next_block,
            static_cast<int>(i - begin), all_rows);
        next_block += blocks_of(inputs[i].tokens.size());
      }
      Batch batch = with_positions(builder_->build());
      add_token_types(inputs.subspan(begin, end - begin), first, batch);
      ForwardOptions options;
      options.logits = false;
      hidden.set(model_->forward(batch, *cache_, *ops_, options).hidden);
      ops_->wait(ops_->submit());
      int row = 0;
      for (size_t i = begin; i < end; ++i) {
        const int s = static_cast<int>(i - begin);
        const int n_rows = all_rows ? batch.seq_offsets[s + 1] - batch.seq_offsets[s] : 1;
        for (int r = 0; r < n_rows; ++r) take(i, hidden.row(row++));
      }
    }
  }
  return {};
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
