// Tensor parallelism: a model whose layers are divided among several ranks, as the engine of rank 0
// sees it. Each call is sent to all ranks and carried out on rank 0's own share.
#pragma once
#include "engine/compute/step_model.h"
#include "engine/ranks/rank_messages.h"
#include "parallel/rank_run.h"

namespace penstock {

// Sizes of one rank's share of the model and its cache.
struct ShareSizes {
  int64_t weight_bytes = 0, active_weight_bytes = 0, active_float_weights = 0;  // as in Model
  std::vector<int64_t> block_bytes;                                             // by group
};
ShareSizes sizes_of(const Model& model, const KvCache& cache);
// Returns the sizes of all ranks' shares, by rank. All ranks call it and get the same result.
Result<std::vector<ShareSizes>> exchange_sizes(Communicator& ranks, const Model& model,
                                               const KvCache& cache);

// Waits until every rank has called it. Returns ok when all passed ok as `own`, else the error of
// the first rank that did not.
Status agree_on(Communicator& ranks, const Status& own);

class SharedModel final : public StepModel {
 public:
  SharedModel(std::unique_ptr<RankRun> ranks, std::unique_ptr<LoadedModel> own,
              std::vector<ShareSizes> sizes)
      : ranks_(std::move(ranks)), own_(std::move(own)), sizes_(std::move(sizes)) {}
  ~SharedModel() override;

  int vocab_size() const override { return own_->vocab_size(); }
  bool computes_here() const override { return own_->computes_here(); }
  bool gathers_logits() const override { return true; }
  void submit(const Batch& batch) override;
  void wait() override { own_->wait(); }
  Status status() const override { return ranks_->communicator().status(); }
  std::vector<CommunicatorUse> communication() const override {
    return ranks_->communicator().uses();
  }
  int64_t expert_bytes_read() const override { return own_->expert_bytes_read(); }
  std::span<float> logits(int row) override { return own_->logits(row); }
  std::span<const float> hidden(int row) override { return own_->hidden(row); }
  void keep_states(std::span<const int> taps) override { own_->keep_states(taps); }
  std::span<const float> state(int token) override { return own_->state(token); }
  void copy_block(int group, BlockId from, BlockId to) override;
  void move_tokens(int group, std::span<const int32_t> from, std::span<const int32_t> to) override;
  Result<int64_t> check_adapter(const LoraAdapter& adapter) const override {
    return own_->check_adapter(adapter);
  }
  // Loads the adapter on every rank; each reads its part of the adapter's files.
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
  MessageWriter& begin(RankCommand command) const;
  void send() const;

  const std::unique_ptr<RankRun> ranks_;
  const std::unique_ptr<LoadedModel> own_;
  const std::vector<ShareSizes> sizes_;  // by rank
  mutable MessageWriter message_;
};

}  // namespace penstock
