// A model whose "KV cache" remembers which token and position was stored in every slot, and whose
// logits are a hash of all tokens that a query can see through its block tables. A wrong table, a
// block used twice or a lost copy changes the text. A group of states (kStateWindow) keeps one such
// hash of all tokens for each sequence, and how many they were.
//
// As the stages of a pipeline it computes several steps at once, each of them when it is submitted:
// what the cache gets is in the order in which it was asked for, as with real stages.
//
// As a device it draws tokens itself, some of them (the host has to do the others), and tells them
// when it is waited for; tokens that stand for what it drew in the step before it knows by itself.
#pragma once
#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "base/check.h"
#include "engine/compute/step_model.h"
#include "kernels/philox.h"
#include "sampling/sampler.h"

namespace penstock {

class FakeModel : public StepModel {
 public:
  static constexpr int64_t kBlockBytes = 8;  // per token of a block
  static constexpr int64_t kStateBytes = 16;
  static constexpr int kUsualRows = 512;  // of a step, for which there is memory
  FakeModel(int vocab_size, std::vector<int> n_blocks, std::vector<int> windows, int block_size)
      : vocab_size_(vocab_size), windows_(std::move(windows)), block_size_(block_size) {
    for (const int n : n_blocks) slots_.emplace_back(static_cast<size_t>(n) * block_size);
    if (windows_.back() == kStateWindow) states_.resize(static_cast<size_t>(n_blocks.back()));
    logits_.reserve(static_cast<size_t>(kUsualRows) * vocab_size);
  }

  void be_device() { device_ = true; }
  void be_pipeline(int n_stages) { n_stages_ = n_stages; }
  int n_stages() const override { return n_stages_; }
  int most_under_way() const { return most_under_way_; }
  void fail(std::string why) { failure_ = make_error(ErrorCode::kInternal, std::move(why)); }
  Status status() const override { return failure_; }

  int vocab_size() const override { return vocab_size_; }
  bool computes_here() const override { return !device_; }
  int64_t n_drawn() const { return n_drawn_; }
  int64_t n_tokens() const { return n_tokens_; }
  int64_t n_moved() const { return n_moved_; }
  int n_steps() const { return n_steps_; }
  // steps that were submitted while another one was under way
  int n_ahead() const { return n_ahead_; }
  int largest_batch() const { return largest_batch_; }

  void copy_block(int group, BlockId from, BlockId to) override {
    if (windows_[group] == kStateWindow)
      states_.at(static_cast<size_t>(to)) = states_.at(static_cast<size_t>(from));
    for (int i = 0; i < block_size_; ++i) {
      slots_[group].at(static_cast<int>(to) * block_size_ + i) =
          slots_[group].at(static_cast<int>(from) * block_size_ + i);
    }
  }

  // Three threads in name: the engine's bookkeeping per thread is exercised, the order stays fixed.
  int n_host_threads() const override { return 3; }
  void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) override {
    for (int i = 0; i < n_items; ++i) fn(ctx, i, i % 3);
  }
  int64_t block_bytes(int group) const override {
    return windows_[group] == kStateWindow ? kStateBytes
                                           : static_cast<int64_t>(block_size_ * sizeof(Slot));
  }
  void read_block(int group, BlockId block, std::span<std::byte> out) const override {
    if (windows_[group] == kStateWindow) {
      std::memcpy(out.data(), &states_.at(static_cast<size_t>(block)), kStateBytes);
      return;
    }
    std::memcpy(out.data(), &slots_[group].at(static_cast<size_t>(block) * block_size_),
                block_size_ * sizeof(Slot));
  }
  void write_block(int group, BlockId block, std::span<const std::byte> bytes) override {
    if (windows_[group] == kStateWindow) {
      std::memcpy(&states_.at(static_cast<size_t>(block)), bytes.data(), kStateBytes);
      return;
    }
    std::memcpy(&slots_[group].at(static_cast<size_t>(block) * block_size_), bytes.data(),
                block_size_ * sizeof(Slot));
  }

  void move_tokens(int group, std::span<const int32_t> from, std::span<const int32_t> to) override {
    for (size_t i = 0; i < from.size(); ++i) slots_[group].at(to[i]) = slots_[group].at(from[i]);
    n_moved_ += static_cast<int64_t>(from.size());
  }

