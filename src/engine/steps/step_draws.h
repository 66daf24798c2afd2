// The draws (samples of next tokens) of a step: on the device that computes it if it can, else on
// the host's threads.
//
// Engine thread only. Keeps its memory from step to step.
#pragma once
#include <span>
#include <vector>

#include "engine/compute/step_model.h"
#include "sampling/sampler.h"

namespace penstock {

class StepDraws {
 public:
  StepDraws(StepModel& model, int vocab_size, int max_len, int max_seqs);

  // Whether the device makes draws; then it pays to ask for more draws than may be needed.
  bool on_device() const { return model_.samples(); }

  void clear() {
    n_ = 0, in_step_ = false;
    // may be left from a step that ran out of memory
    asked_.clear();
  }
  // Adds a draw of the next token of a sequence from an output row of the step; returns the draw's
  // number. The context must stay valid and unchanged until finish(). Several draws may be made
  // from one row.
  int add(const SampleContext& context, int row);
  // Adds a draw that the host makes although the device draws.
  int add_on_host(const SampleContext& context, int row);
  // Adds a draw for the case that the tokens `path` come first. Returns -1 when the path cannot
  // come. REQUIRES: on_device(); Sampler::row_says_all().
  int add_hypothesis(const SampleContext& context, std::span<const TokenId> path, int row);
  // Called before the step's submit(): makes the draws that the device can make a part of the
  // batch, unless one of them has a mask. (Masks take long to make: such draws are asked for in
  // submit(), while the device computes.)
  void put_into(Batch& batch);
  // Called after the step's submit(): asks the device for the draws that it can make and that are
  // not a part of the step.
  void submit();
  // Whether the device was asked for all draws.
  bool all_asked() const { return static_cast<size_t>(n_) == asked_.size(); }
  // Index of a draw among those that the device was asked for.
  int number_on_device(int draw) const;
  // Called after the step's wait(): makes the other draws on the host. logits_gone: another step
  // was submitted since, so that they stay undrawn.
  void finish(bool logits_gone = false);
  bool drawn(int draw) const { return draws_[draw].result.drawn || draws_[draw].failed; }

  // Returns the result of a draw. REQUIRES: finish() was called. Throws std::bad_alloc when memory
  // ran out for this draw.
  const SampleResult& result(int draw) const;
  std::span<const TokenLogprob> alternatives(int draw) const { return draws_[draw].top; }

  // Returns the grammar work of all threads since the last call.
  GrammarWork take_grammar_work();
  // Sampler for draws that are not added beforehand.
  Sampler& host() { return samplers_[0]; }

 private:
  struct Draw {
    SamplerState* state = nullptr;
    std::span<const TokenId> tokens;
    int n_prompt = 0;
    int row = 0;
    // other draws use the row, so that it must not be overwritten
    bool shares_row = false;
    bool host_only = false;
    bool asked = false;   // the device was asked for it
    bool failed = false;  // memory ran out
    SampleRow described;
    LogitEdits edits;
    std::vector<TokenLogprob> top;
    std::span<float> logits;  // the row of logits, in host memory
    SampleResult result;
  };
  Draw& new_draw(const SampleContext& context, int row);
  void describe(Draw& draw, Sampler& sampler) const;
  void describe_all();
  void draw_on_host(Draw& draw, int thread);

  StepModel& model_;
  std::vector<Draw> draws_;  // the first n_ are of this step
  int n_ = 0;
  std::vector<Sampler> samplers_;               // [host thread]
  std::vector<std::vector<float>> row_copies_;  // [host thread]
  std::vector<SampleRow> rows_;                 // the draws that the device was asked for
  std::vector<SampleResult> results_;
  // numbers of these draws, in the order of rows_
  std::vector<int> asked_;
  bool in_step_ = false;  // they are a part of the step's batch
};

}  // namespace penstock
