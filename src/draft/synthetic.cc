#include "draft/synthetic.h"

#include <algorithm>
#include <random>

namespace penstock {
namespace {

class SyntheticDrafter : public Drafter {
 public:
  SyntheticDrafter(std::unique_ptr<Drafter> inner, double acceptance)
      : inner_(std::move(inner)), acceptance_(static_cast<float>(acceptance)), right_(acceptance) {}

  const char* name() const override { return "synthetic"; }
  bool one_pass() const override { return inner_->one_pass(); }
  int max_nodes() const override { return inner_->max_nodes(); }
  bool wants_hidden() const override { return inner_->wants_hidden(); }
  bool wants_states() const override { return inner_->wants_states(); }
  std::span<const int> taps() const override { return inner_->taps(); }
  bool costs_nothing() const override { return inner_->costs_nothing(); }
  bool computes_with_target() const override { return inner_->computes_with_target(); }
  int n_passes() const override { return inner_->n_passes(); }
  int64_t weight_bytes() const override { return inner_->weight_bytes(); }
  int64_t kv_bytes_per_token() const override { return inner_->kv_bytes_per_token(); }
  Status start(KvCache& target_cache, int64_t own_tokens) override {
    return inner_->start(target_cache, own_tokens);
  }

  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    // The inner drafter's probabilities do not apply to the tokens that replace its own.
    wanted_.assign(requests.begin(), requests.end());
    for (DraftRequest& request : wanted_) {
      if (request.prices != nullptr)
        request.max_nodes =
            std::max(1, best_length(acceptance_, *request.prices, request.max_nodes));
      request.prices = nullptr;
    }
    inner_->propose(wanted_, trees);
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<TokenId>& allowed = requests[i].state->spec->params.allowed_token_ids;
      if (allowed.size() != 1) {
        trees[i].clear();
        continue;
      }
      trees[i].drawn_from.clear();
      for (TokenId& token : trees[i].tokens)
        token = right_(random_) ? allowed[0] : (allowed[0] > 0 ? allowed[0] - 1 : 1);
    }
  }
  void accepted(std::span<const DraftOutcome> outcomes) override { inner_->accepted(outcomes); }
  void observe(const SeenStates& seen) override { inner_->observe(seen); }
  void forget(SeqId sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  const float acceptance_;
  std::bernoulli_distribution right_;
  std::vector<DraftRequest> wanted_;
  std::mt19937_64 random_{1};
};

}  // namespace

std::unique_ptr<Drafter> make_synthetic_drafter(std::unique_ptr<Drafter> inner, double acceptance) {
  return std::make_unique<SyntheticDrafter>(std::move(inner), acceptance);
}

}  // namespace penstock
