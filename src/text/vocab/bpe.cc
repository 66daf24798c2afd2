#include "text/vocab/bpe.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "text/unicode/unicode.h"
#include "text/vocab/byte_alphabet.h"

namespace penstock {
namespace {

constexpr size_t kShortWord = 40;  // symbols; for shorter words scanning is faster than a heap
constexpr uint32_t kNoRank = ~uint32_t{0};
constexpr uint32_t kNone = ~uint32_t{0};
constexpr size_t kMaxPart = size_t{1} << 30;

size_t symbol_length(std::string_view text, size_t at, bool bytes) {
  return bytes ? 1 : static_cast<size_t>(unicode::decode(text, at).length);
}

// Whether text has a ▁ after a character other than ▁.
bool crosses_space(std::string_view text) {
  for (size_t at = 1; (at = text.find(kSpaceSymbol, at)) != std::string_view::npos;
       at += kSpaceSymbol.size()) {
    if (at < kSpaceSymbol.size() ||
        text.substr(at - kSpaceSymbol.size(), kSpaceSymbol.size()) != kSpaceSymbol)
      return true;
  }
  return false;
}

}  // namespace

struct Bpe::Scratch final : WordScratch {
  struct Symbol {
    TokenId id;      // -1 = unknown
    uint32_t begin;  // byte in the word
    uint32_t prev, next;
  };

  struct Candidate {
    uint32_t rank, position;
    TokenId left, right, merged;
    bool operator<(const Candidate& o) const {
      return rank != o.rank ? rank > o.rank : position > o.position;
    }
  };

  std::vector<Symbol> symbols;
  std::vector<uint32_t> ranks;
  std::vector<TokenId> merged;
  std::vector<Candidate> heap;
  std::unordered_map<TokenId, std::pair<TokenId, TokenId>>
      unused_splits;  // last pair seen that makes an unused token
};

void add_merges_from_ranks(const std::vector<RankedToken>& tokens, BpeRules& rules) {
  TokenId next_virtual = rules.vocab_size;
  const auto symbol_id = [&](std::string_view text) { return rules.words.find(text); };
  if (!rules.bytes) {
    for (const RankedToken& token : tokens) {
      for (size_t i = 0; i < token.text.size();) {
        const size_t length = symbol_length(token.text, i, false);
        const std::string_view c = token.text.substr(i, length);
        if (length < token.text.size() && rules.words.find(c) < 0)
          rules.words.insert(c, next_virtual++);
        i += length;
      }
    }
  }
  rules.merges.reserve(tokens.size() * 3);
  for (const RankedToken& token : tokens) {
    const size_t first = token.text.empty() ? 0 : symbol_length(token.text, 0, rules.bytes);
    for (size_t cut = first; cut < token.text.size();
         cut += symbol_length(token.text, cut, rules.bytes)) {
      const TokenId left = symbol_id(token.text.substr(0, cut));
      if (left < 0) continue;
      const TokenId right = symbol_id(token.text.substr(cut));
      if (right < 0) continue;
      rules.merges.insert(BpeRules::pair_key(left, right), {}) = {token.rank, token.id};
    }
  }
}

Bpe::Bpe(BpeRules rules) : rules_(std::move(rules)) {
  byte_symbols_.fill(kNoToken);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (rules_.bytes || byte < 0x80) byte_symbols_[byte] = rules_.words.find({&c, 1});
  }
  whole_ = std::make_unique<std::atomic<uint8_t>[]>(static_cast<size_t>(rules_.vocab_size) + 1);
  const bool plain = !rules_.bytes && rules_.prefix.empty() && rules_.suffix.empty();
  cut_at_space_ = plain && rules_.words.find(kSpaceSymbol) >= 0;
  std::vector<bool> is_merged(static_cast<size_t>(rules_.vocab_size) + 1);
  bool makes_unused = false;
  rules_.merges.for_each([&](uint64_t, const Merge& merge) {
    if (merge.id >= 0 && merge.id < rules_.vocab_size) is_merged[merge.id] = true;
    makes_unused = makes_unused || is_unused(merge.id);
  });
  if (!makes_unused) rules_.unused.clear();
  if (!rules_.unused.empty()) cut_at_space_ = false;
  rules_.words.for_each([&](std::string_view text, TokenId id) {
    if (cut_at_space_ && id < rules_.vocab_size && is_merged[id] && crosses_space(text))
      cut_at_space_ = false;
  });
}

std::unique_ptr<WordScratch> Bpe::make_scratch() const { return std::make_unique<Scratch>(); }

