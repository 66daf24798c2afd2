// A step from its plan to its results: the output rows and draws of each item of the plan.
#pragma once
#include <vector>

#include "engine/requests/request_state.h"
#include "engine/schedule/scheduler.h"
#include "engine/steps/step_draws.h"

namespace penstock {

struct Step {
  // A draw for an item of the plan: for its sequence, for another sequence of the request that
  // starts from the same prompt, or for a node of its draft (sequence is null).
  struct AskedDraw {
    Running* sequence;
    int draw;  // number in `draws`; -1: it cannot come
  };
  struct Range {
    size_t first = 0, n = 0;
  };

  Step(StepModel& model, int vocab_size, int max_len, int max_seqs)
      : draws(model, vocab_size, max_len, max_seqs) {
    all_rows.reserve(max_seqs);
    first_rows.reserve(max_seqs);
    asked.reserve(max_seqs);
    draws_of.reserve(max_seqs);
  }

  // The drafts of the step; used by DraftStep.
  struct Drafts {
    std::vector<DraftTree> trees;   // [n_requests] drafts of the drafter
    std::vector<DraftTree> forced;  // drafts of tokens that grammars force
    size_t n_requests = 0;
    double work = 0;  // seconds that the drafts took
    // as Speculation::awaits_drafts(): the step's states are kept
    bool awaited = true;
    int n_decoding = 0;     // decoding sequences
    int n_constrained = 0;  // decoding sequences with a grammar
  };

  Plan plan;
  Drafts drafts;
  bool committed = false;           // Scheduler::commit() was called
  double started = 0, planned = 0;  // times of the engine's clock, seconds
  double work_started = 0;          // time of the work clock, seconds
  // [plan items] 1: every token has an output row; 0: only the last one
  std::vector<char> all_rows;
  std::vector<int> first_rows;  // [plan items] output row of each, or -1
  std::vector<AskedDraw> asked;
  std::vector<Range> draws_of;  // [plan items] the item's entries in `asked`
  StepDraws draws;
};

}  // namespace penstock
