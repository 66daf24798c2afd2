#include "engine/steps/speculation.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock {

Speculation::Speculation(std::unique_ptr<Drafter> drafter, int length, bool chains_only)
    : drafter_(std::move(drafter)), length_(length), chains_only_(chains_only) {
  checking_.reserve(static_cast<size_t>(max_nodes()) + 1);
}

int Speculation::max_nodes() const { return std::min(drafter_->max_nodes(), kMaxDraftNodes); }

Speculation::Load& Speculation::load_of(int n_decoding) {
  const auto n = static_cast<unsigned>(n_decoding);
  const size_t load = n <= 4 ? n - 1 : static_cast<size_t>(std::bit_width(n - 1)) + 1;
  return loads_[std::min(load, loads_.size() - 1)];
}

// Seconds of a step at level 1. What one more row costs before it is known: one row reads all the
// weights that the next ones need, many rows keep the machine busy with arithmetic.
double Speculation::cost(int n_decoding, int rows) const {
  return costs_.shape(rows, std::min(0.75, 0.12 + 0.08 * n_decoding));
}

// Plain steps that the rows of n draft tokens each for n_drafting sequences take.
double Speculation::rows_price(int n_decoding, int n_drafting, int n) const {
  return cost(n_decoding, n_decoding + n_drafting * n) / cost(n_decoding, n_decoding) - 1;
}

void Speculation::note_pass_calibration(double seconds) {
  const double step = costs_.level() * cost(1, 1);
  if (seconds > 0 && step > 0) unknown_pass_ = seconds / step;
}

// For drafts of n_sequences at once, of which as many as usually get one share the rows: one alone may
// pay for a whole tile of them. A token is worth the time that it takes at the present speed.
void Speculation::set_prices(const Load& load, int n_decoding, int n_sequences) {
  const double plain = cost(n_decoding, n_decoding);
  const double tokens = std::max<double>(
      n_decoding, load.time > 0 ? load.tokens / load.time * plain : 0);  // in a plain step's time
  const int n_proposing = std::max(1, static_cast<int>(std::lround(load.proposing * n_sequences)));
  checking_.clear();
  for (int k = 0; k <= max_nodes(); ++k) {
    checking_.push_back(
        static_cast<float>(tokens * rows_price(n_decoding, n_proposing, k) / n_proposing));
  }
  const double pass = load.pass.empty() ? unknown_pass_ : load.pass.value() / plain;
  first_pass_ = drafter_->costs_nothing() ? 0 : tokens * pass / n_sequences;
  next_pass_ = drafter_->one_pass() ? 0 : first_pass_;
  prices_ = {checking_, static_cast<float>(next_pass_)};
}

// Tokens that the best draft gains beyond its price when each is accepted with this probability.
double Speculation::best_gain(double chance) const {
  double reach = 1, kept = 0, best = -1;
  for (int k = 1; k <= prices_.max_nodes(); ++k) {
    kept += reach *= chance;
    best = std::max(best,
                    kept - checking_[static_cast<size_t>(k)] - first_pass_ - next_pass_ * (k - 1));
  }
  return best;
}

// Where the machine is busy already a row costs about as much as a token: nothing is to be found out
// there, but that costs have changed. With few sequences that costs little.
bool Speculation::rows_too_dear(const Load& load, int n_decoding) {
  constexpr double kVeryGood = 0.9, kWorthTrying = 0.1;
  constexpr int kFew = 2, kLongest = 4096;
  // A drafter that costs nothing proposes only what it is sure of.
  const double chance = drafter_->costs_nothing() ? 1 : kVeryGood;
  if (n_decoding <= kFew || best_gain(chance) >= kWorthTrying) return false;
  soon_ = load.n_plain + kNotice >= kLongest;
  return load.n_plain < kLongest;
}

// Whether steps since drafting began were faster than plain ones.
bool Speculation::faster(const Load& load, int n_decoding) const {
  return load.tokens * cost(n_decoding, n_decoding) > n_decoding * load.time;
}

// pays: by the prices or as measured.
bool Speculation::may_draft(Load& load, int n_decoding, bool pays) {
  if (rows_too_dear(load, n_decoding)) return false;
  if (!load.drafting) {
    soon_ = load.account > -kNotice * share_of(n_decoding);
    trial_left_ = kTrial;
    load.tokens = load.time = 0;
    return load.account > 0;
  }
  soon_ = true;
  if (!pays) {
    if (--trial_left_ > 0 && load.account > -kMost) return true;
    load.account = std::min(load.account, 0.0);
    return false;
  }
  return load.account > (load.measured() && !faster(load, n_decoding) ? -kOpening : -kMost);
}

