// The part of a step that speculation adds: which sequences may have a draft, asking the drafter,
// verifying drafts.
//
// Engine thread only.
#pragma once
#include <span>
#include <vector>

#include "engine/compute/engine_clock.h"
#include "engine/compute/step_model.h"
#include "engine/compute/work_clock.h"
#include "engine/requests/metrics_recorder.h"
#include "engine/requests/requests.h"
#include "engine/steps/speculation.h"
#include "engine/steps/step.h"

namespace penstock {

class DraftStep {
 public:
  // The parts of the engine that drafts use; all must outlive this.
  struct Parts {
    const EngineClock& clock;
    StepModel& model;
    Scheduler& scheduler;
    Requests& requests;
    MetricsRecorder& metrics;
  };
  DraftStep(Parts parts, Speculation& speculation);
  // Reserves memory for the drafts of a step.
  static void reserve(Step& step, int max_seqs);
  // --- In the order of a step
  // ---------------------------------------------------------------------------------- Called
  // before the plan: sets Sequence::n_draft of the running sequences. step_under_way: a step is in
  // flight, so that their last tokens are not known yet: none gets a draft.
  void ask(Step& step, bool step_under_way);
  // Has the drafter fill the room that the plan has for drafts, and releases what is not used of
  // it.
  void propose(Step& step);
  // Adds the draws for a draft, whose root has output row `row`, to the step. A device draws at all
  // nodes of a tree, since which of them are accepted is known only afterwards.
  void ask_for_draws(Running& sequence, const DraftTree& tree, int row, Step& step);
  // Verifies the draft of item i: takes its results and accepts its tokens.
  void verify(Step& step, size_t i, double time);
  // Notes that a sequence without a draft got its next token from the logits of this row.
  void note_plain(const Step& step, Running& sequence, int row) {
    note_outcome(step, sequence, 0, 0, row);
  }
  // Passes the states of the first n_kept tokens of item i, those that are accepted, to the
  // drafter. Called before the sequence may end.
  void note_states(const Step& step, size_t i, int n_kept);
  // Tells the drafter the outcomes of the step; called after its last result.
  void tell_outcomes(const Step& step);
  // Notes the step's time; called after tell_outcomes(). alone: no other step was in flight; now:
  // of the work clock.
  void note_time(const Step& step, bool alone, double now);
  // Whether only sequences with a grammar ever have drafts.
  bool only_forced() const { return speculation_.max_nodes() == 0; }

 private:
  static bool may_speculate(const Running& sequence);
  bool draft_forced(const Step& step, Running& sequence);
  void ask_drafter(Step& step);
  void take_trees(Step& step);
  void give_back_unused(ScheduledItem& item, Plan& plan, DraftTree& tree);
  void compact(const Running& sequence, int n_accepted);
  void note_outcome(const Step& step, Running& sequence, int n_proposed, int n_accepted, int row);

  const Parts parts_;
  Speculation& speculation_;
  const WorkClock work_clock_;
  std::vector<SeqId> may_draft_;
  std::vector<Speculation::Choice> choices_;
  std::vector<DraftRequest> requests_;
  std::vector<DraftOutcome> outcomes_;
  std::vector<std::span<const float>> states_;
  std::vector<int> path_;          // accepted nodes of a tree
  std::vector<TokenLogprob> top_;  // alternatives of a draft's tokens
  std::vector<int32_t> move_from_, move_to_;
  // accepted draft tokens of the step that is finishing
  int n_kept_ = 0;
};

}  // namespace penstock
