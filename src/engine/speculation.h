// How much to draft: the numbers that make generation fastest, from measured acceptance and measured times.
//
// A round of a sequence checks k guesses and yields 1 to k + 1 tokens. With a chance of `a` per guess that is
// (1 - a^(k+1)) / (1 - a) tokens on average, for the time of a forward with k more rows and of the drafter.
// Both times are measured at the present number of decoding sequences: when these fill the machine already,
// a row costs about as much as a step divided by the sequences, and nothing is drafted.
//
// Engine thread only.
#pragma once
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "draft/drafter.h"

namespace penstock {

// What something takes when nothing disturbs it: the lower quartile of the last few times, since others' work
// on the machine only ever adds to them.
class RecentTime {
 public:
  void add(double value);
  bool empty() const { return n_ == 0; }
  double value() const { return value_; }

 private:
  static constexpr int kKept = 7;
  std::array<double, kKept> values_{};
  int n_ = 0;
  double value_ = 0;
};

// Seconds of a step by the rows it computes, at about the same number of decoding sequences.
class RowCosts {
 public:
  void add(int rows, double seconds);
  bool knows() const { return !points_.empty(); }
  // Between measured points on a line, never falling; beyond them by the slope there. prior_slope: seconds
  // per row while only one point is known.
  double seconds(int rows, double prior_slope) const;

 private:
  struct Point {
    int rows;
    RecentTime seconds;
  };
  std::vector<Point> points_;  // ascending by rows
};

class Speculation {
 public:
  struct Choice {
    int nodes = 0;
    float worth = 0;
  };

  // length: 0 = automatic, else always so many nodes. chains_only: trees are cut down to chains.
  Speculation(std::unique_ptr<Drafter> drafter, int length, bool chains_only);

  Drafter& drafter() { return *drafter_; }
  bool chains_only() const { return chains_only_; }
  bool automatic() const { return length_ == 0; }

  // For a step in which these sequences may be drafted for, of n_decoding that decode: choices[i] for
  // sequences[i].
  void choose(std::span<const SeqId> sequences, int n_decoding, std::vector<Choice>& choices);

  // What happened. n_proposed: nodes of the draft, or the length of its longest path for trees' depth.
  void note_draft(double seconds, int n_decoding, int longest);
  void note_outcome(SeqId sequence, int n_proposed, int n_accepted);
  // A step that only decoded: `rows` computed, `tokens` gained, without the time of the drafter.
  void note_step(int n_decoding, int rows, int tokens, double seconds, double draft_seconds);
  void forget(SeqId sequence);

 private:
  // Guesses tested and kept, old ones fading.
  struct Acceptance {
    double tested = 0, kept = 0;
  };
  // What is known for about the same number of decoding sequences.
  struct Load {
    RowCosts steps;
    RecentTime draft_pass;  // seconds of one more token of a chain, or of a whole tree
    double rate = 0;        // tokens per second, lately
    int n_choices = 0, since_draft = 0, probe_after = kFirstProbe;
  };
  static constexpr int kPlainFirst = 3, kPlainAgain = 192;
  static constexpr int kFirstProbe = 24, kLastProbe = 1536;

  static int load_of(int n_decoding);
  double chance(SeqId sequence) const;
  double row_seconds(const Load& load, int n_decoding, int rows) const;
  double draft_seconds(const Load& load, int n_decoding, int nodes) const;
  int best_chain(const Load& load, std::span<const double> chances, int n_decoding, double& rate) const;
  int best_tree(const Load& load, int n_sequences, int n_decoding, double& rate) const;
  bool probe(Load& load, int n_decoding) const;
  void choose_probe(std::span<const SeqId> sequences, std::vector<Choice>& choices) const;

  std::unique_ptr<Drafter> drafter_;
  const int length_;
  const bool chains_only_;
  std::vector<int> tree_sizes_;
  std::vector<double> tree_gains_;  // tokens kept of a tree of that size
  Acceptance overall_;
  std::unordered_map<SeqId, Acceptance> of_sequence_;
  std::array<Load, 12> loads_;
  std::vector<double> chances_;
};

}  // namespace penstock
