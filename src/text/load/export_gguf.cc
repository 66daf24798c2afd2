// Converts the tokenizer of a Hugging Face directory to GGUF metadata.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/load/export.h"
#include "text/load/presets.h"
#include "text/steps/json_fields.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

bool is_byte_piece(std::string_view piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
}

// Pieces and their types, indexed by id, for every kind of vocabulary.
struct Pieces {
  Json tokens = Json::array(), types = Json::array();
};

// Returns the vocabulary size with tokens that no file names: padding rows of the embedding table.
int padded_size(const WeightSource& directory, int size) {
  const int64_t wanted = json_int(directory.config(), "vocab_size", size, 1 << 24);
  return std::max(size, static_cast<int>(wanted));
}

Pieces list_pieces(const Tokenizer& tokenizer, int size, bool bytes) {
  Pieces out;
  for (TokenId id = 0; id < size; ++id) {
    const std::string_view piece = tokenizer.piece(id);
    int type = kNormal;
    if (id >= tokenizer.vocab_size() || piece.empty())
      type = kUnused;
    else if (bytes && id == tokenizer.unk())
      type = kUnknown;
    else if (tokenizer.is_special(id))
      type = kControl;
    else if (bytes && is_byte_piece(piece))
      type = kByte;
    out.tokens.push_back(type == kUnused ? fmt::format("[PAD{}]", id) : std::string(piece));
    out.types.push_back(type);
  }
  return out;
}

void mark_added_tokens(const Json& file, Json& types) {
  const auto added = file.find("added_tokens");
  if (added == file.end() || !added->is_array()) return;
  for (const Json& token : *added) {
    const int64_t id = json_int(token, "id", -1, static_cast<int64_t>(types.size()) - 1);
    if (id >= 0 && !json_flag(token, "special", false))
      types[static_cast<size_t>(id)] = kUserDefined;
  }
}

Json merges_of(const Json& model) {
  Json out = Json::array();
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) return out;
  for (const Json& merge : *merges) {
    if (merge.is_string()) out.push_back(merge);
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      out.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return out;
}

// SentencePiece merges the pair with the best score: a token's score is the rank of the merge that
// makes it.
Json scores_of_merges(const Json& model, const Tokenizer& tokenizer, int size) {
  std::vector<float> scores(static_cast<size_t>(size), -1e9f);
  const Json merges = merges_of(model);
  for (size_t rank = merges.size(); rank-- > 0;) {
    std::string pair = merges[rank].get<std::string>();
    const size_t space = pair.find(' ');
    if (space == std::string::npos) continue;
    const auto id = tokenizer.find(pair.erase(space, 1));
    if (id && *id < size) scores[static_cast<size_t>(*id)] = -static_cast<float>(rank);
  }
  for (TokenId id = 0; id < size; ++id) {
    if (tokenizer.is_special(id) || is_byte_piece(tokenizer.piece(id)))
      scores[static_cast<size_t>(id)] = 0;
  }
  return scores;
}

void set_ids(const Tokenizer& tokenizer, Json& out) {
  const auto set = [&](const char* key, TokenId id) {
    if (id != kNoToken)
      out[fmt::format("tokenizer.ggml.{}_token_id", key)] = static_cast<unsigned>(id);
  };
  set("bos", tokenizer.bos());
  set("eos", tokenizer.eos());
  set("unknown", tokenizer.unk());
  set("padding", tokenizer.pad());
  out["tokenizer.ggml.add_bos_token"] = tokenizer.add_bos();
  out["tokenizer.ggml.add_eos_token"] = tokenizer.add_eos();
  for (const auto& [name, text] : tokenizer.chat_templates())
    out[name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name] = text;
}

