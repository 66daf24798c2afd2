#include "ops/cuda/kernels/expert_stream.h"

#include "ops/cuda/kernels/activate.h"
#include "ops/cuda/kernels/weight_stream.h"

namespace penstock::cuda {
namespace {

// Iterates over the tiles of a team: those of the block's share of all groups, first the gate's and
// then the other weight's if there are two.
template <class K>
struct ExpertTile {
  const K& of;
  int team;
  int at, end;  // in the sets of all groups
  int group = 0, set = 0;
  bool second = false;
  int n_units = 0;  // 0: no weight, or no such tile
  const std::byte* data = nullptr;
  const std::byte *first_data = nullptr, *second_data = nullptr;  // the group's weights, or null
  const float *bias = nullptr, *second_bias = nullptr;

  PENSTOCK_DEVICE ExpertTile(const Thread& t, const K& k) : of(k), team(t.warp() / k.n_warps) {
    const ExpertGroups& g = of.groups;
    const int n_groups = g.n_tiles != nullptr ? *g.n_tiles * g.per_tile : g.most;
    const int64_t all = int64_t{n_groups} * of.n_sets;
    at = static_cast<int>(all * t.x / t.n_x), end = static_cast<int>(all * (t.x + 1) / t.n_x);
    if (!there()) return;
    group = at / of.n_sets, set = at % of.n_sets;
    find();
  }
  PENSTOCK_DEVICE bool there() const { return at < end; }
  PENSTOCK_DEVICE void advance() {
    second = of.ups != nullptr && !second;
    if (!second) {
      ++at, ++set;
      if (!there()) return;
      if (set == of.n_sets) {
        ++group, set = 0;
        find();
        return;
      }
    }
    place();
  }
  PENSTOCK_DEVICE bool has_weight() const { return first_data != nullptr; }
  PENSTOCK_DEVICE StreamCoding coding() const { return K::kOf; }
  PENSTOCK_DEVICE int row_bytes() const { return of.shape.n_units() * 128; }
  PENSTOCK_DEVICE int warp(const Thread& t) const { return t.warp() & (of.n_warps - 1); }
  PENSTOCK_DEVICE int n_warps() const { return of.n_warps; }

 private:
  PENSTOCK_DEVICE void find() {
    const int expert = of.groups.tile_experts[group / of.groups.per_tile];
    const bool has_rows =
        of.groups.sources == nullptr || of.groups.sources[group * K::kTokens] >= 0;
    first_data = second_data = nullptr;
    if (has_rows && expert >= 0 && expert < of.groups.n_experts) {
      first_data = of.experts[expert].weight.data, bias = of.experts[expert].bias;
      if (of.ups != nullptr)
        second_data = of.ups[expert].weight.data, second_bias = of.ups[expert].bias;
    }
    place();
  }
  PENSTOCK_DEVICE void place() {
    const int number = set * of.n_teams + team;
    n_units = has_weight() && number * 16 < of.shape.rows ? of.shape.n_units() : 0;
    if (n_units > 0) data = (second ? second_data : first_data) + number * of.shape.tile_bytes;
  }
};

// The rows of a group, as ItemInputs reads them.
template <class K>
struct GroupInputs {
  const K& of;
  Rows x;
  static constexpr bool has_norm = false;
  RowNorm norm = {};
  int group = -1, n_rows = 0;
  int same = -1;  // equal for groups of the same inputs

  PENSTOCK_DEVICE explicit GroupInputs(const K& k) : of(k), x(k.x) {}
  PENSTOCK_DEVICE void enter(int of_group) {
    group = same = of_group;
    n_rows = 0;
    for (int i = 0; i < K::kTokens; ++i) n_rows += source(i) >= 0 ? 1 : 0;
    if (K::kTokens == 1 && of.by_token && n_rows > 0) same = source(0) / of.groups.n_active;
  }
  PENSTOCK_DEVICE int rows() const { return n_rows; }
  PENSTOCK_DEVICE const float* row(int i) const {
    return x.row(of.by_token ? source(i) / of.groups.n_active : group * K::kTokens + i);
  }

 private:
  PENSTOCK_DEVICE int source(int i) const {
    const int at = group * K::kTokens + i;
    return of.groups.sources != nullptr ? of.groups.sources[at] : at;
  }
};

// Finishes the sums of the teams' tiles, a few elements by each thread.
template <class K>
struct GroupEnd {
  static constexpr int kTile = 16 * K::kTokens;  // elements
  static constexpr int kEach = (kStreamWarps * kTile + K::kThreads - 1) / K::kThreads;
  const K& of;
  float gates[kEach];  // the first weight's sums

