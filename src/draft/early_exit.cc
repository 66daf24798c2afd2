// Early exit: the target's first layers, with its final norm and output matrix, draft a chain.

#include "draft/early_exit.h"

#include <algorithm>
#include <unordered_map>

#include "draft/chain_guesses.h"
#include "draft/drafters.h"
#include "draft/guesser.h"
#include "model/batch_builder.h"
#include "model/blocks/cuts.h"
#include "model/sources/four_bits.h"

namespace penstock {
namespace {

// Reads K and V that the target has stored for its first layers, and writes those of the last
// token and of drafted tokens after them, at the places that the target's forward over the draft
// overwrites: so it needs neither rollback nor a cache. As drafts may be imprecise, the first
// layers and the output matrix are quantized to 4 bits if the target has more, except in
// pipelines.
class EarlyExitDrafter : public Drafter {
 public:
  EarlyExitDrafter(const DraftTarget& target, int block_size, EarlyExit exit)
      : exit_(std::move(exit)),
        model_(exit_.light ? *exit_.light : *target.model),
        ops_(*target.ops),
        announce_(target.announce),
        guesser_(ops_, target.model->config().vocab_size),
        batch_(model_.cache_spec(KvDType::kF32, block_size).n_groups(), block_size) {}

  const char* name() const override { return "early-exit"; }
  int max_nodes() const override { return kMaxNodes; }
  bool computes_with_target() const override { return true; }
  int64_t weight_bytes() const override { return exit_.light ? exit_.light->weight_bytes() : 0; }
  Status start(KvCache& target_cache, int64_t) override {
    cache_ = &target_cache;
    return {};
  }

  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    drafting_.clear();
    batch_.clear();
    n_passes_ = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& request = requests[i];
      State& state = states_[request.id];
      state.guesses.clear();
      const int n_before = static_cast<int>(request.tokens.size()) - 1;
      if (n_before + 1 >= model_.config().max_seq_len) continue;
      batch_.add({.tokens = request.tokens.last(1),
                  .first = n_before,
                  .kv = request.kv,
                  .long_rope = model_.takes_long_rope(request.reach)});
      drafting_.push_back(
          {&request, &trees[i], &state, {request.tokens.begin(), request.tokens.end()}});
    }
    while (!drafting_.empty()) {
      ++n_passes_;
      const Batch& batch = batch_.build();
      ForwardOptions options{.n_layers = exit_.n_layers};
      if (announce_) options.stage_input = announce_(batch);
      const Tensor logits = model_.forward(batch, *cache_, ops_, options).logits;
      batch_.clear();
      wanted_.clear();
      for (const Drafting& each : drafting_)
        wanted_.push_back(
            {each.request, each.tree, each.tokens, ChainGuesses::weighs(*each.request)});
      const std::span<const Guesser::Guess> guesses = guesser_.guess(logits, wanted_);
      size_t n_left = 0;
      for (size_t i = 0; i < drafting_.size(); ++i) {
        Drafting& drafting = drafting_[i];
        if (!take(drafting, guesses[i])) continue;
        batch_.add({.tokens = std::span<const TokenId>(drafting.tokens).last(1),
                    .first = static_cast<int>(drafting.tokens.size()) - 1,
                    .kv = drafting.request->kv,
                    .long_rope = model_.takes_long_rope(drafting.request->reach)});
        if (n_left != i) drafting_[n_left] = std::move(drafting);
        ++n_left;
      }
      drafting_.resize(n_left);
    }
  }

  void accepted(std::span<const DraftOutcome> outcomes) override {
    for (const DraftOutcome& outcome : outcomes) {
      const auto found = states_.find(outcome.id);
      if (found != states_.end()) found->second.guesses.learn(confidence_, outcome.n_accepted);
    }
  }
  int n_passes() const override { return n_passes_; }

  void forget(SeqId sequence) override { states_.erase(sequence); }

 private:
  static constexpr int kMaxNodes = 8;

  struct State {
    ChainGuesses guesses;
  };
  struct Drafting {
    const DraftRequest* request;
    DraftTree* tree;
    State* state;
    std::vector<TokenId> tokens;  // tokens of the sequence, then of the draft
  };

  // Adds a node. Returns whether another one may follow.
  bool take(Drafting& drafting, const Guesser::Guess& guess) {
    if (guess.token == kNoToken) return false;
    drafting.tree->add_next(guess.token);
    drafting.tokens.push_back(guess.token);
    return drafting.state->guesses.add(guess.likeliest, *drafting.request, confidence_,
                                       *drafting.tree) &&
           static_cast<int>(drafting.tokens.size()) < model_.config().max_seq_len;
  }

  const EarlyExit exit_;
  const Model& model_;
  Ops& ops_;
  const AnnounceBatch announce_;
  KvCache* cache_ = nullptr;
  Guesser guesser_;
  BatchBuilder batch_;
  std::unordered_map<SeqId, State> states_;
  std::vector<Drafting> drafting_;
  std::vector<Guesser::Wanted> wanted_;
  Confidence confidence_;
  int n_passes_ = 0;
};

// Layers that are divided differently without the later ones would have another cache.
bool is_cut_alike(const ModelConfig& first_layers, const ModelConfig& whole, Shard shard) {
  const ModelCuts some(first_layers, shard), all(whole, shard);
  const auto same = [](Shard::Range a, Shard::Range b) {
    return a.first == b.first && a.count == b.count;
  };
  for (int i = 0; i < first_layers.n_layers; ++i) {
    if (!same(some.kv_heads(i), all.kv_heads(i)) || !same(some.heads(i), all.heads(i)))
      return false;
  }
  return true;
}

}  // namespace

Result<int> exit_layers(const EngineConfig& config, const ModelConfig& model) {
  if (model.has_states()) {
    return errorf(ErrorCode::kUnsupported,
                  "spec early-exit: architecture {} keeps a state of each sequence, which its own "
                  "guesses would change; expected another drafter",
                  model.arch);
  }
  const int n_layers = config.spec_exit_layer > 0 ? config.spec_exit_layer : model.exit_layer;
  if (n_layers <= 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "spec early-exit: the model was not trained with an exit; expected the layers to "
                  "draft with, 1 to {}, got none",
                  model.n_layers - 1);
  }
  if (n_layers >= model.n_layers) {
    return errorf(ErrorCode::kInvalidArgument,
                  "spec early-exit: expected 1 to {} layers to draft with, got {}",
                  model.n_layers - 1, n_layers);
  }
  return n_layers;
}

Result<EarlyExit> open_early_exit(const EngineConfig& config, const DraftTarget& target) {
  const ModelConfig& model = target.model->config();
  EarlyExit exit;
  ASSIGN_OR_RETURN(exit.n_layers, exit_layers(config, model));
  const bool is_stage = target.model->layers().count < model.n_layers;
  if (target.source != nullptr && !is_stage)
    exit.light_source = make_four_bit_source(*target.source);
  if (!exit.light_source) return exit;
  ASSIGN_OR_RETURN(exit.light, Model::load_first_layers(*exit.light_source, *target.ops,
                                                        exit.n_layers, target.ops->shard()));
  if (!is_cut_alike(exit.light->config(), model, target.ops->shard())) exit.light.reset();
  return exit;
}

Result<std::unique_ptr<Drafter>> make_early_exit_drafter(DrafterConfig config,
                                                         const DraftTarget& target) {
  ASSIGN_OR_RETURN(EarlyExit exit, open_early_exit(config.engine, target));
  return std::make_unique<EarlyExitDrafter>(target, config.engine.block_size, std::move(exit));
}

}  // namespace penstock
