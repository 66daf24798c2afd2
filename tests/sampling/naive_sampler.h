// The specification of the sampler in plain double arithmetic: definitions as published, no
// shortcuts.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "penstock/sampling_params.h"

namespace penstock::naive {

using Dist = std::map<TokenId, double>;  // token -> probability, only possible tokens

struct Context {
  std::vector<TokenId> tokens;  // prompt and output
  int n_prompt = 0;
  std::vector<TokenId> end_ids;
  std::vector<std::vector<TokenId>> bad_words;
  std::set<TokenId> dry_breakers;
};

inline void normalize(Dist& dist) {
  double sum = 0;
  for (const auto& [token, p] : dist) sum += p;
  for (auto& [token, p] : dist) p /= sum;
}

// More likely first, lower id first among equals.
inline std::vector<TokenId> ordered(const Dist& dist) {
  std::vector<TokenId> order;
  for (const auto& [token, p] : dist) order.push_back(token);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return dist.at(a) > dist.at(b); });
  return order;
}

inline void keep(Dist& dist, const std::set<TokenId>& kept) {
  std::erase_if(dist, [&](const auto& entry) { return !kept.contains(entry.first); });
  normalize(dist);
}

// DRY as its author defines it: every earlier occurrence of the last token is the end of a possible
// repeat; walk back while the tokens agree and are no breakers.
inline std::map<TokenId, double> dry_penalties(const SamplingParams& p, const Context& c) {
  std::map<TokenId, double> penalties;
  const int all = static_cast<int>(c.tokens.size());
  const int n = p.dry_penalty_last_n < 0 ? all : std::min(p.dry_penalty_last_n, all);
  const std::vector<TokenId> t(c.tokens.end() - n, c.tokens.end());
  std::map<TokenId, int> longest;
  for (int i = 0; i + 1 < n; ++i) {
    int match = 0;
    while (match <= i && t[i - match] == t[n - 1 - match] && !c.dry_breakers.contains(t[i - match]))
      ++match;
    if (match > 0) longest[t[i + 1]] = std::max(longest[t[i + 1]], match);
  }
  for (const auto& [token, match] : longest) {
    if (match >= p.dry_allowed_length) {
      penalties[token] =
          p.dry_multiplier * std::pow(double{p.dry_base}, match - p.dry_allowed_length);
    }
  }
  return penalties;
}

inline std::vector<double> edited_logits(std::vector<double> logits, const SamplingParams& p,
                                         const Context& c) {
  const double ninf = -INFINITY;
  const std::set<TokenId> allowed(p.allowed_token_ids.begin(), p.allowed_token_ids.end());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!allowed.empty() && !allowed.contains(static_cast<TokenId>(i))) logits[i] = ninf;
  }
  for (const TokenId token : p.banned_token_ids) logits[token] = ninf;
  for (const auto& word : c.bad_words) {
    const size_t prefix = word.size() - 1;
    bool match = c.tokens.size() >= prefix;
    for (size_t i = 0; match && i < prefix; ++i)
      match = c.tokens[c.tokens.size() - prefix + i] == word[i];
    if (match) logits[word.back()] = ninf;
  }
  if (static_cast<int>(c.tokens.size()) - c.n_prompt < p.min_tokens) {
    for (const TokenId token : c.end_ids) logits[token] = ninf;
  }
  for (const auto& [token, bias] : p.logit_bias) logits[token] += std::clamp(bias, -100.0f, 100.0f);
  const size_t n_last =
      std::min(c.tokens.size(), static_cast<size_t>(std::max(p.penalty_last_n, 0)));
  const size_t first = p.penalty_last_n < 0 ? 0 : c.tokens.size() - n_last;
  std::map<TokenId, int> counted;
  for (size_t i = p.penalty_last_n < 0 ? c.n_prompt : first; i < c.tokens.size(); ++i)
    ++counted[c.tokens[i]];
  const auto from = c.tokens.begin() + static_cast<std::ptrdiff_t>(first);
  for (const TokenId token : std::set<TokenId>(from, c.tokens.end())) {
    double& x = logits[token];
    x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
  }
  for (const auto& [token, count] : counted) {
    logits[token] -= double{p.frequency_penalty} * count + double{p.presence_penalty};
  }
  if (p.dry_multiplier > 0) {
    for (const auto& [token, penalty] : dry_penalties(p, c)) logits[token] -= penalty;
  }
  return logits;
}

