#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

constexpr size_t kLongList = 4096;  // more candidates than this stay in the row
// Length of lists that devices make in the same order: up to it, order and sums do not depend on
// how the candidates were found.
constexpr int kShortList = 1024;
constexpr float kInf = std::numeric_limits<float>::infinity();

struct ByWeight {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.x != b.x ? a.x > b.x : a.id < b.id;
  }
};

struct ByTypicality {
  float center;  // x of a token whose surprise equals the entropy
  bool operator()(const Candidate& a, const Candidate& b) const {
    const float da = std::fabs(a.x - center), db = std::fabs(b.x - center);
    if (da != db) return da < db;
    return ByWeight{}(a, b);
  }
};

// Moves the shortest prefix (in the order of `less`) whose weights reach `mass` to the front and
// returns its length. The remaining order is unspecified. Expected linear time.
template <class Less>
size_t select_mass(std::vector<Candidate>& items, double mass, Less less) {
  size_t begin = 0, end = items.size();
  double before = 0;  // weight of [0, begin), all kept
  while (end - begin > 64) {
    const size_t mid = begin + (end - begin) / 2;
    std::nth_element(items.begin() + begin, items.begin() + mid, items.begin() + end, less);
    double left = 0;
    for (size_t i = begin; i < mid; ++i) left += items[i].w;
    if (before + left >= mass) {
      end = mid;
    } else {
      before += left;
      begin = mid;
    }
  }
  std::sort(items.begin() + begin, items.begin() + end, less);
  while (begin < end) {
    before += items[begin++].w;
    if (before >= mass) break;
  }
  return std::max<size_t>(begin, 1);
}

struct ListScratch {
  std::vector<float>& sample;
  std::vector<int>& inside;
  std::vector<double>& sums;
};

// Writes indices of at least the k most likely tokens to scratch.inside; returns their number. The
// bound is estimated from a sample, and lowered until enough values are above it.
int list_most_likely(std::span<const float> row, ScanScale scale, int k,
                     const ListScratch& scratch) {
  constexpr int kSamples = 1024;
  const int n = static_cast<int>(row.size()), stride = std::max(1, n / kSamples);
  scratch.sample.clear();
  for (int i = stride / 2; i < n; i += stride)
    if (row[i] > -kInf) scratch.sample.push_back((row[i] - scale.max) * scale.inv_t);
  std::sort(scratch.sample.begin(), scratch.sample.end(), std::greater<>());
  scratch.inside.resize(row.size());
  scratch.sums.resize(row.size() / kSumPiece + 1);
  for (size_t rank = static_cast<size_t>(k / stride + k / stride / 4 + 4);; rank *= 2) {
    const float low = rank < scratch.sample.size() ? scratch.sample[rank] : -kInf;
    ScanSplit split{low, 0.0f, scratch.inside.data(), 0, scratch.sums.data()};
    scan_kernels().split(row.data(), n, scale, split);
    if (split.n_inside >= k || low == -kInf) return split.n_inside;
  }
}

}  // namespace

bool Candidates::reset(std::span<float> row, float temperature) {
  writable_ = row;
  return start(row, temperature);
}

bool Candidates::view(std::span<const float> row, float temperature) {
  writable_ = {};
  return start(row, temperature);
}

bool Candidates::start(std::span<const float> row, float temperature) {
  row_ = row;
  inv_t_ = 1.0f / temperature;
  full_ = true;
  sorted_ = false;
  total_ = -1;
  items_.clear();
  max_ = scan_block_max(row, block_max_);
  return max_ > -kInf && max_ < kInf;
}

Candidate Candidates::at(TokenId id) const { return {id, (row_[id] - max_) * inv_t_, 0}; }

// Computes weights with the bits that a scan of the row gives.
void Candidates::fill_weights(std::vector<Candidate>& items) const {
  constexpr size_t kAtOnce = 64;
  float x[kAtOnce], w[kAtOnce];
  for (size_t begin = 0; begin < items.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, items.size() - begin);
    for (size_t i = 0; i < count; ++i) x[i] = items[begin + i].x;
    scan_exp({x, count}, 0.0f, 1.0f, w);
    for (size_t i = 0; i < count; ++i) items[begin + i].w = w[i];
  }
}

double Candidates::total() {
  if (total_ < 0) {
    if (full_) {
      total_ = scan_sum_exp(row_, max_, inv_t_, &piece_sums_);
    } else {
      total_ = 0;
      for (const Candidate& c : items_) total_ += c.w;
    }
  }
  return total_;
}

float Candidates::log_total() { return static_cast<float>(std::log(total())); }

int Candidates::size() {
  make_list();
  return static_cast<int>(items_.size());
}

double Candidates::entropy() {
  make_list();
  const double z = total(), log_z = std::log(z);
  double sum = 0;
  for (const Candidate& c : items_) sum += double{c.w} * (log_z - double{c.x});
  return sum / z;
}

