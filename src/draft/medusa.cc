// Medusa: trained heads predict the next few tokens at once from the target's last state; a static
// tree of their most likely tokens is verified.

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "draft/drafters.h"
#include "draft/static_tree.h"
#include "model/medusa_heads.h"
#include "model/sources/four_bits.h"
#include "ops/host_rows.h"
#include "sampling/verify.h"

namespace penstock {
namespace {

// Sets `top` to the k largest of `logits`, largest first, the lower id first among equals.
void top_tokens(std::span<const float> logits, int k, std::vector<TokenId>& top) {
  top.clear();
  if (k == 0) return;
  const auto before = [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const auto n = static_cast<TokenId>(logits.size());
  float least = -std::numeric_limits<float>::infinity();  // least of the k so far
  for (TokenId id = 0; id < n; ++id) {
    if (!(logits[static_cast<size_t>(id)] > least)) {
      if (static_cast<int>(top.size()) == k) continue;
    } else if (static_cast<int>(top.size()) == k) {
      top.pop_back();
    }
    top.insert(std::ranges::upper_bound(top, id, before), id);
    if (static_cast<int>(top.size()) == k) least = logits[static_cast<size_t>(top.back())];
  }
}

// The target's output matrix quantized to 4 bits, if it has more; drafts may be imprecise. Null:
// the target's.
struct RoughOutput {
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Model> model;  // has no layers
};

class MedusaDrafter : public Drafter {
 public:
  MedusaDrafter(std::unique_ptr<WeightSource> source, RoughOutput output,
                std::unique_ptr<MedusaHeads> heads, const DraftTarget& target)
      : source_(std::move(source)),
        output_(std::move(output)),
        heads_(std::move(heads)),
        ops_(*target.ops),
        logits_(ops_),
        dim_(target.model->config().model_dim),
        accuracy_(heads_->accuracy().empty() ? assumed_accuracy(heads_->n_heads())
                                             : heads_->accuracy()),
        tree_(choose_tree(accuracy_.shares(), kMaxNodes)) {
    measure_tree();
  }

  const char* name() const override { return "medusa"; }
  bool one_pass() const override { return true; }
  int max_nodes() const override { return static_cast<int>(tree_.size()); }
  bool wants_hidden() const override { return true; }
  int64_t weight_bytes() const override {
    return heads_->weight_bytes() + (output_.model ? output_.model->weight_bytes() : 0);
  }

  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    drafting_.clear();
    if (n_learned_ >= kLearnedPerTree) {
      tree_ = choose_tree(accuracy_.shares(), kMaxNodes);
      measure_tree();
      n_learned_ = 0;
    }
    int n_heads = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto found = states_.find(requests[i].id);
      if (found == states_.end() || found->second.n_tokens != requests[i].tokens.size()) continue;
      const int n_nodes = n_wanted(requests[i]);
      for (int node = 0; node < n_nodes; ++node)
        n_heads = std::max(n_heads, tree_[static_cast<size_t>(node)].depth + 1);
      if (n_nodes > 0) drafting_.push_back({&trees[i], &found->second, n_nodes});
    }
    computed_ = !drafting_.empty();
    if (!computed_) return;
    ops_.begin_step(nullptr);
    const int n = static_cast<int>(drafting_.size());
    const Tensor states = ops_.new_tensor(n, dim_);  // [n, model_dim]
    for (int i = 0; i < n; ++i) {
      ops_.write_rows(drafting_[static_cast<size_t>(i)].state->hidden, states.row_range(i, 1));
    }
    find_top(heads_->forward(states, n_heads, ops_), n_heads);
    for (int i = 0; i < n; ++i)
      grow(drafting_[static_cast<size_t>(i)],
           std::span(top_).subspan(static_cast<size_t>(i) * n_heads));
  }

  int n_passes() const override { return computed_ ? 1 : 0; }

  void accepted(std::span<const DraftOutcome> outcomes) override {
    for (const DraftOutcome& outcome : outcomes) {
      State& state = states_[outcome.id];
      if (!state.draft.empty()) learn(state.draft, outcome);
      state.draft.clear();
      if (outcome.hidden.empty()) {
        state.n_tokens = 0;
        continue;
      }
      state.hidden.assign(outcome.hidden.begin(), outcome.hidden.end());
      state.n_tokens = outcome.tokens.size();
    }
  }

  void forget(SeqId sequence) override { states_.erase(sequence); }

 private:
  static constexpr int kMaxNodes = 31;  // with the sequence's last token: whole tiles of rows

  static constexpr int kLearnedPerTree = 48;  // drafts after which the tree is chosen again

  struct Guess {
    TokenId token;
    int16_t parent, depth, rank;
  };
  struct State {
    std::vector<float> hidden;  // [model_dim] state from which the last token was predicted
    size_t n_tokens = 0;        // tokens of the sequence at that time; 0: unknown
    std::vector<Guess> draft;   // last draft
  };
  struct Drafting {
    DraftTree* tree;
    State* state;
    int n_nodes;
  };

  // Returns how many nodes of the tree, whose reach decreases, gain most.
  int n_wanted(const DraftRequest& request) const {
    const auto n = static_cast<size_t>(std::min(request.max_nodes, max_nodes()));
    if (request.prices == nullptr) return static_cast<int>(n);
    return std::max(1, nodes_worth(std::span(reach_).first(n), *request.prices));
  }

