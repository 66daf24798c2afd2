#include "grammar/vocabulary/vocabulary.h"

#include <algorithm>
#include <map>

#include "grammar/vocabulary/lexeme_masks.h"
#include "grammar/vocabulary/spellings.h"
#include "text/tokenizer.h"

namespace penstock::grammar {

uint16_t byte_kinds::of(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return kLower;
  if (byte >= 'A' && byte <= 'Z') return kUpper;
  if (byte >= '0' && byte <= '9') return kDigit;
  if (byte >= 0x80) return kBeyondAscii;
  if (byte < 0x20) return kControl;
  switch (byte) {
    case '_': return kUnderscore;
    case '-': return kDash;
    case ' ': return kSpace;
    case '.': return kDot;
    case '/': return kSlash;
    case ':': return kColon;
    case '"': return kQuote;
    case '\\': return kBackslash;
    default: return kOtherAscii;
  }
}

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.bytes < b.bytes; });
  build(entries);
  summarize();
}

void TokenTrie::build(std::vector<Entry>& entries) {
  nodes_.push_back({});
  std::vector<uint32_t> path{0};  // node of each prefix of the previous text
  std::string_view last;
  for (const Entry& entry : entries) {
    const auto differ =
        std::mismatch(last.begin(), last.end(), entry.bytes.begin(), entry.bytes.end());
    const auto common = static_cast<size_t>(differ.first - last.begin());
    for (size_t depth = common + 1; depth < path.size(); ++depth)
      nodes_[path[depth]].end = static_cast<uint32_t>(nodes_.size());
    path.resize(common + 1);
    for (const char c : entry.bytes.substr(common)) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {.first_token = static_cast<uint32_t>(values_.size()), .byte = static_cast<uint8_t>(c)});
    }
    values_.push_back(entry.value);
    last = entry.bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size() + 1),
                    .first_token = static_cast<uint32_t>(values_.size())});
}

void TokenTrie::summarize() {
  for (uint32_t i = size(); i-- > 0;) {
    Node& node = nodes_[i];
    for (uint32_t child = i + 1; child < node.end; child = nodes_[child].end) {
      const uint16_t kind = byte_kinds::of(nodes_[child].byte);
      node.kinds |=
          kind | (kind == byte_kinds::kBeyondAscii ? kinds_of_char(child) : nodes_[child].kinds);
      node.height = std::max(
          node.height, static_cast<uint8_t>(std::min<int>(kMaxHeight, nodes_[child].height + 1)));
    }
  }
}

// Returns the kinds of bytes after the character that begins with the node's byte. REQUIRES: all
// nodes below are summarized.
uint16_t TokenTrie::kinds_of_char(uint32_t lead) const {
  for (const utf8::Form& form : utf8::kForms) {
    if (form.ranges[0].has(nodes_[lead].byte)) return kinds_behind(lead, form.parts().subspan(1));
  }
  return byte_kinds::kBroken;
}

uint16_t TokenTrie::kinds_behind(uint32_t node, std::span<const utf8::ByteRange> parts) const {
  if (parts.empty()) return nodes_[node].kinds;
  uint16_t kinds = 0;
  for (uint32_t child = node + 1; child < nodes_[node].end; child = nodes_[child].end) {
    const bool fits = parts.front().has(nodes_[child].byte);
    kinds |= fits ? kinds_behind(child, parts.subspan(1)) : byte_kinds::kBroken;
  }
  return kinds;
}

uint32_t TokenTrie::child(uint32_t i, uint8_t byte) const {
  for (uint32_t at = i + 1; at < nodes_[i].end; at = nodes_[at].end) {
    if (nodes_[at].byte == byte) return at;
  }
  return size();
}

Vocabulary::Vocabulary() : lexeme_masks_(std::make_unique<LexemeMaskRegistry>()) {}
Vocabulary::~Vocabulary() = default;

std::shared_ptr<const Vocabulary> Vocabulary::make(const Tokenizer& tokenizer) {
  const std::shared_ptr<Vocabulary> vocabulary(new Vocabulary);
  const int n = tokenizer.vocab_size();
  vocabulary->bytes_.resize(n);
  bool differ = false;
  for (TokenId id = 0; id < n; ++id) {
    if (tokenizer.is_special(id) || tokenizer.is_end_of_generation(id)) {
      vocabulary->special_.emplace_back(tokenizer.piece(id), id);
      continue;
    }
    vocabulary->bytes_[id] = tokenizer.token_bytes(id);
    differ |= tokenizer.token_bytes(id, true) != vocabulary->bytes_[id];
  }
  if (differ) {
    vocabulary->first_bytes_.resize(n);
    for (TokenId id = 0; id < n; ++id) {
      if (!vocabulary->bytes_[id].empty())
        vocabulary->first_bytes_[id] = tokenizer.token_bytes(id, true);
    }
  }
  vocabulary->spellings_ = std::make_unique<Spellings>(tokenizer);
  vocabulary->ends_.assign(tokenizer.end_of_generation_ids().begin(),
                           tokenizer.end_of_generation_ids().end());
  vocabulary->build();
  return vocabulary;
}

