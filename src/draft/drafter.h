// Drafters propose the next tokens of running sequences for speculative decoding. The target model
// verifies them in its next forward (sampling/verify.h), so a drafter affects the speed, never the
// output.
//
// A step: the scheduler reserves room for drafts -> propose() -> one forward of the target over
// every sequence's last token and its draft tree -> verification -> accepted(). All calls come from
// the engine thread.
//
// A drafter that computes uses the target's own Ops, between the target's steps: its steps
// invalidate all tensors of the step before. No step of the target is in flight then.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "draft/draft_prices.h"
#include "model/group_blocks.h"
#include "model/model.h"
#include "ops/ops.h"
#include "sampling/draft_tree.h"
#include "sampling/sampler_state.h"

namespace penstock {

// Sends a batch to the other ranks of a shared model before a drafter computes it, so that all
// ranks compute it together. Returns the output of earlier pipeline stages
// (ForwardOptions::stage_input), valid until the next call; empty when there are none.
using AnnounceBatch = std::function<std::span<const float>(const Batch&)>;

// The model that verifies the drafts. Must outlive the drafter.
struct DraftTarget {
  const Model* model = nullptr;
  Ops* ops = nullptr;
  // what the model was loaded from; null: not available
  const WeightSource* source = nullptr;
  AnnounceBatch announce = {};  // empty: there is one rank
};

// One sequence that is to get a draft. Valid during propose().
struct DraftRequest {
  SeqId id{};
  std::span<const TokenId> tokens;  // prompt and output
  int n_prompt = 0;
  // most tokens that the sequence can come to have (Model::takes_long_rope)
  int reach = 0;
  // The sequence's blocks in the target's cache, one entry per group. They hold K and V of tokens
  // [0, tokens.size() - 1) and have room for the last token and max_nodes more; early exit writes
  // its K and V there, which the target then overwrites.
  std::span<const GroupBlocks> kv;
  int max_nodes = 0;  // >= 1
  // Prices by which a drafter leaves out tokens that cost more than they gain; null: propose
  // max_nodes. Whether a node is left out must not depend on the token drawn for it (but may depend
  // on those before): that would change the distribution of the output.
  const DraftPrices* prices = nullptr;
  // Whether tokens may be drawn from the drafter's own distribution, which is then stored in
  // DraftTree::drawn_from. Otherwise propose what Sampler::sample() would give (it uses the
  // target's random numbers), or any likely token.
  bool may_draw = false;
  // State for sampler steps on the draft's logits; use it through Hypothesis, which restores it.
  SamplerState* state = nullptr;
};

// The outcome of a step for one sequence, with or without a draft. Valid during accepted().
struct DraftOutcome {
  SeqId id{};
  // prompt and output, with the step's new tokens
  std::span<const TokenId> tokens;
  int n_accepted = 0;  // nodes of its last draft that were accepted
  // With wants_hidden(): the target's state after the final norm [model_dim] of the token before
  // the last, from which the last token was predicted.
  std::span<const float> hidden = {};
};

// The target's states of consecutive tokens of a sequence that it has computed and that were
// accepted: after the final norm [model_dim], or the streams of Drafter::taps(). Valid during
// observe().
struct SeenStates {
  SeqId id{};
  std::span<const TokenId> tokens;  // prompt and output, as far as they are known
  int first = 0;                    // position of the first of these tokens
  int reach = 0;                    // as DraftRequest::reach
  std::span<const std::span<const float>> rows;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual const char* name() const = 0;  // its row in the list of drafters.cc

  // Whether one pass makes all nodes, of a chain or a tree; else each node of a chain takes a pass.
  virtual bool one_pass() const { return false; }
  // most nodes, <= kMaxDraftNodes; 0: propose() is never called
  virtual int max_nodes() const { return 16; }
  // whether accepted() needs DraftOutcome::hidden
  virtual bool wants_hidden() const { return false; }
  // observe() is called, and accepted() after every step
  virtual bool wants_states() const { return false; }
  virtual std::span<const int> taps() const { return {}; }  // taps of the states (ForwardOptions)
  virtual bool costs_nothing() const { return false; }      // its time is negligible
  // Whether it computes with the target's layers; with a shared model then all ranks compute.
  virtual bool computes_with_target() const { return false; }

  virtual int64_t weight_bytes() const { return 0; }
  // Bytes per token of the drafter's own KV cache; 0: it has none.
  virtual int64_t kv_bytes_per_token() const { return 0; }
  // Called once, before all other calls. target_cache outlives the drafter; own_tokens: tokens that
  // its own cache may hold.
  virtual Status start(KvCache& target_cache, int64_t own_tokens) {
    (void)target_cache, (void)own_tokens;
    return {};
  }

  // trees[i] is empty on entry and gets at most requests[i].max_nodes nodes; it may stay empty.
  virtual void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) = 0;
  // Number of successive passes of the last propose(), to compute the time of one; 0: its time is
  // not typical, since it had prompts to compute.
  virtual int n_passes() const { return 1; }
  // Passes the outcomes of a step.
  virtual void accepted(std::span<const DraftOutcome> outcomes) { (void)outcomes; }
  // Passes a sequence's states, before accepted(). Must not compute. States of a prefix that was
  // found in the prefix cache are not passed.
  virtual void observe(const SeenStates& seen) { (void)seen; }
  // Forgets a sequence that has ended or was preempted. Unknown ids are ignored.
  virtual void forget(SeqId sequence) { (void)sequence; }
};

}  // namespace penstock
