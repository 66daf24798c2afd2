// A layer drafts a chain from the target's states, and then from its own.
#include "draft/layer_drafter.h"

#include <algorithm>
#include <unordered_map>

#include "draft/block_allocator.h"
#include "draft/chain_guesses.h"
#include "draft/guesser.h"
#include "model/batch_builder.h"
#include "ops/host_rows.h"

namespace penstock {
namespace {

// K and V are in a cache of its own: entry k of a sequence belongs to the target's state at its
// (first + k)-th token and to the token after it. `first` is not 0 if the target found a prefix in
// its cache, whose states are unknown; the layer depends on distances of tokens only. States wait
// on the host until a draft is wanted or many have arrived; entries of drafts are overwritten. If
// no draft was wanted recently, nothing is computed, and only the newest states are kept, from
// which a draft can start.
class LayerDrafter final : public Drafter {
 public:
  LayerDrafter(const char* name, std::unique_ptr<GuessLayer> layer, const DraftTarget& target,
               const DrafterConfig& config)
      : name_(name),
        layer_(std::move(layer)),
        ops_(*target.ops),
        spec_(layer_->cache_spec(config.kv_dtype, config.engine.block_size)),
        dim_(static_cast<size_t>(target.model->config().model_dim) *
             std::max<size_t>(1, layer_->taps().size())),
        max_batch_(config.engine.max_num_batched_tokens),
        guesser_(ops_, target.model->config().vocab_size, layer_->vocabulary()),
        hidden_(ops_),
        batch_(spec_) {}

  const char* name() const override { return name_; }
  int max_nodes() const override { return kMaxNodes; }
  bool wants_states() const override { return true; }
  std::span<const int> taps() const override { return layer_->taps(); }
  int64_t weight_bytes() const override { return layer_->weight_bytes(); }
  int64_t kv_bytes_per_token() const override {
    int64_t bytes = 0;
    for (const KvLayerSpec& layer : spec_.layers)
      bytes += CacheSpec::token_bytes(layer, spec_.dtype);
    return bytes;
  }

  Status start(KvCache&, int64_t own_tokens) override {
    const auto n_blocks = static_cast<int>(std::max<int64_t>(1, own_tokens / spec_.block_size));
    ASSIGN_OR_RETURN(cache_, ops_.make_cache(spec_, {&n_blocks, 1}));
    allocator_ = std::make_unique<BlockAllocator>(n_blocks, spec_.block_size);
    return {};
  }

  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    drafting_.clear();
    batch_.clear(), inputs_.clear();
    n_passes_ = n_unasked_ = 0;
    int long_gap = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& request = requests[i];
      const auto found = states_.find(request.id);
      if (found == states_.end()) continue;
      State& state = found->second;
      state.guesses.clear();
      state.n_alone = 0;
      take_tokens(state, request.tokens);
      const int n_ready = state.n_ready();
      if (state.end() + 1 != static_cast<int>(request.tokens.size()) || n_ready == 0 ||
          n_ready > max_batch_ - batch_.n_tokens() || !make_room(state, request.max_nodes))
        continue;
      long_gap = std::max(long_gap, n_ready);
      add_waiting(state, n_ready, BatchPart::Rows::kLast);
      drafting_.push_back(
          {&request, &trees[i], &state, {request.tokens.begin(), request.tokens.end()}});
    }
    for (bool own = false; batch_.n_tokens() > 0; own = true) guess_next(own);
    if (long_gap > kUsualGap) n_passes_ = 0;
  }
  int n_passes() const override { return n_passes_; }

  void observe(const SeenStates& seen) override {
    State& state = states_[seen.id];
    state.long_rope = layer_->takes_long_rope(seen.reach);
    if (seen.first != state.end()) begin(state, seen.first);
    for (const std::span<const float> row : seen.rows)
      state.waiting.insert(state.waiting.end(), row.begin(), row.end());
    state.n_known += static_cast<int>(seen.rows.size());
    state.n_alone = seen.rows.size() == 1 ? state.n_alone + 1 : 0;
    take_tokens(state, seen.tokens);
  }

