// What speculation adds to a step: who may have a draft, asking the drafter, checking what it guessed.
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
  // What drafts touch.
  struct Around {
    const EngineClock& clock;
    StepModel& model;
    Scheduler& scheduler;
    Requests& requests;
    MetricsRecorder& metrics;
  };
  DraftStep(Around around, Speculation& speculation);
  // Memory for those of a step.
  static void reserve(Step& step, int max_seqs);
  // --- In the order of a step ----------------------------------------------------------------------------------
  // Before the plan: how much room running sequences ask for. step_under_way: none, since it is not known yet what they
  // have.
  void ask(Step& step, bool step_under_way);
  // Fills the room that the plan has for drafts, and gives back what is not used of it.
  void propose(Step& step);
  // What the step is to draw for a draft, whose root has output row `row`. On a device all nodes of a tree are drawn at
  // once: only then is it known which of them come.
  void ask_for_draws(Running& sequence, const DraftTree& tree, int row, Step& step);
  // Takes the results of item i, which has a draft.
  void verify(Step& step, size_t i, double time);
  // A sequence without a draft has got its next token, from the logits of this row.
  void note_plain(const Step& step, Running& sequence, int row) { note_outcome(step, sequence, 0, 0, row); }
  // The step has computed item i, of whose tokens the first n_kept stay; before its sequence may end.
  void note_states(const Step& step, size_t i, int n_kept);
  // After the last result of a step: the drafter hears of it.
  void tell_outcomes(const Step& step);
  // Behind that. `alone`: no other was under way; now: of the work clock.
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

  const Around around_;
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
  int n_kept_ = 0;  // guesses of the finishing step's drafts that were right
};

}  // namespace penstock
