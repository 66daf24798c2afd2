// Converts GGUF metadata to the files of a Hugging Face directory.
#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/load/export.h"
#include "text/load/presets.h"
#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

const Json& list_of(const Json& metadata, const char* key) {
  static const Json empty = Json::array();
  const auto found = metadata.find(key);
  return found != metadata.end() && found->is_array() ? *found : empty;
}

int type_of(const Json& types, size_t i) {
  return i < types.size() && types[i].is_number_integer() ? types[i].get<int>() : 1;
}

std::string piece_of(const Json& tokens, size_t i) {
  return i < tokens.size() && tokens[i].is_string() ? tokens[i].get<std::string>() : std::string();
}

// Writes protocol buffer fields of SentencePiece's model file.
class ProtoWriter {
 public:
  void number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
  }
  void real(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) out_ += static_cast<char>(bits >> (8 * i) & 0xff);
  }
  void bytes(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    out_ += value;
  }
  const std::string& text() const { return out_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(0x80 | (value & 0x7f));
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

// Ids are signed 32-bit numbers in the file; -1 means none.
uint64_t proto_id(const Json& metadata, const char* key) {
  return static_cast<uint64_t>(static_cast<int64_t>(json_int(metadata, key, -1, INT32_MAX)));
}

std::string sentence_piece_model(const Json& metadata, bool unigram) {
  const Json &tokens = list_of(metadata, "tokenizer.ggml.tokens"),
             &types = list_of(metadata, "tokenizer.ggml.token_type"),
             &scores = list_of(metadata, "tokenizer.ggml.scores");
  ProtoWriter model;
  bool bytes = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    ProtoWriter piece;
    piece.bytes(1, piece_of(tokens, i));
    const bool scored = i < scores.size() && scores[i].is_number();
    piece.real(2, scored ? scores[i].get<float>() : 0.0f);
    const int type = type_of(types, i);
    bytes |= type == static_cast<int>(PieceType::kByte);
    piece.number(3, static_cast<uint64_t>(std::clamp(type, 1, 6)));
    model.bytes(1, piece.text());
  }
  ProtoWriter trainer;
  trainer.number(3, unigram ? 1 : 2);
  trainer.number(35, bytes ? 1 : 0);
  trainer.number(40, proto_id(metadata, "tokenizer.ggml.unknown_token_id"));
  trainer.number(41, proto_id(metadata, "tokenizer.ggml.bos_token_id"));
  trainer.number(42, proto_id(metadata, "tokenizer.ggml.eos_token_id"));
  trainer.number(43, proto_id(metadata, "tokenizer.ggml.padding_token_id"));
  model.bytes(2, trainer.text());
  ProtoWriter normalizer;
  normalizer.bytes(1, "identity");
  normalizer.number(3, json_flag(metadata, "tokenizer.ggml.add_space_prefix", true) ? 1 : 0);
  normalizer.number(4,
                    json_flag(metadata, "tokenizer.ggml.remove_extra_whitespaces", false) ? 1 : 0);
  normalizer.number(5, 1);
  model.bytes(3, normalizer.text());
  return model.text();
}

Result<std::string> byte_level_json(const Json& metadata) {
  const Json &tokens = list_of(metadata, "tokenizer.ggml.tokens"),
             &types = list_of(metadata, "tokenizer.ggml.token_type");
  Json vocabulary = Json::object(), added = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string piece = piece_of(tokens, i);
    const int type = type_of(types, i);
    const bool control = type == 2 || type == 3;
    if (control || type == 4) {
      added.push_back({{"id", i},
                       {"content", piece},
                       {"special", control},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", !control}});
    }
    vocabulary[piece] = i;
  }
  const std::string pre = json_text(metadata, "tokenizer.ggml.pre");
  ASSIGN_OR_RETURN(const Json steps, preset_json(pre.empty() ? "default" : pre));
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"ignore_merges", steps["ignore_merges"]},
                {"vocab", std::move(vocabulary)},
                {"merges", list_of(metadata, "tokenizer.ggml.merges")}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", steps["normalizer"]},
                     {"pre_tokenizer", steps["pre_tokenizer"]},
                     {"post_processor", nullptr},
                     {"decoder",
                      {{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", true}}},
                     {"model", std::move(model)}};
  return file.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json config_of(const Json& metadata, const char* tokenizer_class) {
  const Json& tokens = list_of(metadata, "tokenizer.ggml.tokens");
  Json config = {{"tokenizer_class", tokenizer_class}};
  const auto name = [&](const char* key, const char* field) {
    const int64_t id = json_int(metadata, key, -1, static_cast<int64_t>(tokens.size()) - 1);
    if (id >= 0) config[field] = piece_of(tokens, static_cast<size_t>(id));
  };
  name("tokenizer.ggml.bos_token_id", "bos_token");
  name("tokenizer.ggml.eos_token_id", "eos_token");
  name("tokenizer.ggml.unknown_token_id", "unk_token");
  name("tokenizer.ggml.padding_token_id", "pad_token");
  if (const auto chat = metadata.find("tokenizer.chat_template");
      chat != metadata.end() && chat->is_string())
    config["chat_template"] = *chat;
  return config;
}

}  // namespace

Result<std::map<std::string, std::string>> tokenizer_to_files(const WeightSource& gguf) {
  const Json& metadata = gguf.config();
  const std::string kind = json_text(metadata, "tokenizer.ggml.model");
  std::map<std::string, std::string> files;
  Json config;
  if (kind == "llama" || kind == "t5") {
    files["tokenizer.model"] = sentence_piece_model(metadata, kind == "t5");
    config = config_of(metadata, kind == "t5" ? "T5Tokenizer" : "LlamaTokenizer");
    config["add_bos_token"] = json_flag(metadata, "tokenizer.ggml.add_bos_token", kind == "llama");
    config["add_eos_token"] = json_flag(metadata, "tokenizer.ggml.add_eos_token", kind == "t5");
    config["legacy"] = true;
  } else if (kind == "gpt2") {
    ASSIGN_OR_RETURN(files["tokenizer.json"], byte_level_json(metadata));
    config = config_of(metadata, "PreTrainedTokenizerFast");
    ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::from_gguf(metadata));
    config["add_bos_token"] = tokenizer->add_bos();
    config["add_eos_token"] = tokenizer->add_eos();
  } else {
    return errorf(ErrorCode::kUnsupported,
                  "{}: a tokenizer of kind '{}' cannot be written as files yet",
                  gguf.path().string(), kind);
  }
  files["tokenizer_config.json"] =
      config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return files;
}

}  // namespace penstock
