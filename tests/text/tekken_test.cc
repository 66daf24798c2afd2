// tekken.json against mistral-common (make_tekken_golden.py).
#include <gmock/gmock.h>

#include "golden_check.h"

namespace penstock::tekken_test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Json tiny() { return Json::parse(golden::read_file(golden::folder() / "tiny_tekken.json")); }

Result<std::unique_ptr<Tokenizer>> open_tekken(const Json& root) {
  TokenizerFiles files;
  files.tokenizer_json = root.dump();
  return Tokenizer::from_files(files);
}

TEST(Tekken, IdsAreTheReferences) {
  const Json golden = Json::parse(golden::read_file(golden::folder() / "tekken.golden.json"));
  const auto tokenizer = open_tekken(tiny());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  golden::check(**tokenizer, golden["texts"]);
}

TEST(Tekken, SpecialTokensComeFirst) {
  const auto opened = open_tekken(tiny());
  ASSERT_TRUE(opened) << opened.error().message;
  const Tokenizer& t = **opened;
  const Json root = tiny();
  EXPECT_EQ(t.vocab_size(), root["config"]["default_vocab_size"].get<int>());
  EXPECT_EQ(t.unk(), 0);
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  EXPECT_EQ(t.pad(), 11);
  EXPECT_EQ(t.find("[THINK]"), 22);
  EXPECT_EQ(t.piece(39), "<SPECIAL_39>");
  EXPECT_TRUE(t.is_special(39));
  EXPECT_FALSE(t.is_special(40));
  EXPECT_EQ(t.token_bytes(40 + 'A'), "A");
  EXPECT_TRUE(t.add_bos());
  EXPECT_THAT(t.end_of_generation_ids(), testing::ElementsAre(2));
  EXPECT_THAT(t.encode("[INST]", {.add_special = true, .parse_special = true}),
              testing::ElementsAre(1, 3));
  EXPECT_EQ(t.decode(t.encode("[INST] a", {.parse_special = false})), "[INST] a");
}

TEST(Tekken, FilesWithATemplateKeepIt) {
  TokenizerFiles files;
  files.tokenizer_json = tiny().dump();
  auto tokenizer = Tokenizer::from_files(files);
  ASSERT_TRUE(tokenizer);
  EXPECT_THAT((*tokenizer)->chat_template(), HasSubstr("[ARGS]"));
  files.chat_template_jinja = "own";
  tokenizer = Tokenizer::from_files(files);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ((*tokenizer)->chat_template(), "own");
}

TEST(Tekken, DamagedFilesAreRefused) {
  const Json good = tiny();
  const auto with = [&](const std::function<void(Json&)>& change) {
    Json root = good;
    change(root);
    const auto tokenizer = open_tekken(root);
    return tokenizer ? "loaded" : tokenizer.error().message;
  };
  EXPECT_EQ(with([](Json&) {}), "loaded");
  EXPECT_EQ(
      with([](Json& j) { j["image"] = {{"image_patch_size", 14}}, j["audio"] = Json::object(); }),
      "loaded");
  EXPECT_THAT(with([](Json& j) { j["config"]["version"] = "v99"; }),
              HasSubstr("version \"v99\" is not known"));
  EXPECT_THAT(with([](Json& j) { j["config"]["pattern"] = 3; }),
              HasSubstr("expected a string \"pattern\""));
  EXPECT_THAT(with([](Json& j) { j["config"]["default_vocab_size"] = 30; }),
              HasSubstr("default_vocab_size"));
  EXPECT_THAT(with([](Json& j) { j["config"]["default_vocab_size"] = 100'000; }),
              HasSubstr("expected at least"));
  EXPECT_THAT(with([](Json& j) { j["vocab"][7]["rank"] = 8; }), HasSubstr("token 7"));
  EXPECT_THAT(with([](Json& j) { j["vocab"][7]["token_bytes"] = "AAA="; }), HasSubstr("token 7"));
  EXPECT_THAT(with([](Json& j) { j["vocab"][300]["token_bytes"] = "*"; }), HasSubstr("base64"));
  EXPECT_THAT(
      with([](Json& j) { j["vocab"][300] = j["vocab"][301], j["vocab"][300]["rank"] = 300; }),
      HasSubstr("equal bytes"));
  EXPECT_THAT(with([](Json& j) { j["special_tokens"][3]["rank"] = 4; }),
              HasSubstr("a rank of its own"));
  EXPECT_THAT(with([](Json& j) { j["special_tokens"][3]["rank"] = 40; }), HasSubstr("below 40"));
  EXPECT_THAT(with([](Json& j) { j.erase("special_tokens"); }), HasSubstr("special_tokens"));
  EXPECT_THAT(with([](Json& j) { j["vocab"] = 1; }), HasSubstr("vocab"));
}

}  // namespace
}  // namespace penstock::tekken_test