void Candidates::gather(int k, std::vector<Candidate>& out) {
  out.clear();
  const bool few_blocks = k >= static_cast<int>(block_max_.size());
  if (few_blocks && (row_.size() <= kLongList || k > kShortList)) return gather_all(out);
  if (few_blocks) {
    const int n = list_most_likely(row_, {max_, inv_t_}, k, {sample_, inside_, histogram_});
    for (int i = 0; i < n; ++i)
      if (row_[inside_[i]] > -kInf) out.push_back(at(inside_[i]));
    return fill_weights(out);
  }
  // The k-th largest block maximum is at most the k-th largest value. Different values may have
  // equal x.
  block_copy_ = block_max_;
  std::nth_element(block_copy_.begin(), block_copy_.begin() + (k - 1), block_copy_.end(),
                   std::greater<>());
  const float threshold = (block_copy_[k - 1] - max_) * inv_t_;
  for (size_t block = 0; block < block_max_.size(); ++block) {
    if (!((block_max_[block] - max_) * inv_t_ >= threshold) || block_max_[block] == -kInf) continue;
    const int begin = static_cast<int>(block) * kScanBlock;
    const int end = std::min(begin + kScanBlock, static_cast<int>(row_.size()));
    for (int id = begin; id < end; ++id) {
      const Candidate c = at(id);
      if (c.x >= threshold && row_[id] > -kInf) out.push_back(c);
    }
  }
  fill_weights(out);
}

void Candidates::gather_all(std::vector<Candidate>& out) {
  out.clear();
  float weights[kSumPiece];
  const int n = static_cast<int>(row_.size());
  for (int begin = 0; begin < n; begin += kSumPiece) {
    const int count = std::min(kSumPiece, n - begin);
    scan_exp(row_.subspan(begin, count), max_, inv_t_, weights);
    for (int i = 0; i < count; ++i) {
      if (row_[begin + i] > -kInf) {
        Candidate c = at(begin + i);
        c.w = weights[i];
        out.push_back(c);
      }
    }
  }
}

void Candidates::make_list() {
  if (!full_) return;
  gather_all(items_);
  full_ = false;
  sorted_ = false;
  total_ = -1;
}

void Candidates::sort_items() {
  if (!sorted_) std::sort(items_.begin(), items_.end(), ByWeight{});
  sorted_ = true;
}

void Candidates::keep_top(int k) {
  if (full_) {
    gather(k, items_);
    full_ = false;
    sorted_ = false;
    total_ = -1;
  }
  if (static_cast<int>(items_.size()) > k) {
    if (!sorted_) std::nth_element(items_.begin(), items_.begin() + k, items_.end(), ByWeight{});
    items_.resize(k);
    total_ = -1;
  }
  if (items_.size() <= 4096) sort_items();
}

void Candidates::refresh_row() {
  max_ = scan_block_max(row_, block_max_);
  total_ = -1;
}

bool Candidates::list_above(float x) {
  items_.clear();
  // a coarse filter on logits; the exact test follows
  const float low = std::min(x / inv_t_, 0.0f) + max_;
  const float slack = (std::fabs(low) + std::fabs(max_)) * 1e-5f + 1e-5f;
  for (size_t block = 0; block < block_max_.size(); ++block) {
    if (!(block_max_[block] >= low - slack)) continue;
    const int begin = static_cast<int>(block) * kScanBlock;
    const int end = std::min(begin + kScanBlock, static_cast<int>(row_.size()));
    for (int id = begin; id < end; ++id) {
      const Candidate c = at(id);
      if ((c.x >= x || c.x == 0) && row_[id] > -kInf) items_.push_back(c);
    }
    if (items_.size() > kLongList) return false;
  }
  fill_weights(items_);
  return true;
}

void Candidates::keep_above(float x) {
  if (!full_) {
    float best = -kInf;
    for (const Candidate& c : items_) best = std::max(best, c.x);
    std::erase_if(items_, [&](const Candidate& c) { return !(c.x >= x || c.x == best); });
    total_ = -1;
    return;
  }
  if (list_above(x)) {
    full_ = false;
    sorted_ = false;
    total_ = -1;
    if (items_.size() <= kShortList) sort_items();
    return;
  }
  for (size_t id = 0; id < row_.size(); ++id) {
    const float at_id = (row_[id] - max_) * inv_t_;
    writable_[id] = at_id >= x || at_id == 0 ? row_[id] : -kInf;
  }
  refresh_row();
}

