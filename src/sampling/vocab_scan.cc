#include "sampling/vocab_scan.h"

#include <algorithm>
#include <limits>

#include "kernels/kernel_table.h"

namespace penstock {
namespace {

int size_of(std::span<const float> row) { return static_cast<int>(row.size()); }

}  // namespace

const ScanKernels& scan_kernels() {
  // An unknown name is reported when the model's Ops are made.
  static const ScanKernels& kernels =
      *select_kernels().value_or(&available_kernels().front())->scans;
  return kernels;
}

float scan_block_max(std::span<const float> row, std::vector<float>& block_max) {
  block_max.resize((row.size() + kScanBlock - 1) / kScanBlock);
  return scan_kernels().block_max(row.data(), size_of(row), block_max.data());
}

TokenId scan_argmax(std::span<const float> row) {
  constexpr int kBlocks = 64, kPart = kBlocks * kScanBlock;
  const int n = size_of(row);
  float best = -std::numeric_limits<float>::infinity();
  int best_block = -1;
  for (int begin = 0; begin < n; begin += kPart) {
    float maxima[kBlocks];
    const int count = std::min(kPart, n - begin);
    if (!(scan_kernels().block_max(row.data() + begin, count, maxima) > best)) continue;
    for (int block = 0; block * kScanBlock < count; ++block) {
      if (!(maxima[block] > best)) continue;
      best = maxima[block];
      best_block = begin + block * kScanBlock;
    }
  }
  if (best_block < 0 || best == std::numeric_limits<float>::infinity()) return kNoToken;
  int i = best_block;
  while (row[i] != best) ++i;
  return i;
}

double scan_sum_exp(std::span<const float> row, float max, float inv_t,
                    std::vector<double>* piece_sums) {
  if (piece_sums != nullptr) piece_sums->resize((row.size() + kSumPiece - 1) / kSumPiece);
  return scan_kernels().sum_exp(row.data(), size_of(row), {max, inv_t},
                                piece_sums != nullptr ? piece_sums->data() : nullptr);
}

void scan_exp(std::span<const float> row, float max, float inv_t, float* out) {
  scan_kernels().exp(row.data(), size_of(row), {max, inv_t}, out);
}

int scan_count_greater(std::span<const float> row, float x) {
  return scan_kernels().count_greater(row.data(), size_of(row), x);
}

}  // namespace penstock
