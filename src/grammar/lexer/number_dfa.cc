#include "grammar/lexer/number_dfa.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "grammar/parts/intern_table.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMaxBoundDigits = 400;
constexpr uint64_t kMaxModulus = 100'000;
constexpr size_t kThreadsOfEdge = 4;  // this many take the memory of an edge
constexpr int kDoubleDigits = 15;
// for numbers with a bound of 0; others are unlimited
constexpr int kMaxExponentDigits = 2;

// A bound of the magnitude as digits; not present: unbounded.
struct DigitBound {
  bool present = false, open = false;
  std::string whole, fraction;

  static DigitBound of(const std::optional<NumberBound>& bound) {
    if (!bound) return {};
    return {true, bound->open, bound->value.whole_digits(), bound->value.fraction_digits()};
  }
};

// Comparison of the digits so far with the bound's leading digits; whole parts of different lengths
// are resolved at the decimal point.
enum class Order : int8_t { kLess = -1, kEqual = 0, kGreater = 1 };

Order compare_digit(Order so_far, char digit, const std::string& bound, size_t at) {
  const char other = at < bound.size() ? bound[at] : '0';
  if (so_far != Order::kEqual || digit == other) return so_far;
  return digit < other ? Order::kLess : Order::kGreater;
}

// The part of a piece with one sign.
struct Side {
  bool negative = false;
  DigitBound low, high;  // bounds of the magnitude
};

enum class Phase : uint8_t {
  kStart,
  kMinus,
  kZero,
  kWhole,
  kPoint,
  kFraction,
  kE,
  kESign,
  kExponent
};

// The position of a text within one side of a piece.
struct Thread {
  uint16_t plan = 0;
  Phase phase = Phase::kStart;
  bool nonzero = false;  // a nonzero digit was read
  // a nonzero digit was read after those that decide about multiples
  bool beyond = false;
  bool ends_in_zero = false;  // of the fraction; canonical spelling only
  Order to_low = Order::kEqual, to_high = Order::kEqual;
  uint16_t n = 0;  // digits of the phase, as far as they matter
  uint32_t residue = 0;
  auto operator<=>(const Thread&) const = default;
};
using Threads = std::vector<Thread>;

// Precomputed data of one side of a piece.
struct Plan {
  Side side;
  bool free = false, digits_only = false;
  bool exponent = false;
  int max_exponent_digits = 0;  // 0: unlimited
  size_t scale = 0;             // decimals that decide about multiples
  uint64_t modulus = 1;
  // the residue must be a multiple of all steps and of none of not_steps
  std::vector<uint32_t> steps, not_steps;
  size_t max_fraction = SIZE_MAX;
  // numbers of digits that can still change the result
  size_t whole_matters = 0, fraction_matters = 0;

  bool has_steps() const { return !steps.empty(); }
  // Whether all numbers have the same number of whole digits, so that the first digit out of bounds
  // decides.
  bool one_length() const {
    return side.low.present && side.high.present && side.low.whole.size() == side.high.whole.size();
  }
  bool residue_allowed(uint64_t r, bool beyond) const {
    if (beyond) return steps.empty();
    return std::all_of(steps.begin(), steps.end(), [&](uint32_t s) { return r % s == 0; }) &&
           std::none_of(not_steps.begin(), not_steps.end(), [&](uint32_t s) { return r % s == 0; });
  }
};

Compiled<void> read_steps(const std::vector<Decimal>& list, size_t scale,
                          std::vector<uint32_t>& out, uint64_t& modulus) {
  for (const Decimal& d : list) {
    const auto step = d.scaled(scale);
    const uint64_t common = step ? std::lcm(modulus, *step) : 0;
    if (common == 0 || common > kMaxModulus || *step > kMaxModulus) {
      return refuse(RefusalKind::kTooLarge, "",
                    "multipleOf needs more than " + std::to_string(kMaxModulus) + " states",
                    "multipleOf");
    }
    modulus = common;
    out.push_back(static_cast<uint32_t>(*step));
  }
  return {};
}

bool zero_or_none(const std::optional<NumberBound>& bound) {
  return !bound || bound->value.is_zero();
}