// Beside many sequences a few of them try, since a first draft may cost the drafter a whole prompt.
void Speculation::choose_by_prices(Load& load, int n_decoding, std::vector<Choice>& choices) {
  constexpr int kFew = 4, kKnown = 12;
  const bool free = drafter_->costs_nothing();
  const bool pays = free || faster(load, n_decoding) || best_gain(chance_) > 0;
  load.drafting = may_draft(load, n_decoding, pays);
  if (!load.drafting) return;
  trying_ = !pays || (!free && n_decoding > kFew && n_guesses_ < kKnown);
  if (trying_) {
    std::fill_n(choices.begin(), std::max<size_t>(1, choices.size() / 8), Choice{1, false});
  } else {
    std::ranges::fill(choices, Choice{best_length(1, prices_, max_nodes()), true});
  }
}

void Speculation::choose(std::span<const SeqId> sequences, int n_decoding,
                         std::vector<Choice>& choices) {
  choices.assign(sequences.size(), {});
  if (sequences.empty() || max_nodes() == 0) return;
  if (!automatic()) {
    std::ranges::fill(choices, Choice{std::min(length_, max_nodes()), false});
    return;
  }
  // What a plain step costs comes first, and is looked at again now and then.
  constexpr int kPlainFirst = 3, kPlainAgain = 256;
  Load& load = load_of(n_decoding);
  ++load.n_steps, ++load.n_plain;
  trying_ = false;
  soon_ = costs_.empty() || (load.n_steps <= kPlainFirst && !costs_.knows(n_decoding, kPlainFirst));
  if (!soon_ && load.n_steps % kPlainAgain != 0) {
    set_prices(load, n_decoding, static_cast<int>(sequences.size()));
    choose_by_prices(load, n_decoding, choices);
  }
  awaited_ = soon_ ? kNotice : std::max(0, awaited_ - 1);
}

int Speculation::worth_checking(int n_decoding, int n_drafting, int n, float chance) const {
  constexpr double kMargin = 1.2;  // prices are estimates
  if (!automatic()) return std::min(n, length_);
  if (costs_.empty()) return n;
  double reach = 1, gain = 0, best_gain = 0;
  int best = 0;
  for (int k = 1; k <= n; ++k) {
    gain += reach *= chance;
    const double price = kMargin * n_decoding * rows_price(n_decoding, n_drafting, k) / n_drafting;
    if (gain - price > best_gain) best = k, best_gain = gain - price;
  }
  return best;
}

void Speculation::note_draft(const Round& round) {
  if (round.n_decoding == 0) return;
  Load& load = load_of(round.n_decoding);
  typical_ = round.passes > 0;
  if (typical_)
    load.pass.add(round.seconds / (drafter_->one_pass() ? 1 : round.passes) / costs_.level());
  if (trying_) return;
  // Where no sequence gets a draft, that more would share the rows is believed again after a long time.
  constexpr double kWeight = 0.5, kForgetting = 0.003;
  const auto n =
      std::ranges::count_if(round.trees, [](const DraftTree& tree) { return !tree.empty(); });
  const double proposing = static_cast<double>(n) / static_cast<double>(round.trees.size());
  load.proposing +=
      n > 0 ? kWeight * (proposing - load.proposing) : kForgetting * (1 - load.proposing);
}

// A draft that a drafter had to compute and left empty counts as a wrong token. What a trial shows
// counts for more than what was known before.
void Speculation::note_outcome(int n_proposed, int n_accepted) {
  constexpr int kPrior = 6, kMostGuesses = 24, kMostInTrial = 12;
  if (n_proposed == 0 && drafter_->costs_nothing()) return;
  if (n_proposed > 0 && n_accepted == n_proposed) trial_left_ = kTrial;
  const int most = trying_ ? kMostInTrial : kMostGuesses;
  for (int i = 0; i < std::clamp(n_proposed, 1, n_accepted + 1); ++i) {
    n_guesses_ = std::min(n_guesses_ + 1, most);
    chance_ += ((i < n_accepted) - chance_) / (n_guesses_ + kPrior);
  }
}

void Speculation::note_step(const Step& step) {
  constexpr double kFading = 0.97;
  const int n = step.n_decoding;
  if (n == 0) return;
  const double level = costs_.level();  // before this step, which would else excuse itself
  if (step.seconds >= 0) costs_.add(step.rows, step.seconds);
  if (costs_.empty()) return;
  Load& load = load_of(n);
  const double target = step.seconds >= 0 ? step.seconds / level : cost(n, step.rows);
  const double time = target + std::max(0.0, step.drafter_seconds) / level;
  if (step.drafter_seconds >= 0 && typical_ && !trying_) {
    load.tokens = kFading * load.tokens + step.tokens;
    load.time = kFading * load.time + time;
  }
  const bool plain = step.drafter_seconds < 0 || (drafter_->costs_nothing() && step.rows == n);
  if (!plain) load.n_plain = 0;
  load.account += plain ? share_of(n) : static_cast<double>(step.tokens) / n - time / cost(n, n);
  load.account = std::clamp(load.account, -kMostOwed, kMost);  // a step may have been held up
}

}  // namespace penstock
