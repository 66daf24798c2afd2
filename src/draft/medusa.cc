#include "draft/medusa.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "draft/static_tree.h"
#include "model/medusa_heads.h"

namespace penstock {
namespace {

constexpr int kMaxNodes = 31;  // with the sequence's own last token: whole tiles of rows

// The k largest of `logits`, largest first, the lower id of equals first; `top` [k] is overwritten.
void top_tokens(std::span<const float> logits, int k, std::vector<TokenId>& top) {
  top.clear();
  const auto before = [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  for (TokenId id = 0; id < static_cast<TokenId>(logits.size()); ++id) {
    if (static_cast<int>(top.size()) == k && !before(id, top.back())) continue;
    if (static_cast<int>(top.size()) == k) top.pop_back();
    top.insert(std::ranges::upper_bound(top, id, before), id);
  }
}

class MedusaDrafter : public Drafter {
 public:
  MedusaDrafter(std::unique_ptr<WeightSource> source, std::unique_ptr<MedusaHeads> heads,
                const DraftTarget& target)
      : source_(std::move(source)),
        heads_(std::move(heads)),
        ops_(*target.ops),
        dim_(target.model->config().model_dim),
        tree_(
            choose_tree(heads_->accuracy().empty() ? assumed_accuracy(heads_->n_heads()) : heads_->accuracy(),
                        kMaxNodes)) {
    ranks_.assign(static_cast<size_t>(heads_->n_heads()), 0);
    for (const StaticTreeNode& node : tree_) {
      int& ranks = ranks_[static_cast<size_t>(node.depth)];
      ranks = std::max(ranks, node.rank + 1);
    }
    top_.resize(ranks_.size());
  }

  const char* name() const override { return "medusa"; }
  std::vector<int> tree_sizes() const override {
    std::vector<int> sizes;
    for (const int size : {1, 2, 3, 5, 7, 11, 15, 23, 31}) {
      if (size <= max_nodes()) sizes.push_back(size);
    }
    return sizes;
  }
  int max_nodes() const override { return static_cast<int>(tree_.size()); }
  bool wants_hidden() const override { return true; }
  int64_t weight_bytes() const override { return heads_->weight_bytes(); }

  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    drafting_.clear();
    int n_heads = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto found = states_.find(requests[i].id);
      if (found == states_.end() || found->second.n_tokens != requests[i].tokens.size()) continue;
      const int n_nodes = nodes_worth(requests[i]);
      for (int node = 0; node < n_nodes; ++node)
        n_heads = std::max(n_heads, tree_[static_cast<size_t>(node)].depth + 1);
      if (n_nodes > 0) drafting_.push_back({&trees[i], &found->second, n_nodes});
    }
    if (drafting_.empty()) return;
    ops_.begin_step();
    const int n = static_cast<int>(drafting_.size());
    const Tensor states = ops_.new_tensor(n, dim_);  // [n, model_dim]
    for (int i = 0; i < n; ++i) {
      const std::vector<float>& hidden = drafting_[static_cast<size_t>(i)].state->hidden;
      std::memcpy(states.f32(i), hidden.data(), hidden.size() * sizeof(float));
    }
    const Tensor logits = heads_->forward(states, n_heads, ops_);  // [n_heads * n, vocab_size]
    for (int i = 0; i < n; ++i) {
      for (int head = 0; head < n_heads; ++head) {
        top_tokens({logits.f32(head * n + i), static_cast<size_t>(logits.cols)},
                   ranks_[static_cast<size_t>(head)], top_[static_cast<size_t>(head)]);
      }
      grow(drafting_[static_cast<size_t>(i)]);
    }
  }

  void accepted(std::span<const DraftOutcome> outcomes) override {
    for (const DraftOutcome& outcome : outcomes) {
      State& state = states_[outcome.id];
      if (state.expected > 0) {
        predicted_ += kWeight * (state.expected - predicted_);
        kept_ += kWeight * (outcome.n_accepted - kept_);
        state.expected = 0;
      }
      if (outcome.hidden == nullptr) {
        state.n_tokens = 0;
        continue;
      }
      state.hidden.assign(outcome.hidden, outcome.hidden + dim_);
      state.n_tokens = outcome.tokens.size();
    }
  }

  void forget(SeqId sequence) override { states_.erase(sequence); }

 private:
  static constexpr double kWeight = 0.03;

  struct State {
    std::vector<float> hidden;  // [model_dim], from which the last token was predicted
    size_t n_tokens = 0;        // of the sequence at that time; 0 = unknown
    double expected = 0;        // nodes of the last draft that were thought to be kept
  };
  struct Drafting {
    DraftTree* tree;
    State* state;
    int n_nodes;
  };

  // How many nodes of the tree (its reach falls) are worth their place, by the share that was kept so far.
  int nodes_worth(const DraftRequest& request) const {
    const double calibration = predicted_ > 0 ? std::clamp(kept_ / predicted_, 0.3, 3.0) : 1.0;
    int n = std::min(request.max_nodes, max_nodes());
    while (n > 1 && tree_[static_cast<size_t>(n) - 1].reach * calibration < request.worth) --n;
    return n;
  }

  void grow(Drafting& drafting) {
    for (int i = 0; i < drafting.n_nodes; ++i) {
      const StaticTreeNode& node = tree_[static_cast<size_t>(i)];
      const std::vector<TokenId>& top = top_[static_cast<size_t>(node.depth)];
      // A vocabulary smaller than the ranks: the rest of the tree goes without.
      if (node.rank >= static_cast<int>(top.size())) break;
      drafting.tree->add(top[static_cast<size_t>(node.rank)], node.parent);
      drafting.state->expected += node.reach;
    }
  }

  std::unique_ptr<WeightSource> source_;  // a backend may keep views into it
  std::unique_ptr<MedusaHeads> heads_;
  Ops& ops_;
  const int dim_;
  const std::vector<StaticTreeNode> tree_;
  std::vector<int> ranks_;                 // [n_heads] most likely tokens that the tree uses
  std::vector<std::vector<TokenId>> top_;  // [n_heads]
  std::unordered_map<SeqId, State> states_;
  std::vector<Drafting> drafting_;
  double predicted_ = 0, kept_ = 0;  // nodes per draft, running means
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_medusa_drafter(DrafterConfig config, const DraftTarget& target) {
  if (config.heads.empty()) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "spec medusa: expected the heads, a directory with config.json and a safetensors file, got none");
  }
  ASSIGN_OR_RETURN(auto source, open_weights(config.heads));
  ASSIGN_OR_RETURN(auto heads, MedusaHeads::load(*source, *target.model, *target.ops));
  return std::make_unique<MedusaDrafter>(std::move(source), std::move(heads), target);
}

}  // namespace penstock
