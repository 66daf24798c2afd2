#include "text/steps/normalizer.h"

#include <nlohmann/json.hpp>

#include "text/steps/json_fields.h"
#include "text/vocab/byte_alphabet.h"
#include "text/vocab/vocabulary.h"

namespace penstock {
namespace {

template <class F>
std::string map_chars(std::string_view text, F&& f) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded d = unicode::decode(text, i);
    if (d.valid) {
      f(d.code, out);
    } else {
      out.append(text, i, d.length);
    }
    i += d.length;
  }
  return out;
}

std::string strip(std::string_view text, bool left, bool right) {
  size_t begin = text.size(), end = 0;
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded d = unicode::decode(text, i);
    if (!unicode::is_white_space(d.code)) {
      begin = std::min(begin, i);
      end = i + d.length;
    }
    i += d.length;
  }
  if (!left) begin = 0;
  if (!right) end = text.size();
  return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
}

std::string replace(std::string_view text, const Regex& pattern, const std::string& with) {
  std::vector<Match> matches;
  pattern.find_all(text, matches);
  if (matches.empty()) return std::string(text);
  std::string out;
  size_t at = 0;
  for (const Match& m : matches) {
    out.append(text, at, m.begin - at);
    out += with;
    at = m.end;
  }
  return out.append(text, at);
}

bool is_nmt_control(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
         c == 0x8F || c == 0x9F;
}

bool is_nmt_space(char32_t c) {
  return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
         c == 0xFFFD;
}

std::string nmt(std::string_view text) {
  return map_chars(text, [](char32_t c, std::string& out) {
    if (is_nmt_control(c)) return;
    unicode::append(out, is_nmt_space(c) ? U' ' : c);
  });
}

// Applies the table like Hugging Face: a grapheme cluster of under 6 bytes whose first bytes are a
// key is replaced as a whole by that key's replacement; otherwise each character is looked up.
std::string precompiled(std::string_view text, const Charsmap& map) {
  std::string out;
  out.reserve(text.size());
  unicode::for_each_grapheme(text, [&](std::string_view cluster) {
    if (cluster.size() < 6) {
      if (const auto found = map.shortest(cluster)) {
        out += found->replacement;
        return;
      }
    }
    for (size_t i = 0; i < cluster.size();) {
      const auto length = static_cast<size_t>(unicode::decode(cluster, i).length);
      const std::string_view part = cluster.substr(i, length);
      const auto found = map.shortest(part);
      out += found ? found->replacement : part;
      i += length;
    }
  });
  return out;
}

// Returns the replacement of the next unit of SentencePiece's normalization, and the unit's length.
std::pair<std::string_view, size_t> sentence_piece_prefix(std::string_view text,
                                                          const SentencePieceRules& rules) {
  const Trie::Found user = rules.user_defined.longest(text);
  if (user.length > 0) return {text.substr(0, user.length), user.length};
  if (!rules.charsmap.empty()) {
    if (const auto found = rules.charsmap.longest(text)) return {found->replacement, found->length};
  }
  const unicode::Decoded d = unicode::decode(text, 0);
  if (!d.valid) return {"\xEF\xBF\xBD", 1};
  return {text.substr(0, d.length), d.length};
}

std::string sentence_piece(std::string_view text, const SentencePieceRules& rules) {
  const std::string_view space = rules.escape_whitespaces ? kSpaceSymbol : " ";
  if (rules.remove_extra_whitespaces) {
    while (!text.empty()) {
      const auto [unit, length] = sentence_piece_prefix(text, rules);
      if (unit != " ") break;
      text.remove_prefix(length);
    }
  }
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  if (rules.add_dummy_prefix && !rules.whitespace_as_suffix) out += space;
  bool after_space = rules.remove_extra_whitespaces;
  while (!text.empty()) {
    auto [unit, length] = sentence_piece_prefix(text, rules);
    while (after_space && unit.starts_with(' ')) unit.remove_prefix(1);
    for (const char c : unit) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    if (!unit.empty()) after_space = rules.remove_extra_whitespaces && unit.ends_with(' ');
    text.remove_prefix(length);
  }
  if (rules.remove_extra_whitespaces) {
    while (out.ends_with(space)) out.resize(out.size() - space.size());
  }
  if (rules.add_dummy_prefix && rules.whitespace_as_suffix) out += space;
  return out;
}

}  // namespace

bool Normalizer::keeps_invalid_utf8() const {
  for (const Step& step : steps_) {
    if (step.kind != Kind::kForm && step.kind != Kind::kLowercase &&
        step.kind != Kind::kStripAccents && step.kind != Kind::kPrepend) {
      return false;
    }
  }
  return true;
}

Normalizer Normalizer::form(unicode::Form form) {
  Normalizer n;
  n.steps_.push_back({.kind = Kind::kForm, .form = form});
  return n;
}

Normalizer Normalizer::bert(bool clean_text, bool chinese, bool strip_accents, bool lowercase) {
  Normalizer n;
  n.steps_.push_back({.kind = Kind::kBert,
                      .clean_text = clean_text,
                      .chinese = chinese,
                      .strip_accents = strip_accents,
                      .lowercase = lowercase});
  return n;
}

Normalizer Normalizer::sentence_piece(SentencePieceRules rules) {
  Normalizer n;
  n.steps_.push_back({.kind = Kind::kSentencePiece,
                      .rules = std::make_shared<const SentencePieceRules>(std::move(rules))});
  return n;
}

