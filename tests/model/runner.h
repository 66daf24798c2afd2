// Runs batches of a model without an engine: sequences with block tables of their own, every
// token's logits kept.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "model/batch_builder.h"
#include "model/model.h"

namespace penstock::testing {

using Rows = std::vector<std::vector<float>>;  // one row of logits for each token

class Runner {
 public:
  Runner(const Model& model, Ops& ops, int n_blocks = 64, int block_size = 16,
         CacheTypes types = KvDType::kF32, int reach = 1 << 30)
      : model_(model), ops_(ops), block_size_(block_size), reach_(reach) {
    const CacheSpec spec = model.cache_spec(types, block_size);
    const std::vector<int> blocks(static_cast<size_t>(spec.n_groups()), n_blocks);
    cache_ = ops.make_cache(spec, blocks).value();
    // n_blocks is a power of two: every block once, in a scattered order, so that a mistake in
    // slots shows.
    for (int i = 0; i < n_blocks; ++i)
      free_.push_back(static_cast<BlockId>((i * 37 + 11) % n_blocks));
  }

  struct Part {
    int seq;
    std::vector<int> tokens;  // the next ones of this sequence
    int adapter = -1;         // slot
  };

  // Most tokens that a sequence may come to, before its first step; by default the constructor's.
  void set_reach(int seq, int n_tokens) { sequences_[seq].reach = n_tokens; }

  // Rows of an encoder that the sequence attends to, before its first step.
  void set_encoded(int seq, std::vector<float> rows) { sequences_[seq].encoded = std::move(rows); }

  // One step; returns the logits of every token, part after part.
  Rows step(const std::vector<Part>& parts, const ForwardOptions& options = {}) {
    BatchBuilder builder(cache_->spec());
    for (const Part& part : parts) {
      Sequence& seq = sequences_[part.seq];
      const int first =
          std::exchange(seq.length, seq.length + static_cast<int>(part.tokens.size()));
      while (static_cast<int>(seq.kv.blocks.size()) * block_size_ < seq.length) {
        seq.kv.blocks.push_back(free_.back());
        free_.pop_back();
      }
      builder.add({.tokens = part.tokens,
                   .first = first,
                   .kv = {&seq.kv, 1},
                   .rows = BatchPart::Rows::kAll,
                   .encoded = seq.encoded,
                   .adapter = part.adapter,
                   .long_rope = model_.takes_long_rope(seq.reach > 0 ? seq.reach : reach_)});
    }
    const Batch& batch = builder.build();
    const StepOutputs result = model_.forward(batch, *cache_, ops_, options);
    hidden_ = rows_of(ops_, result.hidden, builder.n_rows());
    stream_ = result.stream.cols > 0 ? rows_of(ops_, result.stream, builder.n_rows()) : Rows();
    if (result.logits.cols == 0) return {};
    return rows_of(ops_, result.logits, builder.n_rows());
  }

  // Of the last step: every token's state after the final norm.
  const Rows& hidden() const { return hidden_; }

  // Of a stage of a pipeline, what the next one reads.
  const Rows& stream() const { return stream_; }

  // The first n rows; all by default.
  static Rows rows_of(Ops& ops, const Tensor& tensor, int n = -1) {
    if (n < 0) n = tensor.rows;
    Rows rows;
    for (int i = 0; i < n; ++i)
      ops.read_rows(tensor.row_range(i, 1), rows.emplace_back(static_cast<size_t>(tensor.cols)));
    return rows;
  }

  Rows run(int seq, std::span<const int> tokens) {
    return step({{seq, {tokens.begin(), tokens.end()}}});
  }

  // The most likely tokens after `prompt`, one at a time.
  std::vector<int> greedy(int seq, std::span<const int> prompt, int n_tokens) {
    std::vector<int> result;
    std::vector<float> last = run(seq, prompt).back();
    while (static_cast<int>(result.size()) < n_tokens) {
      result.push_back(static_cast<int>(std::ranges::max_element(last) - last.begin()));
      last = run(seq, std::span<const int>(&result.back(), 1)).back();
    }
    return result;
  }

 private:
  struct Sequence {
    int length = 0, reach = 0;
    GroupBlocks kv;
    std::vector<float> encoded;
  };
  const Model& model_;
  Ops& ops_;
  int block_size_, reach_;
  std::unique_ptr<KvCache> cache_;
  std::vector<BlockId> free_;
  std::map<int, Sequence> sequences_;
  Rows hidden_, stream_;
};

inline float max_difference(const Rows& a, const Rows& b) {
  float worst = a.size() == b.size() ? 0.0f : 1e30f;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      const float difference = std::abs(a[i][j] - b[i][j]);
      worst = difference <= worst ? worst : difference;  // a NaN is kept
    }
  }
  return worst;
}

// How far from the golden logits, which are centred first.
inline double relative_error(const Rows& got, const Rows& golden) {
  double error = 0, size = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double mean = std::accumulate(golden[i].begin(), golden[i].end(), 0.0) /
                        static_cast<double>(golden[i].size());
    for (size_t j = 0; j < golden[i].size(); ++j) {
      error += std::pow(got[i][j] - golden[i][j], 2);
      size += std::pow(golden[i][j] - mean, 2);
    }
  }
  return std::sqrt(error / size);
}

// What the model of `source` says to a short prompt and to one token more: a row for each of them.
inline Rows logits_of_prompt(const WeightSource& source, Ops& ops) {
  const auto model = Model::load(source, ops);
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return {};
  Runner runner(**model, ops);
  const int prompt[] = {3, 1, 41, 5, 9}, next = 26;
  Rows rows = runner.run(0, prompt);
  rows.push_back(runner.run(0, {&next, 1}).back());
  return rows;
}

}  // namespace penstock::testing
