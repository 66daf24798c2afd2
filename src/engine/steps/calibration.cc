#include "engine/steps/calibration.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/steps/work_clock.h"
#include "model/batch_builder.h"
#include "ops/ops.h"
#include "sampling/sampler_state.h"

namespace penstock {
namespace {

// In the order in which they tell most: a large model has no time for all of them.
constexpr int kSizes[] = {1, 4, 8, 2, 3, 5, 6, 7, 9, 16, 12, 17, 24, 32};
constexpr int kRounds = 5;

// Has the drafter guess until what is only slow once is done: the first draft of a sequence would pay for it, and be the last one for
// long. The shortest pass counts.
void rehearse(StepModel& model, Speculation& speculation) {
  Drafter& drafter = speculation.drafter();
  if (drafter.max_nodes() == 0 || drafter.costs_nothing() || drafter.computes_with_target()) return;
  const auto copy = [](bool wanted, std::span<const float> row) {
    return wanted ? std::vector<float>(row.begin(), row.end()) : std::vector<float>();
  };
  const std::vector<float> hidden = copy(drafter.wants_hidden(), model.hidden(0));
  const std::vector<float> state = copy(drafter.wants_states(), model.state(0));
  const std::span<const float> states[] = {state};
  const std::vector<TokenId> tokens(2, 0);
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplerState sampler(SamplingSpec::make(greedy, {}, 1, model.vocab_size()), 0, std::span(tokens).first(1),
                       2);
  const SeqId id{std::numeric_limits<uint64_t>::max()};
  const int n_nodes = drafter.one_pass() ? drafter.max_nodes() : 1;  // a single pass makes all
  const DraftOutcome outcome{.id = id, .tokens = tokens, .hidden = hidden};
  const DraftRequest request{
      .id = id, .tokens = tokens, .n_prompt = 1, .max_nodes = n_nodes, .state = &sampler};
  const WorkClock clock(model.computes_here());
  DraftTree tree;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kPackingSteps + kRounds; ++i) {
    if (drafter.wants_states()) drafter.observe({.id = id, .tokens = tokens, .first = 0, .rows = states});
    drafter.accepted({&outcome, 1});
    tree.clear();
    const double begin = clock.now();
    drafter.propose({&request, 1}, {&tree, 1});
    if (drafter.n_passes() == 1) best = std::min(best, clock.now() - begin);
    drafter.forget(id);
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
  BatchBuilder builder(std::max(1, config.n_groups), config.block_size);
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
  rehearse(model, speculation);
}

}  // namespace penstock