  void measure_tree() {
    reach_.clear();
    for (const StaticTreeNode& node : tree_) reach_.push_back(static_cast<float>(node.reach));
  }

  // Returns how many of a head's most likely tokens a sequence's part of the tree needs.
  int ranks_of(int head, int drafting) const {
    int n = 0;
    for (int i = 0; i < drafting_[static_cast<size_t>(drafting)].n_nodes; ++i) {
      const StaticTreeNode& node = tree_[static_cast<size_t>(i)];
      if (node.depth == head) n = std::max(n, node.rank + 1);
    }
    return n;
  }

  // Learns from a draft: all guesses below a right one were tested against the actual token.
  void learn(const std::vector<Guess>& draft, const DraftOutcome& outcome) {
    const size_t n_before = outcome.tokens.size() - static_cast<size_t>(outcome.n_accepted) - 1;
    int parent = kDraftRoot;
    for (int depth = 0; depth <= outcome.n_accepted; ++depth) {
      const TokenId came = outcome.tokens[n_before + static_cast<size_t>(depth)];
      int right = kOffDraft;
      for (size_t i = 0; i < draft.size(); ++i) {
        if (draft[i].parent != parent) continue;
        if (draft[i].token == came) right = static_cast<int>(i);
        accuracy_.learn(draft[i].depth, draft[i].rank, draft[i].token == came);
      }
      parent = right;
      if (right == kOffDraft) break;
    }
    ++n_learned_;
  }

  // Finds the most likely tokens of every head for every sequence, as many as its part of the tree
  // needs: top_ [sequence][head]. logits: [n_heads * n, vocab_size], head by head.
  void find_top(Tensor logits, int n_heads) {
    const auto n = static_cast<int>(drafting_.size());
    top_.resize(static_cast<size_t>(n) * n_heads);
    logits_.set(logits);
    asked_.clear();
    for (int i = 0; i < n; ++i) {
      for (int head = 0; head < n_heads; ++head) {
        const int row = head * n + i, n_top = ranks_of(head, i);
        std::vector<TokenId>& top = top_[static_cast<size_t>(i * n_heads + head)];
        if (!ops_.samples()) {
          top_tokens(logits_.row(row), n_top, top);
          continue;
        }
        top.clear();
        asked_.push_back({.row = row, .n_top = n_top});
      }
    }
    if (asked_.empty()) {
      ops_.submit();
    } else {
      ask_device(logits);
    }
  }

  void ask_device(Tensor logits) {
    std::vector<SampleResult> results(asked_.size());
    std::vector<std::vector<TokenLogprob>> found(asked_.size());
    for (size_t i = 0; i < asked_.size(); ++i) {
      found[i].resize(static_cast<size_t>(asked_[i].n_top));
      asked_[i].top = found[i].data();
    }
    ops_.sample(logits, asked_, results);
    ops_.wait(ops_.submit());
    for (size_t i = 0; i < asked_.size(); ++i) {
      for (int k = 0; k < results[i].n_top; ++k)
        top_[i].push_back(found[i][static_cast<size_t>(k)].token);
    }
  }

  void grow(Drafting& drafting, std::span<const std::vector<TokenId>> of_head) {
    for (int i = 0; i < drafting.n_nodes; ++i) {
      const StaticTreeNode& node = tree_[static_cast<size_t>(i)];
      const std::vector<TokenId>& top = of_head[static_cast<size_t>(node.depth)];
      // The vocabulary is smaller than the rank: the rest of the tree is dropped.
      if (node.rank >= static_cast<int>(top.size())) break;
      drafting.tree->add(top[static_cast<size_t>(node.rank)], node.parent);
      drafting.state->draft.push_back(
          {top[static_cast<size_t>(node.rank)], node.parent, node.depth, node.rank});
    }
  }

  std::unique_ptr<WeightSource> source_;  // a backend may keep views into it
  RoughOutput output_;                    // outlives the heads
  std::unique_ptr<MedusaHeads> heads_;
  Ops& ops_;
  HostRows logits_;
  const int dim_;
  TreeAccuracy accuracy_;
  std::vector<StaticTreeNode> tree_;
  std::vector<float> reach_;               // [max_nodes] reach of the nodes of tree_
  std::vector<std::vector<TokenId>> top_;  // [drafting][head], from the last propose()
  std::vector<SampleRow> asked_;
  std::unordered_map<SeqId, State> states_;
  std::vector<Drafting> drafting_;
  int n_learned_ = 0;
  bool computed_ = false;  // whether the last propose() computed
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_medusa_drafter(DrafterConfig config,
                                                     const DraftTarget& target) {
  if (config.engine.spec_heads.empty()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "spec medusa: expected the heads, a directory with config.json and a safetensors "
                  "file, got none");
  }
  ASSIGN_OR_RETURN(auto source, open_weights(config.engine.spec_heads));
  RoughOutput output;
  if (target.source != nullptr) output.source = make_four_bit_source(*target.source);
  if (output.source) {
    ASSIGN_OR_RETURN(output.model, Model::load_first_layers(*output.source, *target.ops, 0));
  }
  const Model& reads = output.model ? *output.model : *target.model;
  ASSIGN_OR_RETURN(auto heads, MedusaHeads::load(*source, reads, *target.ops));
  return std::make_unique<MedusaDrafter>(std::move(source), std::move(output), std::move(heads),
                                         target);
}

}  // namespace penstock