  void submit(const Batch& batch) override {
    PENSTOCK_CHECK(n_under_way_ < n_stages_ + 1);
    n_tokens_ += batch.n_tokens();
    largest_batch_ = std::max(largest_batch_, batch.n_seqs());
    ++n_steps_;
    for (size_t g = 0; g < slots_.size(); ++g) {
      if (windows_[g] == kStateWindow) {
        step_states(batch, batch.kv[g]);
        continue;
      }
      for (int t = 0; t < batch.n_tokens(); ++t) {
        slots_[g].at(batch.kv[g].slots[t]) = {token_of(batch.tokens[t]), batch.positions[t]};
      }
    }
    logits_.assign(batch.output_rows.size() * vocab_size_, 0.0f);
    for (size_t row = 0; row < batch.output_rows.size(); ++row) {
      const int t = batch.output_rows[row];
      int s = 0;
      while (batch.seq_offsets[s + 1] <= t) ++s;
      uint64_t seed = 1;
      for (size_t g = 0; g < slots_.size(); ++g)
        seed =
            mix_seed(seed, windows_[g] == kStateWindow ? state_hashes_[t] : seen(batch, g, s, t));
      fill(logits_.data() + row * vocab_size_, seed);
    }
    drawing_.push_back({});
    try {
      if (!batch.draws.empty()) sample(batch.draws, batch.drawn);
    } catch (const std::bad_alloc&) {
      drawing_.pop_back();
      throw;
    }
    n_ahead_ += n_under_way_;
    if (n_stages_ > 1) in_stages_.push_back(logits_);
    most_under_way_ = std::max(most_under_way_, n_under_way_ + 1);
    ++n_under_way_;  // nothing is when memory ran out before
  }

  bool samples() const override { return device_; }
  void sample(std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    PENSTOCK_CHECK(device_ && rows.size() == results.size());
    Drawing& drawing = drawing_.back();
    drawing.to = results;
    for (const SampleRow& row : rows) {
      std::vector<float> logits(logits_of_row(row.row));
      drawing.results.push_back(sampler_.draw(row, logits));
      drawing.results.back().drawn = n_drawn_++ % 5 != 0;
      if (!drawing.results.back().drawn) drawing.results.back().token = 0;  // anything
    }
  }
  void wait() override {
    PENSTOCK_CHECK(n_under_way_ > 0);
    --n_under_way_;
    if (n_stages_ > 1) {
      logits_ = std::move(in_stages_.front());
      in_stages_.pop_front();
    }
    std::ranges::copy(drawing_.front().results, drawing_.front().to.begin());
    drawn_before_ = std::move(drawing_.front().results);
    drawing_.erase(drawing_.begin());
  }
  std::span<float> logits(int row) override {
    PENSTOCK_CHECK(n_under_way_ == 0 || n_stages_ > 1);
    return std::span(logits_).subspan(static_cast<size_t>(row) * vocab_size_, vocab_size_);
  }

  // The same logits without any cache: the oracle.
  std::vector<float> logits_of(std::span<const TokenId> tokens) const {
    uint64_t seed = 1;
    for (const int window : windows_) {
      const size_t first =
          window > 0 && tokens.size() > static_cast<size_t>(window) ? tokens.size() - window : 0;
      uint64_t hash = 7;
      for (size_t i = first; i < tokens.size(); ++i) hash = mix_seed(hash, tokens[i]);
      seed = mix_seed(seed, hash);
    }
    std::vector<float> row(vocab_size_);
    fill(row.data(), seed);
    return row;
  }

 private:
  Status failure_;
  // What a step drew and has not told yet.
  struct Drawing {
    std::vector<SampleResult> results;
    std::span<SampleResult> to;
  };
  std::vector<float> logits_of_row(int row) const {
    const float* first = logits_.data() + static_cast<size_t>(row) * vocab_size_;
    return {first, first + vocab_size_};
  }
  TokenId token_of(TokenId token) const {
    if (token >= 0) return token;
    const std::vector<SampleResult>& before =
        drawing_.empty() ? drawn_before_ : drawing_.back().results;
    return before.at(static_cast<size_t>(-1 - token)).token;
  }

  struct Slot {
    TokenId token = -1;
    int position = -1;
  };

