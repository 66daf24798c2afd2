// A pipeline: a model whose layers are divided into stages among several ranks, as the engine of
// rank 0 sees it. Rank 0 is in the last stage.
//
// Every rank carries out operations on the cache in the order of the engine's calls. The other
// ranks are sent them at once; rank 0 computes its own part of a step, and of the operations after
// it, in wait(): by then the earlier stages have computed theirs. An operation with an immediate
// result (reading a block) first carries out all operations before it; outputs of steps among them
// are kept for their wait().
#pragma once
#include <deque>
#include <memory>
#include <optional>

#include "engine/ranks/rank_messages.h"
#include "engine/ranks/shared_model.h"
#include "engine/ranks/stage_steps.h"
#include "parallel/rank_run.h"

namespace penstock {

class PipelineModel final : public StepModel {
 public:
  PipelineModel(std::unique_ptr<RankRun> ranks, const RankGrid& grid,
                std::unique_ptr<LoadedModel> own, std::vector<ShareSizes> sizes);
  ~PipelineModel() override;

  int vocab_size() const override { return own_->vocab_size(); }
  bool computes_here() const override { return own_->computes_here(); }
  int n_stages() const override { return n_stages_; }
  bool gathers_logits() const override { return gathers_logits_; }
  void submit(const Batch& batch) override;
  void wait() override;
  void catch_up() override { do_all(); }
  Status status() const override { return ranks_->communicator().status(); }
  std::vector<CommunicatorUse> communication() const override {
    return ranks_->communicator().uses();
  }
  int64_t expert_bytes_read() const override { return own_->expert_bytes_read(); }
  std::span<float> logits(int row) override;
  std::span<const float> hidden(int row) override;
  void keep_states(std::span<const int> taps) override;
  std::span<const float> state(int token) override;
  void copy_block(int group, BlockId from, BlockId to) override;
  void move_tokens(int group, std::span<const int32_t> from, std::span<const int32_t> to) override;
  Result<int64_t> check_adapter(const LoraAdapter& adapter) const override {
    return own_->check_adapter(adapter);
  }
  Status put_adapter(int slot, const LoraAdapter& adapter) override;
  void drop_adapter(int slot) override;
  int n_host_threads() const override { return own_->n_host_threads(); }
  void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) override {
    own_->for_each(n_items, fn, ctx);
  }
  // A block's content is the concatenation of all ranks' parts of it.
  int64_t block_bytes(int group) const override;
  void read_block(int group, BlockId block, std::span<std::byte> out) const override;
  void write_block(int group, BlockId block, std::span<const std::byte> bytes) override;

 private:
  // Copied output rows of a step that was computed before its wait().
  struct Kept {
    std::vector<std::vector<float>> logits, hidden, states;
  };
  // An operation that was sent to the other ranks, in the order of the engine's calls.
  struct Asked {
    std::vector<std::byte> message;  // RankCommand of a step or a move
    bool is_step = false;
    bool done = false;
    bool waited = false;
    std::optional<Kept> kept;
  };
  MessageWriter& begin(RankCommand command) const;
  void send(int rank) const;
  void send_to_all() const;
  void ask(bool is_step);
  void carry_out(Asked& asked) const;
  Kept keep(const Batch& batch) const;
  void do_all() const;
  int64_t bytes_of(int rank, int group) const {
    return sizes_[static_cast<size_t>(rank)].block_bytes[static_cast<size_t>(group)];
  }

  const std::unique_ptr<RankRun> ranks_;
  const std::unique_ptr<LoadedModel> own_;
  const std::vector<ShareSizes> sizes_;  // by rank
  const int n_stages_;
  const bool gathers_logits_;
  bool keeps_states_ = false;
  mutable StageSteps steps_;
  // operations that this rank has not done, or steps not waited for
  mutable std::deque<Asked> asked_;
  // Outputs of the step that was waited for last, when they were copied; else they are those in
  // own_.
  std::optional<Kept> current_;
  mutable MessageWriter message_;
};

}  // namespace penstock
