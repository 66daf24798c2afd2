#include "ops/cuda/kernels/moe.h"

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {
namespace {

// An expert (-1: none) and its merit. Larger merits win, then lower indices.
struct Best {
  float merit;
  int expert;
};
PENSTOCK_DEVICE bool beats(const Best& a, const Best& b) {
  if (a.expert < 0 || b.expert < 0) return a.expert >= 0;
  return a.merit > b.merit || (a.merit == b.merit && a.expert < b.expert);
}

// Routing of a token by one warp, with scores and merits in shared memory. Experts that are left
// out have the merit kNever.
struct Router {
  static constexpr float kNever = -INFINITY;
  const Thread& t;
  const ChooseExperts& k;
  const float* logits;
  float *scores, *merits, *groups;
  int n, per_group;

  PENSTOCK_DEVICE Router(const Thread& thread, const ChooseExperts& kernel)
      : t(thread), k(kernel), logits(kernel.logits.row(thread.x)), n(kernel.logits.cols) {
    scores = t.shared_as<float>(), merits = scores + n, groups = merits + n;
    per_group = n / k.routing.n_groups;
    float most = kNever, sum = 0.0f;
    for (int e = t.index; e < n; e += kWarp) most = fmaxf(most, logits[e]);
    most = warp_max(t, most);
    for (int e = t.index; e < n; e += kWarp) sum += expf(logits[e] - most);
    sum = warp_sum(t, sum);
    for (int e = t.index; e < n; e += kWarp) {
      scores[e] = score_of(logits[e], most, sum);
      // Without bias and groups logits are compared, since distinct logits may round to equal
      // scores.
      const bool by_logit = k.selection_bias == nullptr && k.routing.n_groups == 1;
      const float merit = k.routing.by_logit ? logits[e] : scores[e];
      merits[e] =
          by_logit ? logits[e] : merit + (k.selection_bias != nullptr ? k.selection_bias[e] : 0.0f);
    }
    t.sync_warp();
    if (k.routing.n_groups > 1) leave_groups_out();
  }

  PENSTOCK_DEVICE float score_of(float logit, float most, float sum) const {
    switch (k.routing.score) {
      case Routing::Score::kSigmoid: return 1.0f / (1.0f + expf(-logit));
      case Routing::Score::kSqrtSoftplus:
        return sqrtf(fmaxf(logit, 0.0f) + log1pf(expf(-fabsf(logit))));
      default: return expf(logit - most) / sum;
    }
  }

  // Leaves out the experts of all but the best groups; a group is rated by its best scores.
  PENSTOCK_DEVICE void leave_groups_out() {
    const int n_groups = k.routing.n_groups;
    for (int g = t.index; g < n_groups; g += kWarp) {
      float best = kNever, second = kNever;
      for (int e = g * per_group; e < (g + 1) * per_group; ++e) {
        second = fmaxf(second, fminf(best, merits[e]));
        best = fmaxf(best, merits[e]);
      }
      groups[g] = best + (k.routing.group_top > 1 && per_group > 1 ? second : 0.0f);
    }
    t.sync_warp();
    for (int g = t.index; g < n_groups; g += kWarp) {
      int better = 0;
      for (int other = 0; other < n_groups; ++other)
        better += groups[other] > groups[g] || (groups[other] == groups[g] && other < g) ? 1 : 0;
      for (int e = g * per_group; e < (g + 1) * per_group && better >= k.routing.n_active_groups;
           ++e)
        merits[e] = kNever;
    }
    t.sync_warp();
  }

  // Returns the best expert that is not among the first `n_taken` choices.
  PENSTOCK_DEVICE int take(const int32_t* taken, int n_taken) const {
    Best best = {kNever, -1};
    for (int e = t.index; e < n; e += kWarp) {
      const Best candidate = {merits[e], e};
      if (!is_among(taken, n_taken, e) && beats(candidate, best)) best = candidate;
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const Best other = {t.shuffle_xor(best.merit, mask), t.shuffle_xor(best.expert, mask)};
      if (beats(other, best)) best = other;
    }
    // NaN compares differently in different lanes
    return t.shuffle(best.expert, 0);
  }
  PENSTOCK_DEVICE static bool is_among(const int32_t* taken, int n_taken, int expert) {
    bool found = false;
    for (int i = 0; i < n_taken; ++i) found = found || taken[i] == expert;
    return found;
  }
  PENSTOCK_DEVICE float share_of_near(int best, const int32_t* taken, int n_taken) const {
    float sum = 0.0f;
    for (int e = t.index; e < n; e += kWarp) {
      const float below = logits[best] - logits[e], unit = fmaxf(fabsf(logits[e]), logits[best]);
      if (!is_among(taken, n_taken, e) && !(below / unit > 2 * k.routing.jitter))
        sum += expf(-below);
    }
    return 1.0f / warp_sum(t, sum);
  }
};

}  // namespace

PENSTOCK_BODY void ChooseExperts::operator()(const Thread& t) const {
  const int n = routing.n_active;
  int32_t* const experts = choices.experts + static_cast<int64_t>(t.x) * n;
  float* const weights = choices.weights + static_cast<int64_t>(t.x) * n;
  if (batch != nullptr && t.x >= batch->n_tokens) {
    for (int i = t.index; i < n; i += kWarp) experts[i] = Choices::kNone, weights[i] = 0.0f;
    return;
  }
  const Router router(t, *this);
  const float* known = nullptr;
  if (token_experts != nullptr) {
    int token = batch != nullptr ? batch->tokens[t.x] : 0;
    if (token < 0) token = batch->drawn[-1 - token];
    known = token_experts + static_cast<int64_t>(token < n_known_tokens ? token : 0) * n;
  }
  float sum = routing.sum_eps;
  for (int i = 0; i < n; ++i) {
    const int best = known != nullptr ? static_cast<int>(known[i]) : router.take(experts, i);
    const bool mixes = routing.score == Routing::Score::kSparseMixer;
    const float weight = mixes ? router.share_of_near(best, experts, i) : router.scores[best];
    sum += weight;
    if (t.index == 0) experts[i] = best, weights[i] = weight;
    t.sync_warp();
  }
  const float factor = routing.scale / (routing.normalize ? fmaxf(sum, routing.sum_min) : 1.0f);
  for (int i = t.index; i < n; i += kWarp) {
    const float scaled = weights[i] * factor;
    weights[i] = expert_scale != nullptr ? scaled * expert_scale[experts[i]] : scaled;
    experts[i] /= routing.per_matrix;
  }
}
PENSTOCK_KERNEL(ChooseExperts)

PENSTOCK_BODY void ShareChoices::operator()(const Thread& t) const {
  const int i = t.x * kThreads + t.index;
  if (i >= n_choices) return;
  const int e = choices.experts[i];
  experts[i] = e, weights[i] = choices.weights[i];
  if (on_device != nullptr && (e < 0 || e >= n_experts || on_device[e] == 0))
    choices.experts[i] = Choices::kNone;
}
PENSTOCK_KERNEL(ShareChoices)

// Every block counts all choices and places those of its own expert: a thread's choices follow
// those of the threads before it.
PENSTOCK_BODY void SortByExpert::operator()(const Thread& t) const {
  int* const counts = t.shared_as<int>();  // [n_experts], then one per warp
  int* const of_warps = counts + n_experts;
  for (int e = t.index; e < n_experts; e += kThreads) counts[e] = 0;
  t.sync();
  const int each = (n_choices + kThreads - 1) / kThreads, first = each * t.index;
  const int end = first + each < n_choices ? first + each : n_choices;
  int mine = 0;
  for (int i = first; i < end; ++i) {
    const int e = choices.experts[i];
    if (e >= 0 && e < n_experts) atomic_add(counts + e, 1);
    mine += e == t.x ? 1 : 0;
  }
  t.sync();
  const auto rows_of = [&](int e) { return (counts[e] + align - 1) / align * align; };
  int before = 0;  // rows of experts before this one
  for (int e = t.index; e < t.x; e += kThreads) before += rows_of(e);
  before = block_sum<kThreads>(t, before, of_warps);
  int up_to = mine;  // choices of the warp's threads up to this one
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = t.shuffle(up_to, (t.lane() + kWarp - step) % kWarp);
    if (t.lane() >= step) up_to += other;
  }
  if (t.lane() == kWarp - 1) of_warps[t.warp()] = up_to;
  t.sync();
  int row = before + up_to - mine;
  for (int warp = 0; warp < t.warp(); ++warp) row += of_warps[warp];
  for (int i = first; i < end; ++i) {
    if (choices.experts[i] != t.x) continue;
    sources[row] = i;
    choices.places[i] = row++;
  }
  // Padding of the expert's last tile has no choice; tiles after the last expert have neither
  // choices nor an expert.
  const int behind = before + rows_of(t.x), last = t.x == n_experts - 1 ? n_rows : behind;
  for (int i = before + counts[t.x] + t.index; i < last; i += kThreads) sources[i] = Choices::kNone;
  for (int tile = before / tile_rows + t.index; tile < last / tile_rows; tile += kThreads)
    tile_experts[tile] = tile < behind / tile_rows ? t.x : Choices::kNone;
  if (t.x == n_experts - 1 && t.index == 0) *n_tiles = behind / tile_rows;
}
PENSTOCK_KERNEL(SortByExpert)

