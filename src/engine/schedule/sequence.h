// One running sequence: its tokens, how many of them are in the KV cache, and where.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache/block_allocator.h"
#include "cache/group_blocks.h"
#include "penstock/engine.h"

namespace penstock {

// Where the blocks of a preempted sequence are kept, in one group.
struct SwappedBlocks {
  std::vector<int> slots;  // of blocks first_block, first_block + 1, …
  int first_block = 0;
};

enum class SeqState : uint8_t { kNew, kWaiting, kRunning, kFinished };

// What the scheduler knows. Owned by whoever adds it; lives until it is finished.
struct Sequence {
  SeqId id{};
  std::vector<TokenId> tokens;  // prompt, then output; never shrinks below n_prompt
  int n_prompt = 0;
  int n_computed = 0;       // leading tokens whose K and V are in the cache
  int max_len = 0;          // tokens it may reach, prompt included
  int max_chunk = 1 << 30;  // most tokens of it in one step
  bool ahead = false;  // its last token is drawn by a step under way: -1 - i stands for that step's draw i
  int n_draft = 0;     // guessed tokens that the next step may check; asked for anew every step
  int adapter = -1;    // slot of its LoRA adapter, -1 = none
  bool long_rope = false;  // as Batch::long_ropes
  bool read_cache = true;  // may start from cached blocks
  Priority priority = Priority::kNormal;
  double arrival = 0;          // seconds, the clock of Scheduler::next
  uint64_t arrival_order = 0;  // unique, ascending

  SeqState state = SeqState::kNew;
  double admitted_rank = 0;            // its policy rank when it was admitted
  std::vector<GroupBlocks> kv;         // [n_groups]
  std::vector<SwappedBlocks> swapped;  // [n_groups] when the scheduler swaps
  int n_swapped = 0;                   // leading tokens whose K and V are in the swap space
  BlockHash root;                      // of its salt, adapter and kind of rope
  std::vector<BlockHash> hashes;       // of its full blocks, as far as they are known
  int n_published = 0;                 // leading blocks offered to the prefix index
  int n_snapshot = 0;                  // leading tokens after which its state was kept last
  int n_common = 0;                    // leading tokens that others have computed, too: behind them it parts
  int n_cached = 0;                    // prompt tokens found in the cache when it first started
  int n_preemptions = 0;
  int n_parked = 0;      // it does not run again before it has more tokens than this
  bool started = false;  // was admitted at least once

  int n_known() const { return n_tokens() - (ahead ? 1 : 0); }  // tokens that the host knows
  int n_tokens() const { return static_cast<int>(tokens.size()); }
  int gap() const { return n_tokens() - n_computed; }  // tokens to compute; >= 1 while it runs
};

}  // namespace penstock
