// What our writers write, our readers (and Python's) read.
#include <gmock/gmock.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/gguf_writer.h"
#include "formats/safetensors_writer.h"
#include "formats/temp_dir.h"
#include "formats/weight_source.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Planned {
  QuantType type;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

std::map<std::string, Planned> random_tensors(bool gguf) {
  std::map<std::string, Planned> tensors;
  const int n = *rc::gen::inRange(0, 6);
  for (int i = 0; i < n; ++i) {
    const auto type =
        static_cast<QuantType>(*rc::gen::inRange<int>(0, static_cast<int>(quant_types().size())));
    const QuantTypeInfo& info = quant_info(type);
    if (gguf ? info.ggml_id < 0 : info.block_size > 1) continue;
    Planned planned{type, {}, {}};
    const int n_dims = *rc::gen::inRange(1, 4);
    for (int d = 0; d < n_dims; ++d) planned.shape.push_back(*rc::gen::inRange<int64_t>(1, 5));
    planned.shape.back() *= info.block_size;
    int64_t n_elements = 1;
    for (const int64_t dim : planned.shape) n_elements *= dim;
    planned.bytes.resize(quant_bytes(type, n_elements));
    for (std::byte& byte : planned.bytes)
      byte = static_cast<std::byte>(*rc::gen::arbitrary<uint8_t>());
    tensors["blk." + std::to_string(i) + ".weight"] = std::move(planned);
  }
  return tensors;
}

void write_in_pieces(TensorFile& file, const std::map<std::string, Planned>& tensors) {
  for (auto it = tensors.rbegin(); it != tensors.rend(); ++it) {  // any order will do
    const std::span<const std::byte> bytes = it->second.bytes;
    const size_t cut = *rc::gen::inRange<size_t>(0, bytes.size() + 1);
    RC_ASSERT(file.write(it->first, bytes.first(cut)).has_value());
    RC_ASSERT(file.write(it->first, bytes.subspan(cut)).has_value());
  }
  RC_ASSERT(file.finish().has_value());
}

void check_tensors(const WeightSource& source, const std::map<std::string, Planned>& tensors) {
  RC_ASSERT(source.tensors().size() == tensors.size());
  for (const auto& [name, planned] : tensors) {
    const TensorInfo* tensor = source.find(name);
    RC_ASSERT(tensor != nullptr);
    RC_ASSERT(tensor->type == planned.type);
    RC_ASSERT(tensor->shape == planned.shape);
    RC_ASSERT(std::vector<std::byte>(tensor->bytes.begin(), tensor->bytes.end()) == planned.bytes);
  }
}

json random_scalar(int kind) {
  switch (kind) {
    case 0: return *rc::gen::arbitrary<bool>();
    case 1: return *rc::gen::arbitrary<int64_t>();
    case 2: return *rc::gen::arbitrary<uint64_t>();
    case 3: return static_cast<float>(*rc::gen::inRange(-1000, 1000)) / 7.0f;
    default: return *rc::gen::arbitrary<std::string>();
  }
}

RC_GTEST_PROP(GgufWriter, RoundTrip, ()) {
  TempDir dir;
  GgufWriter writer;
  json metadata = json::object();
  const int n_pairs = *rc::gen::inRange(0, 8);
  for (int i = 0; i < n_pairs; ++i) {
    const int kind = *rc::gen::inRange(0, 5);
    json value = random_scalar(kind);
    if (*rc::gen::arbitrary<bool>()) {
      value = json::array();
      const int length = *rc::gen::inRange(0, 20);
      for (int j = 0; j < length; ++j) value.push_back(random_scalar(kind));
    }
    const std::string key = "key." + std::to_string(i);
    RC_ASSERT(writer.set_json(key, value).has_value());
    metadata[key] = value;
  }
  const auto tensors = random_tensors(true);
  for (const auto& [name, planned] : tensors) writer.add_tensor(name, planned.type, planned.shape);
  auto file = writer.create(dir / "m.gguf");
  RC_ASSERT(file.has_value());
  RC_ASSERT(!std::filesystem::exists(dir / "m.gguf"));  // not before it is whole
  write_in_pieces(*file, tensors);

  const auto source = open_weights(dir / "m.gguf");
  RC_ASSERT(source.has_value());
  RC_ASSERT((*source)->config() == metadata);
  check_tensors(**source, tensors);
}

RC_GTEST_PROP(SafetensorsWriter, RoundTrip, ()) {
  TempDir dir;
  write_bytes(dir / "config.json", "{}");
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  const auto tensors = random_tensors(false);
  for (const auto& [name, planned] : tensors) writer.add_tensor(name, planned.type, planned.shape);
  auto file = writer.create(dir / "model.safetensors");
  RC_ASSERT(file.has_value());
  write_in_pieces(*file, tensors);
  const auto source = open_weights(dir.path());
  RC_ASSERT(source.has_value());
  check_tensors(**source, tensors);
  for (const TensorInfo& tensor : (*source)->tensors()) {
    const auto width = static_cast<size_t>(quant_info(tensor.type).block_bytes);
    RC_ASSERT(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % width == 0);
  }
}