// Estimates the range of x in which the cut of the row lies, from the tail of a strided sample
// (heavy tokens are few and may be missed). rest: weight below the cut; slack: standard errors on
// either side.
Candidates::Range Candidates::guess_cut(double rest, double slack) {
  constexpr int kSamples = 4096, kBuckets = 2048;
  constexpr float kDeepest = 30;  // below this x, weights are negligible
  const int n = static_cast<int>(row_.size()), stride = std::max(1, n / kSamples);
  sample_.clear();
  for (int i = stride / 2; i < n; i += stride) sample_.push_back(row_[i]);
  sample_weights_.resize(sample_.size());
  scan_exp(sample_, max_, inv_t_, sample_weights_.data());
  float bottom = 0;
  for (float& value : sample_) {
    value = (value - max_) * inv_t_;  // x of the value
    if (value > -kDeepest) bottom = std::min(bottom, value);
  }
  if (bottom == 0) return {-kInf, 0};
  const float per_unit = kBuckets / -bottom;
  histogram_.assign(2 * (kBuckets + 1), 0.0);  // sums of weights, and of their squares
  for (size_t i = 0; i < sample_.size(); ++i) {
    if (!(sample_[i] > -kDeepest)) continue;
    const double w = sample_weights_[i];
    double* bucket =
        &histogram_[2 * static_cast<size_t>(std::min(-sample_[i] * per_unit, float{kBuckets}))];
    bucket[0] += w, bucket[1] += w * w;
  }
  double sum = 0, squares = 0;
  int deepest = -1, bucket = kBuckets;
  for (; bucket > 0; --bucket) {
    sum += histogram_[2 * bucket] * stride, squares += histogram_[2 * bucket + 1] * stride * stride;
    const double error = slack * std::sqrt(squares);
    if (deepest < 0 && sum + error >= rest) deepest = bucket;
    if (sum - error >= rest) break;
  }
  deepest = std::max(deepest, bucket);
  return {deepest == kBuckets ? -kInf : -static_cast<float>(deepest + 1) / per_unit,
          -static_cast<float>(bucket) / per_unit};
}

// Estimates the cut, sums the values above it, selects among those near it, and removes all values
// below. A wrong estimate is widened, finally to the whole row: exact and linear for any
// distribution.
void Candidates::cut_row_at_mass(double mass) {
  const ScanKernels& kernels = scan_kernels();
  const ScanScale scale{max_, inv_t_};
  const int n = static_cast<int>(row_.size());
  const double rest = total() - mass;
  inside_.resize(row_.size());
  for (double slack = 3;; slack *= 8) {
    const bool whole = slack > 200;
    const Range range = whole ? Range{-kInf, 0} : guess_cut(rest, slack);
    ScanSplit split{range.low, range.high, inside_.data(), 0, piece_sums_.data()};
    const double above = kernels.split(row_.data(), n, scale, split);
    if (above >= mass && !whole) continue;
    const double inside = weigh_inside(split.n_inside);
    if (above + inside < mass && !whole && range.low > -kInf) continue;
    cut_inside(mass - above);
    max_ = kernels.cut(writable_.data(), n, scale, range.low, block_max_.data());
    total_ = std::accumulate(piece_sums_.begin(), piece_sums_.end(), 0.0);
    return;
  }
}

// Copies the values at inside_ [n] to sample_ as x, with their weights; returns the sum of the
// weights.
double Candidates::weigh_inside(int n) {
  sample_.resize(n);
  sample_weights_.resize(n);
  for (int i = 0; i < n; ++i) sample_[i] = row_[inside_[i]];
  scan_exp(sample_, max_, inv_t_, sample_weights_.data());
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    sample_[i] = (sample_[i] - max_) * inv_t_;
    sum += sample_weights_[i];
  }
  return sum;
}

// Keeps the shortest prefix, in order, of the values inside whose weights reach `mass`: adds them
// to piece_sums_ and removes the others from the row. Uses buckets of equal width, and sorts only
// the one with the cut.
void Candidates::cut_inside(double mass) {
  constexpr int kBuckets = 2048;
  constexpr float kDeepest = 90;  // below this x, weights are 0
  float top = -kDeepest, bottom = 0;
  for (const float x : sample_) {
    top = std::max(top, x);
    bottom = x < bottom ? x : bottom;
  }
  bottom = std::max(bottom, -kDeepest);
  const float per_unit = top > bottom ? kBuckets / (top - bottom) : 0;
  const auto bucket_of = [&](float x) {  // ascending as x falls
    return static_cast<int>(std::min((top - std::max(x, -kDeepest)) * per_unit, kBuckets - 1.0f));
  };
  histogram_.assign(kBuckets, 0.0);
  for (size_t i = 0; i < sample_.size(); ++i)
    histogram_[bucket_of(sample_[i])] += sample_weights_[i];
  double before = 0;
  int cut = 0;
  while (cut < kBuckets - 1 && before + histogram_[cut] < mass) before += histogram_[cut++];
  scratch_.clear();
  for (size_t i = 0; i < sample_.size(); ++i) {
    const int bucket = bucket_of(sample_[i]);
    const TokenId id = inside_[i];
    if (bucket < cut) {
      piece_sums_[id / kSumPiece] += sample_weights_[i];
    } else if (bucket > cut) {
      writable_[id] = -kInf;
    } else {
      scratch_.push_back({id, sample_[i], sample_weights_[i]});
    }
  }
  const size_t kept = scratch_.empty() ? 0 : select_mass(scratch_, mass - before, ByWeight{});
  for (size_t i = 0; i < kept; ++i) piece_sums_[scratch_[i].id / kSumPiece] += scratch_[i].w;
  for (size_t i = kept; i < scratch_.size(); ++i) writable_[scratch_[i].id] = -kInf;
}

