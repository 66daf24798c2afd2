#include "engine/calibration.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/work_clock.h"

namespace penstock {
namespace {

// In the order in which they tell most: a large model has no time for all of them.
constexpr int kSizes[] = {1, 4, 8, 2, 3, 5, 6, 7, 9, 16, 12, 17, 24, 32};
constexpr int kRounds = 5;

}  // namespace

void calibrate(StepModel& model, const CalibrationConfig& config, Speculation& speculation) {
  const int most = std::min(config.max_rows, *std::ranges::max_element(kSizes));
  if (most < 1) return;
  const int n_blocks = (most + config.block_size - 1) / config.block_size;
  std::vector<BlockId> blocks;
  for (int i = 0; i < n_blocks; ++i) blocks.push_back(static_cast<BlockId>(i));
  std::vector<int32_t> places(static_cast<size_t>(most)), tokens;
  std::iota(places.begin(), places.end(), 0);
  for (const int32_t place : places) tokens.push_back(place * 131 % model.vocab_size());
  const WorkClock clock(config.computes_here);
  const auto step = [&](int rows) {
    const auto n = static_cast<size_t>(rows);
    const auto some = std::span<const int32_t>(places).first(n);  // positions, slots and output rows
    const int32_t offsets[] = {0, rows}, lens[] = {rows}, table_offsets[] = {0, n_blocks}, first[] = {0};
    const std::vector<KvView> views(static_cast<size_t>(std::max(1, config.n_groups)),
                                    KvView{some, blocks, table_offsets, first});
    const Batch batch{std::span<const int32_t>(tokens).first(n), some, offsets, lens, views, {}, some};
    const double begin = clock.now();
    model.forward(batch);
    return clock.now() - begin;
  };
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