TEST(GgufWriter, TypedValuesKeepTheirValue) {
  TempDir dir;
  GgufWriter writer;
  writer.set("u8", uint8_t{200});
  writer.set("i8", int8_t{-5});
  writer.set("u16", uint16_t{60000});
  writer.set("i16", int16_t{-300});
  writer.set("u64", UINT64_MAX);
  writer.set("i64", INT64_MIN);
  writer.set("f32", 0.1f);
  writer.set("f64", 0.1);
  writer.set("yes", true);
  writer.set("text", "caf\xc3\xa9");
  const std::vector<float> floats = {1.5f, -2.0f};
  writer.set_array("floats", std::span<const float>(floats));
  auto file = writer.create(dir / "m.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ASSERT_TRUE(file->finish().has_value());
  const auto source = open_weights(dir / "m.gguf");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const json& config = (*source)->config();
  EXPECT_EQ(config.at("u8"), 200);
  EXPECT_EQ(config.at("i8"), -5);
  EXPECT_EQ(config.at("u16"), 60000);
  EXPECT_EQ(config.at("i16"), -300);
  EXPECT_EQ(config.at("u64"), UINT64_MAX);
  EXPECT_EQ(config.at("i64"), INT64_MIN);
  EXPECT_EQ(config.at("f32").get<double>(), 0.1f);
  EXPECT_EQ(config.at("f64").get<double>(), 0.1);
  EXPECT_EQ(config.at("yes"), true);
  EXPECT_EQ(config.at("text"), "caf\xc3\xa9");
  EXPECT_EQ(config.at("floats"), json({1.5, -2.0}));
}

// llama.cpp's names for what a model's makers recommend, beside values of other kinds.
TEST(Gguf, RecommendationsForSampling) {
  TempDir dir;
  GgufWriter writer;
  writer.set("general.sampling.temp", 0.5f);
  writer.set("general.sampling.top_k", int32_t{20});
  writer.set("general.sampling.top_p", 0.75f);
  writer.set("general.sampling.min_p", 0.25f);
  writer.set("general.sampling.penalty_repeat", 1.5f);
  writer.set("general.sampling.penalty_last_n", int32_t{-1});
  writer.set("general.sampling.xtc_probability", std::numeric_limits<float>::quiet_NaN());
  writer.set("general.sampling.mirostat_tau", "much");
  writer.set("general.sampling.mirostat", uint64_t{1} << 60);
  writer.set("general.sampling.sequence", "edkypmxt");
  ASSERT_TRUE(writer.create(dir / "m.gguf")->finish());
  const auto source = open_weights(dir / "m.gguf").value();
  EXPECT_EQ(source->generation_config(), json({{"temperature", 0.5},
                                               {"top_k", 20},
                                               {"top_p", 0.75},
                                               {"min_p", 0.25},
                                               {"repetition_penalty", 1.5},
                                               {"penalty_last_n", -1}}));
}

// llama.cpp refuses a vocabulary whose list of merges is one of numbers, however empty it is.
TEST(GgufWriter, AnEmptyArrayIsOneOfStrings) {
  TempDir dir;
  GgufWriter writer;
  ASSERT_TRUE(writer.set_json("none", json::array()));
  ASSERT_TRUE(writer.create(dir / "m.gguf")->finish());
  std::ifstream file(dir / "m.gguf", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t at = bytes.find("none");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(bytes.substr(at + 4, 8), std::string("\x09\0\0\0\x08\0\0\0", 8));  // array, string
}

TEST(GgufWriter, RefusesWhatTheFormatCannotHold) {
  TempDir dir;
  GgufWriter writer;
  EXPECT_FALSE(writer.set_json("x", nullptr).has_value());
  EXPECT_FALSE(writer.set_json("x", json::object()).has_value());
  EXPECT_FALSE(writer.set_json("x", json({1, "a"})).has_value());
  EXPECT_FALSE(writer.set_json("x", json::array({json::array({1, "a"})})).has_value());
  const auto error = [&](QuantType type, std::vector<int64_t> shape) {
    GgufWriter one;
    one.add_tensor("t", type, std::move(shape));
    const auto file = one.create(dir / "m.gguf");
    return file ? std::string() : file.error().message;
  };
  EXPECT_THAT(error(QuantType::kF8E4M3, {4}), HasSubstr("no type f8_e4m3"));
  EXPECT_THAT(error(QuantType::kQ4_K, {255}), HasSubstr("multiple of 256"));
  EXPECT_THAT(error(QuantType::kF32, {}), HasSubstr("1 to 4 dimensions"));
  EXPECT_THAT(error(QuantType::kF32, {1, 1, 1, 1, 1}), HasSubstr("1 to 4 dimensions"));
}

TEST(GgufWriter, AnUnfinishedFileDisappears) {
  TempDir dir;
  {
    GgufWriter writer;
    writer.add_tensor("t", QuantType::kF32, {4});
    auto file = writer.create(dir / "m.gguf");
    ASSERT_TRUE(file.has_value());
    const std::byte some[16] = {};
    EXPECT_FALSE(file->write("other", some).has_value());
    EXPECT_TRUE(file->write("t", std::span(some).first(12)).has_value());
    EXPECT_FALSE(file->write("t", std::span(some).first(8)).has_value());
    EXPECT_THAT(file->finish().error().message, HasSubstr("expected 16 bytes, got 12"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  GgufWriter writer;
  EXPECT_EQ(writer.create(dir / "no/such/place.gguf").error().code, ErrorCode::kIo);
}

TEST(GgufWriter, DoesNotFollowALinkInThePlaceOfItsTemporaryFile) {
  TempDir dir;
  std::ofstream(dir / "precious") << "of somebody else";
  std::filesystem::create_symlink(dir / "precious", dir / "m.gguf.partial");
  GgufWriter writer;
  writer.add_tensor("t", QuantType::kF32, {4});
  const auto file = writer.create(dir / "m.gguf");
  ASSERT_FALSE(file.has_value());
  EXPECT_THAT(file.error().message, HasSubstr("symbolic link"));
  std::ifstream precious(dir / "precious");
  std::string text;
  std::getline(precious, text);
  EXPECT_EQ(text, "of somebody else");
}

// A vocabulary of 150,000 tokens with scores, types and 280,000 merges.
TEST(GgufReader, ALargeVocabularyOpensFast) {
  TempDir dir;
  std::vector<std::string> tokens, merges;
  for (int i = 0; i < 150'000; ++i) tokens.push_back("token" + std::to_string(i));
  for (int i = 0; i < 280'000; ++i)
    merges.push_back("left" + std::to_string(i) + " right" + std::to_string(i));
  const std::vector<int32_t> types(tokens.size(), 1);
  const std::vector<float> scores(tokens.size(), -1.0f);
  GgufWriter writer;
  writer.set_array("tokenizer.ggml.tokens", tokens);
  writer.set_array("tokenizer.ggml.merges", merges);
  writer.set_array("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  writer.set_array("tokenizer.ggml.scores", std::span<const float>(scores));
  auto file = writer.create(dir / "m.gguf");
  ASSERT_TRUE(file.has_value() && file->finish().has_value());
  double best_ms = 1e9;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    const auto source = open_weights(dir / "m.gguf");
    ASSERT_TRUE(source.has_value());
    ASSERT_EQ((*source)->config().at("tokenizer.ggml.merges").size(), merges.size());
    best_ms = std::min(
        best_ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                     .count());
  }
  RecordProperty("open_ms", std::to_string(best_ms));
  std::printf("opened in %.1f ms\n", best_ms);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(best_ms, 150);
#endif
}

// Skips, saying so, when there is no Python with the gguf and safetensors packages
// (PENSTOCK_TEST_PYTHON names one).
TEST(Writers, PythonReadsOurFiles) {
  const char* named = std::getenv("PENSTOCK_TEST_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (std::system((python + " -c 'import gguf, safetensors, numpy' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << python
                 << " has no gguf, safetensors and numpy packages (set PENSTOCK_TEST_PYTHON)";
  }
  TempDir dir;
  const std::vector<float> values = {1.5f, -2.0f, 3.25f, 0.0f, 5.0f, -6.5f};
  const std::vector<std::byte> blocks(68, std::byte{1});
  GgufWriter gguf;
  gguf.set("general.architecture", "llama");
  gguf.set("llama.block_count", uint32_t{7});
  const std::vector<std::string> tokens = {"a", "b\xc3\xa9"};
  gguf.set_array("tokenizer.ggml.tokens", tokens);
  gguf.add_tensor("q", QuantType::kQ8_0, {2, 32});
  gguf.add_tensor("x", QuantType::kF32, {2, 3});
  SafetensorsWriter safetensors;
  safetensors.set_metadata("format", "pt");
  safetensors.add_tensor("odd", QuantType::kU8, {3});
  safetensors.add_tensor("x", QuantType::kF32, {2, 3});
  auto a = gguf.create(dir / "m.gguf");
  auto b = safetensors.create(dir / "m.safetensors");
  ASSERT_TRUE(a.has_value() && b.has_value());
  ASSERT_TRUE(a->write("q", blocks).has_value());
  ASSERT_TRUE(a->write("x", std::as_bytes(std::span(values))).has_value());
  ASSERT_TRUE(b->write("odd", std::span(blocks).first(3)).has_value());
  ASSERT_TRUE(b->write("x", std::as_bytes(std::span(values))).has_value());
  ASSERT_TRUE(a->finish().has_value() && b->finish().has_value());
  const std::string command =
      python + " " + tests_dir().string() + "/formats/check_written.py " + dir.path().string();
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace penstock
