// Decides which sequences get a draft and computes the prices of draft tokens, from measured times
// and from the gains of earlier drafts.
//
// The drafter decides about single draft tokens, by prices (draft/draft_prices.h) that are computed
// here from the time of steps by their rows and from the drafter's own time, at the present number
// of decoding sequences: when these fill the machine already, a row costs about as much as a token,
// and nothing is drafted. A sequence whose drafts cost more than they gain is decoded plainly and
// tries again later, with growing intervals.
//
// Prices are estimates. What they leave out (a kernel that computes eight rows more for one, a
// drafter that computes a prompt first) is measured by an account of the actual cost of drafts
// beyond plain decoding. Trying drafts is limited by its balance, to which plain steps add a
// little: at a load where drafts lose, they are off except for probes that take less than a
// hundredth of the time.
//
// Engine thread only.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "draft/drafter.h"
#include "engine/compute/step_costs.h"

namespace penstock {

class Speculation {
 public:
  struct Choice {
    int nodes = 0;  // most draft tokens
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
  // Returns how many of n draft tokens that cost nothing to make pay for their rows, when
  // n_drafting of the n_decoding sequences have as many. chance: probability that a token is
  // accepted when those before it are.
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
  void note_pass_calibration(double seconds) {
    const double step = costs_.level() * cost(1, 1);
    if (seconds > 0 && step > 0) unknown_pass_ = seconds / step;
  }
  // A call of Drafter::propose(): its successive passes and the draft of each sequence, which may
  // be empty.
  struct Round {
    int n_decoding = 0;
    double seconds = 0;
    int passes = 0;  // 0: the time is not typical of a pass
    std::span<const DraftTree> trees;
  };
  void note_draft(const Round& round);
  // Notes a draft that was asked for and verified; n_proposed may be 0.
  void note_outcome(SeqId sequence, int n_decoding, int n_proposed, int n_accepted);
  // Decoding in a step: `rows` computed, `tokens` generated. seconds: time without the drafter's; <
  // 0 when the step also had prefill, so that its time says nothing. drafter_seconds: < 0 when no
  // draft was asked for.
  struct Step {
    int n_decoding = 0, rows = 0, tokens = 0;
    double seconds = 0, drafter_seconds = -1;
  };
  void note_step(const Step& step);
  void forget(SeqId sequence);

 private:
  static constexpr int kNotice = 32, kHopeful = 2 * kNotice;
  // Statistics at about the same number of decoding sequences. "At level 1": in units of
  // StepCosts::level().
  struct Load {
    RecentMedian pass;  // time of a pass of the drafter, at level 1
    double passes = 0;  // mean passes of a draft
    // tokens and cost (at level 1) of recent steps, with exponential decay
    double tokens = 0, cost = 0;
    // mean tokens that a priced draft gained beyond its price
    double gain = 0;
    double n_drafts = 0;  // number of such drafts
    // Probability that a draft token is accepted, and the number of tokens that it was learned
    // from.
    double chance = kPriorChance, n_guesses = 0;
    // balance, in plain steps: gained by drafts or granted by plain steps
    double account = kOpening;
    double granted = kGranted;  // what a plain step adds to the account
    // share of the sequences asked for that get draft tokens, when any do
    double proposing = 1;
    int n_choices = 0;
    // steps in a row in which very good drafts would pay, kHopeful at most
    int hopeful = kHopeful;
    int since_probe = 0, probe_after = kFirstProbe;
  };
  // History of the drafts of one sequence.
  struct Record {
    int load = -1;
    bool drafted = false;
    // tokens gained beyond the price, with exponential decay
    double gain = 0;
    int idle = 0, wait = kFirstProbe, trial = 0;
    int n_empty = 0;  // empty drafts in a row
  };
  static constexpr double kPriorChance = 0.7;
  // Account limits, in plain steps; kMostSaved is the most that it may hold. With many sequences
  // there is less to gain, and all of them pay for trying.
  static constexpr double kOpening = 4, kOpeningOfMany = 2, kMostSaved = 16;
  static constexpr double kGranted = 0.01, kGrantedToMany = 0.005;
  // First index in loads_ that counts as many sequences: three decoding sequences.
  static constexpr size_t kManyFrom = 2;
  static constexpr int kPlainFirst = 3, kPlainAgain = 256;
  static constexpr int kFirstProbe = 24, kLastProbe = 1536, kProbeNodes = 3, kTrial = 3,
                       kScouted = 12;

  static int load_of(int n_decoding);
  double cost(int n_decoding, int rows) const;
  double pass_cost(const Load& load, int n_decoding) const;
  static bool soon_affordable(const Load& load) { return load.account > -kNotice * load.granted; }
  void set_prices(const Load& load, int n_decoding, int n_sequences);
  bool very_good_would_pay() const;
  double expected_gain(const Load& load, bool affordable) const;
  bool knows_enough(const Load& load, int n_decoding) const;
  bool probe(Load& load, int n_decoding);
  void choose_probes(std::vector<Choice>& choices);
  static bool looks_up(Record& record);
  bool drafts(SeqId sequence, int load, int n_decoding, double expected);
  void choose_by_load(std::span<const SeqId> sequences, int n_decoding,
                      std::vector<Choice>& choices);

  std::unique_ptr<Drafter> drafter_;
  const int length_;
  const bool chains_only_;
  const bool one_pass_;
  StepCosts costs_;
  // assumed time of a pass, as a share of a plain step's, until one was measured
  double unknown_pass_ = 0.1;
  std::array<Load, 12> loads_;
  std::unordered_map<SeqId, Record> records_;
  DraftPrices prices_;
  std::vector<float> checking_;
  // further steps for which awaits_drafts() holds
  int awaited_ = kNotice;
  // a draft may be wanted in the next kNotice steps
  bool soon_ = false;
  bool probing_ = false;  // whether the drafts of this step are probes
  // very good drafts would have paid in all recent steps
  bool hopeful_ = true;
  // cost of this step's draft tokens, relative to their prices
  double price_scale_ = 1;
  // price at the rate of plain decoding, relative to the one in prices_
  double plain_share_ = 1;
  // price of the drafter's time for one draft, at the rate of plain decoding
  double round_price_ = 0;
};

}  // namespace penstock
