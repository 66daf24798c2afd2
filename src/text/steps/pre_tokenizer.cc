#include "text/steps/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "text/steps/json_fields.h"
#include "text/unicode/unicode.h"
#include "text/vocab/byte_alphabet.h"

namespace penstock {
namespace {

using Behavior = PreTokenizer::Behavior;
constexpr std::string_view kGpt2Pattern =
    "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const Regex& gpt2_regex() {
  static const Regex regex = [] {
    auto compiled = Regex::compile(kGpt2Pattern);
    PENSTOCK_CHECK(compiled.has_value());
    return *std::move(compiled);
  }();
  return regex;
}

// A part of the text. match: accepted by the pattern (or predicate).
struct Part {
  size_t begin, end;
  bool match;
};

// Divides text by a predicate on characters: every accepted character is one part, and so is every
// run of other characters.
template <class Predicate, class F>
void for_each_part(std::string_view text, Predicate&& accepts, F&& f) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded d = unicode::decode(text, i);
    const size_t end = i + d.length;
    if (accepts(d.code)) {
      if (begin < i) f(Part{begin, i, false});
      f(Part{i, end, true});
      begin = end;
    }
    i = end;
  }
  if (begin < text.size()) f(Part{begin, text.size(), false});
}

template <class F>
void for_each_part(std::string_view text, const Regex& pattern, bool invert, F&& f) {
  size_t at = 0;
  pattern.for_each(text, [&](Match m) {
    if (at < m.begin) f(Part{at, m.begin, invert});
    if (m.begin < m.end) f(Part{m.begin, m.end, !invert});
    at = m.end;
  });
  if (at < text.size()) f(Part{at, text.size(), invert});
}

// Joins parts to words according to the behavior.
class Joiner {
 public:
  Joiner(std::string_view text, Behavior behavior, WordSink out)
      : text_(text), behavior_(behavior), out_(out) {}

  void operator()(Part part) {
    switch (behavior_) {
      case Behavior::kRemoved:
        if (!part.match) emit(part.begin, part.end);
        break;
      case Behavior::kIsolated: emit(part.begin, part.end); break;
      case Behavior::kContiguous:
        if (open_ && part.match != previous_match_) flush();
        extend(part);
        break;
      case Behavior::kMergedWithPrevious:
        if (open_ && !(part.match && !previous_match_)) flush();
        extend(part);
        break;
      case Behavior::kMergedWithNext:
        if (open_ && (!previous_match_ || part.match)) flush();
        extend(part);
        break;
    }
    previous_match_ = part.match;
  }
  void flush() {
    if (open_) emit(begin_, end_);
    open_ = false;
  }

 private:
  void extend(Part part) {
    if (!open_) begin_ = part.begin;
    end_ = part.end;
    open_ = true;
  }
  void emit(size_t begin, size_t end) {
    if (begin < end) out_(text_.substr(begin, end - begin));
  }

  std::string_view text_;
  Behavior behavior_;
  WordSink out_;
  bool open_ = false, previous_match_ = false;
  size_t begin_ = 0, end_ = 0;
};

// Passes the parts that `cut` finds, by a pattern or a predicate, on as words.
template <class Cut>
void join_parts(std::string_view text, Behavior behavior, WordSink out, Cut&& cut) {
  Joiner joiner(text, behavior, out);
  cut(joiner);
  joiner.flush();
}

template <class Predicate>
void split_by(std::string_view text, Predicate&& accepts, Behavior behavior, WordSink out) {
  join_parts(text, behavior, out, [&](Joiner& joiner) { for_each_part(text, accepts, joiner); });
}

void split_by(std::string_view text, const Regex& pattern, bool invert, Behavior behavior,
              WordSink out) {
  join_parts(text, behavior, out,
             [&](Joiner& joiner) { for_each_part(text, pattern, invert, joiner); });
}

// Splits by the regex \w+|[^\w\s]+.
void split_words(std::string_view text, WordSink out) {
  const auto kind = [](char32_t c) {
    return unicode::is_word(c) ? 1 : unicode::is_white_space(c) ? 0 : 2;
  };
  size_t begin = 0;
  int open = 0;
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded d = unicode::decode(text, i);
    const int k = kind(d.code);
    if (k != open) {
      if (open != 0) out(text.substr(begin, i - begin));
      begin = i;
      open = k;
    }
    i += d.length;
  }
  if (open != 0) out(text.substr(begin));
}

