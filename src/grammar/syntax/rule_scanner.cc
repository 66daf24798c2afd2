#include "grammar/syntax/rule_scanner.h"

#include <algorithm>
#include <charconv>

namespace penstock::grammar {
namespace {

constexpr uint32_t kMaxRuleCount = 1U << 30;
constexpr size_t kMaxTokens = 1024;  // tokens in one <[...]>

// Reads a number at the start of the text and removes it.
std::optional<TokenId> take_id(std::string_view& text) {
  TokenId id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || id < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return id;
}

bool take_char(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

uint32_t RuleScanner::fail(RefusalKind kind, std::string message) {
  if (!failed_) refusal_ = {kind, in_.where(), "", std::move(message)};
  failed_ = true;
  return 0;
}

char32_t RuleScanner::hex(size_t digits) {
  uint32_t value = 0;
  const std::string_view text = in_.rest().substr(0, digits);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != digits ||
      value > kLastCodePoint)
    return invalid(fmt::format("expected {} hexadecimal digits of a character", digits));
  in_.skip(digits);
  return value;
}

char32_t RuleScanner::braced_hex() {
  in_.skip(1);
  const size_t n = in_.rest().substr(0, 9).find('}');
  if (n == std::string_view::npos || n == 0) return invalid("expected \\u{1} to \\u{10FFFF}");
  const char32_t value = hex(n);
  in_.skip(1);
  return value;
}

bool RuleScanner::token_ids(std::string_view list, std::vector<uint32_t>& nodes) {
  do {
    const auto first = take_id(list);
    auto last = first;
    if (first && take_char(list, '-')) last = take_id(list);
    if (!first || !last || *last < *first) return false;
    if (vocabulary_ != nullptr && *last >= vocabulary_->size()) return false;
    if (static_cast<size_t>(*last - *first) >=
        kMaxTokens - std::min(nodes.size(), kMaxTokens - 1)) {
      fail(RefusalKind::kTooLarge, fmt::format("more than {} tokens in <[...]>", kMaxTokens));
      return true;
    }
    for (TokenId id = *first; id <= *last; ++id) {
      if (vocabulary_ != nullptr && !vocabulary_->bytes(id).empty()) return false;
      nodes.push_back(rules_.token(id));
    }
  } while (take_char(list, ','));
  return list.empty();
}

uint32_t RuleScanner::token() {
  const size_t end = in_.rest().find('>');
  if (end == std::string_view::npos) return invalid("\"<\" without \">\"");
  const std::string_view name = in_.rest().substr(0, end + 1);
  std::vector<uint32_t> nodes;
  bool known = false;
  if (name.starts_with("<[") && name.ends_with("]>")) {
    if (name[2] == '^' || name[2] == '*')
      return fail(RefusalKind::kUnsupported,
                  "all tokens but some are not supported: name those that may come");
    known = token_ids(name.substr(2, name.size() - 4), nodes);
  } else if (vocabulary_ != nullptr) {
    const std::optional<TokenId> id = vocabulary_->special(name);
    if (id) nodes.push_back(rules_.token(*id));
    known = id.has_value();
  }
  if (!known) return invalid(fmt::format("{} is no special token of this model", name));
  in_.skip(name.size());
  return rules_.choice(std::move(nodes));
}

void RuleScanner::blanks() {
  while (in_.peek() == ' ' || in_.peek() == '\t' || in_.peek() == '\n' || in_.peek() == '\r')
    in_.skip(1);
}

std::optional<uint32_t> RuleScanner::number() {
  uint64_t value = 0;
  size_t n = 0;
  for (; in_.peek() >= '0' && in_.peek() <= '9'; ++n, in_.skip(1))
    value = std::min<uint64_t>(kMaxRuleCount, value * 10 + static_cast<uint64_t>(in_.peek() - '0'));
  return n == 0 ? std::nullopt : std::optional(static_cast<uint32_t>(value));
}

uint32_t RuleScanner::counted(uint32_t part) {
  in_.skip(1);
  const auto bound = [this] {
    blanks();
    const std::optional<uint32_t> found = number();
    blanks();
    return found;
  };
  const std::optional<uint32_t> min = bound();
  std::optional<uint32_t> max = min;
  if (in_.take(",")) max = bound();
  if (!in_.take("}") || (!min && !max)) return invalid("expected {n}, {n,} or {n,m}");
  return repeated(part, min.value_or(0), max.value_or(kNone));
}

uint32_t RuleScanner::repeated(uint32_t part, uint32_t least, uint32_t most) {
  if (least > most) return invalid("the repetition's least is more than its most");
  return rules_.repeat(part, least, most);
}

}  // namespace penstock::grammar
