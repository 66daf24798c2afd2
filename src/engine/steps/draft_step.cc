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

DraftStep::DraftStep(Parts parts, Speculation& speculation)
    : parts_(parts), speculation_(speculation), work_clock_(parts.model.computes_here()) {}

void DraftStep::reserve(Step& step, int max_seqs) {
  step.drafts.trees.resize(static_cast<size_t>(max_seqs));
  step.drafts.forced.resize(static_cast<size_t>(max_seqs));
  for (DraftTree& tree : step.drafts.forced) {
    tree.tokens.reserve(ForcedText::kMost);
    tree.parents.reserve(ForcedText::kMost);
  }
}

// One token per step and room for more: the step's own token is the last one that a draft can
// bring.
bool DraftStep::may_speculate(const Running& sequence) {
  return !sequence.done && sequence.gap() == 1 && sequence.n_tokens() > sequence.n_prompt &&
         sequence.n_tokens() + 1 < sequence.max_len && !sequence.request->beams;
}

// Fills in the text that the sequence's grammar forces, if that is to be its draft.
bool DraftStep::draft_forced(const Step& step, Running& sequence) {
  TokenMatcher* const matcher = sequence.sampler.matcher.get();
  if (matcher == nullptr) return false;
  ForcedText& forced = sequence.forced;
  const int room = std::min(ForcedText::kMost, sequence.max_len - sequence.n_tokens() - 1);
  const auto tokens = std::span(forced.tokens)
                          .first(static_cast<size_t>(matcher->forced(
                              std::span(forced.tokens).first(static_cast<size_t>(room)))));
  const auto unknown = std::ranges::find_if(
      tokens, [&](TokenId token) { return token >= parts_.model.vocab_size(); });
  const auto n_known = static_cast<int>(unknown - tokens.begin());
  forced.n = speculation_.worth_checking(step.drafts.n_decoding, step.drafts.n_constrained, n_known,
                                         forced.right);
  if (forced.n == 0 && n_known > 0) forced.fade();
  // A drafter goes further than a single token, and obeys the grammar too.
  if (forced.n == 1 && !only_forced()) forced.n = 0;
  sequence.n_draft = forced.n;
  return forced.n > 0;
}

void DraftStep::ask(Step& step, bool step_under_way) {
  may_draft_.clear();
  outcomes_.clear();  // of a step that ran out of memory
  n_kept_ = 0;
  int& n_decoding = step.drafts.n_decoding = 0;
  int& n_constrained = step.drafts.n_constrained = 0;
  for (Sequence* sequence : parts_.scheduler.running()) {
    if (sequence->gap() == 0) continue;  // another step has it, perhaps with a draft
    sequence->n_draft = 0;
    running(*sequence).forced.n = 0;
    n_decoding += sequence->gap() == 1;
    n_constrained += sequence->gap() == 1 && running(*sequence).sampler.matcher != nullptr;
  }
  step.drafts.awaited = true;
  if (step_under_way) return;
  for (Sequence* sequence : parts_.scheduler.running()) {
    Running& one = running(*sequence);
    if (may_speculate(one) && !draft_forced(step, one)) may_draft_.push_back(sequence->id);
  }
  speculation_.choose(may_draft_, n_decoding, choices_);
  step.drafts.awaited = speculation_.awaits_drafts();
  size_t i = 0;
  for (Sequence* sequence : parts_.scheduler.running()) {
    if (i == may_draft_.size() || sequence->id != may_draft_[i]) continue;
    sequence->n_draft = std::min(choices_[i].nodes, sequence->max_len - sequence->n_tokens() - 1);
    running(*sequence).draft_priced = choices_[i++].priced;
  }
}

void DraftStep::propose(Step& step) {
  requests_.clear();
  step.drafts.work = 0;
  for (ScheduledItem& item : step.plan.items) {
    Running& sequence = running(*item.sequence);
    if (item.n_draft == 0 || sequence.forced.n > 0) continue;
    step.drafts.trees[requests_.size()].clear();
    requests_.push_back({sequence.id, sequence.tokens, sequence.n_prompt, sequence.max_len,
                         sequence.kv, item.n_draft,
                         sequence.draft_priced ? &speculation_.prices() : nullptr,
                         may_draw_drafts(sequence.spec()), &sequence.sampler});
    sequence.drafted = true;
  }
  step.drafts.n_requests = requests_.size();
  if (!requests_.empty()) ask_drafter(step);
  take_trees(step);
  if (!requests_.empty()) {
    speculation_.note_draft(
        {step.drafts.n_decoding, step.drafts.work, speculation_.drafter().n_passes(),
         std::span<const DraftTree>(step.drafts.trees.data(), requests_.size())});
  }
}

// Reading the work clock takes longer than a drafter that costs nothing.
void DraftStep::ask_drafter(Step& step) {
  Drafter& drafter = speculation_.drafter();
  if (drafter.computes_with_target()) parts_.model.catch_up();
  const double started = parts_.clock.now(),
               work_started = drafter.costs_nothing() ? 0 : work_clock_.now();
  drafter.propose(requests_, std::span(step.drafts.trees.data(), requests_.size()));
  step.drafts.work = drafter.costs_nothing() ? 0 : work_clock_.now() - work_started;
  parts_.metrics->draft_seconds.add(parts_.clock.now() - started);
}

