#include "text/steps/decoder.h"

#include <array>
#include <nlohmann/json.hpp>

#include "text/steps/json_fields.h"
#include "text/unicode/unicode.h"
#include "text/vocab/byte_alphabet.h"
#include "text/vocab/vocabulary.h"

namespace penstock {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// The clean-up of WordPiece's decoder.
void clean_up(std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

}  // namespace

Decoder Decoder::byte_level() {
  Decoder d;
  d.steps_.push_back({.kind = Kind::kByteLevel});
  return d;
}

Decoder Decoder::word_piece(std::string prefix, bool cleanup) {
  Decoder d;
  d.steps_.push_back({.kind = Kind::kWordPiece, .text = std::move(prefix), .flag = cleanup});
  return d;
}

Decoder Decoder::sentence_piece(bool strip_first) {
  Decoder d;
  d.steps_.push_back(
      {.kind = Kind::kReplace, .pattern = Regex::literal(kSpaceSymbol), .text = " "});
  d.steps_.push_back({.kind = Kind::kByteFallback});
  if (strip_first)
    d.steps_.push_back({.kind = Kind::kStrip, .text = " ", .start = 1, .whole = true});
  return d;
}

Result<Decoder> Decoder::from_json(const nlohmann::json& json) {
  Decoder d;
  bool fused = false;
  if (json.is_null()) {
    d.steps_.push_back({.kind = Kind::kJoin});
    return d;
  }
  RETURN_IF_ERROR(add_json(json, 0, fused, d.steps_));
  return d;
}

Status Decoder::add_json(const nlohmann::json& json, int depth, bool& fused,
                         std::vector<Step>& steps) {
  ASSIGN_OR_RETURN(const std::string type, json_type(json, "decoder"));
  if (type == "Sequence") {
    if (depth >= kMaxNesting)
      return errorf(ErrorCode::kCorruptFile, "decoder: nested deeper than {}", kMaxNesting);
    ASSIGN_OR_RETURN(const nlohmann::json* list, json_array(json, "decoders", "decoder"));
    for (const auto& item : *list) RETURN_IF_ERROR(add_json(item, depth + 1, fused, steps));
    return {};
  }
  if (type == "Fuse") {
    fused = true;
    return {};
  }
  ASSIGN_OR_RETURN(Step step, leaf(json, type, fused));
  steps.push_back(std::move(step));
  return {};
}

Result<Decoder::Step> Decoder::leaf(const nlohmann::json& json, const std::string& type,
                                    bool fused) {
  if (type == "ByteLevel") return Step{.kind = Kind::kByteLevel};
  if (type == "ByteFallback") return Step{.kind = Kind::kByteFallback};
  if (type == "Replace") {
    ASSIGN_OR_RETURN(Regex pattern, json_pattern(json, "decoder"));
    ASSIGN_OR_RETURN(std::string text, json_string(json, "content", "decoder"));
    return Step{.kind = Kind::kReplace, .pattern = std::move(pattern), .text = std::move(text)};
  }
  if (type == "Strip") {
    ASSIGN_OR_RETURN(std::string content, json_string(json, "content", "decoder"));
    return Step{.kind = Kind::kStrip,
                .text = std::move(content),
                .start = static_cast<int>(json_int(json, "start", 0, 1 << 20)),
                .stop = static_cast<int>(json_int(json, "stop", 0, 1 << 20)),
                .whole = fused};
  }
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(std::string replacement, json_string(json, "replacement", "decoder"));
    const bool never =
        json_text(json, "prepend_scheme") == "never" || !json_flag(json, "add_prefix_space", true);
    return Step{.kind = Kind::kMetaspace, .text = std::move(replacement), .flag = !never};
  }
  if (type == "WordPiece") {
    ASSIGN_OR_RETURN(std::string prefix, json_string(json, "prefix", "decoder"));
    return Step{.kind = Kind::kWordPiece,
                .text = std::move(prefix),
                .flag = json_flag(json, "cleanup", true)};
  }
  if (type == "BPEDecoder") {
    ASSIGN_OR_RETURN(std::string suffix, json_string(json, "suffix", "decoder"));
    return Step{.kind = Kind::kSuffix, .text = std::move(suffix)};
  }
  return errorf(ErrorCode::kUnsupported, "tokenizer.json: decoder \"{:.40}\" is not known", type);
}

std::string Decoder::run(const Step& step, std::string piece, bool first) {
  switch (step.kind) {
    case Kind::kByteLevel: {
      auto bytes = from_byte_alphabet(piece);
      return bytes ? *std::move(bytes) : piece;
    }
    case Kind::kByteFallback: {
      const int byte = byte_of_piece(piece);
      return byte < 0 ? piece : std::string(1, static_cast<char>(byte));
    }
    case Kind::kReplace: {
      std::vector<Match> matches;
      if (unicode::is_valid(piece)) step.pattern.find_all(piece, matches);
      for (size_t i = matches.size(); i > 0; --i) {
        piece.replace(matches[i - 1].begin, matches[i - 1].end - matches[i - 1].begin, step.text);
      }
      return piece;
    }
    case Kind::kStrip: {
      if (step.text.empty()) return piece;
      for (int n = 0; n < step.start && (first || !step.whole) && piece.starts_with(step.text);
           ++n) {
        piece.erase(0, step.text.size());
      }
      for (int n = 0; n < step.stop && !step.whole && piece.ends_with(step.text); ++n) {
        piece.resize(piece.size() - step.text.size());
      }
      return piece;
    }
    case Kind::kMetaspace:
      if (!step.text.empty()) replace_all(piece, step.text, first && step.flag ? "" : " ");
      return piece;
    case Kind::kWordPiece:
      if (!first) {
        if (piece.starts_with(step.text)) {
          piece.erase(0, step.text.size());
        } else {
          piece.insert(0, " ");
        }
      }
      if (step.flag) clean_up(piece);
      return piece;
    case Kind::kSuffix:
      if (!step.text.empty()) replace_all(piece, step.text, " ");
      return piece;
    case Kind::kJoin: return first ? piece : " " + piece;
  }
  return piece;
}

std::string Decoder::apply(std::string_view piece, bool first) const {
  std::string text(piece);
  for (const Step& step : steps_) text = run(step, std::move(text), first);
  return text;
}

}  // namespace penstock
