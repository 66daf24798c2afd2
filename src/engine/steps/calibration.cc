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

namespace penstock {
namespace {

// In the order in which they tell most: a large model has no time for all of them.
constexpr int kSizes[] = {1, 4, 8, 2, 3, 5, 6, 7, 9, 16, 12, 17, 24, 32};
constexpr int kRounds = 5;

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
}

}  // namespace penstock
