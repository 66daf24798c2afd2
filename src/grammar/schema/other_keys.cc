#include "grammar/schema/other_keys.h"

#include <algorithm>
#include <set>

namespace penstock::grammar {
namespace {

// As ObjectRules::finds_keys().
bool finds_keys_from(const ObjectDraft& draft, uint32_t state, const EdgeTest& leads_on,
                     std::vector<uint32_t>& n_left, Budget& budget) {
  const uint32_t needs = draft.needs(state);
  if (needs == 0) return true;
  const auto& lists = draft.states[state].labels;
  for (size_t label = 0; label < lists.size(); ++label) {
    if (n_left[label] == 0) continue;
    const uint32_t before = n_left[label];
    if (before != kNone) --n_left[label];
    for (const ValueEdge& e : lists[label]) {
      if (!budget.spend(1)) return false;
      // the first of them, since their order does not matter
      const bool found = (needs & ~draft.needs(e.target) & (~needs + 1)) != 0;
      if (found && leads_on(e) && finds_keys_from(draft, e.target, leads_on, n_left, budget))
        return true;
    }
    n_left[label] = before;
  }
  return false;
}

}  // namespace

Compiled<std::shared_ptr<const Lexeme>> other_keys_of(const ObjectDraft& draft,
                                                      const std::vector<bool>& labels,
                                                      ExprPool& exprs, Budget& budget) {
  const auto tag_of = [&](const std::vector<bool>& matched) {
    const auto label =
        static_cast<uint32_t>(std::ranges::find(draft.labels, matched) - draft.labels.begin());
    return label < labels.size() && labels[label] ? label + 1 : 0;
  };
  auto classifier = make_classifier(exprs, draft.patterns, tag_of, budget);
  if (!classifier) return tl::unexpected(std::move(classifier).error());
  auto lexeme = make_lexeme(*classifier, Spelling::kJsonCanonical, false, budget);
  if (!lexeme) return tl::unexpected(std::move(lexeme).error());
  return (*lexeme)->empty() ? nullptr : *std::move(lexeme);
}

Compiled<uint32_t> count_other_keys(const ObjectDraft& draft, const std::vector<bool>& labels,
                                    ExprPool& exprs, Budget& budget) {
  if (draft.labels.size() == 1) return labels[0] ? kNone : 0;
  const auto keys = other_keys_of(draft, labels, exprs, budget);
  if (!keys) return tl::unexpected(keys.error());
  if (*keys == nullptr) return 0;
  const Lexeme& lexeme = **keys;
  if (lexeme.has_more_texts(kManyWords)) return kNone;
  uint32_t least = 0, most = kManyWords;
  while (least < most) {
    const uint32_t middle = (least + most) / 2;
    if (lexeme.has_more_texts(middle)) {
      least = middle + 1;
    } else {
      most = middle;
    }
  }
  for (const std::string& slot : draft.slot_texts())
    least -= lexeme.dfa.tag(lexeme.dfa.run(lexeme.start(), slot)) != 0 ? 1 : 0;
  return least;
}

std::vector<bool> finding_labels(const ObjectDraft& draft, uint32_t existence,
                                 const EdgeTest& leads_on) {
  std::vector<bool> labels(draft.labels.size(), false);
  for (const ObjectDraft::State& state : draft.states) {
    for (size_t label = 0; label < state.labels.size(); ++label) {
      for (const ValueEdge& e : state.labels[label]) {
        const uint32_t found = draft.states[e.target].satisfied & ~state.satisfied;
        if ((found >> existence & 1) != 0 && leads_on(e)) labels[label] = true;
      }
    }
  }
  return labels;
}

bool finds_keys(const ObjectDraft& draft, const EdgeTest& leads_on, std::vector<uint32_t> n_keys,
                Budget& budget) {
  for (uint32_t i = 0; i < draft.states.size(); ++i) {
    const auto& lists = draft.states[i].labels;
    const bool any = std::ranges::any_of(
        lists, [&](const auto& list) { return std::ranges::any_of(list, leads_on); });
    if (any && draft.states[i].satisfied == 0)
      return finds_keys_from(draft, i, leads_on, n_keys, budget);
  }
  return draft.n_existences == 0;
}

bool keys_differ(const ObjectDraft& draft, const std::vector<bool>& possible) {
  if (draft.n_existences == 0 || draft.members.max == kNoLimit) return false;
  // existences of the first key: states and targets
  std::set<std::pair<uint32_t, uint32_t>> first;
  for (size_t label = 0; label < draft.labels.size(); ++label) {
    std::set<std::pair<uint32_t, uint32_t>> finds;
    for (uint32_t state = 0; state < draft.states.size(); ++state) {
      if (label >= draft.states[state].labels.size()) continue;
      for (const ValueEdge& e : draft.states[state].labels[label]) {
        if (possible[e.goal]) finds.emplace(state, e.target);
      }
    }
    if (!first.empty() && !finds.empty() && finds != first) return true;
    if (first.empty()) first = std::move(finds);
  }
  return false;
}

}  // namespace penstock::grammar