Result<Normalizer> Normalizer::from_json(const nlohmann::json& json) {
  Normalizer n;
  RETURN_IF_ERROR(add_json(json, 0, n.steps_));
  return n;
}

Status Normalizer::add_json(const nlohmann::json& json, int depth, std::vector<Step>& steps) {
  if (json.is_null()) return {};
  ASSIGN_OR_RETURN(const std::string type, json_type(json, "normalizer"));
  if (type == "Sequence") {
    if (depth >= kMaxNesting)
      return errorf(ErrorCode::kCorruptFile, "normalizer: nested deeper than {}", kMaxNesting);
    ASSIGN_OR_RETURN(const nlohmann::json* list, json_array(json, "normalizers", "normalizer"));
    for (const auto& item : *list) RETURN_IF_ERROR(add_json(item, depth + 1, steps));
    return {};
  }
  ASSIGN_OR_RETURN(Step step, leaf(json, type));
  steps.push_back(std::move(step));
  return {};
}

Result<Normalizer::Step> Normalizer::leaf(const nlohmann::json& json, const std::string& type) {
  using unicode::Form;
  if (type == "NFC") return Step{.kind = Kind::kForm, .form = Form::kNfc};
  if (type == "NFD") return Step{.kind = Kind::kForm, .form = Form::kNfd};
  if (type == "NFKC") return Step{.kind = Kind::kForm, .form = Form::kNfkc};
  if (type == "NFKD") return Step{.kind = Kind::kForm, .form = Form::kNfkd};
  if (type == "Lowercase") return Step{.kind = Kind::kLowercase};
  if (type == "StripAccents") return Step{.kind = Kind::kStripAccents};
  if (type == "Nmt") return Step{.kind = Kind::kNmt};
  if (type == "ByteLevel") return Step{.kind = Kind::kByteLevel};
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string text, json_string(json, "prepend", "normalizer"));
    return Step{.kind = Kind::kPrepend, .text = std::move(text)};
  }
  if (type == "Strip") {
    return Step{.kind = Kind::kStrip,
                .left = json_flag(json, "strip_left", false),
                .right = json_flag(json, "strip_right", false)};
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(Regex pattern, json_pattern(json, "normalizer"));
    ASSIGN_OR_RETURN(std::string text, json_string(json, "content", "normalizer"));
    return Step{.kind = Kind::kReplace, .text = std::move(text), .pattern = std::move(pattern)};
  }
  if (type == "BertNormalizer") {
    const bool lowercase = json_flag(json, "lowercase", true);
    return Step{.kind = Kind::kBert,
                .clean_text = json_flag(json, "clean_text", true),
                .chinese = json_flag(json, "handle_chinese_chars", true),
                .strip_accents = json_flag(json, "strip_accents", lowercase),
                .lowercase = lowercase};
  }
  if (type == "Precompiled") {
    SentencePieceRules rules;
    ASSIGN_OR_RETURN(const std::string encoded,
                     json_string(json, "precompiled_charsmap", "normalizer"));
    ASSIGN_OR_RETURN(const std::string blob, base64_decode(encoded));
    ASSIGN_OR_RETURN(rules.charsmap, Charsmap::parse(blob));
    return Step{.kind = Kind::kPrecompiled,
                .rules = std::make_shared<const SentencePieceRules>(std::move(rules))};
  }
  return errorf(ErrorCode::kUnsupported, "tokenizer.json: normalizer \"{:.40}\" is not known",
                type);
}

std::string Normalizer::run(const Step& step, std::string_view text) {
  switch (step.kind) {
    case Kind::kForm: return unicode::normalize(text, step.form);
    case Kind::kLowercase:
      return map_chars(text, [](char32_t c, std::string& out) { unicode::append_lower(out, c); });
    case Kind::kStripAccents:
      return map_chars(text, [](char32_t c, std::string& out) {
        if (!unicode::is_mark(c)) unicode::append(out, c);
      });
    case Kind::kReplace: return replace(text, step.pattern, step.text);
    case Kind::kPrepend: return text.empty() ? std::string() : step.text + std::string(text);
    case Kind::kStrip: return strip(text, step.left, step.right);
    case Kind::kNmt: return nmt(text);
    case Kind::kByteLevel: return to_byte_alphabet(text);
    case Kind::kPrecompiled: return precompiled(text, step.rules->charsmap);
    case Kind::kSentencePiece: return penstock::sentence_piece(text, *step.rules);
    case Kind::kBert: break;
  }
  std::string out = map_chars(text, [&](char32_t c, std::string& to) {
    if (step.clean_text) {
      if (c == 0 || c == unicode::kReplacement || unicode::is_control(c)) return;
      if (unicode::is_white_space(c)) c = ' ';
    }
    const bool isolate = step.chinese && unicode::is_chinese(c);
    if (isolate) to += ' ';
    unicode::append(to, c);
    if (isolate) to += ' ';
  });
  if (step.strip_accents) {
    out = map_chars(unicode::normalize(out, unicode::Form::kNfd), [](char32_t c, std::string& to) {
      if (!unicode::is_nonspacing_mark(c)) unicode::append(to, c);
    });
  }
  if (step.lowercase)
    out = map_chars(out, [](char32_t c, std::string& to) { unicode::append_lower(to, c); });
  return out;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = run(step, out);
  return out;
}

}  // namespace penstock
