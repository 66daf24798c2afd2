#include "ops/cpu/linear.h"

#include "base/check.h"
#include "ops/cpu/weight.h"

namespace penstock {
namespace {

float dot(const float* a, const float* b, int n) {
  float sums[16] = {};
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 16; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  float sum = 0;
  for (float s : sums) sum += s;
  return sum;
}

}  // namespace

void cpu_linear(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets) {
  float* scratch = context.arena.allocate_array<float>(static_cast<size_t>(x.cols) * context.pool.size());
  for (const LinearTarget& target : targets) {
    const auto& weight = static_cast<const CpuWeight&>(*target.weight);
    PENSTOCK_CHECK(weight.cols() == x.cols && weight.rows() == target.out.cols && target.out.rows == x.rows);
    context.pool.for_ranges(weight.rows(), 16, [&](int64_t begin, int64_t end, int worker) {
      float* row = scratch + static_cast<size_t>(x.cols) * worker;
      for (int64_t r = begin; r < end; ++r) {
        weight.decode_row(static_cast<int>(r), row);
        const float bias = target.bias != nullptr ? target.bias[r] : 0.0f;
        for (int m = 0; m < x.rows; ++m) target.out.f32(m)[r] = dot(row, x.f32(m), x.cols) + bias;
      }
    });
  }
}

void cpu_embed(const LinearContext& context, const Weight& table, std::span<const int32_t> ids, float scale,
               Tensor out, bool add) {
  const auto& weight = static_cast<const CpuWeight&>(table);
  PENSTOCK_CHECK(weight.cols() == out.cols);
  float* scratch = context.arena.allocate_array<float>(static_cast<size_t>(out.cols) * context.pool.size());
  context.pool.for_ranges(static_cast<int64_t>(ids.size()), 4, [&](int64_t begin, int64_t end, int worker) {
    float* row = scratch + static_cast<size_t>(out.cols) * worker;
    for (int64_t t = begin; t < end; ++t) {
      weight.decode_row(ids[t], row);
      float* to = out.f32(static_cast<int>(t));
      for (int i = 0; i < out.cols; ++i) to[i] = (add ? to[i] : 0.0f) + row[i] * scale;
    }
  });
}

}  // namespace penstock
