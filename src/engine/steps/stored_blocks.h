// The engine's side of the store of blocks: offers it the blocks that enter the prefix index, and
// brings what it has of a waiting sequence's prefix back into the index.
//
// A published block is pending until a copy of it was given to the store's writer: after a step, as
// far as the writer's queue has room; and at last when it is evicted. A sequence that begins to wait
// is looked up in the store behind what is in memory, and is not admitted while blocks are loaded
// for it; those of them that came in time are published, evicting others at most, so that it starts
// from them like from any cached blocks. A load that is late is given up: the sequence computes.
//
// A sequence has at most one load, and Sequence::loading tells whether it has one. Its load begins
// while it waits (begin_load) and ends while it still waits: when all is loaded, the cache has no
// more room, the time is up (take_loaded), or the sequence ends (end_load). Since every load has a
// time limit, no sequence waits for ever, whatever the store does. With Request::prefill_wait_seconds
// a load follows the engine that computes the prompt (block_loader.h).
//
// Engine thread only.
#pragma once
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "engine/compute/step_model.h"
#include "engine/requests/metrics_recorder.h"
#include "engine/schedule/scheduler.h"
#include "engine/store/kv_store.h"

namespace penstock {

class StoredBlocks {
 public:
  // Watches the scheduler's allocators as long as it lives. All parts must outlive this.
  StoredBlocks(KvStore& store, Scheduler& scheduler, StepModel& model, MetricsRecorder& metrics);
  ~StoredBlocks();
  StoredBlocks(const StoredBlocks&) = delete;
  StoredBlocks& operator=(const StoredBlocks&) = delete;

  // --- Loading
  // Looks a sequence up; sets its `loading` while blocks are loaded for it. Does nothing unless the
  // sequence waits and is to be computed. token_seconds: time of computing a prompt token, 0 = not
  // known. Allocates; without memory it does nothing.
  void begin_load(Sequence& sequence, double token_seconds);
  // Called when the sequence ends.
  void end_load(Sequence& sequence);
  // Publishes blocks that were loaded and lets sequences go on whose loads are done or late. Called
  // between two steps. busy: sequences run that wait meanwhile.
  void take_loaded(bool busy);
  int n_loads() const { return static_cast<int>(loads_.size()); }
  // When take_loaded() has to be called next, unless the store has news before.
  Clock::time_point next_take() const;

  // --- Storing
  // Gives pending blocks to the writer, as far as it has room; it tells when it has some again.
  // Called between two steps.
  void store_pending();
  bool some_pend() const;
  // How many blocks have entered the indexes, and whether the first n of them were given to the
  // writer, or dropped.
  uint64_t n_entered() const { return n_entered_; }
  bool has_given(uint64_t n) const;
  // Whether the pending blocks are so many that they should be stored although a step is in flight,
  // whose end has to be awaited for it.
  bool has_many_pending() const;
  // Gives all pending blocks to the writer, as far as it takes them until `latest` and goes on
  // writing. Called when no step is in flight and none follows.
  void finish(Clock::time_point latest);

 private:
  // The watcher of one group's index.
  class Group final : public PublishedBlocks {
   public:
    Group(StoredBlocks& owner, int group, int n_blocks);
    void entered(BlockId block) override;
    void leaves(BlockId block) override;
    void cleared() override;

    struct Pending {
      uint64_t number;  // as n_entered() counts
      BlockId block;
    };
    std::vector<Pending> pending;  // in the order in which they entered
    size_t n_given = 0;            // the first of them, within store_pending()

   private:
    StoredBlocks& owner_;
    int group_;
    std::vector<char> is_pending_;  // [n_blocks]
    friend class StoredBlocks;
  };
  struct Load {
    Sequence* sequence;
    std::shared_ptr<BlockLoad> load;
    double patience;  // seconds
    Clock::time_point begun;
    std::vector<int> n_taken;  // [n_groups] blocks published for it
    bool has_more = false;     // that can be taken at once
  };

  ChainQuery query_of(const Sequence& sequence, int n_found, double token_seconds) const;
  // Tells the store, once a minute for each block, that leading blocks which memory has are used.
  void touch_found(const Sequence& sequence, int n_found);
  // Takes what was loaded. Whether the load is over.
  bool is_over(Load& load, int64_t max_bytes);
  // The only way in which a load leaves loads_.
  void end(size_t load);
  void publish(Load& load, LoadedBlock& block);
  // Gives the writer a copy, or counts a block that cannot be copied as dropped. false: the writer
  // has no room.
  bool store(int group, BlockId block);
  // The group whose first block that was not given entered first; null: none.
  Group* oldest() const;

  KvStore& store_;
  Scheduler& scheduler_;
  StepModel& model_;
  MetricsRecorder& metrics_;
  std::vector<int> windows_;  // [n_groups]
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Load> loads_;  // of as many sequences
  std::vector<LoadedBlock> taken_;
  std::unordered_set<uint64_t> touched_;  // blocks, by hash and group, since a minute ago at most
  Clock::time_point touched_until_{};
  uint64_t n_entered_ = 0;
  bool publishing_ = false;  // a block that comes from the store, where it is near
};

}  // namespace penstock
