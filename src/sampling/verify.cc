#include "sampling/verify.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace penstock {

SampleResult verify_next(Sampler& sampler, const SampleContext& context, std::span<float> logits,
                         const DraftTree& tree, int& node,
                         std::vector<TokenLogprob>& alternatives) {
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

namespace {

// Moves a matcher from node to node of a tree.
class TreeWalk {
 public:
  explicit TreeWalk(TokenMatcher& matcher) : matcher_(matcher) {}
  ~TreeWalk() { matcher_.rollback(depth_); }

  // Moves to `node`, if `token` may follow `parent` (a node that was entered before, or the root).
  // Returns whether it may.
  bool enter(const DraftTree& tree, int parent, int node, TokenId token) {
    leave_for(tree, parent);
    if (!matcher_.append(token)) return false;
    path_[depth_++] = node;
    return true;
  }

 private:
  // Rolls back to the deepest common ancestor. Parents come before their children, so the nodes of
  // a path were entered in ascending order.
  void leave_for(const DraftTree& tree, int parent) {
    int common = depth_;
    while (common > 0 && !has_ancestor(tree, parent, path_[common - 1])) --common;
    matcher_.rollback(depth_ - common);
    depth_ = common;
    enter_down_to(tree, parent);
  }
  static bool has_ancestor(const DraftTree& tree, int node, int ancestor) {
    while (node > ancestor) node = tree.parents[node];
    return node == ancestor;
  }
  void enter_down_to(const DraftTree& tree, int node) {
    if (node < 0 || (depth_ > 0 && path_[depth_ - 1] == node)) return;
    enter_down_to(tree, tree.parents[node]);
    matcher_.append(tree.tokens[node]);
    path_[depth_++] = node;
  }

  TokenMatcher& matcher_;
  std::array<int, kMaxDraftNodes> path_;
  int depth_ = 0;
};

void move_node(DraftTree& tree, int from, int to, int parent) {
  tree.tokens[to] = tree.tokens[from];
  tree.parents[to] = static_cast<int16_t>(parent);
  if (tree.drawn()) std::swap(tree.drawn_from[to], tree.drawn_from[from]);
}

}  // namespace

void prune_forbidden(DraftTree& tree, TokenMatcher& matcher) {
  std::array<int, kMaxDraftNodes> place;  // new index of each kept node
  int n = 0;
  TreeWalk walk(matcher);
  for (int node = 0; node < tree.size(); ++node) {
    const int parent = tree.parents[node] < 0 ? -1 : place[tree.parents[node]];
    place[node] = kOffDraft;
    if (parent == kOffDraft) continue;
    const bool allowed = walk.enter(tree, parent, n, tree.tokens[node]);
    if (!allowed && !tree.drawn()) continue;
    move_node(tree, node, n, parent);
    if (!allowed) {
      ++n;
      break;
    }
    place[node] = n++;
  }
  tree.truncate(n);
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