std::shared_ptr<const Vocabulary> Vocabulary::make(
    std::vector<std::string> tokens, std::vector<TokenId> ends,
    std::vector<std::pair<std::string, TokenId>> special) {
  const std::shared_ptr<Vocabulary> vocabulary(new Vocabulary);
  vocabulary->bytes_ = std::move(tokens);
  vocabulary->ends_ = std::move(ends);
  vocabulary->special_ = std::move(special);
  vocabulary->build();
  return vocabulary;
}

void Vocabulary::build() {
  // Tokens that add nothing at the start of a text are values of the root.
  const auto trie_of = [this](const std::vector<std::string>& texts) {
    std::vector<TokenTrie::Entry> entries;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!bytes_[i].empty()) entries.push_back({texts[i], static_cast<int32_t>(i)});
    }
    return std::make_unique<TokenTrie>(std::move(entries));
  };
  trie_ = trie_of(bytes_);
  if (!first_bytes_.empty()) first_trie_ = trie_of(first_bytes_);
  std::sort(special_.begin(), special_.end());
  for (const auto& [name, token] : special_) {
    longest_special_ = std::max(longest_special_, name.size());
    if (!name.empty()) begins_special_[static_cast<uint8_t>(name[0])] = true;
  }
  has_bytes_ = true;
  for (int byte = 0x20; byte <= 0xF4; ++byte) {
    const bool in_utf8 = byte != 0x7F && byte != 0xC0 && byte != 0xC1;
    const uint32_t node = trie_->child(0, static_cast<uint8_t>(byte));
    if (in_utf8 && (node == trie_->size() || trie_->values(node).empty())) has_bytes_ = false;
  }
  build_suffixes();
  lexeme_masks_->prepare(*this);
}

void Vocabulary::build_suffixes() {
  std::map<std::string_view, uint32_t> ids;
  std::vector<TokenTrie::Entry> entries;
  std::map<uint32_t, std::vector<SuffixedToken>> by_node;
  std::vector<uint32_t> path;
  for (uint32_t token = 0; token < bytes_.size(); ++token) {
    const std::string_view text = bytes_[token];
    uint32_t node = 0;
    if (text.find('"') == std::string_view::npos) continue;
    for (size_t i = 0; i < text.size(); ++i) {
      node = trie_->child(node, static_cast<uint8_t>(text[i]));
      if (text[i] != '"') continue;
      const std::string_view suffix = text.substr(i + 1);
      const auto [it, is_new] = ids.emplace(suffix, static_cast<uint32_t>(ids.size()));
      if (is_new) entries.push_back({suffix, static_cast<int32_t>(it->second)});
      by_node[node].push_back({it->second, static_cast<int32_t>(token)});
    }
  }
  suffix_trie_ = std::make_unique<TokenTrie>(std::move(entries));
  for (const auto& [node, tokens] : by_node) {
    quote_nodes_.emplace_back(node, static_cast<uint32_t>(behind_quote_.size()));
    behind_quote_.insert(behind_quote_.end(), tokens.begin(), tokens.end());
  }
  quote_nodes_.emplace_back(UINT32_MAX, static_cast<uint32_t>(behind_quote_.size()));
}

std::string_view Vocabulary::bytes(TokenId token, bool first) const {
  if (token < 0 || token >= size()) return {};
  return first && !first_bytes_.empty() ? first_bytes_[token] : bytes_[token];
}

std::optional<TokenId> Vocabulary::special(std::string_view name) const {
  const auto it = std::partition_point(special_.begin(), special_.end(),
                                       [&](const auto& s) { return s.first < name; });
  if (it == special_.end() || it->first != name) return std::nullopt;
  return it->second;
}

std::optional<Vocabulary::SpecialInText> Vocabulary::find_special(std::string_view text) const {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!begins_special_[static_cast<uint8_t>(text[at])]) continue;
    for (size_t n = std::min(longest_special_, text.size() - at); n > 0; --n) {
      const auto token = special(text.substr(at, n));
      if (token && std::ranges::find(ends_, *token) == ends_.end())
        return SpecialInText{at, n, *token};
    }
  }
  return std::nullopt;
}

std::span<const Vocabulary::SuffixedToken> Vocabulary::behind_quote(uint32_t node) const {
  const auto it = std::partition_point(quote_nodes_.begin(), quote_nodes_.end(),
                                       [&](const auto& q) { return q.first < node; });
  if (it == quote_nodes_.end() || it->first != node) return {};
  return {behind_quote_.data() + it->second, behind_quote_.data() + std::next(it)->second};
}

}  // namespace penstock::grammar
