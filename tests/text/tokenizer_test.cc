// Behaviour that no reference defines: errors of damaged files, round trips, special tokens,
// configuration files.
#include "text/tokenizer.h"

#include <gmock/gmock.h>

#include "formats/weight_source.h"
#include "golden_cases.h"
#include "golden_check.h"
#include "support/test_data.h"
#include "text/unicode/regex.h"
#include "text/unicode/unicode.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

std::unique_ptr<Tokenizer> open_tiny(const char* name) {
  auto tokenizer = golden::open_file(golden::folder() / name);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

Json tiny_json(const char* name) { return Json::parse(golden::read_file(golden::folder() / name)); }

Result<std::unique_ptr<Tokenizer>> open_json(const Json& json) {
  TokenizerFiles files;
  files.tokenizer_json = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return Tokenizer::from_files(files);
}

std::string error_of(const Json& json) {
  const auto tokenizer = open_json(json);
  return tokenizer ? "loaded" : tokenizer.error().message;
}

TEST(Tokenizer, ErrorsNameTheModel) {
  const auto path = tests_dir() / "golden" / "models" / "lfm2";  // it has no tokenizer
  const auto source = open_weights(path);
  ASSERT_TRUE(source) << source.error().message;
  const auto tokenizer = Tokenizer::load(**source);
  ASSERT_FALSE(tokenizer);
  EXPECT_THAT(tokenizer.error().message,
              testing::StartsWith(path.string() + ": no tokenizer.json"));
}

TEST(RoundTrip, ByteLevelKeepsAnyBytes) {
  auto json = tiny_json("tiny_byte_bpe.json");
  json["normalizer"] = nullptr;
  json["added_tokens"] = Json::array();
  json["post_processor"] = nullptr;
  const auto tokenizer = open_json(json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  golden::Cases cases(3);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = cases.next(true);
    const auto ids = (*tokenizer)->encode(text);
    ASSERT_EQ((*tokenizer)->decode_bytes(ids), text);
    ASSERT_EQ((*tokenizer)->decode(ids), unicode::replace_invalid_sequences(text));
  }
}

TEST(RoundTrip, ByteFallbackKeepsAnyText) {
  const auto tokenizer = open_tiny("tiny_spm_bpe.model");
  golden::Cases cases(4);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = cases.next(true);
    if (text.find("▁") != std::string::npos) continue;  // reads as a space
    ASSERT_EQ(tokenizer->decode_bytes(tokenizer->encode(text)),
              unicode::replace_invalid_bytes(text));
  }
}

TEST(Tokenizer, TokenBytesConcatenateToTheText) {
  for (const char* name : {"tiny_byte_bpe.json", "tiny_spm_bpe.json", "tiny_spm_bpe.model",
                           "tiny_unigram.json", "tiny_word_piece.json"}) {
    const auto tokenizer = open_tiny(name);
    golden::Cases cases(5);
    for (int i = 0; i < 500; ++i) {
      const auto ids =
          tokenizer->encode(cases.next(false), {.add_special = true, .parse_special = true});
      std::string text;
      bool first = true;
      for (const TokenId id : ids) {
        if (tokenizer->is_special(id)) continue;
        text += tokenizer->token_bytes(id, first);
        first = false;
      }
      ASSERT_EQ(text, tokenizer->decode_bytes(ids, true)) << name;
    }
  }
}

TEST(Tokenizer, ModelAndJsonGiveTheSameIds) {
  const auto model = open_tiny("tiny_spm_bpe.model"), json = open_tiny("tiny_spm_bpe.json");
  golden::Cases cases(6);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = cases.next(true);
    // The .model keeps its user's pieces whole, which this tokenizer.json does not know of.
    if (text.find("<mid>") != std::string::npos || text.find("»«") != std::string::npos) continue;
    ASSERT_EQ(model->encode(text, {.parse_special = true}),
              json->encode(text, {.parse_special = true}))
        << text;
  }
}

