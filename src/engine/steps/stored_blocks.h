// The engine's side of the store of blocks: offers it the blocks that enter the prefix index, and
// brings what it has of a waiting sequence's prefix back into the index.
//
// A published block is pending until a copy of it was given to the store's writer: after a step, as
// far as the writer's queue has room; and at last when it is evicted. A sequence that begins to wait
// is looked up in the store behind what is in memory, and is not admitted while blocks are loaded
// for it; those of them that came in time are published, evicting others at most, so that it starts
// from them like from any cached blocks. A load that is late is given up: the sequence computes.
//
// Engine thread only.
#pragma once
#include <memory>
#include <span>
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
  // Looks a waiting sequence up; sets its `loading` while blocks are loaded for it. token_seconds:
  // time of computing a prompt token, 0 = not known. Allocates; without memory it does nothing.
  void begin_load(Sequence& sequence, double token_seconds);
  // Called when the sequence ends, or need not wait any longer.
  void end_load(Sequence& sequence);
  // Publishes blocks that were loaded and lets sequences go on whose loads are done or late. Called
  // between two steps. busy: sequences run that wait meanwhile.
  void take_loaded(bool busy);

  // --- Storing
  // Gives pending blocks to the writer. Called between two steps.
  void store_pending();
  bool some_pend() const;
  // Whether the pending blocks are so many that they should be stored although a step is in flight,
  // whose end has to be awaited for it.
  bool has_many_pending() const;
  // Gives all pending blocks to the writer, as far as it takes them within some seconds. Called when
  // no step is in flight and none follows.
  void finish();

 private:
  // The watcher of one group's index.
  class Group final : public PublishedBlocks {
   public:
    Group(StoredBlocks& owner, int group, int n_blocks);
    void entered(BlockId block) override;
    void leaves(BlockId block) override;
    void cleared() override;

    std::vector<BlockId> pending;  // in the order in which they entered

   private:
    StoredBlocks& owner_;
    int group_;
    std::vector<char> is_pending_;  // [n_blocks]
    friend class StoredBlocks;
  };
  struct Load {
    Sequence* sequence;
    std::shared_ptr<BlockLoad> load;
    double patience;           // seconds
    std::vector<int> n_taken;  // [n_groups] blocks published for it
  };

  ChainQuery query_of(const Sequence& sequence, int n_found, double token_seconds) const;
  // Whether the load is over.
  bool go_on(Load& load, int64_t max_bytes);
  void publish(Load& load, LoadedBlock& block);
  // false: the writer has no room, or the block's content is not certain
  bool store(int group, BlockId block);

  KvStore& store_;
  Scheduler& scheduler_;
  StepModel& model_;
  MetricsRecorder& metrics_;
  std::vector<int> windows_;  // [n_groups]
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Load> loads_;
  std::vector<LoadedBlock> taken_;
  bool publishing_ = false;  // blocks that come from the store
};

}  // namespace penstock