Result<Behavior> parse_behavior(const nlohmann::json& json, Behavior fallback) {
  const auto it = json.find("behavior");
  if (it == json.end()) return fallback;
  const std::string name = it->is_string() ? it->get<std::string>() : std::string();
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return errorf(ErrorCode::kCorruptFile,
                "tokenizer.json: pre_tokenizer: behavior \"{:.40}\" is not known", name);
}

}  // namespace

void PreTokenizer::add_split(Regex pattern, Behavior behavior) {
  steps_.push_back({.kind = Kind::kSplit, .pattern = std::move(pattern), .behavior = behavior});
  finish();
}
void PreTokenizer::add_bert() {
  steps_.push_back({.kind = Kind::kBert});
  finish();
}
void PreTokenizer::add_byte_level(bool add_prefix_space, bool use_regex) {
  steps_.push_back(
      {.kind = Kind::kByteLevel, .prefix_space = add_prefix_space, .split = use_regex});
  finish();
}

void PreTokenizer::finish() {
  byte_level_ = mapped_ = false;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].kind != Kind::kByteLevel) continue;
    byte_level_ = true;
    steps_[i].map = i + 1 < steps_.size();
    mapped_ = mapped_ || steps_[i].map;
  }
}

void PreTokenizer::map_bytes() {
  if (!byte_level_ || mapped_) return;
  steps_.back().map = mapped_ = true;
}

Result<PreTokenizer> PreTokenizer::from_json(const nlohmann::json& json) {
  PreTokenizer p;
  RETURN_IF_ERROR(add_json(json, 0, p.steps_));
  p.finish();
  return p;
}

Status PreTokenizer::add_json(const nlohmann::json& json, int depth, std::vector<Step>& steps) {
  if (json.is_null()) return {};
  ASSIGN_OR_RETURN(const std::string type, json_type(json, "pre_tokenizer"));
  if (type == "Sequence") {
    if (depth >= kMaxNesting)
      return errorf(ErrorCode::kCorruptFile, "pre_tokenizer: nested deeper than {}", kMaxNesting);
    ASSIGN_OR_RETURN(const nlohmann::json* list,
                     json_array(json, "pretokenizers", "pre_tokenizer"));
    for (const auto& item : *list) RETURN_IF_ERROR(add_json(item, depth + 1, steps));
    return {};
  }
  ASSIGN_OR_RETURN(Step step, leaf(json, type));
  steps.push_back(std::move(step));
  return {};
}

Result<PreTokenizer::Step> PreTokenizer::leaf(const nlohmann::json& json, const std::string& type) {
  if (type == "Whitespace") return Step{.kind = Kind::kWhitespace};
  if (type == "WhitespaceSplit") return Step{.kind = Kind::kWhitespaceSplit};
  if (type == "BertPreTokenizer") return Step{.kind = Kind::kBert};
  if (type == "Digits")
    return Step{.kind = Kind::kDigits, .individual = json_flag(json, "individual_digits", false)};
  if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(json, Behavior::kIsolated));
    return Step{.kind = Kind::kPunctuation, .behavior = behavior};
  }
  if (type == "ByteLevel") {
    return Step{.kind = Kind::kByteLevel,
                .prefix_space = json_flag(json, "add_prefix_space", true),
                .split = json_flag(json, "use_regex", true)};
  }
  if (type == "Split") {
    ASSIGN_OR_RETURN(Regex pattern, json_pattern(json, "pre_tokenizer"));
    ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(json, Behavior::kIsolated));
    return Step{.kind = Kind::kSplit,
                .pattern = std::move(pattern),
                .behavior = behavior,
                .invert = json_flag(json, "invert", false)};
  }
  if (type == "CharDelimiterSplit") {
    ASSIGN_OR_RETURN(std::string delimiter, json_string(json, "delimiter", "pre_tokenizer"));
    return Step{.kind = Kind::kDelimiter,
                .pattern = Regex::literal(delimiter),
                .behavior = Behavior::kRemoved};
  }
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(std::string replacement, json_string(json, "replacement", "pre_tokenizer"));
    if (replacement.empty() || replacement.size() > 4) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.json: Metaspace: expected one character, got \"{:.20}\"",
                    replacement);
    }
    const std::string scheme = json_text(json, "prepend_scheme");
    const bool prefix = json_flag(json, "add_prefix_space", true);
    return Step{.kind = Kind::kMetaspace,
                .replacement = std::move(replacement),
                .prepend = scheme == "first"              ? Prepend::kFirst
                           : scheme == "never" || !prefix ? Prepend::kNever
                                                          : Prepend::kAlways,
                .split = json_flag(json, "split", true)};
  }
  return errorf(ErrorCode::kUnsupported, "tokenizer.json: pre_tokenizer \"{:.40}\" is not known",
                type);
}

