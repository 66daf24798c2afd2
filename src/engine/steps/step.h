// A step on its way from its plan to its results: which row and which draw belongs to what.
#pragma once
#include <vector>

#include "engine/requests/request_state.h"
#include "engine/schedule/scheduler.h"
#include "engine/steps/step_draws.h"

namespace penstock {

struct Step {
  // A draw that an item of the plan waits for: of its sequence, of another one of the request that begins with it, or of a
  // node of its draft (sequence null).
  struct AskedDraw {
    Running* sequence;
    int draw;  // -1: cannot come
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

  // What was asked of its draft: DraftStep's.
  struct Drafts {
    std::vector<DraftTree> trees;   // [requests] of the drafter
    std::vector<DraftTree> forced;  // of what grammars force
    size_t n_requests = 0;
    double work = 0;        // seconds that the drafts took
    bool awaited = true;    // as Speculation::awaits_drafts(): its states are kept
    int n_decoding = 0;     // sequences that decode
    int n_constrained = 0;  // of these, with a grammar
  };

  Plan plan;
  Drafts drafts;
  bool committed = false;           // the scheduler counts it as computed
  double started = 0, planned = 0;  // seconds of the engine's clock
  double work_started = 0;          // of the work clock
  std::vector<char> all_rows;       // [plan items] every token has an output row, not the last one only
  std::vector<int> first_rows;      // [plan items] output row of each, or -1
  std::vector<AskedDraw> asked;
  std::vector<Range> draws_of;  // [plan items] in `asked`
  StepDraws draws;
};

}  // namespace penstock
