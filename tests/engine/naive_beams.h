// Beam search written down as plainly as possible: every hypothesis is a token list, every row is
// computed from scratch.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "penstock/engine.h"

namespace penstock {

struct NaiveBeam {
  std::vector<TokenId> tokens;  // after the prompt
  double sum = 0, score = 0;
};

struct NaiveBeamConfig {
  int width, max_new;
  double length_penalty;
  bool early_stopping;
  std::vector<TokenId> ends;
};

// logits_of(prompt + tokens) -> the next token's logits. Returns the finished beams, best first.
inline std::vector<NaiveBeam> naive_beams(
    const std::vector<TokenId>& prompt, const NaiveBeamConfig& config,
    const std::function<std::vector<float>(const std::vector<TokenId>&)>& logits_of) {
  std::vector<NaiveBeam> running = {{}}, finished;
  const auto by_sum = [](const NaiveBeam& a, const NaiveBeam& b) { return a.sum > b.sum; };
  const auto by_score = [](const NaiveBeam& a, const NaiveBeam& b) { return a.score > b.score; };
  for (int length = 1;; ++length) {
    std::vector<NaiveBeam> all;
    for (const NaiveBeam& beam : running) {
      std::vector<TokenId> context = prompt;
      context.insert(context.end(), beam.tokens.begin(), beam.tokens.end());
      const std::vector<float> logits = logits_of(context);
      double total = 0;
      for (const float logit : logits) total += std::exp(double{logit});
      for (size_t token = 0; token < logits.size(); ++token) {
        if (std::isinf(logits[token])) continue;
        NaiveBeam next = beam;
        next.tokens.push_back(static_cast<TokenId>(token));
        next.sum += logits[token] - std::log(total);
        next.score = next.sum / std::pow(length, config.length_penalty);
        all.push_back(std::move(next));
      }
    }
    std::stable_sort(all.begin(), all.end(), by_sum);
    const size_t considered = std::max<size_t>(2, 1 + config.ends.size()) * config.width;
    all.resize(std::min(all.size(), considered));
    running.clear();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const bool end = length == config.max_new ||
                       std::ranges::find(config.ends, all[rank].tokens.back()) != config.ends.end();
      if (end && rank < static_cast<size_t>(config.width)) finished.push_back(all[rank]);
      if (!end && running.size() < static_cast<size_t>(config.width)) running.push_back(all[rank]);
    }
    std::stable_sort(finished.begin(), finished.end(), by_score);
    finished.resize(std::min<size_t>(finished.size(), config.width));
    if (running.empty()) return finished;
    if (finished.size() < static_cast<size_t>(config.width)) continue;
    if (config.early_stopping || running[0].score <= finished.back().score) return finished;
  }
}

}  // namespace penstock
