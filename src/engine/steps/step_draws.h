// The draws of a step: by the device that has computed it where it can, else on the host's threads.
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

  // Whether draws are made by the device at all: then it pays to ask for more than will be needed.
  bool on_device() const { return model_.samples(); }

  void clear() {
    n_ = 0, in_step_ = false;
    asked_.clear();  // of a step that ran out of memory
  }
  // The next token of a sequence, from an output row of the step; returns the draw's number. The context stays valid and
  // as it is until finish(). Several draws may be made from one row.
  int add(const SampleContext& context, int row);
  // The next token, drawn by the host although the device draws.
  int add_on_host(const SampleContext& context, int row);
  // One of what will be the case if `path` comes first; asked of the device at once. REQUIRES: on_device();
  // Sampler::row_says_all(). Number -1: the path cannot come.
  int add_hypothesis(const SampleContext& context, std::span<const TokenId> path, int row);
  // Before the step's submit(): what the device can draw becomes a part of the step, but for masks. Else it is done while the device
  // computes, which what takes long is worth.
  void put_into(Batch& batch);
  // After the step's submit(): asks the device for what it can draw and is not a part of the step.
  void submit();
  // Whether submit() asked the device for all of them.
  bool all_asked() const { return static_cast<size_t>(n_) == asked_.size(); }
  // Of a draw that the device was asked for: its number there.
  int number_on_device(int draw) const;
  // After the step's wait(): draws the others on the host. logits_gone: another step was submitted since; then they stay
  // undrawn.
  void finish(bool logits_gone = false);
  bool drawn(int draw) const { return draws_[draw].result.drawn || draws_[draw].failed; }

  // REQUIRES: finish(). Throws std::bad_alloc when memory ran out over this very draw.
  const SampleResult& result(int draw) const;
  std::span<const TokenLogprob> alternatives(int draw) const { return draws_[draw].top; }

  // Of all threads since the last call.
  GrammarWork take_grammar_work();
  // For what is not drawn ahead.
  Sampler& host() { return samplers_[0]; }

 private:
  struct Draw {
    SamplerState* state = nullptr;
    std::span<const TokenId> tokens;
    int n_prompt = 0;
    int row = 0;
    bool shares_row = false;  // the row has to stay as it is
    bool host_only = false;
    bool asked = false;   // of the device
    bool failed = false;  // for want of memory
    SampleRow described;
    LogitEdits edits;
    std::vector<TokenLogprob> top;
    std::span<float> logits;  // on the host
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
  std::vector<SampleRow> rows_;                 // for the device
  std::vector<SampleResult> results_;
  std::vector<int> asked_;  // draws, in the order of rows_
  bool in_step_ = false;    // they are a part of it
};

}  // namespace penstock