void DraftStep::take_trees(Step& step) {
  Plan& plan = step.plan;
  size_t n_forced = 0, n_asked = 0;
  for (ScheduledItem& item : plan.items) {
    if (item.n_draft == 0) continue;
    Running& sequence = running(*item.sequence);
    if (sequence.forced.n > 0) {
      DraftTree& tree = step.drafts.forced[n_forced++];
      tree.clear();
      for (int i = 0; i < std::min(sequence.forced.n, item.n_draft); ++i)
        tree.add_next(sequence.forced.tokens[static_cast<size_t>(i)]);
      give_back_unused(item, plan, tree);
      continue;
    }
    DraftTree& tree = step.drafts.trees[n_asked++];
    PENSTOCK_CHECK(tree.size() <= item.n_draft && tree.parents.size() == tree.tokens.size());
    if (speculation_.chains_only()) prune_to_chain(tree);
    if (sequence.sampler.matcher) prune_forbidden(tree, *sequence.sampler.matcher);
    give_back_unused(item, plan, tree);
  }
}

void DraftStep::give_back_unused(ScheduledItem& item, Plan& plan, DraftTree& tree) {
  const int unused = item.n_draft - tree.size();
  item.n_draft -= unused, item.count -= unused, plan.n_tokens -= unused;
  item.draft = &tree;
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
      parts_.requests.accept(sequence, result, step.draws.alternatives(draw), time);
      continue;
    }
    top_.clear();
    const SampleResult result =
        verify_next(step.draws.host(), {sequence.sampler, sequence.tokens, sequence.n_prompt},
                    parts_.model.logits(row), tree, node, top_);
    if (node != kOffDraft) path_.push_back(node);
    parts_.requests.accept(sequence, result, top_, time);
  }
  const auto n_accepted = static_cast<int>(path_.size());
  note_outcome(step, sequence, tree.size(), n_accepted, row);
  if (sequence.done) return;
  if (sequence.state != SeqState::kRunning)
    return;  // it has lost its blocks since, and all that was computed
  if (path_.empty() || path_.back() == n_accepted - 1) note_states(step, i, 1 + n_accepted);
  compact(sequence, n_accepted);
  parts_.scheduler.accept_draft(sequence, n_accepted);
}

// Moves K and V of the accepted path to where the sequence's next tokens belong.
void DraftStep::compact(const Running& sequence, int n_accepted) {
  if (n_accepted == 0 || path_.back() == n_accepted - 1) return;  // they lie there already
  const int block_size = parts_.scheduler.block_size();
  for (int g = 0; g < parts_.scheduler.n_groups(); ++g) {
    const GroupBlocks& kv = sequence.kv[g];
    const auto slot_of_node = [&](int node) {
      return slot_of(kv, sequence.n_computed + node, block_size);
    };
    move_from_.clear(), move_to_.clear();
    for (int i = 0; i < n_accepted; ++i) {
      if (path_[i] == i) continue;
      move_from_.push_back(slot_of_node(path_[i]));
      move_to_.push_back(slot_of_node(i));
    }
    parts_.model.move_tokens(g, move_from_, move_to_);
  }
}

// row: of the logits that chose the sequence's last token.
void DraftStep::note_outcome(const Step& step, Running& sequence, int n_proposed, int n_accepted,
                             int row) {
  n_kept_ += n_accepted;
  const bool was_forced = std::exchange(sequence.forced.n, 0) > 0 && n_proposed > 0;
  if (was_forced) {
    sequence.forced.learn(n_proposed, n_accepted);
    parts_.metrics->grammar_forced_tokens.add(n_accepted);
  }
  if (n_proposed > 0) {
    RequestStats& stats = sequence.stats;
    ++stats.drafts;
    stats.draft_tokens += n_proposed;
    stats.accepted_tokens += n_accepted;
    parts_.metrics.note_draft(n_proposed, n_accepted);
  }
  const bool drafted = std::exchange(sequence.drafted, false);
  // One that has lost its blocks since was forgotten by the drafter.
  if (sequence.done || sequence.state != SeqState::kRunning) return;
  if (drafted) speculation_.note_outcome(n_proposed, n_accepted);
  if (!step.drafts.awaited) return;
  std::span<const float> hidden;
  if (speculation_.drafter().wants_hidden()) hidden = parts_.model.hidden(row);
  outcomes_.push_back({sequence.id, sequence.tokens, was_forced ? 0 : n_accepted, hidden});
}

// Rows of a tree's branch are not one after the other: who wants states guesses chains.
void DraftStep::note_states(const Step& step, size_t i, int n_kept) {
  const Running& sequence = running(*step.plan.items[i].sequence);
  Drafter& drafter = speculation_.drafter();
  if (!drafter.wants_states() || !step.drafts.awaited || sequence.request->beams) return;
  int token = 0;
  for (size_t before = 0; before < i; ++before) token += step.plan.items[before].count;
  states_.clear();
  for (int k = 0; k < n_kept; ++k) states_.push_back(parts_.model.state(token + k));
  drafter.observe(
      {sequence.id, sequence.tokens, step.plan.items[i].first, sequence.max_len, states_});
}

void DraftStep::tell_outcomes(const Step& step) {
  // Those that have ended since are forgotten already.
  if (!outcomes_.empty() || (speculation_.drafter().wants_states() && step.drafts.awaited))
    speculation_.drafter().accepted(outcomes_);
  outcomes_.clear();
}

void DraftStep::note_time(const Step& step, bool alone, double now) {
  const int n_kept = std::exchange(n_kept_, 0);
  if (!alone) return;
  const auto [n_decoding, rows] = decoding_part(step.plan);
  const double work = step.drafts.work;
  const double seconds = rows == step.plan.n_tokens ? now - step.work_started - work : -1;
  speculation_.note_step(
      {n_decoding, rows, n_decoding + n_kept, seconds, step.drafts.n_requests == 0 ? -1 : work});
}

}  // namespace penstock