  void accepted(std::span<const DraftOutcome> outcomes) override {
    for (const DraftOutcome& outcome : outcomes) {
      const auto found = states_.find(outcome.id);
      if (found != states_.end()) found->second.guesses.learn(confidence_, outcome.n_accepted);
    }
    n_unasked_ = std::min(n_unasked_ + 1, kMostWaiting + 1);
    const bool wanted = n_unasked_ <= kMostWaiting;
    for (auto& [id, state] : states_) {
      while (state.n_ready() >= kMostWaiting) {
        if (state.n_alone >= kPatience || !wanted) {
          keep_newest(state);
        } else {
          compute_waiting(state);
        }
      }
    }
  }

  void forget(SeqId sequence) override {
    const auto found = states_.find(sequence);
    if (found == states_.end()) return;
    begin(found->second, 0);
    states_.erase(found);
  }

 private:
  static constexpr int kMaxNodes = 16;
  static constexpr int kMostWaiting = 64;  // waiting states per sequence, at most
  static constexpr int kPatience = 16;     // single tokens after which drafts count as not wanted
  static constexpr int kNewest = 32;       // states that are kept then
  // tokens that a sequence gains per round for which a pass has its usual cost
  static constexpr int kUsualGap = 8;

  struct State {
    int first = 0, n_known = 0;   // states of tokens [first, first + n_known) were seen
    int n_computed = 0;           // leading ones of these that have cache entries
    int n_alone = 0;              // trailing ones that came singly since the last draft
    std::vector<float> waiting;   // [n_known - n_computed, dim_] states without entries
    std::vector<TokenId> tokens;  // [n_ready] tokens after these, as far as known
    bool long_rope = false;
    GroupBlocks kv;
    ChainGuesses guesses;
    int end() const { return first + n_known; }
    int n_ready() const { return static_cast<int>(tokens.size()); }
  };
  struct Drafting {
    const DraftRequest* request;
    DraftTree* tree;
    State* state;
    std::vector<TokenId> tokens;  // tokens of the sequence, then of the draft
  };

  // Drops all states; continues from the state at `position`.
  void begin(State& state, int position) {
    for (const BlockId block : state.kv.blocks) allocator_->release(block);
    state.kv.blocks.clear(), state.waiting.clear(), state.tokens.clear();
    state.first = position;
    state.n_known = state.n_computed = 0;
  }

  // Drops all states but the newest whose next tokens are known.
  void keep_newest(State& state) {
    for (const BlockId block : state.kv.blocks) allocator_->release(block);
    state.kv.blocks.clear();
    const int n_old = state.n_ready() - kNewest;
    state.waiting.erase(state.waiting.begin(),
                        state.waiting.begin() + n_old * static_cast<ptrdiff_t>(dim_));
    state.tokens.erase(state.tokens.begin(), state.tokens.begin() + n_old);
    state.first += state.n_computed + n_old;
    state.n_known -= state.n_computed + n_old;
    state.n_computed = 0;
  }

  static void take_tokens(State& state, std::span<const TokenId> tokens) {
    const int n_waiting = state.n_known - state.n_computed;
    while (state.n_ready() < n_waiting) {
      const auto next = static_cast<size_t>(state.first + state.n_computed + state.n_ready() + 1);
      if (next >= tokens.size()) return;
      state.tokens.push_back(tokens[next]);
    }
  }

  // Reserves blocks for all known states and n_more. Returns false if there are too few.
  bool make_room(State& state, int n_more) {
    const auto n_blocks =
        static_cast<size_t>((state.n_known + n_more + spec_.block_size - 1) / spec_.block_size);
    const size_t has = state.kv.blocks.size();
    if (n_blocks > has && n_blocks - has > static_cast<size_t>(allocator_->n_available()))
      return false;
    while (state.kv.blocks.size() < n_blocks) state.kv.blocks.push_back(*allocator_->allocate());
    return true;
  }

