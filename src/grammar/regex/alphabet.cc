#include "grammar/regex/alphabet.h"

#include <algorithm>
#include <map>

#include "base/text_hash.h"

namespace penstock::grammar {
namespace {

struct Edge {
  char32_t at;
  uint32_t set;
  bool operator<(const Edge& other) const { return at < other.at; }
};

// Returns the boundaries of all sets in order.
std::vector<Edge> edges_of(std::span<const CharSet* const> sets) {
  std::vector<Edge> edges;
  for (uint32_t i = 0; i < sets.size(); ++i) {
    for (const CodeRange& r : sets[i]->ranges()) {
      edges.push_back({r.first, i});
      edges.push_back({r.last + 1, i});
    }
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

}  // namespace

Alphabet Alphabet::of(std::span<const CharSet* const> sets, Budget& budget) {
  Alphabet result;
  // The sets that a character is in, as the sum of their marks, which the process draws.
  using Marks = std::array<uint64_t, 2>;
  std::map<Marks, uint16_t> symbols;
  Marks inside{};
  const auto begin_span = [&](char32_t at) {
    const auto [it, is_new] = symbols.emplace(inside, static_cast<uint16_t>(symbols.size()));
    const bool surrogate = at >= 0xD800 && at <= 0xDFFF;
    if (is_new) result.samples_.push_back(surrogate ? 0xE000 : at);
    if (result.spans_.empty() || result.spans_.back().symbol != it->second) {
      result.spans_.push_back({at, it->second});
    }
  };
  std::vector<Edge> edges = edges_of(sets);
  if (!budget.spend(edges.size())) edges.clear();
  if (edges.empty() || edges.front().at > 0) begin_span(0);
  for (size_t i = 0; i < edges.size();) {
    const char32_t at = edges[i].at;
    for (; i < edges.size() && edges[i].at == at; ++i) {
      for (size_t j = 0; j < inside.size(); ++j) inside[j] ^= number_hash(edges[i].set, j);
    }
    // Sets that continue after the surrogates end at their gap.
    if (at == 0xD800 && i < edges.size() && edges[i].at == 0xE000) continue;
    if (at <= kLastCodePoint) begin_span(at);
  }
  for (char32_t c = 0; c < 128; ++c) result.ascii_[c] = result.symbol_beyond_ascii(c);
  return result;
}

uint16_t Alphabet::symbol_beyond_ascii(char32_t c) const {
  const auto after =
      std::upper_bound(spans_.begin(), spans_.end(), c,
                       [](char32_t value, const Span& span) { return value < span.first; });
  return std::prev(after)->symbol;
}

}  // namespace penstock::grammar