// Returns the maximum number of decimals near an open bound for which a double still differs from
// the bound.
size_t fraction_limit(const NumberPiece& piece) {
  size_t limit = SIZE_MAX;
  // allows 1.0 for 1
  if (piece.low && piece.high && piece.low->value == piece.high->value)
    return std::max<size_t>(piece.low->value.n_fraction_digits(), 1);
  for (const auto& bound : {piece.low, piece.high}) {
    if (!bound || !bound->open) continue;
    const std::string whole = bound->value.whole_digits();
    const size_t n_whole = whole == "0" ? 0 : whole.size();
    const size_t n = n_whole < kDoubleDigits ? kDoubleDigits - n_whole : 0;
    limit = std::min(limit, std::max<size_t>({n, bound->value.n_fraction_digits(), 1}));
  }
  return limit;
}

Compiled<Plan> make_plan(const NumberPiece& piece, bool negative, bool canonical) {
  Plan plan;
  plan.free = piece.free();
  plan.digits_only = piece.digits_only;
  for (const auto* list : {&piece.multiples_of, &piece.not_multiples_of}) {
    for (const Decimal& d : *list) plan.scale = std::max(plan.scale, d.n_fraction_digits());
  }
  if (auto ok = read_steps(piece.multiples_of, plan.scale, plan.steps, plan.modulus); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = read_steps(piece.not_multiples_of, plan.scale, plan.not_steps, plan.modulus); !ok)
    return tl::unexpected(ok.error());
  const bool no_steps = plan.steps.empty() && plan.not_steps.empty();
  plan.exponent = !canonical && no_steps && zero_or_none(piece.low) && zero_or_none(piece.high);
  plan.max_exponent_digits = plan.free ? 0 : kMaxExponentDigits;
  plan.max_fraction = plan.has_steps() ? std::max<size_t>(plan.scale, 1) : fraction_limit(piece);
  const auto mirrored = [](const std::optional<NumberBound>& b) {
    return b ? std::optional(NumberBound{-b->value, b->open}) : std::nullopt;
  };
  plan.side.negative = negative;
  plan.side.low = DigitBound::of(negative ? mirrored(piece.high) : piece.low);
  plan.side.high = DigitBound::of(negative ? mirrored(piece.low) : piece.high);
  for (const DigitBound* b : {&plan.side.low, &plan.side.high}) {
    if (b->whole.size() + b->fraction.size() > kMaxBoundDigits) {
      return refuse(RefusalKind::kTooLarge, "",
                    "a bound has more than " + std::to_string(kMaxBoundDigits) + " digits");
    }
    plan.whole_matters = std::max(plan.whole_matters, b->whole.size());
    plan.fraction_matters = std::max(plan.fraction_matters, b->fraction.size());
  }
  plan.fraction_matters = std::max(plan.fraction_matters, plan.scale);
  return plan;
}

// Nothing of the sign lies between the bounds.
bool side_is_empty(const NumberPiece& piece, bool negative) {
  const auto& near = negative ? piece.low : piece.high;  // the bound nearer to the other sign
  if (!near || near->value.is_zero()) return near.has_value() && (negative || near->open);
  return negative ? !near->value.negative() : near->value.negative();
}

class NumberExplorer {
 public:
  NumberExplorer(bool canonical, Budget& budget) : canonical_(canonical), budget_(budget) {}

  Compiled<void> add(const NumberPiece& piece) {
    for (const bool negative : {false, true}) {
      if (side_is_empty(piece, negative)) continue;
      auto plan = make_plan(clamped(piece, negative), negative, canonical_);
      if (!plan) return tl::unexpected(plan.error());
      start_.push_back({.plan = static_cast<uint16_t>(plans_.size())});
      plans_.push_back(*std::move(plan));
      if (plans_.size() > UINT16_MAX) return too_large("too many ranges of numbers");
    }
    return {};
  }

