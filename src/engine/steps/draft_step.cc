#include "engine/steps/draft_step.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sampling/verify.h"

namespace penstock {
namespace {

struct DecodingPart {
  int n_sequences = 0, rows = 0;
};

DecodingPart decoding_part(const Plan& plan) {
  DecodingPart part;
  for (const ScheduledItem& item : plan.items) {
    if (item.count != 1 + item.n_draft) continue;
    ++part.n_sequences;
    part.rows += item.count;
  }
  return part;
}

}  // namespace

// One token per step and room for more: the step's own token is the last one that a draft can bring.
bool DraftStep::may_speculate(const Running& sequence) {
  return !sequence.done && sequence.gap() == 1 && sequence.n_tokens() > sequence.n_prompt &&
         sequence.n_tokens() + 1 < sequence.max_len && !sequence.request->beams;
}

void DraftStep::ask() {
  may_draft_.clear();
  n_decoding_ = 0;
  for (Sequence* sequence : around_.scheduler.running()) {
    sequence->n_draft = 0;
    n_decoding_ += sequence->gap() == 1;
    if (may_speculate(running(*sequence))) may_draft_.push_back(sequence->id);
  }
  speculation_.choose(may_draft_, n_decoding_, choices_);
  size_t i = 0;
  for (Sequence* sequence : around_.scheduler.running()) {
    if (i == may_draft_.size() || sequence->id != may_draft_[i]) continue;
    sequence->n_draft = std::min(choices_[i].nodes, sequence->max_len - sequence->n_tokens() - 1);
    running(*sequence).draft_priced = choices_[i++].priced;
  }
}

void DraftStep::propose(Plan& plan) {
  requests_.clear();
  outcomes_.clear();
  work_ = 0;
  n_kept_ = 0;
  for (ScheduledItem& item : plan.items) {
    if (item.n_draft == 0) continue;
    Running& sequence = running(*item.sequence);
    trees_[requests_.size()].clear();
    requests_.push_back({sequence.id, sequence.tokens, sequence.n_prompt, sequence.kv, item.n_draft,
                         sequence.draft_priced ? &speculation_.prices() : nullptr,
                         may_draw_drafts(sequence.spec()), &sequence.sampler});
    sequence.drafted = true;
  }
  if (requests_.empty()) return;
  const double started = around_.clock.now(), work_started = work_clock_.now();
  const std::span<DraftTree> trees(trees_.data(), requests_.size());
  speculation_.drafter().propose(requests_, trees);
  work_ = work_clock_.now() - work_started;
  around_.metrics->draft_seconds.add(around_.clock.now() - started);
  size_t i = 0;
  for (ScheduledItem& item : plan.items) {
    if (item.n_draft == 0) continue;
    DraftTree& tree = trees[i++];
    PENSTOCK_CHECK(tree.size() <= item.n_draft && tree.parents.size() == tree.tokens.size());
    if (speculation_.chains_only()) prune_to_chain(tree);
    const int unused = item.n_draft - tree.size();
    item.n_draft -= unused, item.count -= unused, plan.n_tokens -= unused;
    item.draft = &tree;
  }
  speculation_.note_draft({n_decoding_, work_, speculation_.drafter().n_passes(), trees});
}

void DraftStep::ask_for_draws(Running& sequence, const DraftTree& tree, int row, Step& step) {
  if (!step.draws.on_device() || tree.drawn() || !Sampler::row_says_all(sequence.spec())) return;
  std::vector<TokenId> path;
  for (int node = kDraftRoot; node < tree.size(); ++node) {
    path.clear();
    for (int up = node; up >= 0; up = tree.parents[up]) path.insert(path.begin(), tree.tokens[up]);
    const SampleContext context{sequence.sampler, sequence.tokens, sequence.n_prompt};
    step.asked.push_back({nullptr, step.draws.add_hypothesis(context, path, row + node + 1)});
  }
}

void DraftStep::verify(Step& step, size_t i, double time) {
  Running& sequence = running(*step.plan.items[i].sequence);
  const DraftTree& tree = *step.plan.items[i].draft;
  const Step::Range draws = step.draws_of[i];
  path_.clear();
  int node = kDraftRoot, row = step.first_rows[i];
  while (node != kOffDraft && !sequence.done) {
    row = step.first_rows[i] + node + 1;
    if (draws.n > 0) {  // all were drawn at once
      const int draw = step.asked[draws.first + static_cast<size_t>(node) + 1].draw;
      const SampleResult& result = step.draws.result(draw);
      node = child_with(tree, node, result.token);
      if (node != kOffDraft) path_.push_back(node);
      around_.requests.accept(sequence, result, step.draws.alternatives(draw), time);
      continue;
    }
    top_.clear();
    const SampleResult result =
        verify_next(step.draws.host(), {sequence.sampler, sequence.tokens, sequence.n_prompt},
                    around_.model.logits(row), tree, node, top_);
    if (node != kOffDraft) path_.push_back(node);
    around_.requests.accept(sequence, result, top_, time);
  }
  const auto n_accepted = static_cast<int>(path_.size());
  note_outcome(sequence, tree.size(), n_accepted, row);
  if (sequence.done) return;
  compact(sequence, n_accepted);
  around_.scheduler.accept_draft(sequence, n_accepted);
}

// Moves K and V of the accepted path to where the sequence's next tokens belong.
void DraftStep::compact(const Running& sequence, int n_accepted) {
  if (n_accepted == 0 || path_.back() == n_accepted - 1) return;  // they lie there already
  const int block_size = around_.scheduler.block_size();
  for (int g = 0; g < around_.scheduler.n_groups(); ++g) {
    const GroupBlocks& kv = sequence.kv[g];
    const auto slot_of_node = [&](int node) { return slot_of(kv, sequence.n_computed + node, block_size); };
    move_from_.clear(), move_to_.clear();
    for (int i = 0; i < n_accepted; ++i) {
      if (path_[i] == i) continue;
      move_from_.push_back(slot_of_node(path_[i]));
      move_to_.push_back(slot_of_node(i));
    }
    around_.model.move_tokens(g, move_from_, move_to_);
  }
}

// row: of the logits that chose the sequence's last token.
void DraftStep::note_outcome(Running& sequence, int n_proposed, int n_accepted, int row) {
  n_kept_ += n_accepted;
  if (n_proposed > 0) {
    RequestStats& stats = sequence.stats;
    ++stats.drafts;
    stats.draft_tokens += n_proposed;
    stats.accepted_tokens += n_accepted;
    around_.metrics.note_draft(n_proposed, n_accepted);
  }
  const bool drafted = std::exchange(sequence.drafted, false);
  if (sequence.done) return;
  if (drafted) speculation_.note_outcome(sequence.id, n_decoding_, n_proposed, n_accepted);
  std::span<const float> hidden;
  if (speculation_.drafter().wants_hidden()) hidden = around_.model.hidden(row);
  outcomes_.push_back({sequence.id, sequence.tokens, n_accepted, hidden});
}

void DraftStep::finish(const Plan& plan, double work_started) {
  // Those that have ended since are forgotten already.
  if (!outcomes_.empty()) speculation_.drafter().accepted(outcomes_);
  const auto [n_decoding, rows] = decoding_part(plan);
  const double seconds = rows == plan.n_tokens ? work_clock_.now() - work_started - work_ : -1;
  speculation_.note_step({n_decoding, rows, n_decoding + n_kept_, seconds, requests_.empty() ? -1 : work_});
}

}  // namespace penstock
