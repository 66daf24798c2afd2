// Decides which sequences get a draft and how long it may be, from measured times and outcomes.
//
// Prices. The time of a step by its rows (StepCosts) and of a pass of the drafter give the price of
// each draft token: the tokens that would be generated meanwhile. The drafter stops where another
// token does not pay (draft/draft_prices.h).
//
// Account. Prices are estimates, so each load (about the same number of decoding sequences) has an
// account of what steps with drafts gained beyond plain ones, in plain steps. Drafting begins when
// the account is positive and goes on while recent drafts were faster than plain steps; then the
// sequences are decoded plainly, and each plain step adds a small share of itself to the account.
// So drafts that lose take at most that share of the time, and what the account held.
//
// Trial. Where draft tokens were accepted too rarely to pay, drafting begins with a single token per
// draft, for a few steps, and becomes longer as soon as tokens are accepted.
//
// Engine thread only.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "engine/compute/step_costs.h"

namespace penstock {

class Speculation {
 public:
  struct Choice {
    // most draft tokens
    int nodes = 0;
    // false: draft `nodes` tokens, whatever they cost
    bool priced = true;
  };

  // length: draft tokens of every draft, 0 = automatic. chains_only: trees are pruned to chains.
  Speculation(std::unique_ptr<Drafter> drafter, int length, bool chains_only);

  Drafter& drafter() { return *drafter_; }
  bool chains_only() const { return chains_only_; }
  bool automatic() const { return length_ == 0; }
  int max_nodes() const;

  // Sets choices[i] for sequences[i], those that may get a draft in a step with n_decoding decoding
  // sequences.
  void choose(std::span<const SeqId> sequences, int n_decoding, std::vector<Choice>& choices);
  // Returns how many of n draft tokens that cost nothing to make pay for their rows, when n_drafting
  // of the n_decoding sequences have as many. chance: probability that a token is accepted when those
  // before it are.
  int worth_checking(int n_decoding, int n_drafting, int n, float chance) const;
  // Prices for the choices made last. Valid until the next choose().
  const DraftPrices& prices() const { return prices_; }
  // Whether a sequence may get a draft in the next kNotice steps, or had one recently. Else the
  // drafter does not need the states of the target.
  bool awaits_drafts() const { return awaited_ > 0; }

  // Notes the shortest time of several calibration steps of `rows` rows.
  void note_calibration(int rows, double seconds) { costs_.add_best(rows, seconds); }
  // Notes the time of a calibration pass of the drafter for one sequence. Called after
  // note_calibration().
  void note_pass_calibration(double seconds);
  // A call of Drafter::propose(): its successive passes and the draft of each sequence, which may be
  // empty.
  struct Round {
    int n_decoding = 0;
    double seconds = 0;
    // 0: the time is not typical of a pass
    int passes = 0;
    std::span<const DraftTree> trees;
  };
  void note_draft(const Round& round);
  // Notes a draft that was asked for and verified; n_proposed may be 0.
  void note_outcome(int n_proposed, int n_accepted);
  // Decoding in a step: `rows` computed, `tokens` generated. seconds: time without the drafter's; < 0
  // when the step also had prefill, so that its time says nothing. drafter_seconds: < 0 when no draft
  // was asked for.
  struct Step {
    int n_decoding = 0, rows = 0, tokens = 0;
    double seconds = 0, drafter_seconds = -1;
  };
  void note_step(const Step& step);
  void forget(SeqId sequence) { drafter_->forget(sequence); }

 private:
  static constexpr int kNotice = 32;
  // Steps of a trial, from its last accepted draft on.
  static constexpr int kTrial = 3;
  // The account in plain steps: at first, at most, and at least. Drafts that go on may owe as much as
  // it may hold when they were faster than plain steps so far, else as much as it holds at first.
  static constexpr double kOpening = 4, kMost = 16, kMostOwed = 24;
  // Share of itself that a plain step adds to the account, with few sequences and with many.
  static constexpr double kShare = 0.01, kShareOfMany = 0.005;

  // Measurements at about the same number of decoding sequences. Times are divided by
  // StepCosts::level().
  struct Load {
    // time of a pass of the drafter
    RecentMedian pass;
    bool drafting = false;
    // tokens and time of steps since drafting began, with exponential decay; 0: not known yet
    double tokens = 0, time = 0;
    double account = kOpening;
    // share of the sequences asked for drafts that get one, when any does
    double proposing = 1;
    // steps, and those since the last draft
    int n_steps = 0, n_plain = 0;

    bool measured() const { return time > 0; }
  };

  static double share_of(int n_decoding) { return n_decoding > 2 ? kShareOfMany : kShare; }
  Load& load_of(int n_decoding);
  double cost(int n_decoding, int rows) const;
  double rows_price(int n_decoding, int n_drafting, int n) const;
  void set_prices(const Load& load, int n_decoding, int n_sequences);
  double best_gain(double chance) const;
  bool rows_too_dear(const Load& load, int n_decoding);
  bool faster(const Load& load, int n_decoding) const;
  bool may_draft(Load& load, int n_decoding, bool pays);
  void choose_by_prices(Load& load, int n_decoding, std::vector<Choice>& choices);

  std::unique_ptr<Drafter> drafter_;
  const int length_;
  const bool chains_only_;
  StepCosts costs_;
  // time of a pass, as a share of a plain step's, until one was measured
  double unknown_pass_ = 0.1;
  std::array<Load, 12> loads_;
  // probability that a draft token is accepted, and the number of tokens that it was learned from
  double chance_ = 0.7;
  int n_guesses_ = 0;
  DraftPrices prices_;
  std::vector<float> checking_;
  // price of the pass for the first draft token, and of that for each further one
  double first_pass_ = 0, next_pass_ = 0;
  // further steps for which awaits_drafts() holds
  int awaited_ = kNotice;
  // a draft may be wanted in the next kNotice steps
  bool soon_ = false;
  // of this step's drafts: a trial; drafter's time is typical
  bool trying_ = false, typical_ = false;
  // further steps of the trial
  int trial_left_ = 0;
};

}  // namespace penstock