// GGUF metadata that carries the same vocabulary as a tokenizer.json.
Json gguf_of(const Json& json, const char* kind, const char* pre) {
  Json metadata = {{"tokenizer.ggml.model", kind}, {"tokenizer.ggml.pre", pre}};
  std::map<int, std::string> tokens;
  std::map<int, int> types;
  for (const auto& [piece, id] : json["model"]["vocab"].items()) tokens[id.get<int>()] = piece;
  for (const auto& token : json["added_tokens"]) {
    tokens[token["id"].get<int>()] = token["content"].get<std::string>();
    types[token["id"].get<int>()] = token["special"].get<bool>() ? 3 : 4;
  }
  for (const auto& [id, piece] : tokens) {
    metadata["tokenizer.ggml.tokens"].push_back(piece);
    metadata["tokenizer.ggml.token_type"].push_back(types.contains(id) ? types[id] : 1);
  }
  for (const auto& merge : json["model"]["merges"]) {
    metadata["tokenizer.ggml.merges"].push_back(merge[0].get<std::string>() + " " +
                                                merge[1].get<std::string>());
  }
  return metadata;
}

TEST(Tokenizer, GgufAndJsonGiveTheSameIds) {
  auto json = tiny_json("tiny_byte_bpe.json");
  json["normalizer"] = nullptr;
  auto& added = json["added_tokens"];
  for (auto& token : added) {
    token["lstrip"] = token["rstrip"] = token["single_word"] = false;
  }
  auto metadata = gguf_of(json, "gpt2", "dbrx");
  metadata["tokenizer.ggml.bos_token_id"] = 0;
  metadata["tokenizer.ggml.eos_token_id"] = 1;
  metadata["tokenizer.ggml.add_bos_token"] = metadata["tokenizer.ggml.add_eos_token"] = true;
  metadata["tokenizer.chat_template"] = "a";
  metadata["tokenizer.chat_template.tool_use"] = "b";
  const auto from_json = open_json(json);
  const auto from_gguf = Tokenizer::from_gguf(metadata);
  ASSERT_TRUE(from_json) << from_json.error().message;
  ASSERT_TRUE(from_gguf) << from_gguf.error().message;
  golden::Cases cases(8);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = cases.next(true);
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = special, .parse_special = special};
      ASSERT_EQ((*from_gguf)->encode(text, options), (*from_json)->encode(text, options)) << text;
    }
  }
  EXPECT_EQ((*from_gguf)->chat_template(), "a");
  EXPECT_EQ((*from_gguf)->chat_templates().at("tool_use"), "b");
  EXPECT_TRUE((*from_gguf)->add_bos());
  EXPECT_TRUE((*from_gguf)->is_end_of_generation(1));
  // a name says nothing
  EXPECT_FALSE((*from_gguf)->is_end_of_generation(*(*from_gguf)->find("<|im_end|>")));
  metadata["tokenizer.ggml.eot_token_id"] = *(*from_gguf)->find("<|im_end|>");
  metadata["tokenizer.ggml.eom_token_id"] = 5;
  const auto with_ends = Tokenizer::from_gguf(metadata);
  ASSERT_TRUE(with_ends) << with_ends.error().message;
  EXPECT_TRUE((*with_ends)->is_end_of_generation(*(*with_ends)->find("<|im_end|>")));
  EXPECT_TRUE((*with_ends)->is_end_of_generation(5));
}

TEST(Tokenizer, SpecialTokensInTextAreTextUnlessParsed) {
  for (const char* name : {"tiny_byte_bpe.json", "tiny_spm_bpe.json", "tiny_spm_bpe.model",
                           "tiny_unigram.json", "tiny_unigram.model", "tiny_word_piece.json"}) {
    const auto tokenizer = open_tiny(name);
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      if (!tokenizer->is_special(id) || id == tokenizer->unk()) continue;
      const std::string text = "a " + std::string(tokenizer->piece(id)) + " b";
      EXPECT_THAT(tokenizer->encode(text, {.add_special = false}),
                  testing::Not(testing::Contains(id)))
          << name << text;
      EXPECT_THAT(tokenizer->encode(text, {.add_special = false, .parse_special = true}),
                  testing::Contains(id))
          << name << text;
    }
  }
}