  // Adds the first `count` waiting states to the batch.
  void add_waiting(State& state, int count, BatchPart::Rows rows) {
    const auto n = static_cast<ptrdiff_t>(count), n_values = n * static_cast<ptrdiff_t>(dim_);
    batch_.add({.tokens = std::span(state.tokens).first(static_cast<size_t>(count)),
                .first = state.n_computed,
                .kv = {&state.kv, 1},
                .rows = rows,
                .long_rope = state.long_rope});
    inputs_.insert(inputs_.end(), state.waiting.begin(), state.waiting.begin() + n_values);
    state.waiting.erase(state.waiting.begin(), state.waiting.begin() + n_values);
    state.tokens.erase(state.tokens.begin(), state.tokens.begin() + n);
    state.n_computed += count;
  }

  void compute_waiting(State& state) {
    if (!make_room(state, 0)) return begin(state, state.end());
    batch_.clear(), inputs_.clear();
    add_waiting(state, std::min(state.n_ready(), max_batch_), BatchPart::Rows::kNone);
    layer_->forward(batch_.build(), inputs_, false, *cache_, ops_);
    ops_.wait(ops_.submit());
  }

  // One pass: adds a node to every sequence in drafting_, and collects the next inputs. own: the
  // inputs are the layer's own states.
  void guess_next(bool own) {
    ++n_passes_;
    const StepOutputs outputs = layer_->forward(batch_.build(), inputs_, own, *cache_, ops_);
    batch_.clear(), inputs_.clear(), wanted_.clear();
    for (const Drafting& each : drafting_)
      wanted_.push_back(
          {each.request, each.tree, each.tokens, ChainGuesses::weighs(*each.request)});
    const std::span<const Guesser::Guess> guesses = guesser_.guess(outputs.logits, wanted_);
    hidden_.set(outputs.hidden);
    size_t n_left = 0;
    for (size_t i = 0; i < drafting_.size(); ++i) {
      Drafting& drafting = drafting_[i];
      if (!take(drafting, guesses[i])) continue;
      const std::span<const float> row = hidden_.row(static_cast<int>(i));
      inputs_.insert(inputs_.end(), row.begin(), row.end());
      batch_.add({.tokens = std::span<const TokenId>(drafting.tokens).last(1),
                  .first = drafting.state->n_known + drafting.tree->size() - 1,
                  .kv = {&drafting.state->kv, 1},
                  .long_rope = drafting.state->long_rope});
      if (n_left != i) drafting_[n_left] = std::move(drafting);
      ++n_left;
    }
    drafting_.resize(n_left);
  }

  // Adds a node. Returns whether another one may follow.
  bool take(Drafting& drafting, const Guesser::Guess& guess) {
    if (guess.token == kNoToken) return false;
    drafting.tree->add_next(guess.token);
    drafting.tokens.push_back(guess.token);
    return drafting.state->guesses.add(guess.likeliest, *drafting.request, confidence_,
                                       *drafting.tree);
  }

  const char* const name_;
  std::unique_ptr<GuessLayer> layer_;
  Ops& ops_;
  const CacheSpec spec_;
  const size_t dim_;  // size of the target's states
  const int max_batch_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<BlockAllocator> allocator_;
  std::unordered_map<SeqId, State> states_;
  Guesser guesser_;
  HostRows hidden_;
  BatchBuilder batch_;
  std::vector<float> inputs_;  // [batch tokens, dim_]; own states: [batch tokens, model_dim]
  std::vector<Drafting> drafting_;
  std::vector<Guesser::Wanted> wanted_;
  Confidence confidence_;
  int n_passes_ = 0;
  int n_unasked_ = 0;  // steps since the last wanted draft
};

}  // namespace

std::unique_ptr<Drafter> make_layer_drafter(const char* name, std::unique_ptr<GuessLayer> layer,
                                            const DraftTarget& target,
                                            const DrafterConfig& config) {
  return std::make_unique<LayerDrafter>(name, std::move(layer), target, config);
}

}  // namespace penstock
