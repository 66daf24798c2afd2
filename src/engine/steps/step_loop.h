// The loop over steps: plan, forward, draws, commit.
//
// When a device draws, the next step is planned and submitted while one runs: a stand-in token
// takes the place of the token that the device is about to draw, and the batch refers to that draw
// (ops/batch.h). This is done when the device can make all draws of the running step from what is
// known already: a step with a grammar, penalties, beams, drafts, log-probabilities of prompts or a
// sequence that ends is waited for first.
//
// With the stages of a pipeline several steps of different sequences are in flight. Each is
// committed when it is submitted, so that its sequences have no gap until their draws are made, and
// the chunks of a prompt follow one another. Every stage carries out changes of the cache in the
// order of the calls, so blocks may be given to other sequences while a step still writes to them.
//
// Engine thread only.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "engine/compute/step_model.h"
#include "engine/compute/work_clock.h"
#include "engine/schedule/prefill_pace.h"
#include "engine/steps/beam_step.h"
#include "engine/steps/draft_step.h"
#include "engine/steps/step.h"
#include "model/batch_builder.h"

namespace penstock {

class StepLoop {
 public:
  struct Limits {
    int vocab_size = 0, max_len = 0;   // max_len: maximum length of a sequence
    int max_seqs = 0, max_tokens = 0;  // maximum sequences and tokens of a step
    // maximum prompt tokens of a step with decoding sequences; 0: by PrefillPace
    int prefill_chunk = 0;
  };
  // speculation: null when there is none.
  StepLoop(const DraftStep::Parts& parts, const Limits& limits, Speculation* speculation);

  enum class Progress : uint8_t {
    kNone,       // nothing can run now
    kSubmitted,  // a step was submitted, none has finished
    kFinished,   // a step has finished
    // nothing can be computed any more unless the model recovers; StepModel::status() has the error
    kFailed,
  };
  // Plans and submits a step, finishes one, or both. Throws std::bad_alloc: then recover() must be
  // called.
  Progress run();
  // Number of steps that were submitted and whose results were not taken yet.
  int n_under_way() const { return running_ != nullptr ? 1 : static_cast<int>(in_stages_.size()); }
  // As PrefillPace::prompt_token_seconds().
  double prompt_token_seconds() const { return pace_.prompt_token_seconds(); }
  // Gives up the steps in flight.
  void drop();
  // Called when run() ran out of memory: ends all running sequences with this error, since the
  // state that the step has left them in is unknown. Waiting ones go on. Allocates nothing.
  void recover(const Error& error);

 private:
  Progress run_steps();
  Progress run_stages();
  Step& free_step();
  StepShare share_of_stage() const;
  void look_ahead(Step& step);
  void plan(Step& step);
  void submit(Step& step);
  bool may_draw_in(const Step& step) const;
  bool may_run_on(const Step& step) const;
  // Waits for the step and takes its results. False: the results are invalid and were dropped.
  bool finish(Step& step);
  void wait();
  int prefill_limit();
  bool wants_prompt_rows(const ScheduledItem& item) const;
  const Batch& build_batch(Step& step);
  int n_logits_needed(const ScheduledItem& item) const;
  void ask_for_draws(Step& step);
  void ask_for_draws_of(Step& step, size_t i);
  void take_results(Step& step, double time);
  void take_result(Step& step, size_t i, double time);
  void take_draws(Step& step, size_t i, double time);
  void draw_again(Running& sequence);
  void report_prompt_logprobs(Step& step, size_t i, int first_row);
  void learn_pace(const Step& step);

  const DraftStep::Parts parts_;
  const Limits limits_;
  BeamStep beams_;
  std::optional<DraftStep> drafts_;
  BatchBuilder builder_;
  const int n_stages_;
  std::deque<Step> steps_;
  // the step that was submitted and whose results were not taken; or null
  Step* running_ = nullptr;
  // with several stages: all such steps, oldest first
  std::deque<Step*> in_stages_;
  int n_submitted_ = 0;  // submitted steps that were not waited for
  const WorkClock work_clock_;
  // end of the last step, by the engine's clock and the work clock
  double finished_ = 0, work_finished_ = 0;
  PrefillPace pace_;
  std::vector<int> prompt_rows_;
  std::vector<TokenLogprob> prompt_logprobs_;
};

}  // namespace penstock