TEST(Tokenizer, ConfigurationFiles) {
  TokenizerFiles files;
  files.tokenizer_json = golden::read_file(golden::folder() / "tiny_byte_bpe.json");
  files.tokenizer_config_json =
      R"({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": true, "add_eos_token": false,
          "bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": "</s>",
          "added_tokens_decoder": {"700": {"content": "<|extra|>", "special": true}},
          "chat_template": [{"name": "default", "template": "x"}, {"name": "rag", "template": "y"}]})";
  files.generation_config_json = R"({"eos_token_id": [1, 7]})";
  auto tokenizer = Tokenizer::from_files(files);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const Tokenizer& t = **tokenizer;
  EXPECT_EQ(t.bos(), 0);
  EXPECT_EQ(t.eos(), 1);
  EXPECT_EQ(t.pad(), 1);
  EXPECT_TRUE(t.add_bos());
  EXPECT_FALSE(t.add_eos());
  EXPECT_EQ(t.chat_template(), "x");
  EXPECT_EQ(t.chat_templates().at("rag"), "y");
  EXPECT_THAT(t.encode("<|extra|>", {.add_special = false, .parse_special = true}),
              ElementsAre(700));
  EXPECT_TRUE(t.is_special(700));
  EXPECT_TRUE(t.is_end_of_generation(7));
  EXPECT_EQ(t.vocab_size(), 701);
  EXPECT_EQ(t.piece(650), "");  // a hole
  EXPECT_EQ(t.token_bytes(650), "");
  EXPECT_EQ(t.token_bytes(-1), "");
  EXPECT_EQ(t.decode(std::vector<TokenId>{-5, 650, 1 << 30}), "");

  files.chat_template_jinja = "from the file";
  tokenizer = Tokenizer::from_files(files);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ((*tokenizer)->chat_template(), "from the file");
}

// GPT-2's two files are the tokenizer.json that transformers makes of them.
TEST(Tokenizer, VocabularyAndMergesInFilesOfTheirOwn) {
  Json whole = tiny_json("tiny_byte_bpe.json");
  Json vocab = whole["model"]["vocab"];
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : whole["model"]["merges"])
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  vocab["<s>"] = whole["model"]["vocab"]["<s>"] = 0;
  vocab["</s>"] = whole["model"]["vocab"]["</s>"] = 1;
  const auto added = [](int id, const char* text) {
    return Json{{"id", id}, {"content", text}, {"special", true}, {"normalized", false}};
  };
  whole["added_tokens"] = Json::array({added(0, "<s>"), added(1, "</s>")});
  whole["normalizer"] = whole["post_processor"] = nullptr;
  whole["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const auto json = open_json(whole);
  ASSERT_TRUE(json) << json.error().message;
  TokenizerFiles files;
  files.vocab_json = vocab.dump(), files.merges_txt = merges;
  files.tokenizer_config_json =
      R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": "<s>",
          "eos_token": {"__type": "AddedToken", "content": "</s>", "normalized": true}})";
  const auto apart = Tokenizer::from_files(files);
  ASSERT_TRUE(apart) << apart.error().message;
  EXPECT_TRUE((*apart)->add_bos());
  EXPECT_EQ((*apart)->eos(), 1);
  EXPECT_TRUE((*apart)->is_special(1));
  golden::Cases cases(11);
  for (int i = 0; i < 500; ++i) {
    const std::string text = cases.next(true);
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = false, .parse_special = special};
      ASSERT_EQ((*apart)->encode(text, options), (*json)->encode(text, options)) << text;
    }
  }
  // of an encoder: <s> and </s> around a text
  files.tokenizer_config_json = R"({"tokenizer_class": "RobertaTokenizerFast"})";
  const auto framed = Tokenizer::from_files(files);
  ASSERT_TRUE(framed) << framed.error().message;
  EXPECT_THAT((*framed)->encode(""), ElementsAre(0, 1));
}

