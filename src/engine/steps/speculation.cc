#include "engine/steps/speculation.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kFading = 0.97;

// Time of one more row as a share of a row's own, before it is known: one row reads all the weights
// that the next ones need, many rows keep the machine busy with arithmetic.
double prior_share(int n_decoding) { return std::min(0.75, 0.12 + 0.08 * n_decoding); }

}  // namespace

Speculation::Speculation(std::unique_ptr<Drafter> drafter, int length, bool chains_only)
    : drafter_(std::move(drafter)),
      length_(length),
      chains_only_(chains_only),
      one_pass_(drafter_->one_pass()) {
  checking_.reserve(static_cast<size_t>(max_nodes()) + 1);
  for (size_t load = kManyFrom; load < loads_.size(); ++load)
    loads_[load].account = kOpeningOfMany, loads_[load].granted = kGrantedToMany;
}

int Speculation::max_nodes() const { return std::min(drafter_->max_nodes(), kMaxDraftNodes); }

int Speculation::load_of(int n_decoding) {
  if (n_decoding <= 4) return n_decoding - 1;
  int load = 4;
  while (load < 11 && n_decoding > (8 << (load - 4))) ++load;
  return load;
}

double Speculation::cost(int n_decoding, int rows) const {
  return costs_.shape(rows, prior_share(n_decoding));
}

double Speculation::pass_cost(const Load& load, int n_decoding) const {
  if (drafter_->costs_nothing()) return 0;
  return load.pass.empty() ? unknown_pass_ * cost(n_decoding, n_decoding) : load.pass.value();
}

// For drafts of n_sequences at once, of which as many as usually get guesses share the rows: one
// alone may pay for a whole tile.
void Speculation::set_prices(const Load& load, int n_decoding, int n_sequences) {
  const double plain = cost(n_decoding, n_decoding);
  const double plain_rate = n_decoding / plain;
  const double rate = load.cost > 0 ? std::max(plain_rate, load.tokens / load.cost) : plain_rate;
  const double pass = pass_cost(load, n_decoding) / n_sequences;
  const int n_proposing = std::max(1, static_cast<int>(std::lround(load.proposing * n_sequences)));
  checking_.clear();
  for (int k = 0; k <= max_nodes(); ++k) {
    const double more = cost(n_decoding, n_decoding + n_proposing * k) - plain;
    checking_.push_back(static_cast<float>(rate * more / n_proposing));
  }
  prices_ = {checking_, one_pass_ ? 0.0f : static_cast<float>(rate * pass)};
  plain_share_ = plain_rate / rate;
  round_price_ = plain_rate * pass * (one_pass_ ? 1.0 : std::max(1.0, load.passes));
}

// Whether very good guesses would bring something worth looking for: where rows are dear a single
// right one pays for little more than its row, and no trial finds out anything else. What costs
// nothing to ask proposes only what it is sure of.
bool Speculation::very_good_would_pay() const {
  constexpr double kVeryGood = 0.9, kWorthTrying = 0.1;
  const double chance = drafter_->costs_nothing() ? 1 : kVeryGood;
  double reach = 1, kept = 0;
  for (int k = 1; k <= prices_.max_nodes(); ++k) {
    kept += reach *= chance;
    const double drafting = one_pass_ ? round_price_ : prices_.pass * k;
    if (kept - prices_.checking[static_cast<size_t>(k)] - drafting >= kWorthTrying) return true;
  }
  return false;
}

// Tokens that a draft brings beyond its price: as measured, and until enough was, by the chance of
// a guess. Where trying can be paid for and very good guesses would pay, what the measured gains'
// own spread leaves open counts as gain.
double Speculation::expected_gain(const Load& load, bool affordable) const {
  constexpr double kPriorWeight = 6, kSpread = 0.5;
  const auto chance = static_cast<float>(load.chance);
  const int length = best_length(chance, prices_, max_nodes());
  double prior = length > 0 ? 0 : -0.05;
  double reach = 1;
  for (int i = 0; i < length; ++i) prior += reach *= chance;
  if (length > 0)
    prior -=
        prices_.checking[static_cast<size_t>(length)] + prices_.pass * static_cast<float>(length);
  const double weight = load.n_drafts + kPriorWeight;
  const double mean = (load.n_drafts * load.gain + kPriorWeight * prior) / weight;
  return mean + (affordable && hopeful_ ? kSpread / std::sqrt(weight) : 0);
}

// Beside many sequences a few find out for the others how often guesses are right: a first draft
// may cost the drafter a whole prompt.
bool Speculation::knows_enough(const Load& load, int n_decoding) const {
  constexpr int kFew = 4;
  return n_decoding <= kFew || load.n_guesses >= kScouted || drafter_->costs_nothing();
}

// A probe costs more beside many sequences and has less to find out. Where not even very good
// guesses would pay it only looks whether the costs are still the same; unless that is for what the
// drafter's first passes took.
bool Speculation::probe(Load& load, int n_decoding) {
  const bool may_pay = hopeful_ || (!load.pass.empty() && !load.pass.settled());
  const int due = (may_pay ? load.probe_after : kLastProbe) * (1 + n_decoding / 4);
  soon_ |= load.since_probe + kNotice >= due && soon_affordable(load);
  if (++load.since_probe < due || load.account <= 0) return false;
  load.since_probe = 0;
  load.probe_after = std::min(2 * load.probe_after, kLastProbe);
  return true;
}