  Compiled<ByteDfa> run() {
    state_of(start_);
    Threads next;
    while (!todo_.empty()) {
      const uint32_t state = todo_.back();
      todo_.pop_back();
      if (!budget_.spend(states_[state].size())) return too_large(kTooMuchWork);
      for (const char c : std::string_view("+-.0123456789Ee")) {
        advance(states_[state], c, next);
        if (next.empty()) continue;
        if (!budget_.take_states(1) || !budget_.take_edges(next.size() / kThreadsOfEdge))
          return too_large("a set of numbers needs too many states");
        const uint32_t target = state_of(next);
        steps_[state].push_back({static_cast<uint8_t>(c), target});
      }
    }
    return assemble();
  }

 private:
  struct Step {
    uint8_t byte;
    uint32_t target;
  };

  // A bound with the other sign does not restrict this side's magnitudes.
  static NumberPiece clamped(NumberPiece piece, bool negative) {
    auto& far = negative ? piece.high : piece.low;
    if (far && (negative ? !far->value.negative() : far->value.negative())) far.reset();
    return piece;
  }

  uint32_t state_of(Threads& threads) {
    if (!std::ranges::is_sorted(threads)) std::ranges::sort(threads);
    threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
    uint64_t hash = threads.size();
    for (const Thread& t : threads) hash = mix(hash, hash_of(t));
    const uint32_t found = index_.find(hash, [&](uint32_t i) { return states_[i] == threads; });
    if (found != InternTable::kAbsent) return found;
    const auto state = static_cast<uint32_t>(states_.size());
    states_.push_back(threads);
    index_.insert(hash, state);
    steps_.emplace_back();
    todo_.push_back(state);
    accepts_.push_back(std::ranges::any_of(threads, [&](const Thread& t) { return accepts(t); }));
    return state;
  }

  static uint64_t hash_of(const Thread& t) {
    const auto bit = [](bool set, int at) { return static_cast<uint64_t>(set) << at; };
    const uint64_t flags = bit(t.nonzero, 0) | bit(t.beyond, 1) | bit(t.ends_in_zero, 2) |
                           static_cast<uint64_t>(static_cast<int>(t.to_low) + 1) << 3 |
                           static_cast<uint64_t>(static_cast<int>(t.to_high) + 1) << 5 |
                           static_cast<uint64_t>(t.phase) << 8;
    return mix(flags | static_cast<uint64_t>(t.plan) << 16 | static_cast<uint64_t>(t.n) << 32,
               t.residue);
  }

  void advance(const Threads& from, char c, Threads& result) const {
    result.clear();
    for (const Thread& thread : from) {
      Thread next = thread;
      if (step(plans_[thread.plan], next, c)) result.push_back(next);
    }
  }

  bool step(const Plan& plan, Thread& t, char c) const {
    const bool digit = c >= '0' && c <= '9';
    switch (t.phase) {
      case Phase::kStart:
        if (plan.side.negative) return c == '-' && (t.phase = Phase::kMinus, true);
        [[fallthrough]];
      case Phase::kMinus: return digit && first_digit(plan, t, c);
      case Phase::kZero: return c == '.' ? point(plan, t) : exponent(plan, t, c);
      case Phase::kWhole:
        return digit ? whole_digit(plan, t, c) : c == '.' ? point(plan, t) : exponent(plan, t, c);
      case Phase::kPoint: return digit && fraction_digit(plan, t, c);
      case Phase::kFraction: return digit ? fraction_digit(plan, t, c) : exponent(plan, t, c);
      case Phase::kE:
        if (c == '+' || c == '-') return t.phase = Phase::kESign, true;
        [[fallthrough]];
      case Phase::kESign:
      case Phase::kExponent: return digit && exponent_digit(plan, t);
    }
    return false;
  }

  static bool first_digit(const Plan& plan, Thread& t, char c) {
    t.phase = c == '0' ? Phase::kZero : Phase::kWhole;
    return whole_value(plan, t, c);
  }
  static bool whole_digit(const Plan& plan, Thread& t, char c) { return whole_value(plan, t, c); }