  PENSTOCK_DEVICE explicit GroupEnd(const K& k) : of(k) {}
  PENSTOCK_DEVICE void take(const Thread& t, const ExpertTile<K>& tile, int n_rows,
                            const float* sums) {
    if (!tile.has_weight()) return;
    const float* const bias = tile.second ? tile.second_bias : tile.bias;
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const int at = t.index + each * K::kThreads, team = at / kTile, in_tile = at % kTile;
      const int row = (tile.set * of.n_teams + team) * 16 + in_tile / K::kTokens,
                token = in_tile % K::kTokens;
      if (team >= of.n_teams || row >= of.shape.rows || token >= n_rows) continue;
      const float* const own = sums + team * of.n_warps * kTile + in_tile;
      float sum = own[0];
      for (int warp = 1; warp < of.n_warps; ++warp) sum += own[warp * kTile];
      if (bias != nullptr) sum += bias[row];
      if (of.ups != nullptr && !tile.second) {
        gates[each] = sum;
        continue;
      }
      float& to = of.out.row(tile.group * K::kTokens + token)[row];
      to = tile.second ? gated(of.f, gates[each], sum) : sum;
    }
  }
};

}  // namespace

template <int Tokens, StreamCoding Of>
PENSTOCK_BODY void ExpertStream<Tokens, Of>::operator()(const Thread& t) const {
  static_assert(kThreads == kStreamWarps * kWarp);
  using C = typename CodingOf<Of>::Type;
  constexpr int kBytes = C::template kInputBytes<Tokens>;
  constexpr int kPairs = Tokens == 1 && C::kUnits > 2 ? 2 : 1;
  std::byte* const rings = t.shared_as<std::byte>(static_cast<size_t>(kRingsAt));
  std::byte* const inputs = rings + kStreamWarps * kRingBytes + t.warp() * input_bytes;
  const std::byte* const zeros = t.shared_as<std::byte>(static_cast<size_t>(kZerosAt));
  if (t.index < 4) t.shared_as<uint32_t>(static_cast<size_t>(kZerosAt))[t.index] = 0;
  ExpertTile<ExpertStream> tile(t, *this);
  ItemRing<C, ExpertTile<ExpertStream>> ring(t, tile, rings + t.warp() * kRingBytes);
  ring.fill(t, true);
  t.sync();
  GroupInputs<ExpertStream> of(*this);
  GroupEnd<ExpertStream> finish(*this);
  const int step = n_warps * C::kItemCols;
  const int at_once = input_bytes / kBytes * step;  // inputs that fit shared memory
  int kept = -1, turn = 0;                          // kept: what `inputs` has all of
#pragma unroll 1
  while (tile.there()) {
    if (of.group != tile.group) of.enter(tile.group);
    const int cols = tile.n_units * WeightOnDevice::kUnitCols;
    const bool splits = kept != of.same;
    TileSums<Tokens> total;
#pragma unroll 1
    for (int from = tile.warp(t) * C::kItemCols; from < cols; from += at_once) {
      const int to = cols < from + at_once ? cols : from + at_once;
      if (splits) {
        t.sync_warp();  // all lanes have read the earlier inputs
        std::byte* at = inputs;
#pragma unroll 1
        for (int i = from; i < to; i += step, at += kBytes)
          ItemInputs<C, Tokens>::store(t, of, of, nullptr, i, shape.first_level, at);
      }
      const std::byte* at = inputs;
#pragma unroll 1
      for (int i = from; i < to; i += step, at += kBytes) {
        const std::byte* const item = ring.take(t);  // syncs the warp: inputs are visible, too
        multiply_item<C, Tokens, kPairs>(t, item, at, shape.unit, zeros, total);
      }
    }
    if (cols > 0) kept = at_once >= cols ? of.same : -1;
    float* const sums = t.shared_as<float>(static_cast<size_t>(kSumsAt)) + turn * kSums;
    total.store(t, sums + t.warp() * 16 * Tokens);
    t.sync();  // also: all have read the sums before last, which are overwritten next
    finish.take(t, tile, of.rows(), sums);
    turn = 1 - turn;
    tile.advance();
  }
}

#define PENSTOCK_EXPERT_STREAMS(OF)                  \
  PENSTOCK_KERNEL(ExpertStream<1, StreamCoding::OF>) \
  PENSTOCK_KERNEL(ExpertStream<4, StreamCoding::OF>) \
  PENSTOCK_KERNEL(ExpertStream<8, StreamCoding::OF>)
PENSTOCK_EXPERT_STREAMS(kBF16)
PENSTOCK_EXPERT_STREAMS(kHalf8)
PENSTOCK_EXPERT_STREAMS(kHalf4)
PENSTOCK_EXPERT_STREAMS(kWide4)
PENSTOCK_EXPERT_STREAMS(kWide4Zeros)
PENSTOCK_EXPERT_STREAMS(kSuper4)
PENSTOCK_EXPERT_STREAMS(kSuper5)
PENSTOCK_EXPERT_STREAMS(kSuper6)
PENSTOCK_EXPERT_STREAMS(kE2M1)

}  // namespace penstock::cuda