void Candidates::keep_mass(double p) {
  const double mass = p * total();
  if (full_) {
    // Real distributions are peaked, so that a short list suffices nearly always.
    for (const int k : {64, kShortList}) {
      if (mass > k) continue;  // weights are at most 1
      gather(k, items_);
      // Only the first k are certainly the k most likely: unlisted tokens may lie between later
      // ones.
      const auto end = items_.begin() + std::min<std::ptrdiff_t>(k, std::ssize(items_));
      if (end != items_.end()) std::nth_element(items_.begin(), end, items_.end(), ByWeight{});
      items_.erase(end, items_.end());
      std::sort(items_.begin(), items_.end(), ByWeight{});
      double sum = 0;
      size_t count = 0;
      while (count < items_.size() && sum < mass) sum += items_[count++].w;
      if (sum >= mass) {
        items_.resize(std::max<size_t>(count, 1));
        full_ = false;
        sorted_ = true;
        total_ = -1;
        return;
      }
    }
  }
  if (full_ && row_.size() > kLongList) return cut_row_at_mass(mass);
  make_list();
  if (sorted_) {
    double sum = 0;
    size_t count = 0;
    while (count < items_.size() && sum < mass) sum += items_[count++].w;
    items_.resize(std::max<size_t>(count, 1));
  } else {
    items_.resize(select_mass(items_, mass, ByWeight{}));
  }
  total_ = -1;
}

void Candidates::keep_typical(double p) {
  const double h = entropy();
  const double mass = p * total();
  const float center = static_cast<float>(std::log(total()) - h);
  items_.resize(select_mass(items_, mass, ByTypicality{center}));
  sorted_ = false;
  total_ = -1;
}

std::span<const Candidate> Candidates::above_probability(double p) {
  const double z = total();
  const int most = p > 0 ? static_cast<int>(std::min(1.0 / p + 2, 1e9)) : 1000000000;
  const std::span<const Candidate> top = peek_top(most);
  size_t count = 0;
  while (count < top.size() && double{top[count].w} >= p * z) ++count;
  return top.first(count);
}

std::span<const Candidate> Candidates::peek_top(int k) {
  if (full_) {
    gather(k, scratch_);
  } else {
    scratch_ = items_;
  }
  const size_t count = std::min<size_t>(k, scratch_.size());
  std::partial_sort(scratch_.begin(), scratch_.begin() + count, scratch_.end(), ByWeight{});
  return {scratch_.data(), count};
}

void Candidates::remove(std::span<const Candidate> tokens) {
  if (full_) {
    for (const Candidate& c : tokens) writable_[c.id] = -kInf;
    refresh_row();
    return;
  }
  std::erase_if(items_, [&](const Candidate& c) {
    return std::any_of(tokens.begin(), tokens.end(),
                       [&](const Candidate& t) { return t.id == c.id; });
  });
  total_ = -1;
}

TokenId Candidates::pick_from_row(double u) {
  double target = u * total();
  size_t piece = 0;
  while (piece + 1 < piece_sums_.size() && target >= piece_sums_[piece])
    target -= piece_sums_[piece++];
  float weights[kSumPiece];
  TokenId last = kNoToken;
  const int n = static_cast<int>(row_.size());
  // Rounding may move the target past the end of its piece: then the next piece follows.
  for (int begin = static_cast<int>(piece) * kSumPiece; begin < n; begin += kSumPiece) {
    const int count = std::min(kSumPiece, n - begin);
    scan_exp(row_.subspan(begin, count), max_, inv_t_, weights);
    for (int i = 0; i < count; ++i) {
      if (weights[i] <= 0) continue;
      last = begin + i;
      target -= weights[i];
      if (target < 0) return last;
    }
  }
  return last != kNoToken ? last : scan_argmax(row_);
}

TokenId Candidates::pick(double u) {
  if (full_) return pick_from_row(u);
  double target = u * total();
  for (const Candidate& c : items_) {
    target -= c.w;
    if (target < 0) return c.id;
  }
  return items_.back().id;
}

}  // namespace penstock