inline Dist softmax(const std::vector<double>& logits, double temperature) {
  const double max = *std::max_element(logits.begin(), logits.end());
  Dist dist;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -INFINITY)
      dist[static_cast<TokenId>(i)] = std::exp((logits[i] - max) / temperature);
  }
  normalize(dist);
  return dist;
}

inline void keep_prefix(Dist& dist, const std::vector<TokenId>& order, double mass) {
  std::set<TokenId> kept;
  double sum = 0;
  for (const TokenId token : order) {
    kept.insert(token);
    sum += dist[token];
    if (sum >= mass) break;
  }
  keep(dist, kept);
}

inline void typical(Dist& dist, double mass) {
  double entropy = 0;
  for (const auto& [token, p] : dist) entropy -= p > 0 ? p * std::log(p) : 0;
  std::vector<TokenId> order = ordered(dist);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return std::fabs(-std::log(dist[a]) - entropy) < std::fabs(-std::log(dist[b]) - entropy);
  });
  keep_prefix(dist, order, mass);
}

inline void xtc(Dist& dist, double threshold) {
  std::vector<TokenId> top;
  for (const TokenId token : ordered(dist)) {
    if (dist[token] >= threshold) top.push_back(token);
  }
  if (top.size() < 2) return;
  top.pop_back();
  for (const TokenId token : top) dist.erase(token);
  normalize(dist);
}

// Basu et al. 2021: algorithm 1 (k from an estimated Zipf exponent) and 2 (cut by surprise).
inline Dist mirostat(Dist dist, int version, double mu) {
  const std::vector<TokenId> order = ordered(dist);
  std::set<TokenId> kept;
  if (version == 1) {
    double numerator = 0, denominator = 0;
    for (size_t i = 0; i < 100 && i + 1 < order.size(); ++i) {
      const double t = std::log((i + 2.0) / (i + 1.0));
      numerator += t * std::log(dist[order[i]] / dist[order[i + 1]]);
      denominator += t * t;
    }
    const double s = numerator / denominator, epsilon = s - 1,
                 n = static_cast<double>(order.size());
    const double k = std::pow(epsilon * std::pow(2, mu) / (1 - std::pow(n, -epsilon)), 1 / s);
    const size_t count = static_cast<size_t>(std::clamp(std::round(k), 1.0, n));
    kept.insert(order.begin(), order.begin() + count);
  } else {
    kept.insert(order[0]);
    for (const TokenId token : order) {
      if (-std::log2(dist[token]) <= mu) kept.insert(token);
    }
  }
  keep(dist, kept);
  return dist;
}

// The exact distribution of the next token. XTC is a mixture of two.
inline Dist next_token(const std::vector<float>& row, const SamplingParams& p, const Context& c) {
  const Dist base = softmax(edited_logits({row.begin(), row.end()}, p, c), p.temperature);
  if (p.mirostat != 0) return mirostat(base, p.mirostat, 2.0 * p.mirostat_tau);
  Dist dist = base;
  if (p.min_p > 0) {
    double best = 0;
    for (const auto& [token, q] : dist) best = std::max(best, q);
    std::set<TokenId> kept;
    for (const auto& [token, q] : dist) {
      if (q >= double{p.min_p} * best) kept.insert(token);
    }
    keep(dist, kept);
  }
  if (p.top_k > 0 && p.top_k < static_cast<int>(dist.size())) {
    const std::vector<TokenId> order = ordered(dist);
    keep(dist, {order.begin(), order.begin() + p.top_k});
  }
  if (p.top_p < 1) keep_prefix(dist, ordered(dist), p.top_p);
  if (p.typical_p < 1) typical(dist, p.typical_p);
  if (p.xtc_probability > 0) {
    Dist cut = dist;
    xtc(cut, p.xtc_threshold);
    for (auto& [token, q] : dist) {
      const auto found = cut.find(token);
      q = (1 - p.xtc_probability) * q +
          p.xtc_probability * (found == cut.end() ? 0 : found->second);
    }
    std::erase_if(dist, [](const auto& entry) { return entry.second <= 0; });
  }
  return dist;
}

}  // namespace penstock::naive
