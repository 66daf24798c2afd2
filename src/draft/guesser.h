// The next guess for every sequence that a drafter computes, from the logits of its forward: by the device where it can
// draw, else on the host.
#pragma once
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "ops/host_rows.h"
#include "sampling/sampler.h"

namespace penstock {

class Guesser {
 public:
  // vocab_size: the target's. The drafter's own logits may have some more or fewer, which count as impossible; logit i is of
  // token vocabulary[i], where there is one.
  Guesser(Ops& ops, int vocab_size, std::span<const TokenId> vocabulary = {})
      : ops_(ops), rows_(ops), vocabulary_(vocabulary), row_(static_cast<size_t>(vocab_size)) {}

  // One sequence, whose logits are a row of the step.
  struct Wanted {
    const DraftRequest* request;
    DraftTree* tree;                  // as far as it has grown
    std::span<const TokenId> tokens;  // the sequence's and the tree's
    bool likeliest;                   // Guess::likeliest is wanted
  };
  struct Guess {
    TokenId token = kNoToken;  // kNoToken: none is possible
    float likeliest = 1;  // the drafter's own probability of its most likely token; 1 where it is not wanted
  };
  // Ends the step of `ops`. Row i of `logits` is wanted[i]'s. Drawn guesses leave their distribution in the tree; the
  // guesses themselves are not added. Valid until the next call.
  std::span<const Guess> guess(Tensor logits, std::span<const Wanted> wanted);

 private:
  void ask_device(Tensor logits, std::span<const Wanted> wanted);
  Guess guess_on_host(const Wanted& wanted, std::span<const float> logits);

  Ops& ops_;
  HostRows rows_;
  std::span<const TokenId> vocabulary_;
  Sampler sampler_;
  std::vector<Guess> guesses_;
  std::vector<bool> drawn_;  // [wanted] by the device
  std::vector<SampleRow> asked_;
  std::vector<int> asked_for_;
  std::vector<LogitEdits> edits_;  // [wanted]
  std::vector<SampleResult> results_;
  std::vector<float> row_, block_max_;
  std::vector<TokenLogprob> none_;
};

}  // namespace penstock
