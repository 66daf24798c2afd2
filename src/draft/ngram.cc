#include "draft/ngram.h"

#include <algorithm>
#include <array>

#include "draft/drafters.h"

namespace penstock {

size_t NgramIndex::slot_of(std::span<const TokenId> text, TokenId first, TokenId second) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t key = uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
  size_t slot = (key * 0x9E3779B97F4A7C15ull) >> 20 & mask;
  while (slots_[slot] >= 0 && (text[slots_[slot] - 1] != first || text[slots_[slot]] != second))
    slot = (slot + 1) & mask;
  return slot;
}

void NgramIndex::grow(std::span<const TokenId> text) {
  std::vector<int32_t> old(std::max<size_t>(64, slots_.size() * 2), -1);
  old.swap(slots_);
  for (const int32_t position : old) {
    if (position >= 0) slots_[slot_of(text, text[position - 1], text[position])] = position;
  }
}

void NgramIndex::extend(std::span<const TokenId> text, int end) {
  if (previous_.empty() && end > 0) {
    previous_.push_back(-1);  // no pair ends at position 0
    latest_[text[0]] = 0;
  }
  for (int i = this->end(); i < end; ++i) {
    if (static_cast<size_t>(used_ + 1) * 2 > slots_.size()) grow(text);
    int32_t& last = slots_[slot_of(text, text[i - 1], text[i])];
    used_ += last < 0;
    previous_.push_back(last);
    last = i;
    latest_[text[i]] = i;
  }
}

NgramIndex::Match NgramIndex::find(std::span<const TokenId> text,
                                   std::span<const TokenId> context) const {
  Match best;
  const int n = static_cast<int>(context.size());
  int position =
      n < 2 || slots_.empty() ? -1 : slots_[slot_of(text, context[n - 2], context[n - 1])];
  for (int tried = 0; position >= 0 && tried < kMostTried;
       ++tried, position = previous_[position]) {
    const int most = std::min({position + 1, n, kLongest});
    int length = 2;
    while (length < most && text[position - length] == context[n - 1 - length]) ++length;
    if (length > best.length) best = {position + 1, length};
    if (length == kLongest) break;
  }
  if (best.length > 0 || n == 0) return best;
  const auto alone = latest_.find(context[n - 1]);
  if (alone != latest_.end()) best = {alone->second + 1, 1};
  return best;
}

namespace {

// Acceptance rates of proposed tokens by the length of the match before them, including proposed
// tokens. Measured, since they depend mostly on the text.
class Reliability {
 public:
  float of(int length) const { return rate_[bucket(length)]; }
  // Learns from tokens proposed after a match of `length` tokens.
  void learn(int length, int n_proposed, int n_accepted) {
    for (int i = 0; i < std::min(n_accepted + 1, n_proposed); ++i) {
      float& rate = rate_[bucket(length + i)];
      rate += kWeight * ((i < n_accepted ? 1.0f : 0.0f) - rate);
    }
  }
  // Moves a rate that is not tried towards its prior, so that it is tried again.
  void fade(int length) {
    const size_t place = bucket(length);
    rate_[place] += kFade * (kPrior[place] - rate_[place]);
  }

 private:
  static size_t bucket(int length) {
    return length < 4 ? static_cast<size_t>(length) - 1 : length < 8 ? 3 : length < 16 ? 4 : 5;
  }
  static constexpr float kWeight = 0.08f, kFade = 0.004f;
  static constexpr std::array<float, 6> kPrior = {0.2f, 0.45f, 0.6f, 0.75f, 0.85f, 0.92f};
  std::array<float, 6> rate_ = kPrior;
};

class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(std::vector<TokenId> corpus) : corpus_(std::move(corpus)) {
    corpus_index_.extend(corpus_, static_cast<int>(corpus_.size()));
  }
  const char* name() const override { return "ngram"; }
  int max_nodes() const override { return kMaxNodes; }
  bool costs_nothing() const override { return true; }

