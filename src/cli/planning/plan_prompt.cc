#include "cli/planning/plan_prompt.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/planning/rank_costs.h"

namespace penstock {
namespace {

constexpr int kChunk = 512;

// Seconds of a chunk behind `depth` tokens.
double chunk_seconds(int depth, const std::vector<DepthTimes>& times) {
  size_t after = 0;
  while (after + 1 < times.size() && times[after].depth < depth) ++after;
  if (after == 0 || times[after].depth <= depth) return times[after].chunk_seconds;
  const DepthTimes &a = times[after - 1], &b = times[after];
  const double share = static_cast<double>(depth - a.depth) / (b.depth - a.depth);
  return a.chunk_seconds + share * (b.chunk_seconds - a.chunk_seconds);
}

}  // namespace

std::vector<int> measured_depths(int n_tokens, int chunk) {
  const int last = (n_tokens - 1) / chunk * chunk;
  std::vector<int> depths;
  for (const int depth : {0, n_tokens / 8, n_tokens / 4, n_tokens / 2, last})
    depths.push_back(std::min(last, depth / chunk * chunk));
  const auto same = std::ranges::unique(depths);
  depths.erase(same.begin(), same.end());
  return depths;
}

double prompt_seconds(int n_tokens, int chunk, const std::vector<DepthTimes>& times) {
  double sum = 0;
  for (int at = 0; at < n_tokens; at += chunk)
    sum += chunk_seconds(at, times) * std::min(chunk, n_tokens - at) / chunk;
  return sum;
}

PromptPlan::PromptPlan(CLI::App& app) {
  app.add_flag("--first-token", wanted,
               "measure on this machine how long a prompt of --tokens takes, chunk by chunk, and "
               "how fast decoding is behind it");
}

Result<PromptPlan::Outcome> PromptPlan::plan(const WeightSource& source, const CacheSpec& spec,
                                             StateDType states, int n_tokens) const {
  const int chunk = std::min(kChunk, n_tokens);
  ASSIGN_OR_RETURN(const DepthMeasurement measured,
                   measure_depth_times(source, {.cache = {spec.dtype, states},
                                                .block_size = spec.block_size,
                                                .chunk = chunk,
                                                .depths = measured_depths(n_tokens, chunk)}));
  Outcome result{.n_tokens = n_tokens,
                 .chunk = chunk,
                 .seconds = prompt_seconds(n_tokens, chunk, measured.times),
                 .read_bytes_per_second = measured.limits.read_bytes_per_second};
  for (const DepthTimes& times : measured.times) {
    result.rows.push_back({times, static_cast<double>(measured.active_weight_bytes +
                                                      sequence_bytes(spec, times.depth))});
  }
  return result;
}

void PromptPlan::print(const Outcome& result) {
  fmt::print("first token             {:.3g} s behind a prompt of {} tokens: {:.4g} tokens/s\n",
             result.seconds, result.n_tokens, result.n_tokens / result.seconds);
  fmt::print("measured steps          memory gives {:.1f} GB/s\n",
             result.read_bytes_per_second / 1e9);
  fmt::print("{:>8}  {:>17}  {:>15}  {:>13}\n", "behind",
             fmt::format("prompt, {} at once", result.chunk), "decode", "of the read");
  for (const Outcome::Row& row : result.rows) {
    const double share = row.bytes / row.times.token_seconds / result.read_bytes_per_second;
    fmt::print("{:>8}  {:>9.1f} tokens/s  {:>6.2f} tokens/s  {:>11.0f} %\n", row.times.depth,
               result.chunk / row.times.chunk_seconds, 1 / row.times.token_seconds, share * 100);
  }
}

nlohmann::json PromptPlan::json(const Outcome& result) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Outcome::Row& row : result.rows) {
    rows.push_back({{"depth", row.times.depth},
                    {"chunk_seconds", row.times.chunk_seconds},
                    {"token_seconds", row.times.token_seconds},
                    {"token_bytes", row.bytes}});
  }
  return {{"tokens", result.n_tokens},
          {"chunk", result.chunk},
          {"seconds", result.seconds},
          {"read_bytes_per_second", result.read_bytes_per_second},
          {"steps", std::move(rows)}};
}

}  // namespace penstock
