// Ends of prompts that are held back until the store has their blocks: what an engine of role
// prefill answers, it has handed over.
//
// A prompt's blocks are pending, then in the writer's queue, then in the store or dropped. Its end
// is held until the writer has gone through all that entered the indexes before it; then the store
// is asked, on the writer's thread, how far it has the prompt. Nobody is held for longer than the
// prompt took to be computed (a second at least, half a minute at most): whoever goes on from it
// could have computed it in that time. Those held are bounded in number.
//
// Engine thread only.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "engine/requests/request_state.h"
#include "engine/steps/stored_blocks.h"

namespace penstock {

class SettlingEnds {
 public:
  // All parts must outlive this.
  SettlingEnds(KvStore& store, const StoredBlocks& stored, const Scheduler& scheduler,
               MetricsRecorder& metrics)
      : store_(store), stored_(stored), scheduler_(scheduler), metrics_(metrics) {}
  ~SettlingEnds();

  // Holds the end of a sequence that has ended, until look() or drop(). false: it is not held, since
  // it has no whole block, or there is no memory. REQUIRES: its blocks have entered the indexes, and
  // its stats have the time of computing.
  bool hold(Running& sequence);
  // The sequence is held no more; nothing when it was not.
  void drop(const Running& sequence);
  // Calls `release` for each sequence whose blocks have settled, or whose time is up, with
  // PrefixUse::stored_tokens filled in. Called between two steps.
  void look(const std::function<void(Running&)>& release);

  bool any() const { return !held_.empty(); }
  // When look() has to be called next, unless the store has news before.
  Clock::time_point next_look() const;

 private:
  struct Answer {
    std::atomic<int> n_blocks{0};
    std::atomic<bool> there{false}, unwanted{false};
  };
  struct Held {
    Running* sequence;
    uint64_t n_entered;  // when it ended
    Clock::time_point latest;
    std::shared_ptr<const ChainQuery> chain;
    std::shared_ptr<Answer> answer;  // null: the store was not asked yet
  };
  void ask(Held& held);

  KvStore& store_;
  const StoredBlocks& stored_;
  const Scheduler& scheduler_;
  MetricsRecorder& metrics_;
  std::vector<Held> held_;
};

}  // namespace penstock