PENSTOCK_BODY void GatherByExpert::operator()(const Thread& t) const {
  const int i = t.y * kThreads + t.index, source = sources != nullptr ? sources[t.x] : t.x;
  if (i >= out.cols) return;
  float value = 0.0f;
  if (source >= 0) value = x.row(source / n_active)[i] * (weigh ? choices.weights[source] : 1.0f);
  out.row(t.x)[i] = value;
}
PENSTOCK_KERNEL(GatherByExpert)

PENSTOCK_BODY void CombineExperts::operator()(const Thread& t) const {
  const int i = t.y * kThreads + t.index;
  if (i >= out.cols) return;
  float sum = 0.0f;
  for (int at = t.x * n_active; at < (t.x + 1) * n_active; ++at) {
    if (choices.experts[at] < 0) continue;
    if (choices.experts[at] >= n_experts) {
      sum += choices.weights[at] * x.row(t.x)[i];
      continue;
    }
    const float value = results.row(choices.places != nullptr ? choices.places[at] : at)[i];
    sum += weigh ? choices.weights[at] * value : value;
  }
  out.row(t.x)[i] = sum;
}
PENSTOCK_KERNEL(CombineExperts)

PENSTOCK_BODY void AddOfAdapter::operator()(const Thread& t) const {
  const int i = t.y * kThreads + t.index;
  const int source = sources != nullptr ? sources[t.x] : t.x;
  if (i >= out.cols || source < 0 || source / n_active >= batch->n_tokens) return;
  if (batch->adapters[batch->sequences[source / n_active]] != slot) return;
  out.row(t.x)[i] += delta.row(t.x)[i];
}
PENSTOCK_KERNEL(AddOfAdapter)

}  // namespace penstock::cuda
