#include "text/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "text/load/json_fields.h"
#include "text/unicode.h"
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

// A stretch of the text; match: the pattern (or predicate) accepted it.
struct Part {
  size_t begin, end;
  bool match;
};

// Cuts by one predicate on characters: every accepted character is a part of its own, what lies between is
// one part.
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
void for_each_part(std::string_view text, const std::vector<Match>& matches, bool invert, F&& f) {
  size_t at = 0;
  for (const Match& m : matches) {
    if (at < m.begin) f(Part{at, m.begin, invert});
    if (m.begin < m.end) f(Part{m.begin, m.end, !invert});
    at = m.end;
  }
  if (at < text.size()) f(Part{at, text.size(), invert});
}

// Turns parts into words as the behavior says.
class Joiner {
 public:
  Joiner(std::string_view text, Behavior behavior, std::vector<std::string_view>& out)
      : text_(text), behavior_(behavior), out_(out) {}
  ~Joiner() { flush(); }

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

 private:
  void extend(Part part) {
    if (!open_) begin_ = part.begin;
    end_ = part.end;
    open_ = true;
  }
  void flush() {
    if (open_) emit(begin_, end_);
    open_ = false;
  }
  void emit(size_t begin, size_t end) {
    if (begin < end) out_.push_back(text_.substr(begin, end - begin));
  }

  std::string_view text_;
  Behavior behavior_;
  std::vector<std::string_view>& out_;
  bool open_ = false, previous_match_ = false;
  size_t begin_ = 0, end_ = 0;
};

// regex \w+|[^\w\s]+
void split_words(std::string_view text, std::vector<std::string_view>& out) {
  const auto kind = [](char32_t c) { return unicode::is_word(c) ? 1 : unicode::is_white_space(c) ? 0 : 2; };
  size_t begin = 0;
  int open = 0;
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded d = unicode::decode(text, i);
    const int k = kind(d.code);
    if (k != open) {
      if (open != 0) out.push_back(text.substr(begin, i - begin));
      begin = i;
      open = k;
    }
    i += d.length;
  }
  if (open != 0) out.push_back(text.substr(begin));
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
  return errorf(ErrorCode::kCorruptFile, "tokenizer.json: pre_tokenizer: behavior \"{:.40}\" is not known",
                name);
}

}  // namespace

void PreTokenizer::add_split(Regex pattern, Behavior behavior) {
  steps_.push_back({.kind = Kind::kSplit, .pattern = std::move(pattern), .behavior = behavior});
  finish();
}
void PreTokenizer::add_digits(bool individual) {
  steps_.push_back({.kind = Kind::kDigits, .individual = individual});
  finish();
}
void PreTokenizer::add_punctuation(Behavior behavior) {
  steps_.push_back({.kind = Kind::kPunctuation, .behavior = behavior});
  finish();
}
void PreTokenizer::add_bert() {
  steps_.push_back({.kind = Kind::kBert});
  finish();
}
void PreTokenizer::add_byte_level(bool add_prefix_space, bool use_regex) {
  steps_.push_back({.kind = Kind::kByteLevel, .prefix_space = add_prefix_space, .split = use_regex});
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
    ASSIGN_OR_RETURN(const nlohmann::json* list, json_array(json, "pretokenizers", "pre_tokenizer"));
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
    return Step{
        .kind = Kind::kDelimiter, .pattern = Regex::literal(delimiter), .behavior = Behavior::kRemoved};
  }
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(std::string replacement, json_string(json, "replacement", "pre_tokenizer"));
    if (replacement.empty() || replacement.size() > 4) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.json: Metaspace: expected one character, got \"{:.20}\"", replacement);
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
  return errorf(ErrorCode::kUnsupported, "tokenizer.json: pre_tokenizer \"{:.40}\" is not known", type);
}

