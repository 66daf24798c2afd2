// Guesses the next tokens of running sequences. The engine has the target check the guesses in its next
// forward (sampling/verify.h), so a drafter decides how fast things go, never what is generated.
//
// A step: the scheduler reserves room for drafts -> propose() -> one forward of the target over every
// sequence's last token and its draft tree -> verification -> accepted(). All calls come from the engine
// thread.
//
// A drafter that computes uses the target's own Ops, between the target's steps: its steps end the life of
// every tensor of the step before. No step of the target is under way then.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/group_blocks.h"
#include "draft/draft_prices.h"
#include "model/model.h"
#include "ops/ops.h"
#include "sampling/draft_tree.h"
#include "sampling/sampler_state.h"

namespace penstock {

// Told before each batch that is computed with a model that several ranks share, which all compute then. Gives what stages before
// this one make of it (ForwardOptions::stage_input), until the next; empty: there are none.
using AnnounceBatch = std::function<std::span<const float>(const Batch&)>;

// The model that will check the drafts. Outlives the drafter.
struct DraftTarget {
  const Model* model = nullptr;
  Ops* ops = nullptr;
  const WeightSource* source = nullptr;  // what the model was loaded from; null: not at hand
  AnnounceBatch announce = {};           // empty: there is one rank
};

// One sequence that wants a draft. Valid during propose().
struct DraftRequest {
  SeqId id{};
  std::span<const TokenId> tokens;  // prompt and output
  int n_prompt = 0;
  int reach = 0;  // most tokens that the sequence may come to (Model::takes_long_rope)
  // The target's blocks, one entry per cache group. K and V of tokens [0, tokens.size() - 1) are there, and
  // there is room for the last token and max_nodes more: early exit writes into it what the target then
  // writes again.
  std::span<const GroupBlocks> kv;
  int max_nodes = 0;  // >= 1
  // A drafter leaves out what costs more than it will bring. It must not look at the token it has drawn for
  // a node to decide about that node (but may look at those before): that would change the distribution.
  // Null: max_nodes are wanted.
  const DraftPrices* prices = nullptr;
  // The tokens may be drawn from the drafter's own distribution, which goes to DraftTree::drawn_from.
  // Otherwise propose what Sampler::sample() would give (it uses the target's random numbers), or whatever
  // seems likely.
  bool may_draw = false;
  // For sampler steps on the draft's logits: use through Hypothesis, which leaves it as it was.
  SamplerState* state = nullptr;
};

// What became of one sequence in a step, whether it had a draft or not. Valid during accepted().
struct DraftOutcome {
  SeqId id{};
  std::span<const TokenId> tokens;  // prompt and output, with the step's new tokens
  int n_accepted = 0;               // nodes of its last draft that were kept
  // With wants_hidden(): the target's state after the final norm [model_dim] from which the last token was
  // predicted, that is of the token before it.
  std::span<const float> hidden = {};
};

// The target's states of tokens that it has computed and that stay, one after the other: after the final norm [model_dim], or
// the streams of Drafter::taps().
// Valid during observe().
struct SeenStates {
  SeqId id{};
  std::span<const TokenId> tokens;  // prompt and output, as far as they are known
  int first = 0;                    // position of the first of them
  int reach = 0;                    // as DraftRequest's
  std::span<const std::span<const float>> rows;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual const char* name() const = 0;  // its row in the list of drafters.cc

  // All nodes come from one pass, trees among them; else each node of a chain takes a pass.
  virtual bool one_pass() const { return false; }
  virtual int max_nodes() const { return 16; }  // at most kMaxDraftNodes; 0: it is never asked
  virtual bool wants_hidden() const { return false; }
  virtual bool wants_states() const { return false; }  // observe() is called, and accepted() after every step
  virtual std::span<const int> taps() const { return {}; }  // of the states (ForwardOptions)
  virtual bool costs_nothing() const { return false; }      // its own time is next to nothing
  // With the target's layers: all ranks' where several share it.
  virtual bool computes_with_target() const { return false; }

  virtual int64_t weight_bytes() const { return 0; }
  virtual int64_t kv_bytes_per_token() const { return 0; }  // of a KV cache of its own
  // Once, before anything else. target_cache outlives the drafter; own_tokens: how many tokens its own cache
  // may hold.
  virtual Status start(KvCache& target_cache, int64_t own_tokens) {
    (void)target_cache, (void)own_tokens;
    return {};
  }

  // trees[i] is empty on entry and gets at most requests[i].max_nodes nodes; it may stay empty.
  virtual void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) = 0;
  // Passes one after the other that the last propose() took, for the time of one; 0: not typical, since it
  // had prompts to compute.
  virtual int n_passes() const { return 1; }
  virtual void accepted(std::span<const DraftOutcome> outcomes) { (void)outcomes; }
  // Before accepted(), sequence by sequence. Nothing may be computed here. A prefix that was not computed again is not seen.
  virtual void observe(const SeenStates& seen) { (void)seen; }
  // The sequence has ended or gave its blocks back. Unknown ids are ignored.
  virtual void forget(SeqId sequence) { (void)sequence; }
};

}  // namespace penstock
