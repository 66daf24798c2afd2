#include "ops/cuda/kernels/select.h"

#include "ops/cuda/kernels/index_sight.h"

namespace penstock::cuda {
namespace {

// An unsigned number that is ordered as the scores are; 0 and -0 are equal.
PENSTOCK_DEVICE uint32_t order_of(float score) {
  const uint32_t bits = bits_of_float(score + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The candidates of a row's selection, by their scores. Their orders lie in shared memory as far as
// there is room.
template <class K>
struct Ranking {
  const K& k;
  const IndexSight& sight;
  const Candidates& all;
  const float* scores;
  uint32_t* orders;

  PENSTOCK_DEVICE float score_of(int i) const {
    if (k.block == 0) return scores[sight.place(i)];
    if (i >= all.n - k.n_local) return INFINITY;
    float most = kNothing;
    for (int j = i * k.block; j < (i + 1) * k.block && j < sight.n_visible; ++j)
      most = fmaxf(most, scores[sight.place(j)]);
    return most;
  }
  PENSTOCK_DEVICE uint32_t order(int i) const {
    return i < k.kept ? orders[i] : order_of(score_of(i));
  }
  PENSTOCK_DEVICE void keep(const Thread& t) const {
    for (int i = t.index; i < all.n && i < k.kept; i += K::kThreads)
      orders[i] = order_of(score_of(i));
  }
};

// The lowest order that is selected, and how many of that order are.
struct Edge {
  uint32_t order;
  int take;
};

// Finds the digit, from the highest down, up to which `take` of the counted are, and how many of them
// have it. scratch: [kWarps + 2].
template <class K>
PENSTOCK_DEVICE void find_digit(const Thread& t, const int* counts, int take, int* scratch,
                                int& digit, int& left) {
  constexpr int kEach = (K::kDigits + K::kThreads - 1) / K::kThreads;  // digits of a thread
  const int highest = K::kDigits - 1 - t.index * kEach;
  int own = 0;
  for (int j = 0; j < kEach && highest - j >= 0; ++j) own += counts[highest - j];
  int up_to = own;
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = t.shuffle(up_to, (t.lane() + kWarp - step) % kWarp);
    if (t.lane() >= step) up_to += other;
  }
  if (t.lane() == kWarp - 1) scratch[t.warp()] = up_to;
  t.sync();
  int before = up_to - own;
  for (int w = 0; w < t.warp(); ++w) before += scratch[w];
  if (before < take && take <= before + own) {  // one thread
    int at = highest, rest = take - before;
    while (counts[at] < rest) rest -= counts[at--];
    scratch[K::kWarps] = at, scratch[K::kWarps + 1] = rest;
  }
  t.sync();
  digit = scratch[K::kWarps], left = scratch[K::kWarps + 1];
}

template <class K>
PENSTOCK_DEVICE Edge find_edge(const Thread& t, const Ranking<K>& ranking, int* counts,
                               int* scratch) {
  constexpr int kShifts[] = {21, 10, 0};
  uint32_t found = 0, known = 0;  // digits of the edge, and the bits that they are
  int take = ranking.all.take;
#pragma unroll
  for (int pass = 0; pass < 3; ++pass) {
    const int shift = kShifts[pass];
    const uint32_t digits = pass == 2 ? (1u << 10) - 1 : K::kDigits - 1;
    for (int i = t.index; i < K::kDigits; i += K::kThreads) counts[i] = 0;
    t.sync();
    for (int i = t.index; i < ranking.all.n; i += K::kThreads) {
      const uint32_t order = ranking.order(i);
      if ((order & known) == found) atomic_add(counts + (order >> shift & digits), 1);
    }
    t.sync();
    int digit, left;
    find_digit<K>(t, counts, take, scratch, digit, left);
    found |= static_cast<uint32_t>(digit) << shift, known |= digits << shift, take = left;
  }
  return {found, take};
}

// Writes what candidate i stands for, the rank-th that is selected.
template <class K>
PENSTOCK_DEVICE void put(const K& k, const IndexSight& sight, int i, int rank, int32_t* out) {
  if (k.pool > 1 && k.entries) {
    out[rank] = i * k.pool + k.pool - 1;
  } else if (k.pool > 1) {
    for (int j = 0; j < k.pool; ++j) out[rank * k.pool + j] = i * k.pool + j;
  } else if (k.block > 0) {
    for (int j = 0; j < k.block && i * k.block + j < sight.n_visible; ++j)
      out[rank * k.block + j] = sight.place(i * k.block + j);
  } else {
    out[rank] = sight.place(i);
  }
}

// Writes all that are selected: a warp has neighbouring candidates, and counts those before it.
// higher, equal: [kWarps] candidates above and at the edge.
template <class K>
PENSTOCK_DEVICE void write_selected(const Thread& t, const K& k, const Ranking<K>& ranking,
                                    const Edge& edge, int* higher, int* equal, int32_t* out) {
  const int n = ranking.all.n, each = (n + K::kThreads - 1) / K::kThreads * kWarp;
  const int first = t.warp() * each, past = first + each < n ? first + each : n;
  int n_higher = 0, n_equal = 0;
  for (int i = first + t.lane(); i < past; i += kWarp) {
    const uint32_t order = ranking.order(i);
    n_higher += order > edge.order ? 1 : 0, n_equal += order == edge.order ? 1 : 0;
  }
  n_higher = warp_sum(t, n_higher), n_equal = warp_sum(t, n_equal);
  if (t.lane() == 0) higher[t.warp()] = n_higher, equal[t.warp()] = n_equal;
  t.sync();
  n_higher = n_equal = 0;
  for (int w = 0; w < t.warp(); ++w) n_higher += higher[w], n_equal += equal[w];
  const uint32_t before_lane = (1u << t.lane()) - 1;
  for (int from = first; from < past; from += kWarp) {
    const int i = from + t.lane();
    const uint32_t order = i < past ? ranking.order(i) : 0u;
    const bool is_higher = i < past && order > edge.order,
               is_equal = i < past && order == edge.order;
    const uint32_t highers = t.vote(is_higher), equals = t.vote(is_equal);
    const int higher_before = n_higher + count_bits(highers & before_lane),
              equal_before = n_equal + count_bits(equals & before_lane);
    if (is_higher || (is_equal && equal_before < edge.take))
      put(k, ranking.sight, i,
          higher_before + (equal_before < edge.take ? equal_before : edge.take), out);
    n_higher += count_bits(highers), n_equal += count_bits(equals);
  }
}

}  // namespace

template <int Threads>
PENSTOCK_BODY void SelectHighest<Threads>::operator()(const Thread& t) const {
  using K = SelectHighest<Threads>;
  const int row = first_row + t.x;
  if (row >= batch->n_tokens) return;
  const IndexSight sight(*batch, row);
  if (sight.n_visible <= most) return;
  int* const counts = t.shared_as<int>();
  int* const scratch = counts + kDigits;  // [2 * kWarps + 4]
  const Candidates all(*this, sight);
  const Ranking<K> ranking{*this, sight, all, scores_of(row, t.y), t.shared_as<uint32_t>(kScratch)};
  ranking.keep(t);
  t.sync();
  const Edge edge = find_edge(t, ranking, counts, scratch);
  t.sync();
  int32_t* const to = out + row * out_stride + t.y * most;
  write_selected(t, *this, ranking, edge, scratch, scratch + kWarps, to);
  if (pool == 1 || entries) return;
  for (int i = all.n * pool + t.index; i < sight.end; i += kThreads)
    to[all.take * pool + i - all.n * pool] = i;
}
PENSTOCK_KERNEL(SelectHighest<256>)
PENSTOCK_KERNEL(SelectHighest<1024>)

}  // namespace penstock::cuda
