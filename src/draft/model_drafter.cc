// A small model with the target's vocabulary drafts chains, token by token, for all sequences at
// once.

#include <algorithm>
#include <unordered_map>

#include "draft/block_allocator.h"
#include "draft/chain_guesses.h"
#include "draft/drafters.h"
#include "draft/guesser.h"
#include "model/batch_builder.h"
#include "model/sources/packed_cache.h"

namespace penstock {
namespace {

// K and V are in a cache of its own, in blocks; layers with a window keep all
// tokens, so that one table serves all groups. Computed tokens stay cached; rejected
// ones are removed when the next draft begins. Sequences without blocks get no
// drafts.
class ModelDrafter : public Drafter {
 public:
  ModelDrafter(std::unique_ptr<WeightSource> source, std::unique_ptr<Model> model,
               const DraftTarget& target, const DrafterConfig& config)
      : source_(std::move(source)),
        model_(std::move(model)),
        ops_(*target.ops),
        spec_(model_->cache_spec(config.kv_dtype, config.engine.block_size)),
        max_batch_(config.engine.max_num_batched_tokens),
        guesser_(ops_, target.model->config().vocab_size),
        batch_(spec_) {}

  const char* name() const override { return "draft"; }
  int max_nodes() const override { return kMaxNodes; }
  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  int64_t kv_bytes_per_token() const override {
    int64_t bytes = 0;
    for (const KvLayerSpec& layer : spec_.layers)
      bytes += CacheSpec::token_bytes(layer, spec_.dtype);
    return bytes;
  }

  Status start(KvCache&, int64_t own_tokens) override {
    const auto n_blocks = static_cast<int>(std::max<int64_t>(1, own_tokens / spec_.block_size));
    const std::vector<int> per_group(std::max(1, spec_.n_groups()), n_blocks);
    ASSIGN_OR_RETURN(cache_, ops_.make_cache(spec_, per_group));
    allocator_ = std::make_unique<BlockAllocator>(n_blocks, spec_.block_size);
    return {};
  }

  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    drafting_.clear();
    batch_.clear();
    n_passes_ = 0;
    int long_gap = 0;
    // Computes first what each sequence has gained since its last draft, within one forward.
    for (size_t i = 0; i < requests.size(); ++i) {
      State& state = states_[requests[i].id];
      const int first = rewind(requests[i], state);
      const auto n_tokens = static_cast<int>(requests[i].tokens.size());
      const int count = std::min(n_tokens - first, max_batch_ - batch_.n_tokens());
      if (count <= 0 || !make_room(state, n_tokens, requests[i].max_nodes)) continue;
      const bool ready = first + count == n_tokens;
      long_gap = std::max(long_gap, count);
      const auto gap = requests[i].tokens.subspan(first, count);
      state.computed.insert(state.computed.end(), gap.begin(), gap.end());
      batch_.add({.tokens = gap,
                  .first = first,
                  .kv = {&state.kv, 1},
                  .rows = ready ? Rows::kLast : Rows::kNone,
                  .long_rope = model_->takes_long_rope(requests[i].reach)});
      if (ready) drafting_.push_back({&requests[i], &trees[i], &state});
    }
    while (batch_.n_tokens() > 0) {
      ++n_passes_;
      const Tensor logits = model_->forward(batch_.build(), *cache_, ops_).logits;
      batch_.clear();
      wanted_.clear();
      // `computed` has the tokens of the sequence and of the tree.
      for (const Drafting& each : drafting_)
        wanted_.push_back(
            {each.request, each.tree, each.state->computed, ChainGuesses::weighs(*each.request)});
      const std::span<const Guesser::Guess> guesses = guesser_.guess(logits, wanted_);
      size_t n_left = 0;
      for (size_t i = 0; i < drafting_.size(); ++i) {
        if (take(drafting_[i], guesses[i])) drafting_[n_left++] = drafting_[i];
      }
      drafting_.resize(n_left);
      for (const Drafting& drafting : drafting_) {
        State& state = *drafting.state;
        const auto n_before = static_cast<int>(state.computed.size());
        state.computed.push_back(drafting.tree->tokens.back());
        batch_.add({.tokens = {&state.computed.back(), 1},
                    .first = n_before,
                    .kv = {&state.kv, 1},
                    .long_rope = model_->takes_long_rope(drafting.request->reach)});
      }
    }
    if (long_gap > kUsualGap) n_passes_ = 0;
  }
  int n_passes() const override { return n_passes_; }

