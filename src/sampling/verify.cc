#include "sampling/verify.h"

#include "base/check.h"

namespace penstock {

SampleResult verify_next(Sampler& sampler, const SampleContext& context, std::span<float> logits,
                         const DraftTree& tree, int& node, std::vector<TokenLogprob>& alternatives) {
  if (tree.drawn() && node + 1 < tree.size()) {
    const int child = node + 1;
    PENSTOCK_CHECK(tree.parents[child] == node);
    bool accepted = false;
    const SampleResult result = sampler.accept_or_resample(
        context, logits, {tree.tokens[child], tree.drawn_from[child]}, accepted, alternatives);
    node = accepted ? child : kOffDraft;
    return result;
  }
  const SampleResult result = sampler.sample(context, logits, alternatives);
  node = child_with(tree, node, result.token);
  return result;
}

int child_with(const DraftTree& tree, int node, TokenId token) {
  for (int child = node + 1; child < tree.size(); ++child) {
    if (tree.parents[child] == node && tree.tokens[child] == token) return child;
  }
  return kOffDraft;
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
