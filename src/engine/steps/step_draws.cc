#include "engine/steps/step_draws.h"

#include <algorithm>
#include <new>

namespace penstock {

StepDraws::StepDraws(StepModel& model, int vocab_size, int max_len, int max_seqs)
    : model_(model),
      draws_(max_seqs),
      samplers_(model.n_host_threads()),
      row_copies_(samplers_.size()) {
  for (Sampler& sampler : samplers_) sampler.reserve(vocab_size, max_len);
}

StepDraws::Draw& StepDraws::new_draw(const SampleContext& context, int row) {
  if (static_cast<size_t>(n_) == draws_.size()) draws_.emplace_back();
  Draw& draw = draws_[n_++];
  draw.state = &context.state;
  draw.tokens = context.tokens;
  draw.n_prompt = context.n_prompt;
  draw.row = row;
  draw.shares_row = draw.host_only = draw.asked = draw.failed = false;
  draw.top.clear();
  draw.result = {};
  return draw;
}

int StepDraws::add(const SampleContext& context, int row) {
  Draw& draw = new_draw(context, row);
  if (n_ > 1 && draws_[n_ - 2].row == row) draw.shares_row = draws_[n_ - 2].shares_row = true;
  return n_ - 1;
}

int StepDraws::add_on_host(const SampleContext& context, int row) {
  const int draw = add(context, row);
  draws_[draw].host_only = true;
  return draw;
}

int StepDraws::number_on_device(int draw) const {
  return static_cast<int>(std::ranges::lower_bound(asked_, draw) - asked_.begin());
}

int StepDraws::add_hypothesis(const SampleContext& context, std::span<const TokenId> path,
                              int row) {
  Hypothesis hypothesis(context.state);
  std::vector<TokenId> tokens(context.tokens.begin(), context.tokens.end());
  for (const TokenId token : path) {
    if (!hypothesis.append(token)) return -1;
    tokens.push_back(token);
  }
  Draw& draw = new_draw({context.state, tokens, context.n_prompt}, row);
  describe(draw, samplers_[0]);
  draw.tokens = {};
  return n_ - 1;
}

void StepDraws::describe(Draw& draw, Sampler& sampler) const {
  draw.described = sampler.describe({*draw.state, draw.tokens, draw.n_prompt}, draw.edits);
  draw.described.row = draw.row;
  draw.top.resize(static_cast<size_t>(draw.described.n_top));
  draw.described.top = draw.top.data();
  draw.asked = true;
}

void StepDraws::put_into(Batch& batch) {
  if (!on_device() || n_ == 0) return;
  describe_all();
  in_step_ = !rows_.empty() &&
             std::ranges::none_of(rows_, [](const SampleRow& row) { return row.mask != nullptr; });
  if (in_step_) batch.draws = rows_, batch.drawn = results_;
}

void StepDraws::submit() {
  if (!on_device() || n_ == 0 || in_step_) return;
  describe_all();
  if (!rows_.empty()) model_.sample(rows_, results_);
}

// Describes the draws that are not described yet.
void StepDraws::describe_all() {
  const auto describe_one = [](void* ctx, int i, int thread) {
    StepDraws& all = *static_cast<StepDraws*>(ctx);
    Draw& draw = all.draws_[i];
    if (draw.asked || draw.host_only || !Sampler::row_says_all(*draw.state->spec)) return;
    try {
      all.describe(draw, all.samplers_[thread]);
    } catch (const std::bad_alloc&) {
      draw.failed = true;
    }
  };
  model_.for_each(n_, describe_one, this);
  rows_.clear(), asked_.clear();
  for (int i = 0; i < n_; ++i) {
    if (!draws_[i].asked || draws_[i].failed) continue;
    rows_.push_back(draws_[i].described);
    asked_.push_back(i);
  }
  results_.assign(rows_.size(), {});
}

void StepDraws::finish(bool logits_gone) {
  for (size_t i = 0; i < asked_.size(); ++i) {
    Draw& draw = draws_[asked_[i]];
    draw.result = results_[i];
    if (draw.result.drawn) draw.top.resize(static_cast<size_t>(draw.result.n_top));
  }
  asked_.clear();
  if (logits_gone) return;
  bool any = false;
  for (int i = 0; i < n_; ++i) {
    Draw& draw = draws_[i];
    if (draw.result.drawn || draw.failed) continue;
    draw.logits = model_.logits(draw.row);
    any = true;
  }
  const auto draw_one = [](void* ctx, int i, int thread) {
    StepDraws& all = *static_cast<StepDraws*>(ctx);
    Draw& draw = all.draws_[i];
    if (draw.result.drawn || draw.failed) return;
    try {
      all.draw_on_host(draw, thread);
    } catch (const std::bad_alloc&) {
      draw.failed = true;
    }
  };
  if (any) model_.for_each(n_, draw_one, this);
}

void StepDraws::draw_on_host(Draw& draw, int thread) {
  std::span<float> logits = draw.logits;
  if (draw.shares_row) {
    std::vector<float>& copy = row_copies_[thread];
    copy.assign(logits.begin(), logits.end());
    logits = copy;
  }
  draw.top.clear();
  if (draw.asked) {  // includes draws that cannot be described any more
    draw.top.resize(static_cast<size_t>(draw.described.n_top));
    draw.result = samplers_[thread].draw(draw.described, logits);
  } else {
    draw.result =
        samplers_[thread].sample({*draw.state, draw.tokens, draw.n_prompt}, logits, draw.top);
  }
}

GrammarWork StepDraws::take_grammar_work() {
  GrammarWork all;
  for (Sampler& sampler : samplers_) {
    const GrammarWork work = sampler.take_grammar_work();
    all.rows += work.rows;
    all.seconds += work.seconds;
  }
  return all;
}

const SampleResult& StepDraws::result(int draw) const {
  if (draws_[draw].failed) throw std::bad_alloc();
  return draws_[draw].result;
}

}  // namespace penstock
