#include "grammar/syntax/raw_string.h"

#include "grammar/regex/parser.h"
#include "grammar/schema/formats.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

class RawString {
 public:
  RawString(const std::vector<ExprId>& also, Rules& rules, int max_depth)
      : rules_(rules), max_depth_(max_depth), all_(also) {}

  Compiled<uint32_t> make(const JsonValue& schema) {
    for (const JsonMember& member : schema.members) {
      if (auto done = keyword(member.key, member.value); !done)
        return tl::unexpected(std::move(done).error());
    }
    if (window_.empty()) return refuse(RefusalKind::kInvalid, "minLength", "more than maxLength");
    ExprPool& pool = rules_.pool();
    if (window_.trivial() || !bounded_) return rules_.text_apart(pool.all_of(all_), window_);
    if (window_.min > kMostUnrolled || (window_.max != kNoLimit && window_.max > kMostUnrolled))
      return refuse(RefusalKind::kUnsupported, "maxLength", "a large length beside a pattern");
    all_.push_back(pool.repeat(
        ExprPool::kAnyChar, static_cast<uint32_t>(window_.min),
        window_.max == kNoLimit ? ExprPool::kUnbounded : static_cast<uint32_t>(window_.max)));
    return rules_.text_apart(pool.all_of(all_));
  }

 private:
  Compiled<void> keyword(const std::string& key, const JsonValue& value) {
    if (key == "enum" || key == "const") return values(key, value);
    if (key == "minLength" || key == "maxLength") return length(key, value);
    if (!value.is_string()) return refuse(RefusalKind::kInvalid, key, "expected a string");
    if (key == "pattern") return pattern(value.string, RegexScope::kSearch, key);
    if (key != "format")
      return refuse(RefusalKind::kUnsupported, key, "not for strings without quotes");
    const Format* format = find_format(value.string);
    if (format == nullptr || format->pattern.empty()) return {};
    window_ = window_ & format->length;
    return pattern(format->pattern, RegexScope::kWhole, key);
  }

  Compiled<void> values(const std::string& key, const JsonValue& value) {
    std::vector<std::u32string> texts;
    const auto add = [&](const JsonValue& one) {
      if (one.is_string() && unicode::is_valid(one.string))
        texts.push_back(characters_of(one.string));
    };
    if (key == "const") add(value);
    for (const JsonMember& member : value.members) add(member.value);
    all_.push_back(texts.empty() ? ExprPool::kNothing
                                 : rules_.pool().any_literal(std::move(texts)));
    bounded_ = true;
    return {};
  }

  Compiled<void> length(const std::string& key, const JsonValue& value) {
    const auto n = value.is_number() ? value.number.to_int() : std::nullopt;
    if (!n || *n < 0) return refuse(RefusalKind::kInvalid, key, "expected a whole number");
    CountWindow window;
    (key == "minLength" ? window.min : window.max) = static_cast<uint64_t>(*n);
    window_ = window_ & window;
    return {};
  }

  Compiled<void> pattern(std::string_view text, RegexScope scope, const std::string& key) {
    auto expr = parse_regex(rules_.pool(), text, scope, max_depth_);
    if (!expr) {
      Refusal refusal = std::move(expr).error();
      refusal.where = key;
      return tl::unexpected(std::move(refusal));
    }
    all_.push_back(*expr);
    bounded_ = true;
    return {};
  }

  static constexpr uint64_t kMostUnrolled = 4096;

  Rules& rules_;
  int max_depth_;
  std::vector<ExprId> all_;
  CountWindow window_;
  bool bounded_ = false;  // some lengths may have no text
};

}  // namespace

Compiled<uint32_t> add_raw_string(const JsonValue& schema, const std::vector<ExprId>& also,
                                  Rules& rules, int max_depth) {
  return RawString(also, rules, max_depth).make(schema);
}

}  // namespace penstock::grammar
