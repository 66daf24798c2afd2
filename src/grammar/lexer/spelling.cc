#include "grammar/lexer/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "grammar/parts/intern_table.h"

namespace penstock::grammar {
namespace {

// A range of characters that lead to the same state.
struct Span {
  // relative to the first character that the bytes so far may become
  uint32_t first, last;
  uint32_t target;  // state of the character automaton
  auto operator<=>(const Span&) const = default;
};
using Spans = std::vector<Span>;

// One byte of a spelling, which encodes some bits of the character, most significant first.
enum class Digit : uint8_t { kContinuation, kHex, kHighPair, kLowPair, kBackslash, kU, kD };

constexpr size_t kSpansOfEdge = 4;  // this many take the memory of an edge

constexpr Digit kUtf8Tail[] = {Digit::kContinuation, Digit::kContinuation, Digit::kContinuation};
constexpr Digit kFourHex[] = {Digit::kHex, Digit::kHex, Digit::kHex, Digit::kHex};
// After "\u": D8-DB and two digits, then \uDC-\uDF and two digits.
constexpr Digit kPair[] = {Digit::kD,         Digit::kHighPair, Digit::kHex, Digit::kHex,
                           Digit::kBackslash, Digit::kU,        Digit::kD,   Digit::kLowPair,
                           Digit::kHex,       Digit::kHex};

int bits_of(Digit digit) {
  switch (digit) {
    case Digit::kContinuation: return 6;
    case Digit::kHex: return 4;
    case Digit::kHighPair:
    case Digit::kLowPair: return 2;
    default: return 0;
  }
}

int bits_of(std::span<const Digit> digits) {
  int bits = 0;
  for (const Digit digit : digits) bits += bits_of(digit);
  return bits;
}

// Returns the bytes that spell a digit's value: one, or two for letters in both cases.
std::string bytes_of(Digit digit, uint32_t value, bool lower_only) {
  const auto both = [&](char lower) {
    return lower_only || lower < 'a' ? std::string{lower}
                                     : std::string{static_cast<char>(lower - 32), lower};
  };
  const auto hex = [&](uint32_t v) { return both("0123456789abcdef"[v]); };
  switch (digit) {
    case Digit::kContinuation: return {static_cast<char>(0x80 + value)};
    case Digit::kHex: return hex(value);
    case Digit::kHighPair: return hex(8 + value);
    case Digit::kLowPair: return hex(12 + value);
    case Digit::kBackslash: return "\\";
    case Digit::kU: return "u";
    case Digit::kD: return both('d');
  }
  return {};
}

// Returns the spans within [first, last], relative to base <= first.
Spans cut(const Spans& spans, uint32_t first, uint32_t last, uint32_t base) {
  Spans result;
  auto it = std::partition_point(spans.begin(), spans.end(),
                                 [&](const Span& s) { return s.last < first; });
  for (; it != spans.end() && it->first <= last; ++it) {
    result.push_back(
        {std::max(it->first, first) - base, std::min(it->last, last) - base, it->target});
  }
  return result;
}
Spans cut(const Spans& spans, uint32_t first, uint32_t last) {
  return cut(spans, first, last, first);
}

class Speller {
 public:
  Speller(const CharDfa& dfa, Spelling spelling, Budget& budget)
      : dfa_(dfa), spelling_(spelling), budget_(budget) {}

  Compiled<ByteDfa> run() {
    if (dfa_.start != CharDfa::kDead) out_.set_start(boundary(dfa_.start));
    while (!boundaries_todo_.empty() || n_inner_done_ < inner_.size()) {
      if (!budget_.take_states(1) ||
          n_spans_ / kSpansOfEdge + n_edges_ > budget_.limits().max_edges)
        return too_large("the automaton of a string is too large");
      if (n_inner_done_ < inner_.size()) {
        fill_inner();
      } else {
        fill_boundary();
      }
    }
    if (!budget_.take_edges(n_edges_)) return too_large("the automaton of a string is too large");
    out_.finish();
    return std::move(out_);
  }

