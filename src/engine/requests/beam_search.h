// Beam search over one prompt: which beams continue, which have ended, and when the search is over.
// Pure bookkeeping of scores; the decisions are those of transformers' generate(num_beams=...).
#pragma once
#include <span>
#include <vector>

#include "penstock/engine.h"

namespace penstock {

struct BeamOptions {
  int width = 1;
  double length_penalty = 1;
  bool early_stopping = false;
  // no beam ends by an end token before this many tokens
  int min_tokens = 0;
  int max_tokens = 1;  // a beam ends at this many tokens
  std::vector<TokenId> end_tokens;
};

struct EndedBeam {
  std::vector<TokenId> tokens;  // after the prompt, with the end token
  std::vector<float> logprobs;  // [tokens.size()]
  // sum of logprobs / tokens.size()^length_penalty
  double score = 0;
  // true: it ended by an end token; false: by length
  bool ended = false;
};

class BeamSearch {
 public:
  explicit BeamSearch(BeamOptions options);

  int width() const { return options_.width; }
  int n_live() const { return static_cast<int>(live_.size()); }
  // Number of most likely tokens that offer() needs for each beam.
  int n_candidates() const;
  bool has_offered(int beam) const { return live_[beam].offered; }
  // Passes the n_candidates() most likely next tokens of a live beam.
  void offer(int beam, std::span<const TokenLogprob> candidates);
  bool complete() const { return n_offered_ == n_live(); }

  // REQUIRES: complete(). Chooses the next beams: beam i continues beam parents()[i] with
  // tokens()[i]. There are at most width of them, never fewer than before unless candidates have
  // run out. False: the search is over.
  bool advance();
  std::span<const int> parents() const { return parents_; }
  std::span<const TokenId> tokens() const { return tokens_; }

  // The ended beams, best first, at most width of them.
  std::span<const EndedBeam> ended() const { return ended_; }

 private:
  struct Beam {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    double sum = 0;
    bool offered = false;
  };
  struct Candidate {
    int beam;
    TokenId token;
    float logprob;
    double sum;
  };
  bool is_end(TokenId token) const;
  double score(double sum, int length) const;
  void end(const Candidate& candidate, bool by_token);
  void go_on(std::span<const Candidate> chosen);

  BeamOptions options_;
  int length_ = 0;  // tokens of every live beam
  int n_offered_ = 0;
  std::vector<Beam> live_;
  std::vector<Candidate> candidates_;
  std::vector<EndedBeam> ended_;
  std::vector<int> parents_;
  std::vector<TokenId> tokens_;
};

}  // namespace penstock