void PreTokenizer::run(const Step& step, std::string_view piece, bool at_start, WordSink words) {
  switch (step.kind) {
    case Kind::kSplit:
    case Kind::kDelimiter: split_by(piece, step.pattern, step.invert, step.behavior, words); return;
    case Kind::kDigits:
      split_by(piece, unicode::is_numeric,
               step.individual ? Behavior::kIsolated : Behavior::kContiguous, words);
      return;
    case Kind::kPunctuation: split_by(piece, unicode::is_punctuation, step.behavior, words); return;
    case Kind::kWhitespace: split_words(piece, words); return;
    case Kind::kWhitespaceSplit:
      split_by(piece, unicode::is_white_space, Behavior::kRemoved, words);
      return;
    case Kind::kBert:
      split_by(piece, unicode::is_white_space, Behavior::kRemoved, [&](std::string_view part) {
        split_by(part, unicode::is_punctuation, Behavior::kIsolated, words);
      });
      return;
    case Kind::kByteLevel: run_byte_level(step, piece, words); return;
    case Kind::kMetaspace: run_metaspace(step, piece, at_start, words); return;
  }
}

void PreTokenizer::run_byte_level(const Step& step, std::string_view piece, WordSink words) {
  std::string prefixed;
  if (step.prefix_space && !piece.starts_with(' ')) piece = prefixed = " " + std::string(piece);
  const auto give = [&](std::string_view word) {
    if (step.map) {
      words(to_byte_alphabet(word));
    } else {
      words(word);
    }
  };
  if (step.split) {
    split_by(piece, gpt2_regex(), false, Behavior::kIsolated, give);
  } else {
    give(piece);
  }
}

void PreTokenizer::run_metaspace(const Step& step, std::string_view piece, bool at_start,
                                 WordSink words) {
  std::string text;
  text.reserve(piece.size() + piece.size() / 2 + 3);
  for (const char c : piece) {
    if (c == ' ') {
      text += step.replacement;
    } else {
      text += c;
    }
  }
  const bool wanted =
      step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_start);
  if (wanted && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  if (step.split) {
    split_by(text, Regex::literal(step.replacement), false, Behavior::kMergedWithNext, words);
  } else {
    words(text);
  }
}

// Passes the words of each step directly to the next step, without lists of words.
void PreTokenizer::split_valid(std::string_view text, bool at_start, size_t first_step,
                               WordSink words) const {
  if (text.empty()) return;
  if (first_step == steps_.size()) return words(text);
  bool first = at_start;
  run(steps_[first_step], text, at_start, [&](std::string_view piece) {
    split_valid(piece, std::exchange(first, false), first_step + 1, words);
  });
}

void PreTokenizer::split(std::string_view text, bool at_start, WordSink words) const {
  if (!byte_level_ || unicode::is_valid(text)) {
    split_valid(text, at_start, 0, words);
    return;
  }
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    unicode::Decoded d = unicode::decode(text, i);
    if (d.valid) {
      i += d.length;
      continue;
    }
    split_valid(text.substr(start, i - start), at_start && start == 0, 0, words);
    start = i;
    while (i < text.size() && !(d = unicode::decode(text, i)).valid) i += d.length;
    const std::string_view run_of_bytes = text.substr(start, i - start);
    if (mapped_) {
      words(to_byte_alphabet(run_of_bytes));
    } else {
      words(run_of_bytes);
    }
    start = i;
  }
  split_valid(text.substr(start), at_start && start == 0, 0, words);
}

}  // namespace penstock