void Speculation::choose_probes(std::vector<Choice>& choices) {
  probing_ = true;
  const int nodes = std::min(kProbeNodes, max_nodes());
  const size_t n = std::max<size_t>(1, choices.size() / 8);
  for (size_t i = 0; i < n; ++i) choices[i] = {nodes, false};
}

// A lookup costs a hundredth of a short step: what finds nothing again and again is asked in every
// fourth.
bool Speculation::looks_up(Record& record) {
  constexpr int kMany = 8, kMostBetween = 3;
  if (++record.idle <= std::min(record.n_empty / kMany, kMostBetween)) return false;
  record.idle = 0;
  return true;
}

// Whether drafts have paid for this sequence, or it is time to try.
bool Speculation::drafts(SeqId sequence, int load, int n_decoding, double expected) {
  constexpr double kPriorDrafts = 10, kKept = 0.99, kKeptInNotice = 0.72;  // kKept^kNotice
  Record& record = records_[sequence];
  if (drafter_->costs_nothing()) return looks_up(record);
  if (record.load != load) record = {.load = load, .drafted = record.drafted};
  const bool affordable = loads_[static_cast<size_t>(load)].account > 0;
  if (record.gain + kPriorDrafts * expected > 0) {
    record.wait = kFirstProbe, record.idle = 0;
    soon_ |= record.drafted || soon_affordable(loads_[static_cast<size_t>(load)]);
    return affordable ||
           (record.drafted && loads_[static_cast<size_t>(load)].account > -kMostSaved);
  }
  if (record.trial > 0) return --record.trial, true;
  record.gain *= kKept;
  const int due = record.wait * (1 + n_decoding / 4);
  const bool soon =
      record.idle + kNotice >= due || kKeptInNotice * record.gain + kPriorDrafts * expected > 0;
  soon_ |= soon && soon_affordable(loads_[static_cast<size_t>(load)]);
  if (++record.idle < due || !affordable) return false;
  record.idle = 0, record.trial = kTrial - 1;
  record.wait = std::min(2 * record.wait, kLastProbe);
  return true;
}

void Speculation::choose(std::span<const SeqId> sequences, int n_decoding,
                         std::vector<Choice>& choices) {
  choices.assign(sequences.size(), {});
  probing_ = false;
  if (sequences.empty() || max_nodes() == 0) return;
  if (!automatic()) {
    for (Choice& choice : choices) choice = {std::min(length_, max_nodes()), false};
    return;
  }
  soon_ = false;
  choose_by_load(sequences, n_decoding, choices);
  const bool any =
      std::ranges::any_of(choices, [](const Choice& choice) { return choice.nodes > 0; });
  awaited_ = soon_ || any ? kNotice : std::max(0, awaited_ - 1);
}

void Speculation::choose_by_load(std::span<const SeqId> sequences, int n_decoding,
                                 std::vector<Choice>& choices) {
  const int index = load_of(n_decoding);
  Load& load = loads_[static_cast<size_t>(index)];
  // What a plain step costs comes first, and is looked at again now and then.
  const int n_choices = load.n_choices++;
  if (costs_.empty() || (n_choices < kPlainFirst && !costs_.knows(n_decoding, kPlainFirst))) {
    soon_ = true;
    return;
  }
  if (n_choices % kPlainAgain == kPlainAgain - 1) return;
  set_prices(load, n_decoding, static_cast<int>(sequences.size()));
  // trying costs little there, and costs are learned by it
  const bool few = static_cast<size_t>(index) < kManyFrom;
  load.hopeful = few || very_good_would_pay() ? std::min(load.hopeful + 1, kHopeful) : 0;
  hopeful_ = load.hopeful == kHopeful;
  soon_ |= load.hopeful > kHopeful - kNotice && !hopeful_ && soon_affordable(load);
  const double expected = expected_gain(load, load.account > 0);
  if (expected <= 0) {
    soon_ |= soon_affordable(load) && expected_gain(load, true) > 0;
    if (probe(load, n_decoding)) choose_probes(choices);
    return;
  }
  if (!knows_enough(load, n_decoding)) {
    soon_ = soon_affordable(load);
    if (load.account > 0) choose_probes(choices);
    return;
  }
  int n_drafting = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!drafts(sequences[i], index, n_decoding, expected)) continue;
    choices[i] = {max_nodes(), true};
    ++n_drafting;
  }
  if (n_drafting == 0) return;
  if (n_drafting < static_cast<int>(sequences.size())) set_prices(load, n_decoding, n_drafting);
  const int most = best_length(1.0f, prices_, max_nodes());
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (choices[i].nodes == 0) continue;
    choices[i].nodes = most;
    if (most > 0) records_[sequences[i]].drafted = true;
  }
}