 private:
  bool json() const { return spelling_ != Spelling::kUtf8; }
  bool closes() const { return json() && spelling_ != Spelling::kJsonPart; }
  bool canonical() const { return spelling_ == Spelling::kJsonCanonical; }

  // Returns the state at the end of a character.
  uint32_t boundary(uint32_t char_state) {
    if (boundaries_.empty()) boundaries_.resize(dfa_.n_states(), ByteDfa::kDead);
    uint32_t& state = boundaries_[char_state];
    if (state == ByteDfa::kDead) {
      state = out_.add_state();
      boundaries_todo_.push_back(char_state);
    }
    return state;
  }

  // Returns the state after the closing quotation mark.
  uint32_t end(uint32_t tag) {
    uint32_t& state = ends_[tag];
    if (state == ByteDfa::kDead) {
      state = out_.add_state();
      out_.set_tag(state, tag);
      out_.set_char_states(state, {}, false);
    }
    return state;
  }

  // Returns the state that continues with digits, whose values split the spans.
  uint32_t inner(std::span<const Digit> digits, Spans spans) {
    n_spans_ += spans.size();
    uint64_t hash = mix(reinterpret_cast<uintptr_t>(digits.data()), digits.size());
    for (const Span& span : spans) hash = mix(mix(mix(hash, span.first), span.last), span.target);
    const uint32_t found = inner_index_.find(hash, [&](uint32_t i) {
      return inner_[i].digits == digits.data() && inner_[i].n_digits == digits.size() &&
             inner_[i].spans == spans;
    });
    if (found != InternTable::kAbsent) return inner_[found].state;
    inner_index_.insert(hash, static_cast<uint32_t>(inner_.size()));
    inner_.push_back({digits.data(), digits.size(), std::move(spans), out_.add_state()});
    return inner_.back().state;
  }

  void fill_inner() {
    const Inner& key = inner_[n_inner_done_++];  // the reference stays valid
    const uint32_t state = key.state;
    std::vector<ByteEdge> edges;
    add_digit({key.digits, key.n_digits}, key.spans, edges);
    set(state, edges);
    std::vector<uint32_t> targets;
    for (const Span& span : key.spans) targets.push_back(span.target);
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    out_.set_char_states(state, targets, true);
  }

