#include "engine/speculation.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kPriorChance = 0.7, kPriorTested = 6;
constexpr double kMinGain = 1.02;  // less is not worth the risk
constexpr int kProbeNodes = 3;

// Time of one more row as a share of a sequence's own, before it is known: one row reads all the weights that
// the next ones need, many rows keep the machine busy with arithmetic.
double prior_share(int n_decoding) { return std::min(0.75, 0.12 + 0.08 * n_decoding); }

double expected_tokens(double chance, int k) {
  double tokens = 1, kept = 1;
  for (int i = 0; i < k; ++i) tokens += kept *= chance;
  return tokens;
}

}  // namespace

void RecentTime::add(double value) {
  values_[n_++ % kKept] = value;
  if (n_ >= 2 * kKept) n_ -= kKept;
  std::array<double, kKept> sorted{};
  const int n = std::min(n_, kKept);
  for (int i = 0; i < n; ++i) {
    int place = i;
    for (; place > 0 && sorted[place - 1] > values_[i]; --place) sorted[place] = sorted[place - 1];
    sorted[place] = values_[i];
  }
  value_ = sorted[(n - 1) / 4];
}

void RowCosts::add(int rows, double seconds) {
  // Large counts share a point: about 6 % apart.
  int key = rows;
  for (int step = 1; rows > 32 * step; step *= 2) key = (rows + step) / (2 * step) * (2 * step);
  auto place = std::lower_bound(points_.begin(), points_.end(), key,
                                [](const Point& point, int k) { return point.rows < k; });
  if (place == points_.end() || place->rows != key) place = points_.insert(place, {key, {}});
  place->seconds.add(seconds);
}

double RowCosts::seconds(int rows, double prior_slope) const {
  double low = 0, high_floor = 0;
  int low_rows = 0;
  for (const Point& point : points_) {
    const double at = std::max(point.seconds.value(), high_floor);
    if (rows <= point.rows) {
      if (low_rows == 0) return rows == point.rows ? at : at - prior_slope * (point.rows - rows);
      return low + (at - low) * (rows - low_rows) / (point.rows - low_rows);
    }
    low = at, low_rows = point.rows, high_floor = at;
  }
  // Beyond: by the mean slope of what is known.
  const Point& first = points_.front();
  const double slope =
      points_.size() > 1 ? (low - first.seconds.value()) / std::max(1, low_rows - first.rows) : prior_slope;
  return low + std::max(slope, 0.25 * prior_slope) * (rows - low_rows);
}

Speculation::Speculation(std::unique_ptr<Drafter> drafter, int length, bool chains_only)
    : drafter_(std::move(drafter)), length_(length), chains_only_(chains_only) {
  if (!chains_only) tree_sizes_ = drafter_->tree_sizes();
  for (const int size : tree_sizes_) tree_gains_.push_back(0.6 * std::log2(1.0 + size));
}

int Speculation::load_of(int n_decoding) {
  if (n_decoding <= 4) return n_decoding - 1;
  int load = 4;
  while (load < 11 && n_decoding > (8 << (load - 4))) ++load;
  return load;
}

double Speculation::chance(SeqId sequence) const {
  const double general = (overall_.kept + kPriorTested * kPriorChance) / (overall_.tested + kPriorTested);
  const auto found = of_sequence_.find(sequence);
  if (found == of_sequence_.end()) return general;
  const Acceptance& own = found->second;
  return std::clamp((own.kept + kPriorTested * general) / (own.tested + kPriorTested), 0.0, 0.98);
}

double Speculation::row_seconds(const Load& load, int n_decoding, int rows) const {
  const double alone = load.steps.seconds(n_decoding, 0);
  return load.steps.seconds(rows, prior_share(n_decoding) * alone / n_decoding);
}

double Speculation::draft_seconds(const Load& load, int n_decoding, int nodes) const {
  if (nodes == 0 || drafter_->knows_its_chances()) return 0;
  const double pass =
      load.draft_pass.empty() ? 0.1 * row_seconds(load, n_decoding, n_decoding) : load.draft_pass.value();
  return tree_sizes_.empty() ? pass * nodes : pass;
}

int Speculation::best_chain(const Load& load, std::span<const double> chances, int n_decoding,
                            double& rate) const {
  const auto n = static_cast<int>(chances.size());
  const double plain = n_decoding / row_seconds(load, n_decoding, n_decoding);
  int best = 0;
  rate = plain;
  for (int k = 1; k <= drafter_->max_nodes(); ++k) {
    double tokens = n_decoding - n;
    for (const double chance : chances) tokens += expected_tokens(chance, k);
    const double seconds =
        row_seconds(load, n_decoding, n_decoding + n * k) + draft_seconds(load, n_decoding, k);
    if (tokens / seconds > std::max(rate, plain * kMinGain)) best = k, rate = tokens / seconds;
  }
  return best;
}