  void propose(std::span<const DraftRequest> requests, std::span<DraftTree> trees) override {
    for (size_t i = 0; i < requests.size(); ++i) propose(requests[i], trees[i]);
  }

  void accepted(std::span<const DraftOutcome> outcomes) override {
    for (const DraftOutcome& outcome : outcomes) {
      const auto found = states_.find(outcome.id);
      if (found == states_.end() || found->second.n_proposed == 0) continue;
      State& state = found->second;
      state.reliability.learn(state.length, state.n_proposed, outcome.n_accepted);
      state.n_proposed = 0;
    }
  }

  void forget(SeqId sequence) override { states_.erase(sequence); }

 private:
  static constexpr int kMaxNodes = 31;  // with the sequence's last token: whole tiles of rows

  struct State {
    NgramIndex index;
    Reliability reliability;
    int length = 0, n_proposed = 0;  // length of the match; number of proposed tokens
    // lookups in a row that proposed nothing, steps since the last lookup
    int n_empty = 0, n_skipped = 0;

    // A lookup costs a hundredth of a short step: after many in vain every fourth step has one.
    bool looks_up() {
      constexpr int kMany = 8, kMostSkipped = 3;
      if (++n_skipped <= std::min(n_empty / kMany, kMostSkipped)) return false;
      n_skipped = 0;
      return true;
    }
  };

  void propose(const DraftRequest& request, DraftTree& tree) {
    const std::span<const TokenId> tokens = request.tokens;
    const int n = static_cast<int>(tokens.size());
    State& state = states_[request.id];
    state.n_proposed = 0;
    if (request.prices != nullptr && !state.looks_up()) return;
    ++state.n_empty;
    if (state.index.end() > n) state.index = {};
    state.index.extend(tokens, n - 1);  // without the last pair, which would match itself
    const NgramIndex::Match own = state.index.find(tokens, tokens);
    const NgramIndex::Match shared = corpus_index_.find(corpus_, tokens);
    const NgramIndex::Match& match = shared.length > own.length ? shared : own;
    if (match.length == 0) return;
    state.length = match.length;
    const int n_nodes = n_wanted(request, state.reliability, match.length);
    for (int i = 0; i < n_nodes; ++i) {
      const int position = match.next + i;
      if (&match == &shared) {
        if (position >= static_cast<int>(corpus_.size())) break;
        tree.add_next(corpus_[position]);
      } else {
        // Beyond the end, the repetition continues with the proposed tokens.
        tree.add_next(position < n ? tokens[position] : tree.tokens[position - n]);
      }
    }
    state.n_proposed = tree.size();
    if (!tree.empty()) state.n_empty = 0;
    if (tree.empty()) state.reliability.fade(match.length);
  }

  // Returns how many tokens to propose. Without prices, a match of a single token is not used.
  static int n_wanted(const DraftRequest& request, const Reliability& reliability, int length) {
    if (request.prices == nullptr) return length > 1 ? request.max_nodes : 0;
    std::array<float, kMaxNodes> reach;
    const int n = std::min(request.max_nodes, kMaxNodes);
    float chance = 1;
    for (int i = 0; i < n; ++i)
      reach[static_cast<size_t>(i)] = chance *= reliability.of(length + i);
    return nodes_worth(std::span(reach).first(static_cast<size_t>(n)), *request.prices);
  }

  const std::vector<TokenId> corpus_;
  NgramIndex corpus_index_;
  std::unordered_map<SeqId, State> states_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_ngram_drafter(DrafterConfig config,
                                                    const DraftTarget& target) {
  for (const TokenId token : config.corpus) {
    if (token >= 0 && token < target.model->config().vocab_size) continue;
    return errorf(ErrorCode::kInvalidArgument, "spec_corpus: expected token ids in [0, {}), got {}",
                  target.model->config().vocab_size, token);
  }
  return std::make_unique<NgramDrafter>(std::move(config.corpus));
}

}  // namespace penstock
