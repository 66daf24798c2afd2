#include "engine/steps/calibration.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/compute/work_clock.h"
#include "model/batch_builder.h"
#include "ops/ops.h"
#include "sampling/sampler_state.h"

namespace penstock {
namespace {

// In the order in which they tell most: a large model has no time for all of them.
constexpr int kSizes[] = {1, 4, 8, 2, 3, 5, 6, 7, 9, 16, 12, 17, 24, 32};
constexpr int kRounds = 5;

// Has the drafter guess until what is only slow once is done: the first draft of a sequence would
// pay for it, and be the last one for long. First for several sequences of n_tokens, since it has
// many rows to compute then; then for a short one, whose shortest pass counts.
void rehearse(StepModel& model, int n_tokens, Speculation& speculation) {
  constexpr size_t kSeveral = 4;
  Drafter& drafter = speculation.drafter();
  if (drafter.max_nodes() == 0 || drafter.costs_nothing() || drafter.computes_with_target()) return;
  const auto copy = [](bool wanted, std::span<const float> row) {
    return wanted ? std::vector<float>(row.begin(), row.end()) : std::vector<float>();
  };
  const std::vector<float> hidden = copy(drafter.wants_hidden(), model.hidden(0));
  const std::vector<float> state = copy(drafter.wants_states(), model.state(0));
  const std::vector<TokenId> text(static_cast<size_t>(std::max(2, n_tokens)), 0);
  const std::vector<std::span<const float>> states(text.size() - 1, state);
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplerState sampler(SamplingSpec::make(greedy, {}, 1, model.vocab_size()), 0,
                       std::span(text).first(1), static_cast<int>(text.size()));
  const int n_nodes = drafter.one_pass() ? drafter.max_nodes() : 1;  // a single pass makes all
  const WorkClock clock(model.computes_here());
  std::vector<DraftTree> trees(kSeveral);
  const auto pass = [&](size_t n_sequences, size_t n_tokens) {
    const auto tokens = std::span(text).first(n_tokens);
    std::vector<DraftRequest> requests;
    std::vector<DraftOutcome> outcomes;
    for (size_t i = 0; i < n_sequences; ++i) {
      const SeqId id{std::numeric_limits<uint64_t>::max() - i};
      if (drafter.wants_states())
        drafter.observe({.id = id,
                         .tokens = tokens,
                         .first = 0,
                         .rows = std::span(states).first(n_tokens - 1)});
      outcomes.push_back({.id = id, .tokens = tokens, .hidden = hidden});
      requests.push_back(
          {.id = id, .tokens = tokens, .n_prompt = 1, .max_nodes = n_nodes, .state = &sampler});
      trees[i].clear();
    }
    drafter.accepted(outcomes);
    const double begin = clock.now();
    drafter.propose(requests, std::span(trees).first(n_sequences));
    const double seconds = clock.now() - begin;
    for (const DraftRequest& request : requests) drafter.forget(request.id);
    return seconds;
  };
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kPackingSteps; ++i) pass(kSeveral, text.size());
  for (int i = 0; i < kPackingSteps + kRounds; ++i) {
    const double seconds = pass(1, 2);
    if (drafter.n_passes() == 1) best = std::min(best, seconds);
  }
  if (best == std::numeric_limits<double>::infinity()) return;
  speculation.note_pass_calibration(best);
  log().info("speculation: a pass of the drafter takes {:.3f} ms", best * 1e3);
}

}  // namespace

void calibrate(StepModel& model, const CalibrationConfig& config, Speculation& speculation) {
  const int most = std::min(config.max_rows, *std::ranges::max_element(kSizes));
  if (most < 1) return;
  std::vector<TokenId> tokens;
  for (int i = 0; i < most; ++i) tokens.push_back(i * 131 % model.vocab_size());
  const GroupBlocks kv = consecutive_blocks(0, most, config.block_size);
  BatchBuilder builder(std::max(1, config.n_groups), config.block_size, config.state_group);
  const WorkClock clock(model.computes_here());
  const auto step = [&](int rows) {
    builder.clear();
    builder.add({.tokens = std::span(tokens).first(static_cast<size_t>(rows)),
                 .kv = {&kv, 1},
                 .rows = BatchPart::Rows::kAll});
    const Batch& batch = builder.build();
    const double begin = clock.now();
    model.submit(batch);
    model.wait();
    return clock.now() - begin;
  };
  for (int i = 0; i < kPackingSteps; ++i) step(1);
  step(most);  // what is only slow once
  const double begin = clock.now();
  const auto spent = [&] { return clock.now() - begin; };
  std::vector<double> best(std::size(kSizes), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      if (kSizes[i] > most || (spent() > config.seconds && (round > 0 || i > 0))) continue;
      best[i] = std::min(best[i], step(kSizes[i]));
    }
  }
  std::string known;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    if (best[i] == std::numeric_limits<double>::infinity()) continue;
    speculation.note_calibration(kSizes[i], best[i]);
    known += fmt::format("{}{}: {:.2f}", known.empty() ? "" : ", ", kSizes[i], best[i] / best[0]);
  }
  log().info("speculation: a step takes {:.3f} ms; by rows, of that: {}", best[0] * 1e3, known);
  step(1);
  rehearse(model, most, speculation);
}

}  // namespace penstock
