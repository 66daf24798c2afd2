#include "ops/cpu/watched_attention.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "ops/cpu/host_tensor.h"
#include "penstock/attention_watch.h"

namespace penstock {
namespace {

// Keys of one head of a sequence, as units of 16 rows.
struct WatchedKeys {
  const std::byte* units = nullptr;
  int64_t stride = 0;  // from a unit to the next
  bool wide = false;   // F32, else BF16

  float at(int row, int d) const {
    const std::byte* const unit = units + row / kUnitTokens * stride;
    const int lane = row % kUnitTokens;
    if (wide) return reinterpret_cast<const float*>(unit)[d * kUnitTokens + lane];
    const int place = d / 2 * (2 * kUnitTokens) + lane * 2 + d % 2;
    return to_float(reinterpret_cast<const BFloat16*>(unit)[place]);
  }
};

// Softmax of a query's scores with all keys; the first of them are kept.
void give_weights(const float* q, const WatchedKeys& keys, const EncodedParams& params,
                  std::span<float> kept) {
  std::vector<float> scores(static_cast<size_t>(params.n_rows));
  for (int row = 0; row < params.n_rows; ++row) {
    float score = 0;
    for (int d = 0; d < params.head_dim; ++d) score += q[d] * keys.at(row, d);
    scores[static_cast<size_t>(row)] = score * params.scale;
  }
  const float most = *std::ranges::max_element(scores);
  double sum = 0;
  for (float& score : scores) {
    score = std::exp(score - most);
    sum += static_cast<double>(score);
  }
  for (size_t i = 0; i < std::min(kept.size(), scores.size()); ++i)
    kept[i] = static_cast<float>(static_cast<double>(scores[i]) / sum);
}

}  // namespace

void cpu_watch_encoded(const AttentionContext& context, Tensor q, const Batch& batch,
                       const EncodedParams& params, const CpuKvCache& cache) {
  const bool wide = cache.spec().state_dtype == StateDType::kF32;
  const KvUnitLayout layout =
      KvUnitLayout::make(wide ? KvFormat::kF32 : KvFormat::kBF16, params.head_dim);
  const KvView& view = batch.kv[static_cast<size_t>(cache.spec().state_group())];
  for (const WatchedSequence& one : batch.watched) {
    const auto seq = static_cast<size_t>(one.seq);
    const int first = batch.seq_offsets[seq], n_new = batch.seq_offsets[seq + 1] - first;
    const int n_old = batch.seq_lens[seq] - n_new;
    const BlockId block = view.block_tables[static_cast<size_t>(view.table_offsets[seq])];
    const std::byte* const units = cache.state(params.layer, block);
    for (size_t h = 0; h < one.watch->heads.size(); ++h) {
      const auto [layer, head] = one.watch->heads[h];
      if (layer != params.layer || head < 0 || head >= params.n_heads) continue;
      const WatchedKeys keys{units + head * layout.bytes, params.n_heads * layout.bytes, wide};
      context.pool.for_ranges(n_new, 1, [&](int64_t begin, int64_t end, int) {
        for (auto i = static_cast<int>(begin); i < end; ++i)
          give_weights(f32(q, first + i) + ptrdiff_t{head} * params.head_dim, keys, params,
                       one.watch->row(n_old + i, h));
      });
    }
  }
}

}  // namespace penstock
