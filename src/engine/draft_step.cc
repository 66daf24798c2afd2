// Speculation inside a step: who may have a draft, asking the drafter, checking what it guessed.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "sampling/verify.h"

namespace penstock {

// One token per step and room for more: the step's own token is the last one that a draft can bring.
bool EngineImpl::may_speculate(const Running& sequence) const {
  return !sequence.done && sequence.gap() == 1 && sequence.n_tokens() > sequence.n_prompt &&
         sequence.n_tokens() + 1 < sequence.max_len && !sequence.request->beams;
}

void EngineImpl::ask_for_drafts() {
  may_draft_.clear();
  n_decoding_ = 0;
  for (Sequence* sequence : scheduler_->running()) {
    sequence->n_draft = 0;
    n_decoding_ += sequence->gap() == 1;
    if (may_speculate(static_cast<Running&>(*sequence))) may_draft_.push_back(sequence->id);
  }
  speculation_->choose(may_draft_, n_decoding_, choices_);
  size_t i = 0;
  for (Sequence* sequence : scheduler_->running()) {
    Running& running = static_cast<Running&>(*sequence);
    if (i == may_draft_.size() || sequence->id != may_draft_[i]) continue;
    sequence->n_draft = std::min(choices_[i].nodes, sequence->max_len - sequence->n_tokens() - 1);
    running.draft_priced = choices_[i++].priced;
  }
}

// Fills the room that the plan has for drafts, and gives back what is not used of it.
void EngineImpl::propose_drafts() {
  draft_requests_.clear();
  draft_work_ = 0;
  tokens_gained_ = 0;
  outcomes_.clear();
  for (ScheduledItem& item : plan_.items) {
    if (item.n_draft == 0) continue;
    Running& sequence = static_cast<Running&>(*item.sequence);
    trees_[draft_requests_.size()].clear();
    draft_requests_.push_back({sequence.id, sequence.tokens, sequence.n_prompt, sequence.kv, item.n_draft,
                               sequence.draft_priced ? &speculation_->prices() : nullptr,
                               may_draw_drafts(sequence.spec()), &sequence.sampler});
    sequence.drafted = true;
  }
  if (draft_requests_.empty()) return;
  const double started = now(), work_started = work_clock_.now();
  const std::span<DraftTree> trees(trees_.data(), draft_requests_.size());
  speculation_->drafter().propose(draft_requests_, trees);
  draft_work_ = work_clock_.now() - work_started;
  metrics_.draft_seconds.add(now() - started);
  size_t i = 0;
  for (ScheduledItem& item : plan_.items) {
    if (item.n_draft == 0) continue;
    DraftTree& tree = trees[i++];
    PENSTOCK_CHECK(tree.size() <= item.n_draft && tree.parents.size() == tree.tokens.size());
    if (speculation_->chains_only()) prune_to_chain(tree);
    const int unused = item.n_draft - tree.size();
    item.n_draft -= unused, item.count -= unused, plan_.n_tokens -= unused;
    item.draft = &tree;
  }
  speculation_->note_draft(draft_work_, n_decoding_, speculation_->drafter().n_passes());
}

void EngineImpl::verify_draft(Running& sequence, size_t i, double time) {
  const DraftTree& tree = *plan_.items[i].draft;
  const Range draws = draws_of_[i];
  draft_path_.clear();
  int node = kDraftRoot, row = first_rows_[i];
  while (node != kOffDraft && !sequence.done) {
    row = first_rows_[i] + node + 1;
    if (draws.n > 0) {  // all were drawn at once
      const int draw = asked_draws_[draws.first + static_cast<size_t>(node) + 1].draw;
      node = child_with(tree, node, draws_.result(draw).token);
      if (node != kOffDraft) draft_path_.push_back(node);
      take_draw(sequence, draw, time);
      continue;
    }
    verified_.clear();
    const SampleResult result =
        verify_next(draws_.host(), {sequence.sampler, sequence.tokens, sequence.n_prompt},
                    model_->logits(row), tree, node, verified_);
    if (node != kOffDraft) draft_path_.push_back(node);
    accept(sequence, result, verified_, time);
  }
  const auto n_accepted = static_cast<int>(draft_path_.size());
  note_draft_outcome(sequence, tree.size(), n_accepted, row);
  if (sequence.done) return;
  compact_draft(sequence, n_accepted);
  scheduler_->accept_draft(sequence, n_accepted);
}

// Moves K and V of the accepted path to where the sequence's next tokens belong.
void EngineImpl::compact_draft(const Running& sequence, int n_accepted) {
  if (n_accepted == 0 || draft_path_.back() == n_accepted - 1) return;  // they lie there already
  const int block_size = scheduler_->block_size();
  for (int g = 0; g < scheduler_->n_groups(); ++g) {
    const GroupBlocks& kv = sequence.kv[g];
    const auto slot_of_node = [&](int node) { return slot_of(kv, sequence.n_computed + node, block_size); };
    move_from_.clear(), move_to_.clear();
    for (int i = 0; i < n_accepted; ++i) {
      if (draft_path_[i] == i) continue;
      move_from_.push_back(slot_of_node(draft_path_[i]));
      move_to_.push_back(slot_of_node(i));
    }
    model_->move_tokens(g, move_from_, move_to_);
  }
}

// row: of the logits that chose the sequence's last token.
void EngineImpl::note_draft_outcome(Running& sequence, int n_proposed, int n_accepted, int row) {
  tokens_gained_ += n_accepted + 1;
  if (n_proposed > 0) {
    RequestStats& stats = sequence.stats;
    ++stats.drafts;
    stats.draft_tokens += n_proposed;
    stats.accepted_tokens += n_accepted;
    metrics_.spec_decode_num_drafts.add();
    metrics_.spec_decode_num_draft_tokens.add(n_proposed);
    metrics_.spec_decode_num_accepted_tokens.add(n_accepted);
    for (int i = 0; i < n_accepted; ++i) metrics_.spec_decode_num_accepted_tokens_per_pos.add(i);
  }
  const bool drafted = std::exchange(sequence.drafted, false);
  if (sequence.done) return;
  if (drafted) speculation_->note_outcome(sequence.id, n_decoding_, n_proposed, n_accepted);
  std::span<const float> hidden;
  if (speculation_->drafter().wants_hidden()) hidden = model_->hidden(row);
  outcomes_.push_back({sequence.id, sequence.tokens, n_accepted, hidden});
}

void EngineImpl::tell_drafter() {
  // Those that have ended since are forgotten already.
  if (!outcomes_.empty()) speculation_->drafter().accepted(outcomes_);
}

void EngineImpl::learn_draft_costs() {
  for (const ScheduledItem& item : plan_.items)
    if (item.count != 1 + item.n_draft) return;
  speculation_->note_step(static_cast<int>(plan_.items.size()), plan_.n_tokens, tokens_gained_,
                          work_clock_.now() - step_work_ - draft_work_, !draft_requests_.empty());
}

}  // namespace penstock