void Bpe::encode(std::string_view word, WordScratch* scratch, std::vector<TokenId>& out) const {
  auto& s = static_cast<Scratch&>(*scratch);
  std::string unmapped;
  if (rules_.mapped) {
    if (auto bytes = from_byte_alphabet(word)) {
      unmapped = *std::move(bytes);
      word = unmapped;
    }
  }
  if (rules_.ignore_merges) {
    const TokenId id = rules_.words.find(word);
    if (id >= 0 && id < rules_.vocab_size) {
      out.push_back(id);
      return;
    }
  }
  const bool has_user = !rules_.user_defined.empty();
  if (!cut_at_space_ && !has_user) {
    for (; word.size() > kMaxPart; word.remove_prefix(kMaxPart))
      encode_part(word.substr(0, kMaxPart), s, out);
    encode_part(word, s, out);
    return;
  }
  size_t begin = 0;
  bool after_space = true;
  for (size_t i = 0; i < word.size();) {
    if (has_user && rules_.user_defined.may_start(word[i])) {
      const Trie::Found user = rules_.user_defined.longest(word.substr(i));
      if (user.length > 0) {
        encode_part(word.substr(begin, i - begin), s, out);
        out.push_back(user.value);
        begin = i += user.length;
        after_space = true;
        continue;
      }
    }
    const bool space =
        word[i] == kSpaceSymbol[0] && word.substr(i, kSpaceSymbol.size()) == kSpaceSymbol;
    if ((space && !after_space && cut_at_space_) || i - begin > kMaxPart) {
      encode_part(word.substr(begin, i - begin), s, out);
      begin = i;
    }
    after_space = space;
    i += static_cast<unsigned char>(word[i]) < 0x80 ? 1 : unicode::decode(word, i).length;
  }
  encode_part(word.substr(begin), s, out);
}

void Bpe::encode_part(std::string_view part, Scratch& s, std::vector<TokenId>& out) const {
  if (part.empty()) return;
  if (!rules_.prefix.empty() || !rules_.suffix.empty()) {
    encode_merged(part, s, out);
    return;
  }
  const TokenId id = rules_.words.find(part);
  if (id < 0 || id >= rules_.vocab_size || is_unused(id)) {
    encode_merged(part, s, out);
    return;
  }
  const uint8_t state = whole_[id].load(std::memory_order_relaxed);
  if (state == 1) {
    out.push_back(id);
    return;
  }
  const size_t before = out.size();
  encode_merged(part, s, out);
  if (state == 0) {
    const bool whole = out.size() == before + 1 && out[before] == id;
    whole_[id].store(whole ? 1 : 2, std::memory_order_relaxed);
  }
}

void Bpe::encode_merged(std::string_view part, Scratch& s, std::vector<TokenId>& out) const {
  bound_part(part);
  start_symbols(part, s);
  if (s.symbols.empty()) return;
  if (s.symbols.size() <= kShortWord && rules_.unused.empty()) {
    merge_short(s);
  } else {
    merge_long(s);
  }
  emit(part, s, out);
}

TokenId Bpe::symbol_id(std::string_view symbol, bool first, bool last) const {
  const bool prefixed = !first && !rules_.prefix.empty(), suffixed = last && !rules_.suffix.empty();
  if (!prefixed && !suffixed) {
    return symbol.size() == 1 ? byte_symbols_[static_cast<unsigned char>(symbol[0])]
                              : rules_.words.find(symbol);
  }
  std::string text(symbol);
  if (prefixed) text.insert(0, rules_.prefix);
  if (suffixed) text += rules_.suffix;
  return rules_.words.find(text);
}

void Bpe::start_symbols(std::string_view part, Scratch& s) const {
  s.symbols.clear();
  for (size_t i = 0; i < part.size();) {
    const size_t length = symbol_length(part, i, rules_.bytes);
    const TokenId id = symbol_id(part.substr(i, length), i == 0, i + length == part.size());
    // Without a token for unknown symbols, they are dropped and their neighbours become adjacent.
    if (id >= 0 || rules_.unk != kNoToken || rules_.byte_fallback) {
      const auto n = static_cast<uint32_t>(s.symbols.size());
      s.symbols.push_back({id, static_cast<uint32_t>(i), n - 1, n + 1});
    }
    i += length;
  }
  if (!s.symbols.empty()) s.symbols.back().next = kNone;
}

