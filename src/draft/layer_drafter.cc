// Layers draft a chain from the target's states, and then from their own.
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

// One of the layers, with its cache.
struct Stage {
  Stage(std::unique_ptr<GuessLayer> of, const EngineConfig& engine, KvDType kv_dtype)
      : layer(std::move(of)), spec(layer->cache_spec(kv_dtype, engine.block_size)), batch(spec) {}
  std::unique_ptr<GuessLayer> layer;
  CacheSpec spec;
  BatchBuilder batch;
  std::unique_ptr<KvCache> cache;
};

// K and V are in caches of their own: entry i of a sequence at layer k belongs to what layer k - 1
// gave at entry i (k = 0: to the target's state at the sequence's token first + i) and to token
// first + i + k + 1. `first` is not 0 if the target found a prefix in its cache, whose states are
// unknown; layers depend on distances of tokens only. An entry is final when its token is known; the
// last k entries of layer k belong to guesses while a draft is made, and are computed anew behind
// it. States wait on the host until a draft is wanted or many have arrived. If no draft was wanted
// recently, nothing is computed, and only the newest states are kept, from which a draft can start.
class LayerDrafter final : public Drafter {
 public:
  LayerDrafter(const char* name, std::vector<std::unique_ptr<GuessLayer>> layers,
               const DraftTarget& target, const DrafterConfig& config)
      : name_(name),
        ops_(*target.ops),
        model_dim_(static_cast<size_t>(target.model->config().model_dim)),
        max_batch_(config.engine.max_num_batched_tokens),
        guesser_(ops_, target.model->config().vocab_size, layers[0]->vocabulary()),
        hidden_(ops_) {
    for (std::unique_ptr<GuessLayer>& layer : layers)
      stages_.push_back(std::make_unique<Stage>(std::move(layer), config.engine, config.kv_dtype));
  }

  const char* name() const override { return name_; }
  int max_nodes() const override { return kMaxNodes; }
  bool wants_states() const override { return true; }
  std::span<const int> taps() const override { return stages_[0]->layer->taps(); }
  int64_t weight_bytes() const override {
    int64_t bytes = 0;
    for (const auto& stage : stages_) bytes += stage->layer->weight_bytes();
    return bytes;
  }
  int64_t kv_bytes_per_token() const override {
    int64_t bytes = 0;
    for (const auto& stage : stages_) {
      for (const KvLayerSpec& layer : stage->spec.layers)
        bytes += CacheSpec::token_bytes(layer, stage->spec.dtype);
    }
    return bytes;
  }

