#include "engine/speculation.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kFading = 0.97;
constexpr double kUnknownPass = 0.1;  // of a plain step

// Time of one more row as a share of a row's own, before it is known: one row reads all the weights that
// the next ones need, many rows keep the machine busy with arithmetic.
double prior_share(int n_decoding) { return std::min(0.75, 0.12 + 0.08 * n_decoding); }

}  // namespace

Speculation::Speculation(std::unique_ptr<Drafter> drafter, int length, bool chains_only)
    : drafter_(std::move(drafter)),
      length_(length),
      chains_only_(chains_only),
      one_pass_(drafter_->one_pass()) {
  checking_.reserve(static_cast<size_t>(max_nodes()) + 1);
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
  return load.pass.empty() ? kUnknownPass * cost(n_decoding, n_decoding) : load.pass.value();
}

void Speculation::set_prices(const Load& load, int n_decoding, int n_sequences) {
  const double plain = cost(n_decoding, n_decoding);
  const double plain_rate = n_decoding / plain;
  const double rate = load.cost > 0 ? std::max(plain_rate, load.tokens / load.cost) : plain_rate;
  const double pass = pass_cost(load, n_decoding) / n_sequences;
  checking_.clear();
  for (int k = 0; k <= max_nodes(); ++k) {
    const double more = cost(n_decoding, n_decoding + n_sequences * k) - plain;
    checking_.push_back(static_cast<float>(rate * more / n_sequences));
  }
  prices_ = {checking_, one_pass_ ? 0.0f : static_cast<float>(rate * pass)};
  plain_share_ = plain_rate / rate;
  round_price_ = plain_rate * pass * (one_pass_ ? 1.0 : std::max(1.0, load.passes));
}

// A probe costs more beside many sequences and has less to find out.
bool Speculation::probe(Load& load, int n_decoding) const {
  if (++load.since_draft < load.probe_after * (1 + n_decoding / 4)) return false;
  load.since_draft = 0;
  load.probe_after = std::min(2 * load.probe_after, kLastProbe);
  return true;
}

// Whether drafts have paid for this sequence, or it is time to try again.
bool Speculation::drafts(SeqId sequence, int load, int n_decoding) {
  constexpr double kPriorDrafts = 3;
  if (drafter_->costs_nothing()) return true;
  Record& record = records_[sequence];
  if (record.load != load) record = {.load = load};
  const double prior = loads_[static_cast<size_t>(load)].gain;
  if (record.gain + kPriorDrafts * prior > 0) {
    record.wait = kFirstProbe, record.idle = 0;
    return true;
  }
  if (record.trial > 0) return --record.trial, true;
  record.n *= 0.99, record.gain *= 0.99;
  if (++record.idle < record.wait * (1 + n_decoding / 4)) return false;
  record.idle = 0, record.trial = kTrial - 1;
  record.wait = std::min(2 * record.wait, kLastProbe);
  return true;
}

void Speculation::choose(std::span<const SeqId> sequences, int n_decoding, std::vector<Choice>& choices) {
  choices.assign(sequences.size(), {});
  if (sequences.empty()) return;
  if (!automatic()) {
    for (Choice& choice : choices) choice = {std::min(length_, max_nodes()), false};
    return;
  }
  const int index = load_of(n_decoding);
  Load& load = loads_[static_cast<size_t>(index)];
  // What a plain step costs comes first, and is looked at again now and then.
  const int n_choices = load.n_choices++;
  if (costs_.empty() || (n_choices < kPlainFirst && !costs_.knows(n_decoding))) return;
  if (n_choices % kPlainAgain == kPlainAgain - 1) return;
  set_prices(load, n_decoding, static_cast<int>(sequences.size()));
  const int most = best_length(1.0f, prices_, max_nodes());
  if (most == 0) {
    if (!probe(load, n_decoding)) return;
    const int nodes = std::min(kProbeNodes, max_nodes());
    for (size_t i = 0; i < (sequences.size() + 15) / 16; ++i) choices[i] = {nodes, false};
    return;
  }
  int left = n_allowed(load, n_decoding);
  for (size_t i = 0; i < sequences.size() && left > 0; ++i) {
    if (!drafts(sequences[i], index, n_decoding)) continue;
    choices[i] = {most, true};
    --left;
  }
}

// Beside many sequences a few find out for the others whether drafts pay: a first draft may cost the drafter
// a whole prompt.
int Speculation::n_allowed(const Load& load, int n_decoding) const {
  constexpr int kFew = 4;
  if (n_decoding <= kFew || load.n_drafts >= kScouted || drafter_->costs_nothing()) return n_decoding;
  return std::max(1, n_decoding / 8);
}

void Speculation::note_draft(double seconds, int n_decoding, int passes) {
  if (n_decoding == 0 || passes == 0) return;
  Load& load = loads_[static_cast<size_t>(load_of(n_decoding))];
  load.pass.add(seconds / (one_pass_ ? 1 : passes) / costs_.level());
  load.passes += (passes - load.passes) * (load.passes > 0 ? 0.1 : 1.0);
}

void Speculation::note_outcome(SeqId sequence, int n_decoding, int n_proposed, int n_accepted) {
  if (!automatic() || n_decoding == 0 || static_cast<size_t>(n_proposed) >= checking_.size()) return;
  const int index = load_of(n_decoding);
  Load& load = loads_[static_cast<size_t>(index)];
  Record& record = records_[sequence];
  if (record.load != index) record = {.load = index};
  // A drafter that costs next to nothing is only to blame for what it proposes.
  if (n_proposed == 0 && drafter_->costs_nothing()) return;
  const double gain = n_accepted - plain_share_ * checking_[static_cast<size_t>(n_proposed)] -
                      (drafter_->costs_nothing() ? 0 : round_price_);
  constexpr int kMostDrafts = 60, kPriorWeight = 6;
  load.n_drafts = std::min(load.n_drafts + 1, kMostDrafts);
  load.gain += (gain - load.gain) / (load.n_drafts + kPriorWeight);
  record.n = 0.93 * record.n + 1, record.gain = 0.93 * record.gain + gain;
  load.since_draft = 0;
}

void Speculation::note_step(int n_decoding, int rows, int tokens, double seconds, bool drafted) {
  if (n_decoding == 0) return;
  costs_.add(rows, seconds);
  Load& load = loads_[static_cast<size_t>(load_of(n_decoding))];
  const double drafter =
      drafted ? pass_cost(load, n_decoding) * (one_pass_ ? 1.0 : std::max(1.0, load.passes)) : 0.0;
  load.tokens = kFading * load.tokens + tokens;
  load.cost = kFading * load.cost + cost(n_decoding, rows) + drafter;
}

void Speculation::forget(SeqId sequence) {
  records_.erase(sequence);
  drafter_->forget(sequence);
}

}  // namespace penstock