void PreTokenizer::run(const Step& step, std::string_view piece, bool at_start, Words& words) {
  std::vector<std::string_view>& out = words.list;
  const auto by_pattern = [&](std::string_view text, const Regex& pattern, Behavior behavior, bool invert) {
    words.matches.clear();
    pattern.find_all(text, words.matches);
    for_each_part(text, words.matches, invert, Joiner(text, behavior, out));
  };
  switch (step.kind) {
    case Kind::kSplit:
    case Kind::kDelimiter: by_pattern(piece, step.pattern, step.behavior, step.invert); return;
    case Kind::kDigits:
      for_each_part(piece, unicode::is_numeric,
                    Joiner(piece, step.individual ? Behavior::kIsolated : Behavior::kContiguous, out));
      return;
    case Kind::kPunctuation:
      for_each_part(piece, unicode::is_punctuation, Joiner(piece, step.behavior, out));
      return;
    case Kind::kWhitespace: split_words(piece, out); return;
    case Kind::kWhitespaceSplit:
      for_each_part(piece, unicode::is_white_space, Joiner(piece, Behavior::kRemoved, out));
      return;
    case Kind::kBert: {
      std::vector<std::string_view> parts;
      for_each_part(piece, unicode::is_white_space, Joiner(piece, Behavior::kRemoved, parts));
      for (const std::string_view part : parts) {
        for_each_part(part, unicode::is_punctuation, Joiner(part, Behavior::kIsolated, out));
      }
      return;
    }
    case Kind::kByteLevel: {
      if (step.prefix_space && !piece.starts_with(' '))
        piece = words.storage.emplace_back(" " + std::string(piece));
      const size_t first = out.size();
      if (step.split) {
        by_pattern(piece, gpt2_regex(), Behavior::kIsolated, false);
      } else {
        out.push_back(piece);
      }
      if (!step.map) return;
      for (size_t i = first; i < out.size(); ++i)
        out[i] = words.storage.emplace_back(to_byte_alphabet(out[i]));
      return;
    }
    case Kind::kMetaspace: break;
  }
  std::string text;
  text.reserve(piece.size() + piece.size() / 2 + 3);
  for (const char c : piece) {
    if (c == ' ') {
      text += step.replacement;
    } else {
      text += c;
    }
  }
  const bool wanted = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_start);
  if (wanted && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  piece = words.storage.emplace_back(std::move(text));
  if (!step.split) {
    out.push_back(piece);
    return;
  }
  words.matches.clear();
  for (size_t at = 0; (at = piece.find(step.replacement, at)) != std::string_view::npos;
       at += step.replacement.size()) {
    words.matches.push_back({at, at + step.replacement.size()});
  }
  for_each_part(piece, words.matches, false, Joiner(piece, Behavior::kMergedWithNext, out));
}

void PreTokenizer::split_valid(std::string_view text, bool at_start, Words& words) const {
  if (text.empty()) return;
  if (steps_.empty()) {
    words.list.push_back(text);
    return;
  }
  if (steps_.size() == 1) {
    run(steps_[0], text, at_start, words);
    return;
  }
  // Only the words of this text may be split again: those already listed are done.
  std::vector<std::string_view> done;
  done.swap(words.list);
  words.list.push_back(text);
  for (const Step& step : steps_) {
    words.scratch.clear();
    words.scratch.swap(words.list);
    for (size_t i = 0; i < words.scratch.size(); ++i) {
      if (!words.scratch[i].empty()) run(step, words.scratch[i], at_start && i == 0, words);
    }
  }
  if (!done.empty()) {
    done.insert(done.end(), words.list.begin(), words.list.end());
    words.list.swap(done);
  }
}

void PreTokenizer::split(std::string_view text, bool at_start, Words& words) const {
  words.list.clear();
  words.storage.clear();
  if (!byte_level_ || unicode::is_valid(text)) {
    split_valid(text, at_start, words);
    return;
  }
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    unicode::Decoded d = unicode::decode(text, i);
    if (d.valid) {
      i += d.length;
      continue;
    }
    split_valid(text.substr(start, i - start), at_start && start == 0, words);
    start = i;
    while (i < text.size() && !(d = unicode::decode(text, i)).valid) i += d.length;
    const std::string_view run_of_bytes = text.substr(start, i - start);
    words.list.push_back(mapped_ ? words.storage.emplace_back(to_byte_alphabet(run_of_bytes)) : run_of_bytes);
    start = i;
  }
  split_valid(text.substr(start), at_start && start == 0, words);
}

}  // namespace penstock