  void add_digit(std::span<const Digit> digits, const Spans& spans, std::vector<ByteEdge>& edges) {
    const int rest = bits_of(digits.subspan(1));
    const bool last = digits.size() == 1;
    const uint32_t n_values = 1U << bits_of(digits[0]);
    for (uint32_t value = 0; value < n_values;) {
      const uint32_t first = value << rest, end = (value + 1) << rest;
      const auto it = std::partition_point(spans.begin(), spans.end(),
                                           [&](const Span& s) { return s.last < first; });
      if (it == spans.end()) return;
      if (it->first >= end) {
        value = it->first >> rest;
        continue;
      }
      // Adjacent values within one span lead to the same state.
      uint32_t behind = value + 1, target = 0;
      if (it->first <= first && it->last >= end - 1) {
        behind = std::min(n_values, (it->last + 1) >> rest);
        target = last ? boundary(it->target)
                      : inner(digits.subspan(1), {{0, (1U << rest) - 1, it->target}});
      } else {
        target = inner(digits.subspan(1), cut(spans, first, end - 1));
      }
      for (; value < behind; ++value) {
        for (const char c : bytes_of(digits[0], value, canonical()))
          edges.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c), last, target});
      }
    }
  }

  void set(uint32_t state, std::vector<ByteEdge>& edges) {
    std::ranges::sort(edges, {}, &ByteEdge::first);
    n_edges_ += edges.size();
    out_.set_edges(state, edges);
  }

  Spans spans_of(uint32_t char_state) const {
    Spans result;
    const auto spans = dfa_.alphabet.spans();
    const auto add = [&](uint32_t first, uint32_t last, uint32_t target) {
      if (first > last) return;
      if (!result.empty() && result.back().target == target && result.back().last + 1 == first) {
        result.back().last = last;
      } else {
        result.push_back({first, last, target});
      }
    };
    for (size_t i = 0; i < spans.size(); ++i) {
      const uint32_t target =
          dfa_.next[char_state * static_cast<size_t>(dfa_.alphabet.size()) + spans[i].symbol];
      if (target == CharDfa::kDead) continue;
      const uint32_t first = spans[i].first;
      const uint32_t last = i + 1 < spans.size() ? spans[i + 1].first - 1 : kLastCodePoint;
      add(first, std::min<uint32_t>(last, 0xD7FF), target);
      add(std::max<uint32_t>(first, 0xE000), last, target);
    }
    return result;
  }

  void fill_boundary() {
    const uint32_t char_state = boundaries_todo_.front();
    boundaries_todo_.pop_front();
    const uint32_t state = boundaries_[char_state];
    const Spans spans = spans_of(char_state);
    std::vector<ByteEdge> edges;
    add_utf8(spans, edges);
    const uint32_t tag = dfa_.tags[char_state];
    if (json()) add_escapes(spans, edges);
    if (!closes()) {
      out_.set_tag(state, tag);
    } else if (tag != 0) {
      edges.push_back({'"', '"', false, end(tag)});
    }
    set(state, edges);
    out_.set_char_states(state, {&char_state, 1}, false);
  }

  void add_utf8(const Spans& spans, std::vector<ByteEdge>& edges) {
    for (const Span& span : spans) {
      const auto add = [&](uint32_t first, uint32_t last) {
        const uint32_t from = std::max(span.first, first), to = std::min(span.last, last);
        if (from <= to)
          edges.push_back(
              {static_cast<uint8_t>(from), static_cast<uint8_t>(to), true, boundary(span.target)});
      };
      if (!json()) {
        add(0, 0x7F);
        continue;
      }
      add(0x20, '"' - 1);
      add('"' + 1, '\\' - 1);
      add('\\' + 1, 0x7F);
    }
    if (spans.empty() || spans.back().last < 0x80) return;
    const auto add_leads = [&](uint32_t first_lead, uint32_t last_lead, int n_tail,
                               uint32_t least) {
      const auto digits = std::span(kUtf8Tail).first(n_tail);
      const int bits = bits_of(digits);
      for (uint32_t lead = first_lead; lead <= last_lead; ++lead) {
        const uint32_t base = (lead & (0x3F >> n_tail)) << bits;
        Spans part = cut(spans, std::max(base, least),
                         std::min<uint32_t>(base + (1U << bits) - 1, kLastCodePoint), base);
        if (part.empty()) continue;
        edges.push_back({static_cast<uint8_t>(lead), static_cast<uint8_t>(lead), false,
                         inner(digits, std::move(part))});
      }
    };
    add_leads(0xC2, 0xDF, 1, 0x80);
    add_leads(0xE0, 0xEF, 2, 0x800);
    add_leads(0xF0, 0xF4, 3, 0x10000);
  }

  // Returns the letters that may follow a backslash.
  std::string short_escapes() const { return canonical() ? "\"\\bfnrt" : "\"\\/bfnrt"; }
  static uint32_t meaning(char letter) {
    switch (letter) {
      case 'b': return 8;
      case 'f': return 12;
      case 'n': return 10;
      case 'r': return 13;
      case 't': return 9;
      default: return static_cast<uint8_t>(letter);
    }
  }

  // Returns the characters that may be spelled \uXXXX.
  Spans unicode_escaped(const Spans& spans) const {
    if (spelling_ == Spelling::kJsonAllEscapes) return spans;
    Spans controls = cut(spans, 0, 0x1F);
    if (!canonical()) return controls;
    Spans result;
    for (const Span& span : controls) {
      for (uint32_t c = span.first; c <= span.last; ++c) {
        if ((c < 8 || c > 13 || c == 11)) result.push_back({c, c, span.target});
      }
    }
    return result;
  }

  void add_escapes(const Spans& spans, std::vector<ByteEdge>& edges) {
    std::vector<ByteEdge> escapes;
    std::vector<uint32_t> targets;
    for (const char letter : short_escapes()) {
      const Spans one = cut(spans, meaning(letter), meaning(letter));
      if (one.empty()) continue;
      targets.push_back(one.front().target);
      escapes.push_back({static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), true,
                         boundary(one.front().target)});
    }
    const Spans wide = unicode_escaped(spans);
    for (const Span& span : wide) targets.push_back(span.target);
    if (!wide.empty()) escapes.push_back({'u', 'u', false, behind_u(wide)});
    if (escapes.empty()) return;
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    edges.push_back({'\\', '\\', false, escape_state(escapes, targets)});
  }

  // Interns states by their escapes.
  uint32_t escape_state(std::vector<ByteEdge>& escapes, const std::vector<uint32_t>& targets) {
    std::vector<std::pair<uint8_t, uint32_t>> key;
    for (const ByteEdge& e : escapes) key.emplace_back(e.first, e.target);
    const auto [it, is_new] = escapes_.emplace(key, ByteDfa::kDead);
    if (is_new) {
      it->second = out_.add_state();
      set(it->second, escapes);
      out_.set_char_states(it->second, targets, true);
    }
    return it->second;
  }

  uint32_t behind_u(const Spans& wide) {
    const Spans plain = cut(wide, 0, 0xFFFF), pairs = cut(wide, 0x10000, kLastCodePoint);
    if (pairs.empty()) return inner(kFourHex, plain);
    // Four-digit escapes and surrogate pairs differ at the first digit, or at the second after D.
    std::vector<ByteEdge> edges;
    add_digit(kFourHex, plain, edges);
    std::erase_if(edges, [](const ByteEdge& e) { return (e.first | 32) == 'd'; });
    const uint32_t state = out_.add_state(), behind_d = out_.add_state();
    for (const char d : {'D', 'd'})
      edges.push_back({static_cast<uint8_t>(d), static_cast<uint8_t>(d), false, behind_d});
    set(state, edges);
    edges.clear();
    add_digit(std::span(kFourHex).subspan(1), cut(plain, 0xD000, 0xDFFF), edges);
    add_digit(std::span(kPair).subspan(1), pairs, edges);
    set(behind_d, edges);
    std::vector<uint32_t> targets;
    for (const Span& span : wide) targets.push_back(span.target);
    out_.set_char_states(state, targets, true);
    out_.set_char_states(behind_d, targets, true);
    return state;
  }

  struct Inner {
    const Digit* digits;
    size_t n_digits;
    Spans spans;
    uint32_t state;
  };

  const CharDfa& dfa_;
  Spelling spelling_;
  Budget& budget_;
  ByteDfa out_;
  size_t n_edges_ = 0, n_spans_ = 0;
  // by state of the character automaton; kDead: not created yet
  std::vector<uint32_t> boundaries_;
  std::deque<uint32_t> boundaries_todo_;
  // in the order of their states; finished ones first
  std::deque<Inner> inner_;
  size_t n_inner_done_ = 0;
  InternTable inner_index_;
  std::map<uint32_t, uint32_t> ends_;  // by tag
  std::map<std::vector<std::pair<uint8_t, uint32_t>>, uint32_t> escapes_;
};

}  // namespace

Compiled<ByteDfa> spell(const CharDfa& dfa, Spelling spelling, Budget& budget) {
  return Speller(dfa, spelling, budget).run();
}

std::string canonical_json(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<uint8_t>(c));
        } else {
          out += c;
        }
    }
  }
  return out;
}

}  // namespace penstock::grammar
