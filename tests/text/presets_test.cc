// How GGUF's families split text: their rules are those of the sources, and give what the reference
// gives.
#include "text/load/presets.h"

#include <gmock/gmock.h>

#include "golden_check.h"
#include "text/steps/split_rules.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

Json golden_json(const char* name) {
  return Json::parse(golden::read_file(golden::folder() / name));
}

// presets.json: "known" are the names that llama.cpp knows, "families" what their sources have.
const Json& sources() {
  static const Json json = golden_json("presets.json");
  return json;
}

// The metadata of a GGUF file with the vocabulary of a small tokenizer.json, which has no tokens
// beside it.
Json metadata_of(const Json& file, const std::string& kind, const std::string& pre) {
  const Json& vocabulary = file.at("model").at("vocab");
  std::vector<std::string> tokens(vocabulary.size());
  std::vector<int> types(vocabulary.size(), 1);
  for (const auto& [piece, id] : vocabulary.items()) {
    tokens[id.get<size_t>()] = piece;
    if (piece.size() == 6 && piece.starts_with("<0x")) types[id.get<size_t>()] = 6;
  }
  for (const Json& token : file.at("added_tokens")) {
    const size_t id = token.at("id").get<size_t>();
    if (id < types.size()) types[id] = token.at("content") == "<unk>" ? 2 : 3;
  }
  std::vector<std::string> merges;
  for (const Json& merge : file.at("model").at("merges"))
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return {{"tokenizer.ggml.model", kind},         {"tokenizer.ggml.pre", pre},
          {"tokenizer.ggml.tokens", tokens},      {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.merges", merges},      {"tokenizer.ggml.unknown_token_id", 0},
          {"tokenizer.ggml.add_bos_token", false}};
}

class Presets : public testing::TestWithParam<size_t> {
 protected:
  const Json& family() const { return sources()["families"][GetParam()]; }
  bool characters() const { return family().value("characters", false); }
};

TEST_P(Presets, AreTheSourcesByteForByte) {
  for (const auto& name : family()["names"]) {
    const auto json = preset_json(name.get<std::string>());
    if (characters()) {
      EXPECT_FALSE(json) << "no tokenizer.json is written of " << name;
      continue;
    }
    ASSERT_TRUE(json) << json.error().message;
    EXPECT_EQ((*json)["pre_tokenizer"].dump(), family()["pre_tokenizer"].dump()) << name;
    EXPECT_EQ((*json)["normalizer"], family()["normalizer"]) << name;
    EXPECT_EQ((*json)["ignore_merges"], family()["ignore_merges"]) << name;
  }
}

TEST_P(Presets, SplitAsTheReference) {
  static const Json goldens = golden_json("presets.golden.json");
  const Json& expected = goldens.at(GetParam());
  ASSERT_EQ(expected.at("names"), family().at("names"));
  const Json file = golden_json(characters() ? "tiny_spm_bpe.json" : "tiny_byte_bpe.json");
  for (const auto& name : family()["names"]) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::from_gguf(metadata_of(file, "gpt2", name.get<std::string>()));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    golden::check(**tokenizer, expected);
    if (testing::Test::HasFatalFailure()) return;
    if (characters() && name == "gemma4") {
      golden::check(**Tokenizer::from_gguf(metadata_of(file, "gemma4", "")), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Presets, testing::Range<size_t>(0, sources()["families"].size()), [](const auto& info) {
      auto name = sources()["families"][info.param]["names"][0].template get<std::string>();
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

TEST(PresetNames, AllThatLlamaCppKnowsWorkOrAreRefusedByName) {
  const auto refused = sources()["refused"].get<std::vector<std::string>>();
  ASSERT_GT(sources()["known"].size(), 80u);
  const Json file = golden_json("tiny_byte_bpe.json");
  for (const auto& known : sources()["known"]) {
    const auto name = known.get<std::string>();
    const auto preset = preset_of(name);
    const bool expected = std::ranges::find(refused, name) == refused.end();
    EXPECT_EQ(preset.has_value(), expected) << name;
    if (expected) continue;
    const auto tokenizer = Tokenizer::from_gguf(metadata_of(file, "gpt2", name));
    ASSERT_FALSE(tokenizer) << name;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(tokenizer.error().message, testing::HasSubstr("\"" + name + "\""));
  }
}

TEST(PresetNames, EveryRowOfTheListHasItsSource) {
  std::set<std::string> named;
  for (const Json& family : sources()["families"]) {
    for (const auto& name : family["names"]) named.insert(name.get<std::string>());
  }
  for (const SplitFamily& family : split_families()) {
    std::istringstream names{std::string(family.names)};
    for (std::string name; names >> name;) EXPECT_TRUE(named.contains(name)) << name;
  }
}

// The rule of a tokenizer.json finds the name of a family that splits alike.
TEST(PresetNames, AreFoundByWhatTheyDo) {
  for (const SplitFamily& family : split_families()) {
    const std::string name(family.names.substr(0, family.names.find(' ')));
    const auto json = preset_json(name);
    if (!json) continue;
    const auto found =
        preset_of_json({{"pre_tokenizer", (*json)["pre_tokenizer"]},
                        {"normalizer", (*json)["normalizer"]},
                        {"model", {{"type", "BPE"}, {"ignore_merges", (*json)["ignore_merges"]}}}});
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(preset_json(*found).value(), *json) << name << " " << *found;
  }
}

// A vocabulary made from a file of ranks needs no list of merges: the ids are the ranks.
TEST(PresetNames, KimiNeedsNoMerges) {
  std::vector<std::string> tokens;
  for (const char* piece : {"a", "b", "c", "ab", "bc", "abc"}) tokens.emplace_back(piece);
  Json metadata = {{"tokenizer.ggml.model", "gpt2"},
                   {"tokenizer.ggml.pre", "kimi-k2"},
                   {"tokenizer.ggml.tokens", tokens}};
  const auto tokenizer = Tokenizer::from_gguf(metadata);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->encode("abcb"), (std::vector<TokenId>{5, 1}));
  EXPECT_EQ((*tokenizer)->encode("cab"), (std::vector<TokenId>{2, 3}));
}

}  // namespace
}  // namespace penstock