// Without any names the special token is GPT-2's.
TEST(Tokenizer, VocabularyAndMergesWithoutSettings) {
  TokenizerFiles files;
  files.vocab_json = R"({"a": 0, "b": 1, "#": 2, "##": 3, "<|endoftext|>": 4})";
  files.merges_txt = "#version: 0.2\r\n# #\r\n";
  auto tokenizer = Tokenizer::from_files(files);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->eos(), 4);
  EXPECT_THAT((*tokenizer)->encode("ab##<|endoftext|>", {.parse_special = true}),
              ElementsAre(0, 1, 3, 4));
  const auto error_with = [&](const char* vocab, const char* merges, const char* config) {
    files.vocab_json = vocab, files.merges_txt = merges, files.tokenizer_config_json = config;
    const auto refused = Tokenizer::from_files(files);
    return refused ? std::string("loaded") : refused.error().message;
  };
  EXPECT_THAT(error_with(R"({"a": 0})", "#version", R"({"tokenizer_class": "DebertaTokenizer"})"),
              HasSubstr("\"DebertaTokenizer\""));
  EXPECT_THAT(error_with(R"({"a": 0, "<mask>": 1})", "#version", "{}"), HasSubstr("got \"\""));
  files.config_json = R"({"model_type": "roberta"})";
  EXPECT_EQ(error_with(R"({"a": 0, "<mask>": 1})", "#version", "{}"), "loaded");
  files.config_json.clear();
  EXPECT_THAT(error_with("[1]", "#version", "{}"), HasSubstr("expected an object"));
  EXPECT_THAT(error_with(R"({"a": 0})", "a b\n", "{}"),
              HasSubstr("\"b\" is not in the vocabulary"));
  EXPECT_THAT(error_with(R"({"a": "x"})", "#version", "{}"), HasSubstr("expected an integer id"));
  EXPECT_THAT(error_with(R"({"a": 0})", "#version", "[]"),
              HasSubstr("tokenizer_config.json: expected an object"));
}

// As transformers does: every text "..._token", and two dictionaries.
TEST(Tokenizer, TokensThatTemplatesMayName) {
  TokenizerFiles files;
  files.tokenizer_json = golden::read_file(golden::folder() / "tiny_byte_bpe.json");
  files.special_tokens_map_json = R"({"sep_token": {"content": "<sep>"}, "mask_token": "<older>"})";
  files.tokenizer_config_json =
      R"({"bos_token": "<s>", "mask_token": "<mask>", "pad_token": null, "add_bos_token": true,
          "image_token": {"content": "<image>"}, "image_token_id": 5,
          "extra_special_tokens": {"boi_token": "<boi>", "wrong": 7},
          "model_specific_special_tokens": {"eoi_token": "<eoi>"}})";
  const auto tokenizer = Tokenizer::from_files(files);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->named_tokens(),
            (std::map<std::string, std::string>{{"bos_token", "<s>"},
                                                {"boi_token", "<boi>"},
                                                {"eoi_token", "<eoi>"},
                                                {"image_token", "<image>"},
                                                {"mask_token", "<mask>"},
                                                {"sep_token", "<sep>"}}));
  files.tokenizer_config_json = R"({"extra_special_tokens": ["<a>", "<b>"]})";
  EXPECT_EQ(Tokenizer::from_files(files).value()->named_tokens().size(), 2U);
}

