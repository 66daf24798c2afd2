// Ids and texts of the small vocabularies against Hugging Face tokenizers and sentencepiece
// (make_tokenizer_golden.py).
#include "golden_check.h"

namespace penstock {
namespace {

const nlohmann::json& tiny() {
  static const nlohmann::json json =
      nlohmann::json::parse(golden::read_file(golden::folder() / "tiny.golden.json"));
  return json;
}

class TinyGolden : public testing::TestWithParam<const char*> {};

TEST_P(TinyGolden, EqualsReference) {
  const auto tokenizer = golden::open_file(golden::folder() / GetParam());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  golden::check(**tokenizer, tiny().at(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, TinyGolden,
                         testing::Values("tiny_byte_bpe.json", "tiny_word_piece.json",
                                         "tiny_spm_bpe.json", "tiny_unigram.json",
                                         "tiny_spm_bpe.model", "tiny_unigram.model"));

// A small vocabulary with one section exchanged, as make_tokenizer_golden.py does it.
nlohmann::json variant(nlohmann::json root, const nlohmann::json& change) {
  root["normalizer"] = root["post_processor"] = nullptr;
  root["model"]["byte_fallback"] = false;
  for (const auto& [key, value] : change.items()) {
    if (key == "model") {
      root[key].update(value);
    } else {
      root[key] = value;
    }
  }
  return root;
}

TEST(Variants, EveryStepEqualsReference) {
  const auto variants =
      nlohmann::json::parse(golden::read_file(golden::folder() / "variants.golden.json"));
  const auto base =
      nlohmann::json::parse(golden::read_file(golden::folder() / "tiny_spm_bpe.json"));
  ASSERT_GT(variants.size(), 40u);
  for (const auto& entry : variants) {
    SCOPED_TRACE(entry["change"].dump());
    TokenizerFiles files;
    files.tokenizer_json = variant(base, entry["change"]).dump();
    const auto tokenizer = Tokenizer::from_files(files);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    golden::check(**tokenizer, entry);
    EXPECT_FALSE(testing::Test::HasFatalFailure());
  }
}

}  // namespace
}  // namespace penstock
