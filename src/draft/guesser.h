// Chooses the next draft token of every sequence from the logits of a drafter's forward: on the
// device if it can draw, else on the host.
#pragma once
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "ops/host_rows.h"
#include "sampling/sampler.h"

namespace penstock {

class Guesser {
 public:
  // vocab_size: the target's. The drafter may have more or fewer logits: surplus ones are ignored,
  // missing ones count as impossible. vocabulary: logit i is that of token vocabulary[i]; empty: of
  // token i.
  Guesser(Ops& ops, int vocab_size, std::span<const TokenId> vocabulary = {})
      : ops_(ops), rows_(ops), vocabulary_(vocabulary), row_(static_cast<size_t>(vocab_size)) {}

  // One sequence, whose logits are a row of the step.
  struct Wanted {
    const DraftRequest* request;
    DraftTree* tree;                  // the draft so far
    std::span<const TokenId> tokens;  // the sequence's tokens, then the draft's
    bool likeliest;                   // whether Guess::likeliest is wanted
  };
  struct Guess {
    TokenId token = kNoToken;  // kNoToken: none is possible
    // the drafter's probability of its most likely token; 1 when it is not wanted
    float likeliest = 1;
  };
  // Submits and waits for the step of `ops`, and chooses a token for each of `wanted` from its row
  // i of `logits`. The distribution of a drawn token is added to the tree, the token itself is not.
  // Valid until the next call.
  std::span<const Guess> guess(Tensor logits, std::span<const Wanted> wanted);

 private:
  void ask_device(Tensor logits, std::span<const Wanted> wanted);
  Guess guess_on_host(const Wanted& wanted, std::span<const float> logits);

  Ops& ops_;
  HostRows rows_;
  std::span<const TokenId> vocabulary_;
  Sampler sampler_;
  std::vector<Guess> guesses_;
  std::vector<bool> drawn_;  // [wanted] whether the device has drawn it
  std::vector<SampleRow> asked_;
  std::vector<int> asked_for_;
  std::vector<LogitEdits> edits_;  // [wanted]
  std::vector<SampleResult> results_;
  std::vector<float> row_, block_max_;
  std::vector<TokenLogprob> none_;
};

}  // namespace penstock