Result<Json> sentence_piece_keys(const WeightSource& directory, const Tokenizer& tokenizer,
                                 const std::string& bytes) {
  ASSIGN_OR_RETURN(const SentencePieceSpec spec, read_sentence_piece(bytes));
  const int size = padded_size(directory, tokenizer.vocab_size());
  Pieces pieces = list_pieces(tokenizer, size, true);
  Json scores = Json::array();
  for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
    const bool in_file = i < spec.pieces.size();
    scores.push_back(in_file ? spec.pieces[i].score : -1000.0f);
    if (!in_file) continue;
    pieces.tokens[i] = spec.pieces[i].text;
    pieces.types[i] = static_cast<int>(spec.pieces[i].type);
  }
  Json out = {{"tokenizer.ggml.model", spec.unigram ? "t5" : "llama"},
              {"tokenizer.ggml.pre", "default"},
              {"tokenizer.ggml.tokens", std::move(pieces.tokens)},
              {"tokenizer.ggml.token_type", std::move(pieces.types)},
              {"tokenizer.ggml.scores", std::move(scores)},
              {"tokenizer.ggml.add_space_prefix", spec.rules.add_dummy_prefix}};
  if (spec.rules.remove_extra_whitespaces) out["tokenizer.ggml.remove_extra_whitespaces"] = true;
  return out;
}

Result<Json> plamo_keys(const WeightSource& directory, const Tokenizer& tokenizer,
                        const std::string& text) {
  ASSIGN_OR_RETURN(const PlamoList list, read_plamo_list(text));
  const int size = padded_size(directory, tokenizer.vocab_size());
  Pieces pieces = list_pieces(tokenizer, size, true);
  Json scores = Json::array();
  for (size_t i = 0; i < static_cast<size_t>(size); ++i)
    scores.push_back(i < list.pieces.size() ? list.pieces[i].score : -1000.0f);
  return Json{{"tokenizer.ggml.model", "plamo2"},
              {"tokenizer.ggml.pre", "default"},
              {"tokenizer.ggml.tokens", std::move(pieces.tokens)},
              {"tokenizer.ggml.token_type", std::move(pieces.types)},
              {"tokenizer.ggml.scores", std::move(scores)},
              {"tokenizer.ggml.add_space_prefix", false}};
}

Result<Json> json_keys(const WeightSource& directory, const Tokenizer& tokenizer,
                       const std::string& text) {
  ASSIGN_OR_RETURN(const Json file, parse_json(text, "tokenizer.json"));
  const auto model = file.find("model");
  if (model == file.end() || !model->is_object() || json_text(*model, "type") != "BPE") {
    return errorf(ErrorCode::kUnsupported,
                  "{}: tokenizer.json: only BPE vocabularies can be written to GGUF",
                  directory.path().string());
  }
  const int size = padded_size(directory, tokenizer.vocab_size());
  const bool fallback = json_flag(*model, "byte_fallback", false);
  Pieces pieces = list_pieces(tokenizer, size, fallback);
  mark_added_tokens(file, pieces.types);
  Json out = {{"tokenizer.ggml.tokens", std::move(pieces.tokens)},
              {"tokenizer.ggml.token_type", std::move(pieces.types)}};
  if (fallback) {
    out["tokenizer.ggml.model"] = "llama";
    out["tokenizer.ggml.pre"] = "default";
    out["tokenizer.ggml.scores"] = scores_of_merges(*model, tokenizer, size);
    return out;
  }
  ASSIGN_OR_RETURN(const std::string preset, preset_of_json(file));
  out["tokenizer.ggml.model"] = "gpt2";
  out["tokenizer.ggml.pre"] = preset;
  out["tokenizer.ggml.merges"] = merges_of(*model);
  return out;
}

}  // namespace

Result<Json> tokenizer_to_gguf(const WeightSource& directory) {
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(directory));
  const auto model = directory.side_file("tokenizer.model");
  const auto json = directory.side_file("tokenizer.json"),
             list = directory.side_file("tokenizer.jsonl");
  Json out;
  if (model && !is_tiktoken(*model)) {
    ASSIGN_OR_RETURN(out, sentence_piece_keys(directory, *tokenizer, *model));
  } else if (json) {
    ASSIGN_OR_RETURN(out, json_keys(directory, *tokenizer, *json));
  } else if (list) {
    ASSIGN_OR_RETURN(out, plamo_keys(directory, *tokenizer, *list));
  } else {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: expected tokenizer.model, tokenizer.json or tokenizer.jsonl to write to GGUF",
        directory.path().string());
  }
  set_ids(*tokenizer, out);
  return out;
}

}  // namespace penstock
