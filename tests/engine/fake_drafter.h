// Drafters that know the future, or the opposite of it, and count what they are told.
#pragma once
#include <functional>
#include <map>
#include <memory>

#include "base/check.h"
#include "draft/drafter.h"
#include "kernels/philox.h"
#include "sampling/sampler.h"

namespace penstock {

// Shared between a test and the drafter that the engine owns.
struct DraftScript {
  // Fills one tree; see Drafter::propose.
  std::function<void(const DraftRequest&, DraftTree&)> propose;
  bool one_pass = false;
  int max_nodes = 16;
  int64_t n_proposed = 0, n_kept = 0, n_forgotten = 0, n_outcomes = 0;
  std::map<SeqId, int> last_size;  // of the draft that is not answered yet
};

class FakeDrafter : public Drafter {
 public:
  explicit FakeDrafter(std::shared_ptr<DraftScript> script) : script_(std::move(script)) {}
  const char* name() const override { return "fake"; }
  bool one_pass() const override { return script_->one_pass; }
  int max_nodes() const override { return script_->max_nodes; }
  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    PENSTOCK_CHECK(requests.size() == trees.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& request = requests[i];
      PENSTOCK_CHECK(trees[i].empty() && request.max_nodes >= 1 &&
                     request.tokens.size() > size_t(request.n_prompt));
      script_->propose(request, trees[i]);
      script_->n_proposed += trees[i].size();
      script_->last_size[request.id] = trees[i].size();
    }
  }
  void accepted(std::span<const DraftOutcome> outcomes) override {
    for (const DraftOutcome& outcome : outcomes) {
      ++script_->n_outcomes;
      PENSTOCK_CHECK(outcome.n_accepted <= script_->last_size[outcome.id]);
      script_->n_kept += outcome.n_accepted;
      script_->last_size[outcome.id] = 0;
    }
  }
  void forget(SeqId id) override {
    ++script_->n_forgotten;
    script_->last_size.erase(id);
  }

 private:
  std::shared_ptr<DraftScript> script_;
};

// Proposes random trees (chains when tree_size is 0) some of whose nodes are what the target will
// choose. right: how often a node is, of 100.
class RandomDrafts {
 public:
  RandomDrafts(uint64_t seed, int right, bool trees) : seed_(seed), right_(right), trees_(trees) {}
  // vocab_size and logits_of: the target's.
  template <class Model>
  void fill(const Model& model, const DraftRequest& request, DraftTree& tree) {
    const int n = below(request.max_nodes + 1);
    for (int node = 0; node < n; ++node) {
      const int parent = trees_ ? below(node + 1) - 1 : node - 1;
      TokenId token = below(model.vocab_size());
      if (below(100) < right_) token = chosen(model, request, tree, parent);
      tree.add(token, parent);
    }
  }

 private:
  int below(int n) { return static_cast<int>(mix_seed(seed_, n_++) % static_cast<uint64_t>(n)); }
  template <class Model>
  TokenId chosen(const Model& model, const DraftRequest& request, const DraftTree& tree, int node) {
    std::vector<TokenId> tokens(request.tokens.begin(), request.tokens.end()), path;
    for (; node >= 0; node = tree.parents[node]) path.push_back(tree.tokens[node]);
    Hypothesis hypothesis(*request.state);
    for (size_t i = path.size(); i-- > 0;) {
      tokens.push_back(path[i]);
      hypothesis.append(path[i]);
    }
    std::vector<float> row = model.logits_of(tokens);
    return sampler_.sample({hypothesis.state(), tokens, request.n_prompt}, row, none_).token;
  }
  uint64_t seed_, n_ = 0;
  int right_;
  bool trees_;
  Sampler sampler_;
  std::vector<TokenLogprob> none_;
};

}  // namespace penstock
