// One step after the other: plan, forward, draws, commit.
//
// Where a device draws, the next step is planned and submitted while one runs: a token ahead stands for what the device
// is about to draw, and its batch names it by reference (ops/batch.h). That is for steps all of whose draws the device
// makes from what is known already: one with a grammar, penalties, beams, drafts, log-probabilities of prompts or a
// sequence that ends is waited for first.
//
// With the stages of a pipeline several steps are under way, of different sequences: each is committed when it is submitted, so that
// its sequences have no gap until their draws are made, and the chunks of a prompt follow one another. Whatever changes the cache is
// done by every stage in the order in which it was asked for, so blocks may be given to others while a step writes to them.
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
#include "engine/steps/block_mover.h"
#include "engine/steps/draft_step.h"
#include "engine/steps/step.h"
#include "model/batch_builder.h"

namespace penstock {

class StepLoop {
 public:
  struct Limits {
    int vocab_size = 0, max_len = 0;   // of a sequence
    int max_seqs = 0, max_tokens = 0;  // of a step
    int prefill_chunk = 0;             // most prompt tokens beside decoding; 0: by time
  };
  // speculation, swap: null if there is none.
  StepLoop(const DraftStep::Around& around, const Limits& limits, Speculation* speculation, SwapStore* swap);

  enum class Progress : uint8_t {
    kNone,       // nothing can run now
    kSubmitted,  // a step is under way, none has finished
    kFinished,   // one has
    kFailed,     // StepModel::status() says why: nothing can be computed any more, unless it recovers
  };
  // Throws std::bad_alloc: then recover() is due.
  Progress run();
  // A step has been submitted whose results were not taken yet.
  int n_under_way() const { return running_ != nullptr ? 1 : static_cast<int>(in_stages_.size()); }
  // Gives up the steps that are under way.
  void drop();
  // A step came to no end for want of memory: nobody knows what it left undone, so all who ran end with this error. What waits goes
  // on. Allocates nothing.
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
  // False: its results are worth nothing, and nothing was done with them.
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

  const DraftStep::Around around_;
  const Limits limits_;
  BlockMover blocks_;
  BeamStep beams_;
  std::optional<DraftStep> drafts_;
  BatchBuilder builder_;
  const int n_stages_;
  std::deque<Step> steps_;
  Step* running_ = nullptr;      // of these: submitted, its results were not taken
  std::deque<Step*> in_stages_;  // with several stages the same, the first one first
  int n_submitted_ = 0;          // that were not waited for
  const WorkClock work_clock_;
  double finished_ = 0, work_finished_ = 0;  // the last step, by the engine's clock and the work clock
  PrefillPace pace_;
  std::vector<int> prompt_rows_;
  std::vector<TokenLogprob> prompt_logprobs_;
};

}  // namespace penstock
