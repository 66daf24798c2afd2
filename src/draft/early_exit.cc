#include "draft/early_exit.h"

#include <algorithm>
#include <unordered_map>

#include "draft/chain_guesses.h"
#include "model/batch_builder.h"
#include "model/four_bits.h"
#include "ops/host_rows.h"
#include "sampling/sampler.h"
#include "sampling/vocab_scan.h"

namespace penstock {
namespace {

constexpr int kMaxNodes = 8;

// Reads the K and V that the target has stored for its first layers, and writes those of the last token and
// of the drafted ones behind them, in the same places that the target's forward over the draft writes again:
// nothing has to be undone, and no cache is needed. A guess may be rough where a step may not, so the first
// layers and the output matrix are used in 4 bits where the target has more.
class EarlyExitDrafter : public Drafter {
 public:
  // light: the first layers in 4 bits, or null; light_source outlives it.
  EarlyExitDrafter(const DraftTarget& target, int n_layers, int block_size,
                   std::unique_ptr<WeightSource> light_source, std::unique_ptr<Model> light)
      : light_source_(std::move(light_source)),
        light_(std::move(light)),
        model_(light_ ? *light_ : *target.model),
        ops_(*target.ops),
        logits_(ops_),
        n_layers_(n_layers),
        batch_(model_.cache_spec({}, block_size).n_groups(), block_size),
        row_(static_cast<size_t>(target.model->config().vocab_size)) {}

  const char* name() const override { return "early-exit"; }
  int max_nodes() const override { return kMaxNodes; }
  int64_t weight_bytes() const override { return light_ ? light_->weight_bytes() : 0; }
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
      batch_.add({.tokens = request.tokens.last(1), .first = n_before, .kv = request.kv});
      drafting_.push_back({&request, &trees[i], &state, {request.tokens.begin(), request.tokens.end()}});
    }
    while (!drafting_.empty()) {
      ++n_passes_;
      logits_.set(model_.forward(batch_.build(), *cache_, ops_, {.n_layers = n_layers_}).logits);
      ops_.submit();
      batch_.clear();
      size_t n_left = 0;
      for (size_t i = 0; i < drafting_.size(); ++i) {
        Drafting& drafting = drafting_[i];
        if (!guess(drafting, logits_.row(static_cast<int>(i)))) continue;
        batch_.add({.tokens = std::span<const TokenId>(drafting.tokens).last(1),
                    .first = static_cast<int>(drafting.tokens.size()) - 1,
                    .kv = drafting.request->kv});
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
  struct State {
    ChainGuesses guesses;
  };
  struct Drafting {
    const DraftRequest* request;
    DraftTree* tree;
    State* state;
    std::vector<TokenId> tokens;  // the sequence's and the draft's
  };

  // Adds a node from the exit's logits; whether another one is to follow.
  bool guess(Drafting& drafting, std::span<const float> logits) {
    const DraftRequest& request = *drafting.request;
    std::ranges::copy(logits, row_.begin());
    ChainGuesses& guesses = drafting.state->guesses;
    float probability = 1;  // of the largest logit
    if (guesses.weighs(request)) {
      const float max = scan_block_max(row_, block_max_);
      probability = static_cast<float>(1.0 / scan_sum_exp(row_, max, 1.0f));
    }
    const TokenId token = choose(drafting);
    if (token == kNoToken) return false;
    drafting.tree->add_next(token);
    drafting.tokens.push_back(token);
    return guesses.add(probability, request, confidence_, *drafting.tree) &&
           static_cast<int>(drafting.tokens.size()) < model_.config().max_seq_len;
  }

  // With the sequence's own sampler steps, as if the tokens of the tree had been accepted.
  TokenId choose(Drafting& drafting) {
    const DraftRequest& request = *drafting.request;
    Hypothesis hypothesis(*request.state);
    for (const TokenId token : drafting.tree->tokens) hypothesis.append(token);
    const SampleContext context{hypothesis.state(), drafting.tokens, request.n_prompt};
    if (!request.may_draw) {
      none_.clear();
      return sampler_.sample(context, row_, none_).token;
    }
    TokenDistribution& from = drafting.tree->drawn_from.emplace_back();
    const TokenId token = sampler_.draw_draft(context, row_, from);
    if (token == kNoToken) drafting.tree->drawn_from.pop_back();
    return token;
  }

  std::unique_ptr<WeightSource> light_source_;  // a backend may keep views into it
  std::unique_ptr<Model> light_;
  const Model& model_;
  Ops& ops_;
  HostRows logits_;
  const int n_layers_;
  KvCache* cache_ = nullptr;
  BatchBuilder batch_;
  std::unordered_map<SeqId, State> states_;
  std::vector<Drafting> drafting_;
  Sampler sampler_;
  std::vector<float> row_, block_max_;
  std::vector<TokenLogprob> none_;
  Confidence confidence_;
  int n_passes_ = 0;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_early_exit_drafter(DrafterConfig config, const DraftTarget& target) {
  const ModelConfig& model = target.model->config();
  const int n_layers = config.exit_layer > 0 ? config.exit_layer : model.exit_layer;
  if (n_layers <= 0) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "spec early-exit: the model was not trained with an exit; expected the layers to draft with, 1 to "
        "{}, got none",
        model.n_layers - 1);
  }
  if (n_layers >= model.n_layers) {
    return errorf(ErrorCode::kInvalidArgument,
                  "spec early-exit: expected 1 to {} layers to draft with, got {}", model.n_layers - 1,
                  n_layers);
  }
  std::unique_ptr<WeightSource> light_source;
  std::unique_ptr<Model> light;
  if (target.source != nullptr) light_source = make_four_bit_source(*target.source);
  if (light_source) {
    ASSIGN_OR_RETURN(light,
                     Model::load_first_layers(*light_source, *target.ops, n_layers, config.max_model_len));
  }
  return std::make_unique<EarlyExitDrafter>(target, n_layers, config.block_size, std::move(light_source),
                                            std::move(light));
}

}  // namespace penstock