  Status start(KvCache&, int64_t own_tokens) override {
    const int block_size = stages_[0]->spec.block_size;
    const auto n_blocks = static_cast<int>(std::max<int64_t>(1, own_tokens / block_size));
    for (const auto& stage : stages_) {
      ASSIGN_OR_RETURN(stage->cache, ops_.make_cache(stage->spec, {&n_blocks, 1}));
    }
    allocator_ = std::make_unique<BlockAllocator>(n_blocks, block_size);
    return {};
  }

  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    drafting_.clear();
    n_passes_ = n_unasked_ = long_gap_ = 0;
    int n_rows = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& request = requests[i];
      const auto found = states_.find(request.id);
      if (found == states_.end()) continue;
      State& state = found->second;
      state.guesses.clear();
      state.n_alone = 0;
      take_tokens(state, request.tokens);
      if (state.end() + 1 != static_cast<int>(request.tokens.size())) continue;
      catch_up(state);
      if (state.n_final(0) == 0 || state.rows_of(0) > max_batch_ - n_rows ||
          !make_room(state, request.max_nodes))
        continue;
      n_rows += state.rows_of(0);
      drafting_.push_back(
          {&request, &trees[i], &state, {request.tokens.begin(), request.tokens.end()}});
    }
    for (size_t pass = 0; !drafting_.empty(); ++pass) {
      if (pass < stages_.size()) {
        add_entries(pass);
      } else {
        add_own(pass);
      }
      if (!drafting_.empty()) guess_next(pass);
    }
    if (long_gap_ > kUsualGap) n_passes_ = 0;
  }
  int n_passes() const override { return n_passes_; }

  void observe(const SeenStates& seen) override {
    State& state = state_of(seen.id);
    state.long_rope = stages_[0]->layer->takes_long_rope(seen.reach);
    if (seen.first != state.end()) begin(state, seen.first);
    std::vector<float>& waiting = state.depths[0].waiting;
    for (const std::span<const float> row : seen.rows)
      waiting.insert(waiting.end(), row.begin(), row.end());
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
      for (size_t k = 0; k < stages_.size(); ++k) {
        while (state.n_final(k) >= kMostWaiting) {
          if (state.n_alone >= kPatience || !wanted) {
            keep_newest(state);
          } else {
            compute_waiting(state, k, state.n_final(k));
          }
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
  static constexpr int kMostWaiting = 64;  // waiting states per sequence and layer, at most
  static constexpr int kPatience = 16;     // single tokens after which drafts count as not wanted
  static constexpr int kNewest = 32;       // states that are kept then
  // tokens that a sequence gains per round for which a pass has its usual cost
  static constexpr int kUsualGap = 8;

  // A sequence at one layer.
  struct Depth {
    size_t dim = 0;              // of a state that the layer reads
    int n_computed = 0;          // leading entries that are final and in the cache
    std::vector<float> waiting;  // [n_waiting, dim] states of the entries behind these
    int n_waiting() const { return static_cast<int>(waiting.size() / dim); }
  };
  struct State {
    int first = 0, n_known = 0;  // the target's states of tokens [first, first + n_known) were seen
    int n_alone = 0;             // trailing ones that came singly since the last draft
    std::vector<Depth> depths;   // [layer]
    // Tokens first + n_dropped + 1 and following, as far as known.
    int n_dropped = 0;
    std::vector<TokenId> tokens;
    bool long_rope = false;
    GroupBlocks kv;
    ChainGuesses guesses;
    int end() const { return first + n_known; }
    // Entries of layer k that can become final now.
    int n_final(size_t k) const {
      const int known = n_dropped + static_cast<int>(tokens.size()) - static_cast<int>(k);
      return std::clamp(known - depths[k].n_computed, 0, depths[k].n_waiting());
    }
    // Entries of layer k that a draft computes, at most.
    int rows_of(size_t k) const { return n_known - depths[k].n_computed; }
    std::span<const TokenId> tokens_of(size_t k, int count) const {
      return std::span(tokens).subspan(static_cast<size_t>(depths[k].n_computed - n_dropped) + k,
                                       static_cast<size_t>(count));
    }
  };
  struct Drafting {
    const DraftRequest* request;
    DraftTree* tree;
    State* state;
    std::vector<TokenId> tokens;  // tokens of the sequence, then of the draft
    // States that the layer of the last pass returned: those of entries of guesses; of the last
    // layer that of the last entry.
    std::vector<float> given = {};
    int n_rows = 0;  // of the pass
  };

  bool is_last(size_t pass) const { return pass + 1 >= stages_.size(); }

  State& state_of(SeqId id) {
    State& state = states_[id];
    if (!state.depths.empty()) return state;
    state.depths.resize(stages_.size());
    for (size_t k = 0; k < stages_.size(); ++k)
      state.depths[k].dim = model_dim_ * (k == 0 ? std::max<size_t>(1, taps().size()) : 1);
    return state;
  }

  // Drops all states; continues from the state at `position`.
  void begin(State& state, int position) {
    for (const BlockId block : state.kv.blocks) allocator_->release(block);
    state.kv.blocks.clear(), state.tokens.clear();
    for (Depth& depth : state.depths) depth.waiting.clear(), depth.n_computed = 0;
    state.first = position;
    state.n_known = state.n_dropped = 0;
  }

  // Drops all states but the target's newest whose next tokens are known.
  void keep_newest(State& state) {
    Depth& depth = state.depths[0];
    const int n_old = std::max(0, state.n_final(0) - kNewest);
    const int first = state.first + depth.n_computed + n_old;
    const int n_known = state.n_known - depth.n_computed - n_old;
    std::vector<float> waiting(depth.waiting.begin() + n_old * static_cast<ptrdiff_t>(depth.dim),
                               depth.waiting.end());
    std::vector<TokenId> tokens(state.tokens.begin() + (depth.n_computed + n_old - state.n_dropped),
                                state.tokens.end());
    begin(state, first);
    state.n_known = n_known;
    depth.waiting = std::move(waiting);
    state.tokens = std::move(tokens);
  }

  static void take_tokens(State& state, std::span<const TokenId> tokens) {
    while (state.n_dropped + static_cast<int>(state.tokens.size()) < state.n_known) {
      const auto next =
          static_cast<size_t>(state.first + state.n_dropped + 1) + state.tokens.size();
      if (next >= tokens.size()) return;
      state.tokens.push_back(tokens[next]);
    }
  }

  // Reserves blocks for all known states and n_more. Returns false if there are too few.
  bool make_room(State& state, int n_more) {
    const int block_size = stages_[0]->spec.block_size;
    const auto n_blocks =
        static_cast<size_t>((state.n_known + n_more + block_size - 1) / block_size);
    const size_t has = state.kv.blocks.size();
    if (n_blocks > has && n_blocks - has > static_cast<size_t>(allocator_->n_available()))
      return false;
    while (state.kv.blocks.size() < n_blocks) state.kv.blocks.push_back(*allocator_->allocate());
    return true;
  }

  // Adds the next entries of layer k to its batch.
  void add(State& state, size_t k, std::span<const TokenId> tokens, BatchPart::Rows rows) {
    stages_[k]->batch.add({.tokens = tokens,
                           .first = state.depths[k].n_computed,
                           .kv = {&state.kv, 1},
                           .rows = rows,
                           .long_rope = state.long_rope});
  }

  // The first `count` entries of layer k that waited are final: drops their states, and the tokens
  // that no layer reads again.
  void finish(State& state, size_t k, int count) {
    Depth& depth = state.depths[k];
    depth.n_computed += count;
    depth.waiting.erase(depth.waiting.begin(),
                        depth.waiting.begin() + count * static_cast<ptrdiff_t>(depth.dim));
    int needed = state.n_known;
    for (size_t i = 0; i < state.depths.size(); ++i)
      needed = std::min(needed, state.depths[i].n_computed + static_cast<int>(i));
    const int n_dropped = std::max(needed, state.n_dropped);
    state.tokens.erase(state.tokens.begin(), state.tokens.begin() + (n_dropped - state.n_dropped));
    state.n_dropped = n_dropped;
  }

  // Computes final entries until a pass of a draft has at most half a step's rows at each layer. One
  // is left to the first layer, which guesses from it.
  void catch_up(State& state) {
    const int most = std::max(1, max_batch_ / 2);
    for (size_t k = 0; k < stages_.size(); ++k) {
      const int left = k == 0 ? 1 : 0;
      while (state.rows_of(k) > most && state.n_final(k) > left)
        compute_waiting(state, k, state.n_final(k) - left);
    }
  }

  // Computes final entries of layer k, at most `count`; without room for them drops all states.
  void compute_waiting(State& state, size_t k, int count) {
    if (!make_room(state, 0)) return begin(state, state.end());
    Stage& stage = *stages_[k];
    count = std::min(count, max_batch_);
    stage.batch.clear();
    add(state, k, state.tokens_of(k, count), BatchPart::Rows::kNone);
    Depth& depth = state.depths[k];
    inputs_.assign(depth.waiting.begin(),
                   depth.waiting.begin() + count * static_cast<ptrdiff_t>(depth.dim));
    const StepOutputs outputs =
        stage.layer->forward(stage.batch.build(), inputs_,
                             {.own = k > 0, .all_states = !is_last(k)}, *stage.cache, ops_);
    ops_.wait(ops_.submit());
    finish(state, k, count);
    if (is_last(k)) return;
    hidden_.set(outputs.hidden);
    for (int i = 0; i < count; ++i) append(hidden_.row(i), state.depths[k + 1].waiting);
  }

  static void append(std::span<const float> row, std::vector<float>& to) {
    to.insert(to.end(), row.begin(), row.end());
  }

  // Adds the entries of layer k that are not final yet: those that waited, and those whose tokens
  // are guesses. Drafts for which the step has no rows end.
  void add_entries(size_t k) {
    Stage& stage = *stages_[k];
    stage.batch.clear(), inputs_.clear();
    std::erase_if(drafting_, [&, n = 0](Drafting& each) mutable {
      each.n_rows = each.state->rows_of(k);
      const bool fits = each.n_rows <= max_batch_ - n;
      if (fits) n += each.n_rows;
      return !fits;
    });
    for (Drafting& each : drafting_) {
      State& state = *each.state;
      const std::vector<float>& waiting = state.depths[k].waiting;
      long_gap_ = std::max(long_gap_, each.n_rows - static_cast<int>(k));
      // Token first + n_known + k is the last one known to the draft.
      add(state, k, std::span<const TokenId>(each.tokens).last(static_cast<size_t>(each.n_rows)),
          BatchPart::Rows::kLast);
      inputs_.insert(inputs_.end(), waiting.begin(), waiting.end());
      inputs_.insert(inputs_.end(), each.given.begin(), each.given.end());
    }
  }

  // Adds an entry to the last layer of every draft, for its last guess.
  void add_own(size_t pass) {
    Stage& stage = *stages_.back();
    stage.batch.clear(), inputs_.clear();
    for (Drafting& each : drafting_) {
      State& state = *each.state;
      stage.batch.add({.tokens = std::span<const TokenId>(each.tokens).last(1),
                       .first = state.n_known + static_cast<int>(pass - stages_.size()),
                       .kv = {&state.kv, 1},
                       .long_rope = state.long_rope});
      inputs_.insert(inputs_.end(), each.given.begin(), each.given.end());
    }
  }

  // Computes a pass, which adds a node to every draft, and keeps what the next one reads.
  void guess_next(size_t pass) {
    ++n_passes_;
    const size_t k = std::min(pass, stages_.size() - 1);
    Stage& stage = *stages_[k];
    const StepOutputs outputs =
        stage.layer->forward(stage.batch.build(), inputs_,
                             {.own = pass > 0, .all_states = !is_last(pass)}, *stage.cache, ops_);
    wanted_.clear();
    for (const Drafting& each : drafting_)
      wanted_.push_back(
          {each.request, each.tree, each.tokens, ChainGuesses::weighs(*each.request)});
    const std::span<const Guesser::Guess> guesses = guesser_.guess(outputs.logits, wanted_);
    hidden_.set(outputs.hidden);
    size_t n_left = 0;
    int first_row = 0;
    for (size_t i = 0; i < drafting_.size(); ++i) {
      Drafting& drafting = drafting_[i];
      const bool more = take(drafting, guesses[i]);
      keep(drafting, pass, first_row, more);
      first_row += is_last(pass) ? 1 : drafting.n_rows;
      if (!more) continue;
      if (n_left != i) drafting_[n_left] = std::move(drafting);
      ++n_left;
    }
    drafting_.resize(n_left);
  }

  // Keeps what layer `pass` gave at a draft's entries, whose rows begin at first_row; of the last
  // layer only the state of its last entry is there. more: the draft goes on.
  void keep(Drafting& drafting, size_t pass, int first_row, bool more) {
    State& state = *drafting.state;
    drafting.given.clear();
    const int n_final = std::max(0, drafting.n_rows - static_cast<int>(pass));
    if (pass < stages_.size()) finish(state, pass, n_final);
    if (is_last(pass)) {
      if (more) append(hidden_.row(first_row), drafting.given);
      return;
    }
    for (int i = 0; i < n_final; ++i)
      append(hidden_.row(first_row + i), state.depths[pass + 1].waiting);
    for (int i = n_final; more && i < drafting.n_rows; ++i)
      append(hidden_.row(first_row + i), drafting.given);
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
  Ops& ops_;
  const size_t model_dim_;
  const int max_batch_;
  std::vector<std::unique_ptr<Stage>> stages_;  // [layer]
  std::unique_ptr<BlockAllocator> allocator_;   // of blocks that all layers have
  std::unordered_map<SeqId, State> states_;
  Guesser guesser_;
  HostRows hidden_;
  std::vector<float> inputs_;  // states of the tokens of a batch
  std::vector<Drafting> drafting_;
  std::vector<Guesser::Wanted> wanted_;
  Confidence confidence_;
  int n_passes_ = 0;
  int long_gap_ = 0;   // most final entries of a sequence in a pass of the last draft
  int n_unasked_ = 0;  // steps since the last wanted draft
};

}  // namespace

std::unique_ptr<Drafter> make_layer_drafter(const char* name,
                                            std::vector<std::unique_ptr<GuessLayer>> layers,
                                            const DraftTarget& target,
                                            const DrafterConfig& config) {
  return std::make_unique<LayerDrafter>(name, std::move(layers), target, config);
}

}  // namespace penstock