int Speculation::worth_checking(int n_decoding, int n_drafting, int n, float chance) const {
  constexpr double kMargin = 1.2;  // prices are estimates
  if (!automatic()) return std::min(n, length_);
  if (costs_.empty()) return n;
  const double plain = cost(n_decoding, n_decoding);
  double reach = 1, gain = 0, best_gain = 0;
  int best = 0;
  for (int k = 1; k <= n; ++k) {
    gain += reach *= chance;
    const double more = cost(n_decoding, n_decoding + n_drafting * k) - plain;
    const double price = kMargin * n_decoding * more / plain / n_drafting;
    if (gain - price <= best_gain) continue;
    best = k;
    best_gain = gain - price;
  }
  return best;
}

void Speculation::note_draft(const Round& round) {
  if (round.n_decoding == 0) return;
  Load& load = loads_[static_cast<size_t>(load_of(round.n_decoding))];
  if (round.passes > 0) {
    load.pass.add(round.seconds / (one_pass_ ? 1 : round.passes) / costs_.level());
    load.passes += (round.passes - load.passes) * (load.passes > 0 ? 0.1 : 1.0);
  }
  price_scale_ = 1;
  if (probing_ || !automatic() || costs_.empty()) return;
  // Prices are those of drafts as long for everybody; the rows that fewer guesses take may cost
  // nearly as much.
  int rows = round.n_decoding, n_proposing = 0;
  double priced = 0;
  for (const DraftTree& tree : round.trees) {
    const int size = tree.size();
    rows += size;
    n_proposing += size > 0;
    if (static_cast<size_t>(size) < checking_.size())
      priced += plain_share_ * checking_[static_cast<size_t>(size)];
  }
  // Where nobody gets any, that more would share the rows is believed again after a long time.
  constexpr double kProposingWeight = 0.5, kForgetting = 0.003;
  const double proposing =
      static_cast<double>(n_proposing) / static_cast<double>(round.trees.size());
  load.proposing += n_proposing > 0 ? kProposingWeight * (proposing - load.proposing)
                                    : kForgetting * (1 - load.proposing);
  const double plain = cost(round.n_decoding, round.n_decoding);
  const double paid = (cost(round.n_decoding, rows) - plain) * round.n_decoding / plain;
  if (priced > 0) price_scale_ = std::max(1.0, paid / priced);
}

void Speculation::note_outcome(SeqId sequence, int n_decoding, int n_proposed, int n_accepted) {
  if (!automatic() || n_decoding == 0 || static_cast<size_t>(n_proposed) >= checking_.size())
    return;
  constexpr double kMostGuesses = 60, kPriorGuesses = 6, kMostDrafts = 60, kForgotten = 0.7;
  const int index = load_of(n_decoding);
  Load& load = loads_[static_cast<size_t>(index)];
  for (int i = 0; i < std::min(n_accepted + 1, n_proposed); ++i) {
    load.n_guesses = std::min(load.n_guesses + 1, kMostGuesses);
    load.chance += ((i < n_accepted) - load.chance) / (load.n_guesses + kPriorGuesses);
  }
  if (probing_) {
    load.n_drafts *= kForgotten;
    if (n_proposed > 0 && n_accepted == n_proposed && hopeful_) load.probe_after = kFirstProbe;
    return;
  }
  Record& record = records_[sequence];
  if (record.load != index) record = {.load = index, .drafted = true, .n_empty = record.n_empty};
  record.n_empty = n_proposed == 0 ? record.n_empty + 1 : 0;
  // A drafter that costs next to nothing is only to blame for what it proposes.
  if (n_proposed == 0 && drafter_->costs_nothing()) return;
  const double gain = n_accepted -
                      price_scale_ * plain_share_ * checking_[static_cast<size_t>(n_proposed)] -
                      (drafter_->costs_nothing() ? 0 : round_price_);
  load.n_drafts = std::min(load.n_drafts + 1, kMostDrafts);
  load.gain += (gain - load.gain) / load.n_drafts;
  record.gain = 0.93 * record.gain + gain;
}

void Speculation::note_step(const Step& step) {
  const int n = step.n_decoding;
  if (n == 0) return;
  const double level = costs_.level();  // before this step, which would else excuse itself
  if (step.seconds >= 0) costs_.add(step.rows, step.seconds);
  if (costs_.empty()) return;
  Load& load = loads_[static_cast<size_t>(load_of(n))];
  const double plain = cost(n, n);
  const double target = step.seconds >= 0 ? step.seconds / level : cost(n, step.rows);
  const double drafter = std::max(0.0, step.drafter_seconds) / level;
  const bool is_plain = step.drafter_seconds < 0 || (drafter_->costs_nothing() && step.rows == n);
  load.account +=
      is_plain ? load.granted : static_cast<double>(step.tokens) / n - (target + drafter) / plain;
  // A step that the machine held up is not paid off for hours.
  load.account = std::clamp(load.account, -2 * kMostSaved, kMostSaved);
  load.tokens = kFading * load.tokens + step.tokens;
  load.cost = kFading * load.cost + target + drafter;
}

void Speculation::forget(SeqId sequence) {
  records_.erase(sequence);
  drafter_->forget(sequence);
}

}  // namespace penstock
