#include "text/vocab/unigram.h"

#include <algorithm>

#include "text/unicode/unicode.h"

namespace penstock {
namespace {
constexpr size_t kMaxLattice = size_t{1} << 28;
constexpr uint32_t kUnreached = ~uint32_t{0};
}  // namespace

struct Unigram::Scratch final : WordScratch {
  struct Node {
    double score = 0;             // of the best segmentation that ends here
    uint32_t begin = kUnreached;  // start of its last piece
    TokenId id = kNoToken;        // id of its last piece; kNoToken: unknown character
  };
  // by the place where a segmentation ends; by search_from_end(), where it begins, with its first piece
  std::vector<Node> ends;
  std::vector<std::pair<uint32_t, TokenId>> path;
};

Unigram::Unigram(UnigramRules rules) : rules_(std::move(rules)) {
  all_bytes_ = rules_.byte_fallback && std::all_of(rules_.byte_ids.begin(), rules_.byte_ids.end(),
                                                   [](TokenId id) { return id != kNoToken; });
}

std::unique_ptr<WordScratch> Unigram::make_scratch() const { return std::make_unique<Scratch>(); }

void Unigram::encode(std::string_view word, WordScratch* scratch, std::vector<TokenId>& out) const {
  auto& s = static_cast<Scratch&>(*scratch);
  for (; word.size() > kMaxLattice; word.remove_prefix(kMaxLattice))
    encode_part(word.substr(0, kMaxLattice), s, out);
  encode_part(word, s, out);
}

void Unigram::search(std::string_view word, Scratch& s) const {
  s.ends.assign(word.size() + 1, {});
  const auto offer = [&](size_t begin, size_t end, double score, TokenId id) {
    if (rules_.single_precision) score = static_cast<float>(score);
    Scratch::Node& node = s.ends[end];
    if (node.begin != kUnreached && !(score > node.score)) return;
    node = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    give_way();
    const double base = s.ends[begin].score;
    const auto char_length = static_cast<size_t>(unicode::decode(word, begin).length);
    bool has_char = false;
    rules_.pieces.prefixes(word.substr(begin), [&](size_t length, int32_t id) {
      offer(begin, begin + length, base + rules_.scores[id], id);
      has_char = has_char || length == char_length;
    });
    if (!has_char) offer(begin, begin + char_length, base + rules_.unk_score, kNoToken);
    begin += char_length;
  }
  s.path.clear();
  for (size_t end = word.size(); end > 0; end = s.ends[end].begin) {
    s.path.emplace_back(static_cast<uint32_t>(end),
                        s.ends[end].id == rules_.unk ? kNoToken : s.ends[end].id);
  }
}

void Unigram::search_from_end(std::string_view word, Scratch& s) const {
  s.ends.assign(word.size() + 1, {});
  s.path.clear();
  for (size_t at = 0; at < word.size();) {
    s.path.emplace_back(static_cast<uint32_t>(at), kNoToken);
    at += static_cast<size_t>(unicode::decode(word, at).length);
  }
  for (size_t i = s.path.size(); i > 0;) {
    give_way();
    const size_t begin = s.path[--i].first,
                 after = i + 1 < s.path.size() ? s.path[i + 1].first : word.size();
    Scratch::Node& node = s.ends[begin];
    // Prefixes come by their lengths, the longest last.
    rules_.pieces.prefixes(word.substr(begin), [&](size_t length, int32_t id) {
      const size_t end = begin + length;
      // a token that ends inside of a character
      if (end < word.size() && s.ends[end].begin == kUnreached) return;
      const double score = s.ends[end].score + rules_.scores[id];
      if (node.begin == kUnreached || score >= node.score)
        node = {score, static_cast<uint32_t>(end), id};
    });
    const double unknown = s.ends[after].score + rules_.unk_score;
    if (node.begin == kUnreached || unknown > node.score)
      node = {unknown, static_cast<uint32_t>(after), kNoToken};
  }
  s.path.clear();
  for (size_t at = 0; at < word.size(); at = s.ends[at].begin)
    s.path.emplace_back(s.ends[at].begin, s.ends[at].id);
  std::ranges::reverse(s.path);
}

void Unigram::encode_part(std::string_view word, Scratch& s, std::vector<TokenId>& out) const {
  bound_part(word);
  if (rules_.from_end) search_from_end(word, s);
  if (!rules_.from_end) search(word, s);
  size_t begin = 0;
  for (size_t i = s.path.size(); i > 0;) {
    auto [end, id] = s.path[--i];
    if (id == kNoToken) {
      while (i > 0 && s.path[i - 1].second == kNoToken) end = s.path[--i].first;
      emit_unknown(word.substr(begin, end - begin), out);
    } else {
      out.push_back(id);
    }
    begin = end;
  }
}

void Unigram::emit_unknown(std::string_view text, std::vector<TokenId>& out) const {
  const auto id_of = [&](char c) { return rules_.byte_ids[static_cast<unsigned char>(c)]; };
  if (rules_.byte_fallback && (all_bytes_ || std::all_of(text.begin(), text.end(), [&](char c) {
                                 return id_of(c) != kNoToken;
                               }))) {
    for (const char c : text) out.push_back(id_of(c));
  } else if (rules_.unk != kNoToken) {
    out.push_back(rules_.unk);
  }
}

}  // namespace penstock