  struct State {
    uint64_t hash = 7;
    int64_t n_tokens = 0;
  };
  static_assert(sizeof(State) == kStateBytes);

  // Every sequence's state goes on by its tokens; what it is after each is kept for the logits.
  void step_states(const Batch& batch, const KvView& kv) {
    PENSTOCK_CHECK(batch.tree_masks.empty() && kv.slots.empty());
    state_hashes_.clear();
    for (int s = 0; s < batch.n_seqs(); ++s) {
      const int n_new = batch.seq_offsets[s + 1] - batch.seq_offsets[s];
      const int n_states = kv.table_offsets[s + 1] - kv.table_offsets[s];
      PENSTOCK_CHECK(n_states == 1 || n_states == n_new);
      const auto state_at = [&](int i) -> State& {
        return states_.at(static_cast<size_t>(kv.block_tables[kv.table_offsets[s] + i]));
      };
      State state = batch.seq_lens[s] == n_new ? State{} : state_at(0);
      PENSTOCK_CHECK(state.n_tokens == batch.seq_lens[s] - n_new);
      for (int i = 0; i < n_new; ++i) {
        const TokenId token = token_of(batch.tokens[batch.seq_offsets[s] + i]);
        state = {mix_seed(state.hash, token), state.n_tokens + 1};
        state_at(n_states > 1 ? i : 0) = state;
        state_hashes_.push_back(state.hash);
      }
    }
  }

  // The tokens that token t of sequence s sees: all older ones, and of the new ones those that the
  // tree mask names, or all up to itself.
  uint64_t seen(const Batch& batch, size_t g, int s, int t) const {
    const KvView& kv = batch.kv[g];
    const int first_position = kv.first_positions.empty() ? 0 : kv.first_positions[s];
    const int position = batch.positions[t];
    const int first = windows_[g] > 0 ? std::max(0, position - windows_[g] + 1) : 0;
    PENSTOCK_CHECK(first_position <= first && first_position % block_size_ == 0);
    const int first_new = batch.seq_offsets[s];
    const int n_old = batch.seq_lens[s] - (batch.seq_offsets[s + 1] - first_new);
    const uint64_t mask = batch.tree_masks.empty() ? 0 : batch.tree_masks[t];
    const int end = mask != 0 ? batch.seq_lens[s] : n_old + t - first_new + 1;
    uint64_t hash = 7;
    int expected = first;
    for (int index = first; index < end; ++index) {  // of the token in the sequence's slots
      if (mask != 0 && index >= n_old && (mask >> (index - n_old) & 1) == 0) continue;
      const int entry = kv.table_offsets[s] + (index - first_position) / block_size_;
      PENSTOCK_CHECK(entry < kv.table_offsets[s + 1]);
      const int block = static_cast<int>(kv.block_tables[entry]);
      const Slot& slot =
          slots_[g].at(static_cast<size_t>(block) * block_size_ + index % block_size_);
      PENSTOCK_CHECK(slot.position == expected);
      ++expected;
      hash = mix_seed(hash, slot.token);
    }
    PENSTOCK_CHECK(expected == position + 1);
    return hash;
  }

  void fill(float* row, uint64_t seed) const {
    for (int i = 0; i < vocab_size_; ++i) {
      row[i] = static_cast<float>(uniform_draw(seed, i, 0, Draw::kToken)) * 6.0f;
    }
  }

  int vocab_size_;
  std::vector<int> windows_;
  int block_size_;
  std::vector<std::vector<Slot>> slots_;
  std::vector<State> states_;           // of blocks of the group of states
  std::vector<uint64_t> state_hashes_;  // [n_tokens] of the step
  std::vector<float> logits_;
  int64_t n_tokens_ = 0;
  int64_t n_moved_ = 0;
  int n_steps_ = 0, largest_batch_ = 0, n_under_way_ = 0, n_ahead_ = 0;
  bool device_ = false;
  int n_stages_ = 1, most_under_way_ = 0;
  // logits of the steps that were not waited for
  std::deque<std::vector<float>> in_stages_;
  Sampler sampler_;
  std::vector<Drawing> drawing_;
  std::vector<SampleResult> drawn_before_;
  int64_t n_drawn_ = 0;
};

}  // namespace penstock