  static bool whole_value(const Plan& plan, Thread& t, char c) {
    t.to_low = compare_digit(t.to_low, c, plan.side.low.whole, t.n);
    t.to_high = compare_digit(t.to_high, c, plan.side.high.whole, t.n);
    t.n = static_cast<uint16_t>(std::min(plan.whole_matters, t.n + size_t{1}) +
                                (t.n >= plan.whole_matters));
    t.nonzero |= c != '0';
    t.residue = static_cast<uint32_t>((t.residue * uint64_t{10} + (c - '0')) % plan.modulus);
    // Without a bound, or if the number is longer than the bound, digits do not compare.
    if (t.n > plan.side.low.whole.size()) t.to_low = Order::kEqual;
    if (t.n > plan.side.high.whole.size()) t.to_high = Order::kEqual;
    if (plan.side.high.present && t.n > plan.side.high.whole.size()) return false;
    return !plan.one_length() || (t.to_low != Order::kLess && t.to_high != Order::kGreater);
  }

  // Behind the point, where the first digit that differs decides.
  static bool not_outside(const Plan& plan, const Thread& t) {
    return !(plan.side.low.present && t.to_low == Order::kLess) &&
           !(plan.side.high.present && t.to_high == Order::kGreater);
  }

  // Compares whole parts when one of them ends.
  static Order finished(Order by_digits, size_t n, const DigitBound& bound) {
    if (!bound.present || n == bound.whole.size()) return by_digits;
    return n < bound.whole.size() ? Order::kLess : Order::kGreater;
  }

  bool point(const Plan& plan, Thread& t) const {
    if (plan.digits_only || (canonical_ && plan.has_steps() && plan.scale == 0)) return false;
    t.to_low = finished(t.to_low, t.n, plan.side.low);
    t.to_high = finished(t.to_high, t.n, plan.side.high);
    t.phase = Phase::kPoint;
    t.n = 0;
    return not_outside(plan, t);
  }

  bool fraction_digit(const Plan& plan, Thread& t, char c) const {
    if (t.n >= plan.max_fraction) return false;
    t.phase = Phase::kFraction;
    if (t.n < plan.scale) {
      t.residue = static_cast<uint32_t>((t.residue * uint64_t{10} + (c - '0')) % plan.modulus);
    } else if (c != '0') {
      if (plan.has_steps()) return false;
      t.beyond |= !plan.not_steps.empty();
    }
    if (plan.side.low.present) t.to_low = compare_digit(t.to_low, c, plan.side.low.fraction, t.n);
    if (plan.side.high.present)
      t.to_high = compare_digit(t.to_high, c, plan.side.high.fraction, t.n);
    t.nonzero |= c != '0';
    t.ends_in_zero = canonical_ && c == '0';
    const size_t matters =
        plan.max_fraction != SIZE_MAX ? plan.max_fraction : plan.fraction_matters + 1;
    t.n = static_cast<uint16_t>(std::min(matters, t.n + size_t{1}));
    return not_outside(plan, t);
  }

  bool exponent(const Plan& plan, Thread& t, char c) const {
    // With bounds of 0 or none, the digits determine the side, whatever the exponent.
    if ((c != 'e' && c != 'E') || !plan.exponent || !accepts(t)) return false;
    t.phase = Phase::kE;
    t.n = 0;
    t.to_low = t.to_high = Order::kEqual;
    return true;
  }

  static bool exponent_digit(const Plan& plan, Thread& t) {
    t.phase = Phase::kExponent;
    if (plan.max_exponent_digits == 0) return true;
    return ++t.n <= plan.max_exponent_digits;
  }

  bool accepts(const Thread& t) const {
    const Plan& plan = plans_[t.plan];
    if (plan.side.negative && !t.nonzero && (!plan.free || canonical_)) return false;  // "-0"
    switch (t.phase) {
      case Phase::kZero:
      case Phase::kWhole: {
        Thread end = t;
        end.to_low = finished(t.to_low, t.n, plan.side.low);
        end.to_high = finished(t.to_high, t.n, plan.side.high);
        end.n = 0;
        return within(plan, end);
      }
      case Phase::kFraction: return !t.ends_in_zero && within(plan, t);
      case Phase::kExponent: return t.nonzero || !(plan.side.low.open || plan.side.high.open);
      default: return false;
    }
  }

