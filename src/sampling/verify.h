// Speculative verification: the target's logits at every node of a draft tree decide how much of it
// is accepted. Lossless: the tokens have the distribution that plain sampling would give them, with
// every sampler step.
//
// Walk down from the root. At each node the target chooses the token that follows, with the
// sequence as it then really is (penalties, grammar and the like see the tokens accepted so far):
//  - a tree that was not drawn: sample as always; if a child has that token, go on from there. With
//    the same seed the tokens are those of plain sampling.
//  - a drawn chain: keep the child's token x with probability min(1, p(x) / q(x)), where q is what
//    it was drawn from; else draw from max(0, p - q), normalized. After the last node: sample as
//    always.
#pragma once
#include "sampling/draft_tree.h"
#include "sampling/sampler.h"

namespace penstock {

inline constexpr int kDraftRoot = -1;
inline constexpr int kOffDraft = -2;

// Chooses the token after `node` (kDraftRoot: after the sequence's last token) from the logits of
// that node, with the tokens up to it in `context`. `node` becomes the child with the chosen token,
// or kOffDraft when there is none. Logits and alternatives as for Sampler::sample(). REQUIRES:
// tree.drawn() only when the state is neither greedy nor mirostat.
SampleResult verify_next(Sampler& sampler, const SampleContext& context, std::span<float> logits,
                         const DraftTree& tree, int& node, std::vector<TokenLogprob>& alternatives);

// The child of `node` that has the token, or kOffDraft.
int child_with(const DraftTree& tree, int node, TokenId token);

// Whether drafts for this sequence may be drawn at random: only when its request is neither greedy
// nor mirostat and brings no seed. With a seed the tokens must be those of plain sampling, whatever
// is drafted.
bool may_draw_drafts(const SamplingSpec& spec);

// Removes nodes that the grammar does not allow, which would never be accepted. In a drawn chain
// the first such node stays, since verification needs the distribution that it was drawn from.
void prune_forbidden(DraftTree& tree, TokenMatcher& matcher);

// Prunes a tree to the chain of first children.
void prune_to_chain(DraftTree& tree);

}  // namespace penstock
