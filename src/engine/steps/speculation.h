// Who gets a draft, and what guesses cost at the moment: from measured times and from what drafts brought so
// far.
//
// The drafter decides about single guesses, by prices (draft/draft_prices.h) that are calculated here from
// the time of steps by their rows and from the drafter's own time, at the present number of decoding
// sequences: when these fill the machine already, a row costs about as much as a token, and nothing is
// drafted. A sequence whose drafts cost more than they bring is decoded plainly, and tries again after some
// time, each time later.
//
// Prices are estimates; what they leave out (a kernel that computes eight rows more for one, a drafter that reads a
// prompt first) is found by an account of what drafts cost in fact beyond plain decoding. Only what it holds may be
// spent on trying, and plain steps pay little into it: at a load where drafts lose they are off, but for probes
// that take less than a hundredth of the time.
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
  // How many of n guesses that took no time, each right with this chance when those before it are, are worth their rows where
  // n_drafting of the sequences have as many.
  int worth_checking(int n_decoding, int n_drafting, int n, float chance) const;
  // For the choices made last. Valid until the next choose().
  const DraftPrices& prices() const { return prices_; }
  // Whether any sequence may have a draft in the next kNotice steps, or had one in the last: else a drafter need not see what the
  // target computes.
  bool awaits_drafts() const { return awaited_ > 0; }

  // The shortest of some steps of so many rows that were made to find out what they take.
  void note_calibration(int rows, double seconds) { costs_.add_best(rows, seconds); }
  // The same of a pass of the drafter for one sequence, after them.
  void note_pass_calibration(double seconds) {
    const double step = costs_.level() * cost(1, 1);
    if (seconds > 0 && step > 0) unknown_pass_ = seconds / step;
  }
  // A round of drafts: passes one after the other, and what they made for each sequence, which may be nothing.
  struct Round {
    int n_decoding = 0;
    double seconds = 0;
    int passes = 0;  // 0: not typical
    std::span<const DraftTree> trees;
  };
  void note_draft(const Round& round);
  // A draft that was asked for and checked; n_proposed may be 0.
  void note_outcome(SeqId sequence, int n_decoding, int n_proposed, int n_accepted);
  // A step's decoding: `rows` computed, `tokens` gained. seconds: without the drafter's; < 0 where prompts were
  // computed too, so that it tells nothing. drafter_seconds: < 0 where no draft was asked for.
  struct Step {
    int n_decoding = 0, rows = 0, tokens = 0;
    double seconds = 0, drafter_seconds = -1;
  };
  void note_step(const Step& step);
  void forget(SeqId sequence);

 private:
  static constexpr int kNotice = 32, kHopeful = 2 * kNotice;
  // What is known for about the same number of decoding sequences.
  struct Load {
    RecentMedian pass;            // of the drafter, at level 1
    double passes = 0;            // of a draft, on average
    double tokens = 0, cost = 0;  // of the steps lately, fading; cost at level 1
    double gain = 0;              // tokens that a priced draft brought beyond its price, of n_drafts
    double n_drafts = 0;
    double chance = kPriorChance, n_guesses = 0;  // of a guess to be right
    double account = kOpening;                    // plain steps gained by drafts or granted to them
    double granted = kGranted;                    // by a plain step
    double proposing = 1;                         // share of who is asked that gets guesses, where any do
    int n_choices = 0;
    int hopeful = kHopeful;  // steps in a row in which very good guesses would pay, kHopeful at most
    int since_probe = 0, probe_after = kFirstProbe;
  };
  // What the drafts of one sequence brought beyond their price, old ones fading.
  struct Record {
    int load = -1;
    bool drafted = false;
    double gain = 0;
    int idle = 0, wait = kFirstProbe, trial = 0;
    int n_empty = 0;  // times in a row that the drafter had nothing
  };
  static constexpr double kPriorChance = 0.7;
  // Plain steps; the last for each of them. Beside many sequences there is less to gain, and trying is paid by all of them.
  static constexpr double kOpening = 4, kOpeningOfMany = 2, kMostSaved = 16;
  static constexpr double kGranted = 0.01, kGrantedToMany = 0.005;
  static constexpr size_t kManyFrom = 2;  // the load of 3
  static constexpr int kPlainFirst = 3, kPlainAgain = 256;
  static constexpr int kFirstProbe = 24, kLastProbe = 1536, kProbeNodes = 3, kTrial = 3, kScouted = 12;

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
  void choose_by_load(std::span<const SeqId> sequences, int n_decoding, std::vector<Choice>& choices);

  std::unique_ptr<Drafter> drafter_;
  const int length_;
  const bool chains_only_;
  const bool one_pass_;
  StepCosts costs_;
  double unknown_pass_ = 0.1;  // of a plain step, until a pass beside so many was seen
  std::array<Load, 12> loads_;
  std::unordered_map<SeqId, Record> records_;
  DraftPrices prices_;
  std::vector<float> checking_;
  int awaited_ = kNotice;   // steps for which awaits_drafts() holds
  bool soon_ = false;       // a draft may be wanted in the next kNotice steps
  bool probing_ = false;    // in this step
  bool hopeful_ = true;     // very good guesses would pay for long now
  double price_scale_ = 1;  // what this step's guesses cost, by their prices
  double plain_share_ = 1;  // a price by what plain decoding makes, as a share of that in prices_
  double round_price_ = 0;  // of the drafter's time for a sequence's draft, by what plain decoding makes
};

}  // namespace penstock
