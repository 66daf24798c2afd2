// Real vocabularies: ids and texts against the reference libraries, and the vectors that come with
// the GGUF vocabularies.
#include <charconv>

#include "formats/weight_source.h"
#include "golden_check.h"
#include "support/test_data.h"

namespace penstock {
namespace {

Result<std::unique_ptr<Tokenizer>> open_any(const std::filesystem::path& path) {
  if (path.extension() != ".gguf") return golden::open_file(path);
  ASSIGN_OR_RETURN(const auto source, open_weights(path));
  return Tokenizer::load(*source);
}

std::vector<std::string> golden_names() {
  const auto json = nlohmann::json::parse(golden::read_file(golden::folder() / "data.golden.json"),
                                          nullptr, false);
  std::vector<std::string> names;
  for (const auto& [name, entry] : json.items()) names.push_back(name);
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class DataGolden : public testing::TestWithParam<std::string> {};

TEST_P(DataGolden, EqualsReference) {
  const std::string file = "tokenizers/" + GetParam();
  REQUIRE_TEST_DATA(file);
  const auto tokenizer = open_any(test_data_dir() / file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  static const auto goldens =
      nlohmann::json::parse(golden::read_file(golden::folder() / "data.golden.json"));
  golden::check(**tokenizer, goldens.at(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, DataGolden, testing::ValuesIn(golden_names()), test_name);

// A vocabulary and the vectors it must give; the vectors of some families come without a vocabulary
// of their own.
struct Vectors {
  const char* vocabulary;
  const char* cases;
  friend void PrintTo(const Vectors& v, std::ostream* os) {
    *os << v.vocabulary << " with " << v.cases;
  }
};

class GgmlVectors : public testing::TestWithParam<Vectors> {};

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t end; (end = text.find(separator, at)) != std::string::npos;
       at = end + separator.size()) {
    parts.push_back(text.substr(at, end - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<TokenId> parse_ids(const std::string& line) {
  std::vector<TokenId> ids;
  for (const char *at = line.data(), *end = at + line.size(); at < end;) {
    TokenId id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error == std::errc()) ids.push_back(id);
    at = error == std::errc() ? next : at + 1;
  }
  return ids;
}

TEST_P(GgmlVectors, AllCases) {
  const std::string vocabulary = std::string("tokenizers/") + GetParam().vocabulary;
  const std::string cases =
      std::string("tokenizers/ggml-vocab/ggml-vocab-") + GetParam().cases + ".gguf";
  REQUIRE_TEST_DATA(vocabulary);
  const auto tokenizer = open_any(test_data_dir() / vocabulary);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto texts =
      split(golden::read_file(test_data_dir() / (cases + ".inp")), "\n__ggml_vocab_test__\n");
  const auto lines = split(golden::read_file(test_data_dir() / (cases + ".out")), "\n");
  ASSERT_GE(texts.size(), 46u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = (*tokenizer)->encode(texts[i], {.add_special = false});
    EXPECT_EQ(ids, parse_ids(lines[i]))
        << "case " << i << ": \"" << texts[i] << "\"\ngot " << golden::show(ids);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GgmlVectors,
    testing::Values(Vectors{"ggml-vocab/ggml-vocab-bert-bge.gguf", "bert-bge"},
                    Vectors{"ggml-vocab/ggml-vocab-deepseek-coder.gguf", "deepseek-coder"},
                    Vectors{"ggml-vocab/ggml-vocab-falcon.gguf", "falcon"},
                    Vectors{"ggml-vocab/ggml-vocab-gpt-2.gguf", "gpt-2"},
                    Vectors{"gpt2_tokenizer.json", "gpt-2"},
                    Vectors{"ggml-vocab/ggml-vocab-llama-spm.gguf", "llama-spm"},
                    Vectors{"llama2_tokenizer.model", "llama-spm"},
                    Vectors{"llama2_tokenizer_newfmt.json", "llama-spm"},
                    Vectors{"ggml-vocab/ggml-vocab-starcoder.gguf", "starcoder"},
                    Vectors{"llama3_tokenizer.model", "llama-bpe"},
                    Vectors{"qwen.tiktoken", "qwen2"}));

// Every vocabulary that has all 256 bytes gives the text back, whatever the bytes. (Falcon's has
// not.)
TEST(RoundTrip, ByteLevelVocabulariesKeepAnyBytes) {
  REQUIRE_TEST_DATA("tokenizers/gpt2_tokenizer.json");
  for (const char* name : {"gpt2_tokenizer.json", "llama3_tokenizer.model",
                           "tiktoken/o200k_base.tiktoken", "ggml-vocab/ggml-vocab-gpt-2.gguf"}) {
    const auto tokenizer = open_any(test_data_dir() / "tokenizers" / name);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    golden::Cases cases(5);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = cases.next(true);
      ASSERT_EQ(
          (*tokenizer)->decode_bytes((*tokenizer)->encode(text, {.add_special = false}), false),
          text)
          << name;
    }
  }
}

// No run of one kind of character is slower than a word-by-word text by more than a constant: 200
// kB take well under the bound, where a quadratic loop would take minutes.
TEST(LongRuns, TakeNoQuadraticTime) {
  REQUIRE_TEST_DATA("tokenizers/gpt2_tokenizer.json");
  for (const char* name :
       {"gpt2_tokenizer.json", "llama3_tokenizer.model", "tiktoken/o200k_base.tiktoken",
        "llama2_tokenizer.model", "ggml-vocab/ggml-vocab-deepseek-coder.gguf"}) {
    const auto tokenizer = open_any(test_data_dir() / "tokenizers" / name);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const char* unit : {"a", " ", "1", "\n", "abcdefgh", "的", "!", " \n"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ((*tokenizer)->decode_bytes((*tokenizer)->encode(text)), text);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 20) << name << " on a run of \"" << unit << "\"";
    }
  }
}

}  // namespace
}  // namespace penstock
