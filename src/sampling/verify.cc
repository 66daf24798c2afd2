#include "sampling/verify.h"

#include "base/check.h"

namespace penstock {

Sampled verify_next(Sampler& sampler, SamplerState& state, const SampleInput& input, const DraftTree& tree,
                    int& node, std::vector<TokenLogprob>& alternatives) {
  if (tree.drawn() && node + 1 < tree.size()) {
    const int child = node + 1;
    PENSTOCK_CHECK(tree.parents[child] == node);
    bool accepted = false;
    const Sampled sampled = sampler.accept_or_resample(
        state, input, {tree.tokens[child], tree.drawn_from[child]}, accepted, alternatives);
    node = accepted ? child : kOffDraft;
    return sampled;
  }
  const Sampled sampled = sampler.sample(state, input, alternatives);
  const int parent = node;
  node = kOffDraft;
  for (int child = parent + 1; child < tree.size(); ++child) {
    if (tree.parents[child] != parent || tree.tokens[child] != sampled.token) continue;
    node = child;
    break;
  }
  return sampled;
}

bool may_draw_drafts(const SamplingSpec& spec) {
  return !spec.greedy() && spec.params.mirostat == 0 && !spec.params.seed.has_value();
}

void prune_to_chain(DraftTree& tree) {
  int n = 0;
  for (int node = 0, last = -1; node < tree.size(); ++node) {
    if (tree.parents[node] != last) continue;
    last = node;
    tree.tokens[n] = tree.tokens[node];
    if (tree.drawn()) std::swap(tree.drawn_from[n], tree.drawn_from[node]);
    ++n;
  }
  tree.truncate(n);
  for (int i = 0; i < n; ++i) tree.parents[i] = static_cast<int16_t>(i - 1);
}

}  // namespace penstock
