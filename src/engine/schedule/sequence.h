// One running sequence: its tokens, how many of them are in the KV cache, and where.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "draft/block_allocator.h"
#include "engine/schedule/prompt_input.h"
#include "model/group_blocks.h"
#include "penstock/engine.h"

namespace penstock {

enum class SeqState : uint8_t { kNew, kWaiting, kRunning, kFinished };

// A sequence as the scheduler knows it. Owned by the caller of Scheduler::add(); must live until
// Scheduler::finish().
struct Sequence {
  SeqId id{};
  // prompt, then output; never shrinks below n_prompt
  std::vector<TokenId> tokens;
  int n_prompt = 0;
  // null: the prompt consists of token ids only
  std::shared_ptr<const PromptInput> input;
  // leading tokens whose K and V are in the cache
  int n_computed = 0;
  // maximum length in tokens, prompt included
  int max_len = 0;
  // maximum tokens of this sequence in a step, unless a part that sees itself is longer
  int max_chunk = 1 << 30;
  // the last token is a stand-in: -1 - i for draw i of a step in flight
  bool ahead = false;
  // number of draft tokens that the next step may verify; set for every step
  int n_draft = 0;
  int adapter = -1;        // slot of its LoRA adapter, -1 = none
  bool long_rope = false;  // as Batch::long_ropes
  bool read_cache = true;  // may start from cached blocks
  // Request::prefill_wait_seconds
  double prefill_wait = 0;
  Priority priority = Priority::kNormal;
  // time of arrival in seconds, as `now` of Scheduler::next()
  double arrival = 0;
  uint64_t arrival_order = 0;  // unique, ascending
  // hash of Request::tenant; 0: no tenant
  uint64_t tenant = 0;
  // number of sequences of the request, for which its tenant is charged together
  int n_turns = 1;
  // position in the waiting queue (waiting_queue.h); 0: it never waited
  uint64_t turn = 0;

  SeqState state = SeqState::kNew;
  double admitted_rank = 0;     // Policy::rank() at its admission
  std::vector<GroupBlocks> kv;  // [n_groups]
  // hash of its salt, adapter and kind of rope: parent of its first block
  BlockHash root;
  // hashes of its first full blocks, computed when needed
  std::vector<BlockHash> hashes;
  // leading blocks published in the prefix index
  int n_published = 0;
  // leading tokens at its last snapshot of a state
  int n_snapshot = 0;
  // leading tokens that other sequences have computed too
  int n_common = 0;
  // prompt tokens found in the cache when it first started
  int n_cached = 0;
  // Before it first started: leading tokens whose blocks were loaded for it, and the time of that.
  int n_loaded = 0;
  double load_seconds = 0;
  int n_preemptions = 0;
  // parked: admitted again only when it has more tokens than this
  int n_parked = 0;
  bool started = false;  // was admitted at least once
  // While it waits: how often a store was asked for its blocks, and the leading ones that were in
  // memory then, or came from there.
  int n_asked = 0, n_seen = 0;
  // it waits, and is not admitted: blocks of its prefix are being loaded
  bool loading = false;

  int n_known() const { return n_tokens() - (ahead ? 1 : 0); }  // tokens that the host knows
  int n_tokens() const { return static_cast<int>(tokens.size()); }
  int gap() const { return n_tokens() - n_computed; }  // tokens to compute; >= 1 while it runs
  // Index of the first token in [first, end) whose id does not tell its embedding, or `end`.
  int first_given(int first, int end) const {
    return input == nullptr ? end : input->first_given(first, end);
  }
};

}  // namespace penstock
