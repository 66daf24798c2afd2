// Who gets a draft, and what guesses cost at the moment: from measured times and from what drafts brought so
// far.
//
// The drafter decides about single guesses, by prices (draft/draft_prices.h) that are calculated here from
// the time of steps by their rows and from the drafter's own time, at the present number of decoding
// sequences: when these fill the machine already, a row costs about as much as a token, and nothing is
// drafted. A sequence whose drafts cost more than they bring is decoded plainly, and tries again after some
// time, each time later.
//
// Engine thread only.
#pragma once
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "draft/drafter.h"
#include "engine/step_costs.h"

namespace penstock {

class Speculation {
 public:
  struct Choice {
    int nodes = 0;       // at most
    bool priced = true;  // false: all of them, whatever they cost
  };

  // length: 0 = automatic, else always so many nodes. chains_only: trees are cut down to chains.
  Speculation(std::unique_ptr<Drafter> drafter, int length, bool chains_only);

  Drafter& drafter() { return *drafter_; }
  bool chains_only() const { return chains_only_; }
  bool automatic() const { return length_ == 0; }
  int max_nodes() const;

  // For a step in which these sequences may be drafted for, of n_decoding that decode: choices[i] for
  // sequences[i].
  void choose(std::span<const SeqId> sequences, int n_decoding, std::vector<Choice>& choices);
  // For the choices made last. Valid until the next choose().
  const DraftPrices& prices() const { return prices_; }

  // A step of so many rows that was made to find out what it takes.
  void note_calibration(int rows, double seconds) { costs_.add(rows, seconds); }
  // n_sequences were drafted for, in so many passes one after the other; nothing else may have been computed.
  void note_draft(double seconds, int n_decoding, int passes);
  // A draft that was asked for and checked; n_proposed may be 0.
  void note_outcome(SeqId sequence, int n_decoding, int n_proposed, int n_accepted);
  // A step that only decoded: `rows` computed, `tokens` gained, without the time of the drafter.
  void note_step(int n_decoding, int rows, int tokens, double seconds, bool drafted);
  void forget(SeqId sequence);

 private:
  // What is known for about the same number of decoding sequences.
  struct Load {
    RecentMedian pass;            // of the drafter, at level 1
    double passes = 0;            // of a draft, on average
    double tokens = 0, cost = 0;  // of the steps lately, fading; cost at level 1
    double gain = kPriorGain;     // tokens that a draft brought beyond its price
    int n_drafts = 0, n_choices = 0;
    int since_draft = 0, probe_after = kFirstProbe;
  };
  // What the drafts of one sequence brought beyond their price, old ones fading.
  struct Record {
    int load = -1;
    double n = 0, gain = 0;
    int idle = 0, wait = kFirstProbe, trial = 0;
  };
  static constexpr double kPriorGain = 0.4;
  static constexpr int kPlainFirst = 3, kPlainAgain = 256;
  static constexpr int kFirstProbe = 24, kLastProbe = 1536, kProbeNodes = 3, kTrial = 3, kScouted = 12;

  static int load_of(int n_decoding);
  double cost(int n_decoding, int rows) const;
  double pass_cost(const Load& load, int n_decoding) const;
  // Sets prices_; returns the tokens per unit of cost that they are made with.
  void set_prices(const Load& load, int n_decoding, int n_sequences);
  bool probe(Load& load, int n_decoding) const;
  int n_allowed(const Load& load, int n_decoding) const;
  bool drafts(SeqId sequence, int load, int n_decoding);

  std::unique_ptr<Drafter> drafter_;
  const int length_;
  const bool chains_only_;
  const bool one_pass_;
  StepCosts costs_;
  std::array<Load, 12> loads_;
  std::unordered_map<SeqId, Record> records_;
  DraftPrices prices_;
  std::vector<float> checking_;
  double plain_share_ = 1;  // a price by what plain decoding makes, as a share of that in prices_
  double round_price_ = 0;  // of the drafter's time for a sequence's draft, by what plain decoding makes
};

}  // namespace penstock