  void accepted(std::span<const DraftOutcome> outcomes) override {
    for (const DraftOutcome& outcome : outcomes) {
      const auto found = states_.find(outcome.id);
      if (found != states_.end()) found->second.guesses.learn(confidence_, outcome.n_accepted);
    }
  }

  void forget(SeqId sequence) override {
    const auto found = states_.find(sequence);
    if (found == states_.end()) return;
    for (const BlockId block : found->second.kv.blocks) allocator_->release(block);
    states_.erase(found);
  }

 private:
  static constexpr int kMaxNodes = 16;
  using Rows = BatchPart::Rows;
  struct State {
    std::vector<TokenId> computed;  // tokens whose K and V are in the cache
    GroupBlocks kv;
    int n_checked = 0;  // leading tokens of `computed` that are the sequence's own
    ChainGuesses guesses;
  };
  struct Drafting {
    const DraftRequest* request;
    DraftTree* tree;
    State* state;
  };
  // tokens that a sequence gains in a round, where a pass costs as usual
  static constexpr int kUsualGap = 4;

  // Removes tokens that the target did not keep; returns the number of remaining ones. The
  // sequence's last token is always computed again, for its logits.
  static int rewind(const DraftRequest& request, State& state) {
    const auto limit = std::min(state.computed.size(), request.tokens.size() - 1);
    size_t n = std::min<size_t>(state.n_checked, limit);
    while (n < limit && state.computed[n] == request.tokens[n]) ++n;
    state.computed.resize(n);
    state.n_checked = static_cast<int>(n);
    state.guesses.clear();
    return static_cast<int>(n);
  }

  bool make_room(State& state, int n_tokens, int n_nodes) {
    if (n_tokens >= model_->config().max_seq_len) return false;
    const int wanted = std::min(n_tokens + n_nodes, model_->config().max_seq_len);
    const auto n_blocks = static_cast<size_t>((wanted + spec_.block_size - 1) / spec_.block_size);
    if (n_blocks > state.kv.blocks.size() + allocator_->n_available()) return false;
    while (state.kv.blocks.size() < n_blocks) state.kv.blocks.push_back(*allocator_->allocate());
    return true;
  }

  // Adds a node. Returns whether another one may follow.
  bool take(const Drafting& drafting, const Guesser::Guess& guess) {
    if (guess.token == kNoToken) return false;
    State& state = *drafting.state;
    drafting.tree->add_next(guess.token);
    return state.guesses.add(guess.likeliest, *drafting.request, confidence_, *drafting.tree) &&
           static_cast<int>(state.computed.size()) + 1 < model_->config().max_seq_len;
  }

  std::unique_ptr<WeightSource> source_;  // a backend may keep views into it
  std::unique_ptr<Model> model_;
  Ops& ops_;
  const CacheSpec spec_;
  const int max_batch_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<BlockAllocator> allocator_;
  std::unordered_map<SeqId, State> states_;
  Guesser guesser_;
  BatchBuilder batch_;
  std::vector<Drafting> drafting_;
  std::vector<Guesser::Wanted> wanted_;
  Confidence confidence_;
  int n_passes_ = 0;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_model_drafter(DrafterConfig config,
                                                    const DraftTarget& target) {
  if (config.engine.draft_model.empty() && !config.draft_source)
    return errorf(ErrorCode::kInvalidArgument, "spec draft: expected a draft_model, got none");
  if (!config.draft_source) {
    ASSIGN_OR_RETURN(config.draft_source, open_weights(config.engine.draft_model));
  }
  const auto load = [&](const WeightSource& source) {
    if (config.packed_cache.empty()) return Model::load(source, *target.ops, {});
    return Model::load(source, *target.ops, {}, PackedCache(config.packed_cache), "");
  };
  ASSIGN_OR_RETURN(auto model, load(*config.draft_source));
  if (model->config().has_states()) {
    return errorf(ErrorCode::kUnsupported,
                  "draft_model {}: architecture {} keeps a state of each sequence, which cannot go "
                  "back behind a refused draft",
                  config.draft_source->path().string(), model->config().arch);
  }
  const int own = model->config().vocab_size, wanted = target.model->config().vocab_size;
  // Embedding tables of one family may differ in padding.
  if (std::abs(own - wanted) > wanted / 64) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "draft_model {}: expected the target's vocabulary of {} tokens, got {}; a draft must have "
        "the target's tokenizer",
        config.draft_source->path().string(), wanted, own);
  }
  auto source = std::move(config.draft_source);
  return std::make_unique<ModelDrafter>(std::move(source), std::move(model), target, config);
}

}  // namespace penstock