// Templates lie in five places. chat_template.json is of models that see (Mistral Small 3.1 has
// nothing else), and serves where no other has the usual template.
TEST(Tokenizer, TemplatesOfOtherFiles) {
  TokenizerFiles files;
  files.tokenizer_json = golden::read_file(golden::folder() / "tiny_byte_bpe.json");
  files.chat_template_json = R"({"chat_template": "of a model that sees"})";
  files.additional_templates = {{"tool_use", "with tools"}, {"rag", "with texts"}};
  const auto templates_of = [&] {
    const auto tokenizer = Tokenizer::from_files(files);
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return tokenizer ? (*tokenizer)->chat_templates() : std::map<std::string, std::string>();
  };
  using Templates = std::map<std::string, std::string>;
  EXPECT_EQ(templates_of(), (Templates{{"default", "of a model that sees"},
                                       {"tool_use", "with tools"},
                                       {"rag", "with texts"}}));
  files.tokenizer_config_json = R"({"chat_template": "usual"})";
  EXPECT_EQ(templates_of().at("default"), "usual");
  files.chat_template_json = "no JSON, and not read";
  files.chat_template_jinja = "newer";
  EXPECT_EQ(templates_of().at("default"), "newer");
  files.chat_template_jinja = "", files.tokenizer_config_json = "";
  EXPECT_FALSE(Tokenizer::from_files(files));
}

TEST(Tokenizer, EmptyText) {
  const auto tokenizer = open_tiny("tiny_spm_bpe.json");
  EXPECT_THAT(tokenizer->encode(""), ElementsAre(1));
  EXPECT_THAT(tokenizer->encode("", {.add_special = false}), ElementsAre());
  EXPECT_EQ(tokenizer->decode({}), "");
}

TEST(Hostile, NothingThere) {
  const auto tokenizer = Tokenizer::from_files({});
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(Tokenizer::from_gguf(Json::object()));
}

TEST(Hostile, TokenizerJson) {
  const Json good = tiny_json("tiny_byte_bpe.json");
  const auto with = [&](const std::function<void(Json&)>& change) {
    Json json = good;
    change(json);
    return error_of(json);
  };
  EXPECT_EQ(with([](Json&) {}), "loaded");
  EXPECT_THAT(with([](Json& j) { j["model"]["vocab"]["x!"] = -1; }),
              HasSubstr("expected an id from 0"));
  EXPECT_THAT(with([](Json& j) { j["model"]["vocab"]["x!"] = 4000000000u; }),
              HasSubstr("expected an id from 0"));
  EXPECT_THAT(with([](Json& j) { j["model"]["vocab"]["x!"] = 1e300; }),
              HasSubstr("expected an integer id"));
  EXPECT_THAT(with([](Json& j) { j["model"]["vocab"]["x!"] = 20; }),
              HasSubstr("id 20 belongs to both"));
  EXPECT_THAT(with([](Json& j) { j["model"]["merges"].push_back({"zz", "qq"}); }),
              HasSubstr("\"zz\" is not in the vocabulary"));
  EXPECT_THAT(with([](Json& j) { j["model"]["merges"].push_back({"a", "Ä"}); }),
              HasSubstr("is not in the vocabulary"));
  EXPECT_THAT(with([](Json& j) { j["model"]["merges"].push_back("abc"); }),
              HasSubstr("expected two tokens"));
  EXPECT_THAT(with([](Json& j) { j["model"]["merges"].push_back(Json::array({1, 2})); }),
              HasSubstr("expected two tokens"));
  EXPECT_THAT(with([](Json& j) { j["model"]["type"] = "Magic"; }),
              HasSubstr("\"Magic\" is not known"));
  EXPECT_THAT(with([](Json& j) { j["model"] = 3; }), HasSubstr("expected an object \"model\""));
  EXPECT_THAT(with([](Json& j) { j["normalizer"] = Json{{"type", "Magic"}}; }),
              HasSubstr("normalizer \"Magic\" is not known"));
  EXPECT_THAT(with([](Json& j) { j["pre_tokenizer"] = Json::array(); }),
              HasSubstr("expected an object"));
  EXPECT_THAT(with([](Json& j) { j["decoder"] = Json{{"type", 7}}; }),
              HasSubstr("expected a string \"type\""));
  EXPECT_THAT(
      with([](Json& j) { j["added_tokens"].push_back({{"id", 1u << 31}, {"content", "x"}}); }),
      HasSubstr("expected an id from 0"));
  EXPECT_THAT(with([](Json& j) { j["post_processor"]["special_tokens"]["<s>"]["ids"] = {99999}; }),
              HasSubstr("id is not in the vocabulary"));
  EXPECT_THAT(with([](Json& j) { j["model"]["unk_token"] = "nope"; }), HasSubstr("unk_token"));
  EXPECT_THAT(with([](Json& j) {
                j["pre_tokenizer"] = {{"type", "Split"},
                                      {"behavior", "Isolated"},
                                      {"pattern", {{"Regex", "(unclosed"}}}};
              }),
              HasSubstr("parenthesis"));
  EXPECT_THAT(with([](Json& j) {
                j["pre_tokenizer"] = {{"type", "Split"},
                                      {"behavior", "Isolated"},
                                      {"pattern", {{"Regex", std::string(70000, 'a')}}}};
              }),
              HasSubstr("expected at most 65536 bytes"));
}

