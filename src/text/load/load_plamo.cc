// The vocabulary of PLaMo 2 and 3: tokens with scores, of which the cheapest that make up a text are
// taken. Its list has a line of JSON for each token: [text, score, kind].
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"
#include "text/vocab/unigram.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Scores are whole numbers of this unit.
constexpr double kUnitsOfScore = 1e4, kUnknownUnits = -1e7, kMostScore = 1e9;
constexpr int kMostRepeats = 1000;

bool is_control(const ScoredPiece& piece) {
  const bool named = piece.text.starts_with("<|plamo:") && piece.text.ends_with("|>");
  return named || piece.type == PieceType::kControl || piece.type == PieceType::kUnknown;
}

Result<TokenizerParts> make_plamo(std::span<const ScoredPiece> pieces,
                                  std::span<const double> scores) {
  TokenizerParts parts;
  UnigramRules rules;
  rules.from_end = rules.byte_fallback = true;
  rules.unk_score = kUnknownUnits;
  rules.scores.assign(pieces.size(), 0);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ScoredPiece& piece = pieces[i];
    const auto id = static_cast<TokenId>(i);
    if (!(std::abs(scores[i]) <= kMostScore))
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer: token {}: expected a score up to {}, got {}", i, kMostScore,
                    scores[i]);
    RETURN_IF_ERROR(parts.vocabulary.add(id, piece.text));
    rules.scores[i] = std::nearbyint(scores[i] * kUnitsOfScore);
    if (is_control(piece)) {
      parts.added.push_back({.id = id, .content = piece.text, .special = true});
    } else if (piece.type != PieceType::kByte && piece.type != PieceType::kUnused &&
               !piece.text.empty()) {
      rules.pieces.insert(piece.text, id);
    }
  }
  rules.byte_ids = byte_tokens(parts.vocabulary);
  if (std::ranges::find(rules.byte_ids, kNoToken) != rules.byte_ids.end())
    return errorf(ErrorCode::kCorruptFile, "tokenizer: expected a token for each of the 256 bytes");
  const auto named = [&](const char* text) { return parts.vocabulary.find(text); };
  parts.unk = named("<|plamo:unk|>"), parts.bos = named("<|plamo:bos|>");
  parts.eos = named("<|plamo:eos|>"), parts.pad = named("<|plamo:pad|>");
  parts.model = std::make_unique<Unigram>(std::move(rules));
  SentencePieceRules plain;  // bytes that are no UTF-8 become U+FFFD
  plain.add_dummy_prefix = plain.remove_extra_whitespaces = plain.escape_whitespaces = false;
  parts.normalizer = Normalizer::sentence_piece(std::move(plain));
  ASSIGN_OR_RETURN(parts.decoder, Decoder::from_json({{"type", "ByteFallback"}}));
  return parts;
}

// Runs of spaces, and of one character, that are words of their own.
Status break_around_runs(const Json& config, TokenizerParts& parts) {
  const int64_t spaces =
                    json_int(config, "break_around_consecutive_spaces_threshold", 0, kMostRepeats),
                repeats =
                    json_int(config, "break_around_repeated_chars_threshold", 0, kMostRepeats);
  std::string pattern = repeats > 1 ? fmt::format(R"((?:(.)\1{{{},}}))", repeats - 1) : "";
  if (spaces > 0) pattern += fmt::format("{} {{{},}}", pattern.empty() ? "" : "|", spaces);
  if (pattern.empty()) return {};
  ASSIGN_OR_RETURN(Regex runs, Regex::compile(pattern));
  parts.pre_tokenizer.add_split(std::move(runs), PreTokenizer::Behavior::kIsolated);
  return {};
}

}  // namespace

Result<PlamoList> read_plamo_list(std::string_view text) {
  PlamoList list;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \r\t") == line.npos) continue;
    const Json row = bounded_json(line);
    const bool fits = row.is_array() && row.size() >= 2 && row[0].is_string() &&
                      row[1].is_number() && (row.size() < 3 || row[2].is_string());
    if (!fits || list.pieces.size() >= static_cast<size_t>(Vocabulary::kMaxSize))
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.jsonl: line {}: expected [text, score, kind], and at most {} lines",
                    list.pieces.size() + 1, Vocabulary::kMaxSize);
    const std::string kind = row.size() < 3 ? "NORMAL" : row[2].get<std::string>();
    const PieceType type = kind == "BYTE"      ? PieceType::kByte
                           : kind == "CONTROL" ? PieceType::kControl
                           : kind == "UNKNOWN" ? PieceType::kUnknown
                                               : PieceType::kNormal;
    list.scores.push_back(row[1].get<double>());
    if (!(std::abs(list.scores.back()) <= kMostScore))
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer.jsonl: line {}: expected a score up to {}, got {}",
                    list.pieces.size() + 1, kMostScore, list.scores.back());
    // A number that becomes the same units again, for scores up to 1,600.
    const double rounded = std::nearbyint(list.scores.back() * kUnitsOfScore) / kUnitsOfScore;
    list.pieces.push_back({row[0].get<std::string>(), static_cast<float>(rounded), type});
  }
  return list;
}

Result<TokenizerParts> load_plamo_list(std::string_view text, const Json& config) {
  ASSIGN_OR_RETURN(const PlamoList list, read_plamo_list(text));
  ASSIGN_OR_RETURN(TokenizerParts parts, make_plamo(list.pieces, list.scores));
  RETURN_IF_ERROR(break_around_runs(config, parts));
  return parts;
}

Result<TokenizerParts> load_plamo_pieces(std::span<const ScoredPiece> pieces) {
  std::vector<double> scores;
  for (const ScoredPiece& piece : pieces) scores.push_back(piece.score);
  return make_plamo(pieces, scores);
}

}  // namespace penstock