  // Whether the number that ends here is within the bounds and satisfies the multiples.
  static bool within(const Plan& plan, const Thread& t) {
    const auto rest = [&](Order order, const DigitBound& bound) {
      // Decimals of the bound that were not written are not all 0.
      return order == Order::kEqual && t.n < bound.fraction.size() ? Order::kLess : order;
    };
    if (plan.side.low.present) {
      const Order order = rest(t.to_low, plan.side.low);
      if (order == Order::kLess || (order == Order::kEqual && plan.side.low.open)) return false;
    }
    if (plan.side.high.present) {
      const Order order = rest(t.to_high, plan.side.high);
      if (order == Order::kGreater || (order == Order::kEqual && plan.side.high.open)) return false;
    }
    uint64_t residue = t.residue;
    for (size_t i = t.n; i < plan.scale; ++i) residue = residue * 10 % plan.modulus;
    return plan.residue_allowed(residue, t.beyond);
  }

  // Builds the automaton from the states that reach acceptance.
  ByteDfa assemble() const {
    const size_t n = steps_.size();
    std::vector<std::vector<uint32_t>> before(n);
    std::vector<uint32_t> stack;
    std::vector<bool> live(accepts_);
    for (uint32_t i = 0; i < n; ++i) {
      for (const Step& s : steps_[i]) before[s.target].push_back(i);
      if (live[i]) stack.push_back(i);
    }
    while (!stack.empty()) {
      const uint32_t state = stack.back();
      stack.pop_back();
      for (const uint32_t from : before[state]) {
        if (!live[from]) stack.push_back(from);
        live[from] = true;
      }
    }
    ByteDfa dfa;
    std::vector<uint32_t> ids(n, ByteDfa::kDead);
    for (uint32_t i = 0; i < n; ++i) {
      if (live[i]) ids[i] = dfa.add_state();
    }
    std::vector<ByteEdge> edges;
    for (uint32_t i = 0; i < n; ++i) {
      if (!live[i]) continue;
      edges.clear();
      for (const Step& s : steps_[i]) {
        if (live[s.target]) edges.push_back({s.byte, s.byte, false, ids[s.target]});
      }
      dfa.set_edges(ids[i], edges);
      dfa.set_tag(ids[i], accepts_[i] ? 1 : 0);
    }
    dfa.set_start(ids[0]);
    dfa.finish();
    return dfa;
  }

  bool canonical_;
  Budget& budget_;
  std::vector<Plan> plans_;
  Threads start_;
  std::deque<Threads> states_;  // each one sorted
  InternTable index_;
  std::vector<uint32_t> todo_;
  std::vector<std::vector<Step>> steps_;
  std::vector<bool> accepts_;
};

// Whether value is a multiple of factor, by long division.
bool is_multiple(const Decimal& value, const Decimal& factor) {
  const size_t scale = std::max(value.n_fraction_digits(), factor.n_fraction_digits());
  const auto divisor = factor.scaled(scale);
  if (!divisor || *divisor == 0) return false;
  uint64_t residue = 0;
  std::string digits = value.whole_digits() + value.fraction_digits();
  digits.append(scale - value.n_fraction_digits(), '0');
  for (const char c : digits)
    residue = static_cast<uint64_t>((static_cast<unsigned __int128>(residue) * 10 + (c - '0')) %
                                    *divisor);
  return residue == 0;
}

}  // namespace

bool NumberPiece::contains(const Decimal& value) const {
  if (low && (value < low->value || (low->open && value == low->value))) return false;
  if (high && (value > high->value || (high->open && value == high->value))) return false;
  const auto divides = [&](const Decimal& d) { return is_multiple(value, d); };
  return std::all_of(multiples_of.begin(), multiples_of.end(), divides) &&
         std::none_of(not_multiples_of.begin(), not_multiples_of.end(), divides);
}

Compiled<ByteDfa> make_number_dfa(std::span<const NumberPiece> pieces, NumberSpelling spelling,
                                  Budget& budget) {
  NumberExplorer explorer(spelling == NumberSpelling::kCanonical, budget);
  for (const NumberPiece& piece : pieces) {
    if (auto ok = explorer.add(piece); !ok) return tl::unexpected(ok.error());
  }
  return explorer.run();
}

}  // namespace penstock::grammar