// Merges in a dense array of symbols, without next and prev.
void Bpe::merge_short(Scratch& s) const {
  std::vector<Scratch::Symbol>& v = s.symbols;
  const auto look_up = [&](size_t i) {
    const Merge* merge = v[i].id < 0 || v[i + 1].id < 0
                             ? nullptr
                             : rules_.merges.find(BpeRules::pair_key(v[i].id, v[i + 1].id));
    s.ranks[i] = merge == nullptr ? kNoRank : merge->rank;
    s.merged[i] = merge == nullptr ? kNoToken : merge->id;
  };
  size_t n = v.size();
  s.ranks.resize(n);
  s.merged.resize(n);
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (s.ranks[i] < s.ranks[best]) best = i;
    }
    if (s.ranks[best] == kNoRank) break;
    v[best].id = s.merged[best];
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      v[i] = v[i + 1];
      s.ranks[i] = s.ranks[i + 1];
      s.merged[i] = s.merged[i + 1];
    }
    if (best + 1 < n) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  v.resize(n);
  for (size_t i = 0; i < n; ++i) v[i].next = i + 1 < n ? static_cast<uint32_t>(i + 1) : kNone;
}

void Bpe::merge_long(Scratch& s) const {
  std::vector<Scratch::Symbol>& v = s.symbols;
  s.heap.clear();
  s.unused_splits.clear();
  const auto candidate = [&](uint32_t left, uint32_t right, Scratch::Candidate& c) {
    if (v[left].id < 0 || v[right].id < 0) return false;
    const Merge* merge = rules_.merges.find(BpeRules::pair_key(v[left].id, v[right].id));
    if (merge == nullptr) return false;
    c = {merge->rank, left, v[left].id, v[right].id, merge->id};
    if (is_unused(merge->id)) s.unused_splits[merge->id] = {v[left].id, v[right].id};
    return true;
  };
  Scratch::Candidate c{};
  for (uint32_t i = 0; i + 1 < v.size(); ++i) {
    if (candidate(i, i + 1, c)) s.heap.push_back(c);
  }
  std::make_heap(s.heap.begin(), s.heap.end());
  const auto push = [&](uint32_t left, uint32_t right) {
    if (!candidate(left, right, c)) return;
    s.heap.push_back(c);
    std::push_heap(s.heap.begin(), s.heap.end());
  };
  while (!s.heap.empty()) {
    give_way();
    std::pop_heap(s.heap.begin(), s.heap.end());
    const Scratch::Candidate top = s.heap.back();
    s.heap.pop_back();
    Scratch::Symbol& left = v[top.position];
    // merged already, or its neighbour has changed
    if (left.id != top.left || left.next == kNone || v[left.next].id != top.right) continue;
    Scratch::Symbol& right = v[left.next];
    left.id = top.merged;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next != kNone) v[left.next].prev = top.position;
    if (left.prev != kNone) push(left.prev, top.position);
    if (left.next != kNone) push(top.position, left.next);
  }
}

void Bpe::emit(std::string_view part, const Scratch& s, std::vector<TokenId>& out) const {
  bool after_unknown = false;
  for (uint32_t i = 0; i != kNone; i = s.symbols[i].next) {
    const Scratch::Symbol& symbol = s.symbols[i];
    if (symbol.id >= 0 && symbol.id < rules_.vocab_size) {
      emit_known(symbol.id, s, out);
      after_unknown = false;
      continue;
    }
    const size_t end = symbol.next == kNone ? part.size() : s.symbols[symbol.next].begin;
    emit_unknown(part.substr(symbol.begin, end - symbol.begin), after_unknown, out);
    after_unknown = true;
  }
}

void Bpe::emit_known(TokenId id, const Scratch& s, std::vector<TokenId>& out) const {
  if (!is_unused(id)) {
    out.push_back(id);
    return;
  }
  // An unused token is replaced by the pair that made it. Tokens of a pair are older, so this ends.
  std::vector<TokenId> stack = {id};
  for (size_t steps = 0; !stack.empty(); ++steps) {
    const TokenId top = stack.back();
    stack.pop_back();
    const auto split = s.unused_splits.find(top);
    if (!is_unused(top) || split == s.unused_splits.end() || steps > s.symbols.size() * 2) {
      if (top < rules_.vocab_size) out.push_back(top);
      continue;
    }
    stack.push_back(split->second.second);
    stack.push_back(split->second.first);
  }
}

void Bpe::emit_unknown(std::string_view symbol, bool after_unknown,
                       std::vector<TokenId>& out) const {
  if (rules_.byte_fallback) {
    const bool all = std::all_of(symbol.begin(), symbol.end(), [&](char c) {
      return rules_.byte_ids[static_cast<unsigned char>(c)] != kNoToken;
    });
    if (all) {
      for (const char c : symbol) out.push_back(rules_.byte_ids[static_cast<unsigned char>(c)]);
      return;
    }
  }
  if (rules_.unk == kNoToken || (after_unknown && rules_.fuse_unk)) return;
  out.push_back(rules_.unk);
}

}  // namespace penstock