TEST(Hostile, DeepNesting) {
  std::string text = R"({"model": {"type": "BPE", "vocab": {}, "merges": [)" +
                     std::string(200'000, '[') + std::string(200'000, ']') + "]}}";
  TokenizerFiles files;
  files.tokenizer_json = text;
  EXPECT_FALSE(Tokenizer::from_files(files));
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += R"({"type": "Sequence", "normalizers": [)";
  for (int i = 0; i < 1000; ++i) nested += "]}";
  files.tokenizer_json =
      R"({"normalizer": )" + nested + R"(, "model": {"type": "BPE", "vocab": {}, "merges": []}})";
  const auto tokenizer = Tokenizer::from_files(files);
  ASSERT_FALSE(tokenizer);
  EXPECT_THAT(tokenizer.error().message, HasSubstr("nested deeper"));
}

TEST(Hostile, CatastrophicPatternEnds) {
  Json json = tiny_json("tiny_byte_bpe.json");
  json["normalizer"] = nullptr;
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+$|(x|x)*y";
  const auto tokenizer = open_json(json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::string text = std::string(5000, 'a') + "b" + std::string(5000, 'x');
  EXPECT_EQ((*tokenizer)->decode_bytes((*tokenizer)->encode(text)), text);
}

TEST(Hostile, TruncatedModelFiles) {
  for (const char* name : {"tiny_spm_bpe.model", "tiny_unigram.model"}) {
    const std::string whole = golden::read_file(golden::folder() / name);
    golden::Rng rng(9);
    for (int i = 0; i < 300; ++i) {
      TokenizerFiles files;
      files.tokenizer_model = whole.substr(0, rng.below(whole.size()));
      for (int flips = 0; flips < 3 && !files.tokenizer_model.empty(); ++flips) {
        files.tokenizer_model[rng.below(files.tokenizer_model.size())] =
            static_cast<char>(rng.below(256));
      }
      const auto tokenizer = Tokenizer::from_files(files);
      if (!tokenizer) {
        EXPECT_FALSE(tokenizer.error().message.empty());
        continue;
      }
      for (const TokenId id : (*tokenizer)->encode("Hello, world! ﬁ 123 \xFF")) {
        ASSERT_GE(id, 0);
        ASSERT_LT(id, (*tokenizer)->vocab_size());
      }
    }
  }
}

TEST(Hostile, GgufMetadata) {
  const Json good = gguf_of(tiny_json("tiny_byte_bpe.json"), "gpt2", "gpt-2");
  const auto with = [&](const std::function<void(Json&)>& change) {
    Json json = good;
    change(json);
    const auto tokenizer = Tokenizer::from_gguf(json);
    return tokenizer ? "loaded" : tokenizer.error().message;
  };
  EXPECT_EQ(with([](Json&) {}), "loaded");
  EXPECT_THAT(with([](Json& j) { j["tokenizer.ggml.pre"] = "unheard-of"; }),
              HasSubstr("\"unheard-of\" is not a known way"));
  EXPECT_THAT(with([](Json& j) { j["tokenizer.ggml.model"] = "unheard"; }),
              HasSubstr("\"unheard\" is not a known kind"));
  EXPECT_THAT(with([](Json& j) { j["tokenizer.ggml.tokens"] = 1; }),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(with([](Json& j) { j["tokenizer.ggml.tokens"][3] = 1; }),
              HasSubstr("token 3 is not a string"));
  EXPECT_THAT(with([](Json& j) { j["tokenizer.ggml.token_type"].push_back(1); }),
              HasSubstr("token_type: expected an array of"));
  EXPECT_THAT(with([](Json& j) { j["tokenizer.ggml.merges"][0] = "zz qq"; }),
              HasSubstr("tokens that do not exist"));
  EXPECT_THAT(with([](Json& j) { j["tokenizer.ggml.merges"][0] = ""; }),
              HasSubstr("expected two tokens"));
  EXPECT_EQ(with([](Json& j) { j["tokenizer.ggml.bos_token_id"] = 1u << 30; }),
            "loaded");  // an id outside is no token
}

TEST(Regex, ClassesMeanWhatTheyMeanInTokenizerFiles) {
  const auto count = [](const char* pattern, std::string_view text) {
    const auto regex = Regex::compile(pattern);
    EXPECT_TRUE(regex) << regex.error().message;
    std::vector<Match> matches;
    regex->find_all(text, matches);
    return matches.size();
  };
  // not the Mongolian separator
  EXPECT_EQ(count("\\s", " \u00a0\u3000\u0085\u2028x\u180e\u200b"), 5u);
  EXPECT_EQ(count("[^\\s]", " \u180e\u200bx"), 3u);
  EXPECT_EQ(count("[\\S]", " \u180e\u200bx"), 3u);
  EXPECT_EQ(count("\\w", "a_1é²́‿-"),
            7u);  // letters, digits, marks, connectors, and Oniguruma's Latin-1 numbers
  EXPECT_EQ(count("\\d", "1٣²"), 2u);
  EXPECT_EQ(count("(?i:'s)", "'s'S'ſ"), 3u);
  EXPECT_EQ(count("[[a-c]x]", "abcxy"), 4u);
  EXPECT_EQ(count("[a-c&&[^b]]", "abcd"), 2u);
  EXPECT_FALSE(Regex::compile("[a-z&&"));
  EXPECT_FALSE(Regex::compile(std::string(40, '[') + "a" + std::string(40, ']')));
}

TEST(Unicode, InvalidSequences) {
  const std::string fffd = "\xEF\xBF\xBD";
  EXPECT_EQ(unicode::replace_invalid_sequences("a\xFFz"), "a" + fffd + "z");
  EXPECT_EQ(unicode::replace_invalid_sequences("\xE4\xBD"), fffd);
  EXPECT_EQ(unicode::replace_invalid_sequences("\xE4\xBDz\xF0\x9F\x98"), fffd + "z" + fffd);
  EXPECT_EQ(unicode::replace_invalid_sequences("\xC0\xAF\xED\xA0\x80"),
            fffd + fffd + fffd + fffd + fffd);
  EXPECT_EQ(unicode::replace_invalid_bytes("\xE4\xBD"), fffd + fffd);
  EXPECT_TRUE(unicode::is_valid("👍🏽 é"));
  EXPECT_FALSE(unicode::is_valid("\xF4\x90\x80\x80"));
}

}  // namespace
}  // namespace penstock
