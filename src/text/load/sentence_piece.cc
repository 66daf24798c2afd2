// SentencePiece vocabularies: a parser of the protobuf file, and construction of models from
// pieces, scores and types.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "text/tokenizer_parts.h"
#include "text/vocab/bpe.h"
#include "text/vocab/unigram.h"

namespace penstock {
namespace {

constexpr float kUnknownPenalty = 10;

// One field of a protobuf message.
struct Field {
  uint32_t number = 0;
  uint64_t integer = 0;    // varint, fixed32, fixed64
  std::string_view bytes;  // length-delimited
  bool is_bytes = false;
};

// Reads the fields of a message; every length is checked against the end.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return at_ >= bytes_.size(); }

  Result<Field> next() {
    Field field;
    ASSIGN_OR_RETURN(const uint64_t tag, varint());
    field.number = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0: {
        ASSIGN_OR_RETURN(field.integer, varint());
        return field;
      }
      case 1: return fixed(field, 8);
      case 5: return fixed(field, 4);
      case 2: {
        ASSIGN_OR_RETURN(const uint64_t length, varint());
        if (length > bytes_.size() - at_) return broken("length past the end");
        field.bytes = bytes_.substr(at_, length);
        field.is_bytes = true;
        at_ += length;
        return field;
      }
      default: return broken("unknown wire type");
    }
  }

 private:
  tl::unexpected<Error> broken(const char* what) const {
    return errorf(ErrorCode::kCorruptFile, "tokenizer.model: {} at byte {} of a message of {}",
                  what, at_, bytes_.size());
  }
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return broken("unterminated number");
  }
  Result<Field> fixed(Field field, size_t size) {
    if (size > bytes_.size() - at_) return broken("number past the end");
    std::memcpy(&field.integer, bytes_.data() + at_, size);
    at_ += size;
    return field;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

Result<ScoredPiece> read_piece(std::string_view message) {
  ScoredPiece piece;
  for (ProtoReader reader(message); !reader.done();) {
    ASSIGN_OR_RETURN(const Field field, reader.next());
    if (field.number == 1 && field.is_bytes) piece.text = field.bytes;
    if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.integer));
    if (field.number == 3) {
      if (field.integer < 1 || field.integer > 6) {
        return errorf(ErrorCode::kCorruptFile,
                      "tokenizer.model: piece type: expected 1 to 6, got {}", field.integer);
      }
      piece.type = static_cast<PieceType>(field.integer);
    }
  }
  return piece;
}

Status read_trainer(std::string_view message, SentencePieceSpec& spec) {
  for (ProtoReader reader(message); !reader.done();) {
    ASSIGN_OR_RETURN(const Field field, reader.next());
    const auto id = static_cast<int>(static_cast<int32_t>(field.integer));
    switch (field.number) {
      case 3:
        if (field.integer != 1 && field.integer != 2) {
          return errorf(ErrorCode::kUnsupported,
                        "tokenizer.model: model type: expected 1 (unigram) or 2 (bpe), got {}",
                        field.integer);
        }
        spec.unigram = field.integer == 1;
        break;
      case 24: spec.rules.whitespace_as_suffix = field.integer != 0; break;
      case 35: spec.byte_fallback = field.integer != 0; break;
      case 40: spec.unk = id; break;
      case 41: spec.bos = id; break;
      case 42: spec.eos = id; break;
      case 43: spec.pad = id; break;
      default: break;
    }
  }
  return {};
}

Status read_normalizer(std::string_view message, SentencePieceSpec& spec) {
  for (ProtoReader reader(message); !reader.done();) {
    ASSIGN_OR_RETURN(const Field field, reader.next());
    if (field.number == 2 && field.is_bytes) {
      ASSIGN_OR_RETURN(spec.rules.charsmap, Charsmap::parse(field.bytes));
    }
    if (field.number == 3) spec.rules.add_dummy_prefix = field.integer != 0;
    if (field.number == 4) spec.rules.remove_extra_whitespaces = field.integer != 0;
    if (field.number == 5) spec.rules.escape_whitespaces = field.integer != 0;
  }
  return {};
}

bool is_text(PieceType type) {
  return type == PieceType::kNormal || type == PieceType::kUserDefined ||
         type == PieceType::kUnused;
}

std::unique_ptr<WordModel> make_bpe(const SentencePieceSpec& spec, const Vocabulary& vocabulary) {
  BpeRules rules;
  rules.fuse_unk = true;
  rules.unk = spec.unk;
  rules.byte_fallback = spec.byte_fallback;
  rules.byte_ids = byte_tokens(vocabulary);
  rules.vocab_size = vocabulary.size();
  rules.user_defined = spec.rules.user_defined;
  rules.unused.assign(spec.pieces.size(), false);
  std::vector<float> scores;
  for (const ScoredPiece& piece : spec.pieces) {
    if (is_text(piece.type)) scores.push_back(piece.score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<RankedToken> tokens;
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const ScoredPiece& piece = spec.pieces[id];
    if (!is_text(piece.type)) continue;
    rules.unused[id] = piece.type == PieceType::kUnused;
    rules.words.insert(piece.text, static_cast<TokenId>(id));
    const auto rank =
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) -
        scores.begin();
    tokens.push_back({piece.text, static_cast<TokenId>(id), static_cast<uint32_t>(rank)});
  }
  add_merges_from_ranks(tokens, rules);
  return std::make_unique<Bpe>(std::move(rules));
}

