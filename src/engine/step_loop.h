// One step after the other: plan, forward, draws, commit.
//
// Engine thread only.
#pragma once
#include <optional>
#include <vector>

#include "engine/beam_step.h"
#include "engine/block_mover.h"
#include "engine/draft_step.h"
#include "engine/prefill_pace.h"
#include "engine/step.h"
#include "engine/step_model.h"
#include "engine/work_clock.h"
#include "model/batch_builder.h"

namespace penstock {

class StepLoop {
 public:
  struct Limits {
    int vocab_size = 0, max_len = 0;  // of a sequence
    int max_seqs = 0, max_tokens = 0;  // of a step
    int prefill_chunk = 0;             // most prompt tokens beside decoding; 0: by time
  };
  // speculation, swap: null if there is none.
  StepLoop(const DraftStep::Around& around, const Limits& limits, Speculation* speculation, SwapStore* swap);

  // False: nothing can run now. Throws std::bad_alloc: then recover() is due.
  bool run();
  // A step came to no end: nobody knows what it left undone, so all who ran end. What waits goes on. Allocates nothing.
  void recover();

 private:
  void plan(double started);
  void compute(double started);
  void wait();
  int prefill_limit();
  bool wants_prompt_rows(const ScheduledItem& item) const;
  const Batch& build_batch();
  void ask_for_draws();
  void ask_for_draws_of(size_t i);
  void take_results(double time);
  void take_result(size_t i, double time);
  void take_draws(size_t i, double time);
  void report_prompt_logprobs(Running& sequence, const ScheduledItem& item, int first_row);
  void learn_pace();

  const DraftStep::Around around_;
  const Limits limits_;
  BlockMover blocks_;
  BeamStep beams_;
  std::optional<DraftStep> drafts_;
  BatchBuilder builder_;
  Step step_;
  bool under_way_ = false;  // it is submitted and was not waited for
  const WorkClock work_clock_;
  double work_started_ = 0;
  PrefillPace pace_;
  std::vector<int> prompt_rows_;
  std::vector<TokenLogprob> prompt_logprobs_;
};

}  // namespace penstock