int Speculation::best_tree(const Load& load, int n_sequences, int n_decoding, double& rate) const {
  const double plain = n_decoding / row_seconds(load, n_decoding, n_decoding);
  int best = 0;
  rate = plain;
  for (size_t i = 0; i < tree_sizes_.size(); ++i) {
    const double tokens = n_decoding + n_sequences * tree_gains_[i];
    const double seconds = row_seconds(load, n_decoding, n_decoding + n_sequences * tree_sizes_[i]) +
                           draft_seconds(load, n_decoding, tree_sizes_[i]);
    if (tokens / seconds > std::max(rate, plain * kMinGain)) best = tree_sizes_[i], rate = tokens / seconds;
  }
  return best;
}

// A probe costs more beside many sequences and has less to find out.
bool Speculation::probe(Load& load, int n_decoding) const {
  if (++load.since_draft < load.probe_after * (1 + n_decoding / 4)) return false;
  load.since_draft = 0;
  load.probe_after = std::min(2 * load.probe_after, kLastProbe);
  return true;
}

// A few sequences try again whether it pays now.
void Speculation::choose_probe(std::span<const SeqId> sequences, std::vector<Choice>& choices) const {
  const int nodes = tree_sizes_.empty() ? kProbeNodes : tree_sizes_.front();
  for (size_t i = 0; i < (sequences.size() + 15) / 16; ++i) choices[i] = {nodes, 0};
}

void Speculation::choose(std::span<const SeqId> sequences, int n_decoding, std::vector<Choice>& choices) {
  choices.assign(sequences.size(), {});
  if (sequences.empty()) return;
  const int most = std::min(drafter_->max_nodes(), kMaxDraftNodes);
  if (!automatic()) {
    for (Choice& choice : choices) choice = {std::min(length_, most), 0};
    return;
  }
  Load& load = loads_[load_of(n_decoding)];
  // What a plain step costs comes first, and is looked at again now and then.
  const int n_choices = load.n_choices++;
  if (!load.steps.knows() || n_choices < kPlainFirst || n_choices % kPlainAgain == 0) return;
  const auto n = static_cast<int>(sequences.size());
  const double row =
      (row_seconds(load, n_decoding, n_decoding + 4 * n) - row_seconds(load, n_decoding, n_decoding)) /
      (4 * n);
  double rate = 0;
  if (drafter_->knows_its_chances()) {
    rate = std::max(load.rate, n_decoding / row_seconds(load, n_decoding, n_decoding));
    const auto worth = static_cast<float>(std::clamp(rate * row * kMinGain, 0.02, 1.0));
    if (worth > 0.9f) return;
    for (Choice& choice : choices) choice = {most, worth};
    return;
  }
  int best = 0;
  if (tree_sizes_.empty()) {
    chances_.clear();
    for (const SeqId sequence : sequences) chances_.push_back(chance(sequence));
    best = best_chain(load, chances_, n_decoding, rate);
  } else {
    best = best_tree(load, n, n_decoding, rate);
  }
  if (best == 0) {
    if (probe(load, n_decoding)) choose_probe(sequences, choices);
    return;
  }
  load.since_draft = 0;
  load.probe_after = kFirstProbe;
  const auto worth = static_cast<float>(std::min(1.0, rate * row));
  for (size_t i = 0; i < sequences.size(); ++i) {
    int nodes = best;
    if (tree_sizes_.empty()) {
      // Less for those that are guessed badly.
      double kept = 1;
      nodes = 0;
      while (nodes < best && (kept *= chances_[i]) >= worth) ++nodes;
    }
    choices[i] = {nodes, worth};
    if (nodes > 0) continue;
    if (const auto own = of_sequence_.find(sequences[i]); own != of_sequence_.end()) {
      own->second.tested *= 0.97, own->second.kept *= 0.97;  // until it is tried again
    }
  }
}

void Speculation::note_draft(double seconds, int n_decoding, int longest) {
  if (longest == 0) return;
  loads_[load_of(n_decoding)].draft_pass.add(tree_sizes_.empty() ? seconds / longest : seconds);
}

void Speculation::note_outcome(SeqId sequence, int n_proposed, int n_accepted) {
  if (n_proposed == 0) return;
  if (!tree_sizes_.empty()) {
    const auto size = std::lower_bound(tree_sizes_.begin(), tree_sizes_.end(), n_proposed);
    const size_t i = std::min<size_t>(size - tree_sizes_.begin(), tree_sizes_.size() - 1);
    tree_gains_[i] += 0.03 * (n_accepted - tree_gains_[i]);
  }
  const int tested = std::min(n_accepted + 1, n_proposed);
  const auto learn = [&](Acceptance& acceptance, double fading) {
    acceptance.tested = fading * acceptance.tested + tested;
    acceptance.kept = fading * acceptance.kept + n_accepted;
  };
  learn(overall_, 0.995);
  learn(of_sequence_[sequence], 0.95);
}

void Speculation::note_step(int n_decoding, int rows, int tokens, double seconds, double draft_seconds) {
  if (n_decoding == 0) return;
  Load& load = loads_[load_of(n_decoding)];
  // Sizes within a load differ; only the rows beyond the sequences' own say what drafts cost.
  load.steps.add(rows, seconds);
  const double rate = tokens / (seconds + draft_seconds);
  load.rate = load.rate <= 0 ? rate : 0.95 * load.rate + 0.05 * rate;
}

void Speculation::forget(SeqId sequence) {
  of_sequence_.erase(sequence);
  drafter_->forget(sequence);
}

}  // namespace penstock