std::unique_ptr<WordModel> make_unigram(const SentencePieceSpec& spec,
                                        const Vocabulary& vocabulary) {
  UnigramRules rules;
  rules.unk = spec.unk;
  rules.byte_fallback = spec.byte_fallback;
  rules.byte_ids = byte_tokens(vocabulary);
  rules.single_precision = true;
  rules.scores.assign(spec.pieces.size(), 0);
  float lowest = 0, highest = 0;
  bool any = false;
  for (const ScoredPiece& piece : spec.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    lowest = any ? std::min(lowest, piece.score) : piece.score;
    highest = any ? std::max(highest, piece.score) : piece.score;
    any = true;
  }
  rules.unk_score = lowest - kUnknownPenalty;
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const ScoredPiece& piece = spec.pieces[id];
    if (!is_text(piece.type) || piece.type == PieceType::kUnused) continue;
    rules.pieces.insert(piece.text, static_cast<int32_t>(id));
    // User-defined pieces are always preferred: their score exceeds that of their characters.
    rules.scores[id] =
        piece.type == PieceType::kUserDefined
            ? static_cast<double>(static_cast<float>(piece.text.size()) * highest) - 0.1
            : piece.score;
  }
  return std::make_unique<Unigram>(std::move(rules));
}

}  // namespace

Result<TokenizerParts> make_sentence_piece(SentencePieceSpec spec) {
  TokenizerParts parts;
  const int n = static_cast<int>(spec.pieces.size());
  if (n == 0) return errorf(ErrorCode::kCorruptFile, "tokenizer: the vocabulary has no pieces");
  for (int id = 0; id < n; ++id) {
    const ScoredPiece& piece = spec.pieces[id];
    if (!std::isfinite(piece.score)) {
      return errorf(ErrorCode::kCorruptFile, "tokenizer: piece {}: expected a finite score, got {}",
                    id, piece.score);
    }
    RETURN_IF_ERROR(parts.vocabulary.add(id, piece.text));
    if (piece.type == PieceType::kUnknown && spec.unk < 0) spec.unk = id;
    if (piece.type == PieceType::kUserDefined) spec.rules.user_defined.insert(piece.text, id);
    if (piece.type != PieceType::kControl && piece.type != PieceType::kUnknown) continue;
    parts.added.push_back({.id = id, .content = piece.text, .special = true});
  }
  const auto existing = [&](int id) { return id >= 0 && id < n ? id : kNoToken; };
  parts.unk = spec.unk = existing(spec.unk);
  parts.bos = existing(spec.bos);
  parts.eos = existing(spec.eos);
  parts.pad = existing(spec.pad);
  parts.model =
      spec.unigram ? make_unigram(spec, parts.vocabulary) : make_bpe(spec, parts.vocabulary);
  const bool dummy_prefix = spec.rules.add_dummy_prefix && !spec.rules.whitespace_as_suffix;
  parts.decoder = Decoder::sentence_piece(dummy_prefix);
  if (dummy_prefix && !spec.legacy) {
    SentencePieceRules inner = spec.rules;
    inner.add_dummy_prefix = false;
    parts.inner_normalizer = Normalizer::sentence_piece(std::move(inner));
  }
  parts.normalizer = Normalizer::sentence_piece(std::move(spec.rules));
  return parts;
}

Result<SentencePieceSpec> read_sentence_piece(std::string_view bytes) {
  SentencePieceSpec spec;
  spec.unigram = true;  // defaults of the format
  spec.unk = 0;
  spec.bos = 1;
  spec.eos = 2;
  spec.rules.remove_extra_whitespaces = true;
  for (ProtoReader reader(bytes); !reader.done();) {
    ASSIGN_OR_RETURN(const Field field, reader.next());
    if (!field.is_bytes) continue;
    if (field.number == 1) {
      if (spec.pieces.size() >= static_cast<size_t>(Vocabulary::kMaxSize)) {
        return errorf(ErrorCode::kCorruptFile, "tokenizer.model: more than {} pieces",
                      Vocabulary::kMaxSize);
      }
      ASSIGN_OR_RETURN(ScoredPiece piece, read_piece(field.bytes));
      spec.pieces.push_back(std::move(piece));
    }
    if (field.number == 2) RETURN_IF_ERROR(read_trainer(field.bytes, spec));
    if (field.number == 3) RETURN_IF_ERROR(read_normalizer(field.bytes, spec));
  }
  return spec;
}

Result<TokenizerParts> load_sentence_piece_model(std::string_view bytes, bool legacy) {
  ASSIGN_OR_RETURN(SentencePieceSpec spec, read_sentence_piece(bytes));
  spec.legacy = legacy;
  const bool unigram = spec.unigram;
  ASSIGN_OR_RETURN(TokenizerParts parts, make_sentence_piece(std::move(spec)));
  const auto has = [&](const char* piece) { return parts.vocabulary.find(piece) != kNoToken; };
  if (unigram && has("[CLS]") && has("[SEP]")) {  // DeBERTa v2 and v3
    set_bert_form(parts);
    return parts;
  }
  // Llama's models begin with BOS; T5's models end with EOS.
  set_add_bos(!unigram, parts);
  set_add_eos(unigram, parts);
  return parts;
}

}  // namespace penstock
