#include "ops/cuda/expert_streams.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::cuda {
namespace {

int expert_parts(int n, int of) { return (n + of - 1) / of; }

// Calls fn.operator()<Of>() with the coding as template argument. Returns its result; 0 if the coding
// has no stream.
template <class Fn>
int with_expert_coding(StreamCoding coding, Fn fn) {
  using enum StreamCoding;
  switch (coding) {
    case kBF16: return fn.template operator()<kBF16>();
    case kHalf8: return fn.template operator()<kHalf8>();
    case kHalf4: return fn.template operator()<kHalf4>();
    case kWide4: return fn.template operator()<kWide4>();
    case kWide4Zeros: return fn.template operator()<kWide4Zeros>();
    case kSuper4: return fn.template operator()<kSuper4>();
    case kSuper5: return fn.template operator()<kSuper5>();
    case kSuper6: return fn.template operator()<kSuper6>();
    case kE2M1: return fn.template operator()<kE2M1>();
    case kNone:
    case kF16: break;
  }
  return 0;
}

// Number of items of inputs that a tile has.
template <StreamCoding Of>
int expert_items(const WeightOnDevice& w) {
  return expert_parts(w.padded_cols, CodingOf<Of>::Type::kItemCols);
}

// The most warps of a team of which at least 85 % have an item in each turn. It depends on the
// weight alone, since the order of sums depends on it.
int expert_warps(int n_items) {
  int n_warps = kStreamWarps;
  while (n_warps > 1 && 100 * n_items < 85 * n_warps * expert_parts(n_items, n_warps)) n_warps /= 2;
  return n_warps;
}

// Bytes of shared memory for a warp's inputs: at most `most` of its items.
template <class K>
int expert_input_bytes(const WeightOnDevice& w, int most) {
  const int n_items = expert_items<K::kOf>(w), own = expert_parts(n_items, expert_warps(n_items));
  return std::min(own, most) * CodingOf<K::kOf>::Type::template kInputBytes<K::kTokens>;
}

template <class K>
bool expert_fits(const Device& device, const WeightOnDevice& w) {
  return K::shared_bytes(expert_input_bytes<K>(w, 1)) <= device.most_shared_bytes();
}

}  // namespace

bool ExpertStreams::alike(const WeightOnDevice& a, const WeightOnDevice& b) {
  return stream_coding(a) == stream_coding(b) && a.rows == b.rows && a.cols == b.cols &&
         a.tile_bytes == b.tile_bytes && a.unit == b.unit && a.first_level == b.first_level;
}

bool ExpertStreams::suits(std::span<const ExpertWeight> experts, const Rows& x) const {
  if (!enabled_ || experts.empty()) return false;
  const WeightOnDevice& first = experts[0].weight;
  const StreamCoding coding = stream_coding(first);
  if (coding == StreamCoding::kNone || coding == StreamCoding::kF16 || first.cols % 16 != 0)
    return false;
  // Inputs are loaded in pieces of 8 bytes.
  if (reinterpret_cast<uintptr_t>(x.data) % 8 != 0 || x.stride % 2 != 0) return false;
  return std::ranges::all_of(experts, [&](const ExpertWeight& expert) {
    return alike(expert.weight, first) && expert.weight.input_order == nullptr;
  });
}

int ExpertStreams::rows_of_group(const WeightOnDevice& w, int wanted) const {
  return with_expert_coding(stream_coding(w), [&]<StreamCoding Of>() {
    if (wanted > 4 && expert_fits<ExpertStream<8, Of>>(device_, w)) return 8;
    return wanted > 1 && expert_fits<ExpertStream<4, Of>>(device_, w) ? 4 : 1;
  });
}

template <class K>
void ExpertStreams::launch(const Work& work) {
  const WeightOnDevice& w = work.shape;
  const int n_warps = expert_warps(expert_items<K::kOf>(w)), n_teams = kStreamWarps / n_warps,
            n_sets = expert_parts(w.rows, n_teams * WeightOnDevice::kTileRows);
  const auto fits = [&](int bytes) {
    return K::shared_bytes(bytes) <= device_.most_shared_bytes();
  };
  const auto n_blocks_of = [&](int bytes) {
    return static_cast<int>(std::min(int64_t{work.groups.most} * n_sets,
                                     int64_t{device_.n_blocks_at_once(K::shared_bytes(bytes))}));
  };
  // A block that multiplies its inputs more than once keeps all of them, if they fit.
  int few = 3;
  while (few > 1 && !fits(expert_input_bytes<K>(w, few))) --few;
  int bytes = expert_input_bytes<K>(w, few);
  const int all = expert_input_bytes<K>(w, w.padded_cols);
  const int64_t n_tiles = int64_t{work.groups.most} * n_sets * (work.ups != nullptr ? 2 : 1);
  if (n_tiles > n_blocks_of(bytes) && fits(all)) bytes = all;
  const int n_blocks = n_blocks_of(bytes);
  device_.launch(K{work.experts, work.ups, w, work.groups, work.x, work.out, work.by_token, work.f,
                   n_warps, n_teams, n_sets, bytes},
                 Grid{n_blocks, 1, K::shared_bytes(bytes)});
}

void ExpertStreams::multiply(const Work& work) {
  PENSTOCK_CHECK(work.shape.cols == work.x.cols && work.shape.rows == work.out.cols);
  with_expert_coding(stream_coding(work.shape), [&]<StreamCoding Of>() {
    if (work.rows_of_group == 8) launch<ExpertStream<8, Of>>(work);
    if (work.rows_of_group == 4) launch<ExpertStream<4, Of>>(work);
    if (work.rows_of_group == 1) launch<ExpertStream<1, Of>>(work);
    return 1;
  });
}

}  // namespace penstock::cuda
