// Damaged and malicious files: one clear error each, and no allocation that the file's size does
// not justify.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>

#include "formats/file_bytes.h"
#include "formats/foreign_types.h"
#include "formats/gguf.h"
#include "formats/hf_directory.h"
#include "formats/safetensors.h"
#include "formats/temp_dir.h"

namespace {
thread_local size_t largest_allocation = 0;
}
[[gnu::noinline]] void* operator new(size_t size) {
  largest_allocation = std::max(largest_allocation, size);
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  largest_allocation = std::max(largest_allocation, size);
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace penstock {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

GgufBytes good_gguf() {
  GgufBytes file;
  file.pair("general.architecture", GgufValueType::kString, GgufBytes::text("llama"));
  file.pair_u32("llama.block_count", 2);
  file.pair("tokens", GgufValueType::kArray,
            GgufBytes::raw(GgufValueType::kString) + GgufBytes::raw<uint64_t>(2) +
                GgufBytes::text("a") + GgufBytes::text("bc"));
  file.pair("nested", GgufValueType::kArray,
            GgufBytes::raw(GgufValueType::kArray) + GgufBytes::raw<uint64_t>(1) +
                GgufBytes::raw(GgufValueType::kInt16) + GgufBytes::raw<uint64_t>(2) +
                GgufBytes::raw<int16_t>(-3) + GgufBytes::raw<int16_t>(4));
  file.tensors = {{"a", {32, 2}, 0, 0}, {"b", {64}, 8, 256}};  // 256 bytes of f32, 68 bytes of q8_0
  file.data_bytes = 256 + 68;
  return file;
}

Result<GgufFile> parse(const std::string& bytes) {
  largest_allocation = 0;
  auto parsed = parse_gguf(as_bytes(bytes), "f.gguf");
  EXPECT_LE(largest_allocation, 4096 + 16 * bytes.size());
  return parsed;
}

std::string gguf_error(const GgufBytes& file) {
  const auto parsed = parse(file.bytes());
  EXPECT_FALSE(parsed.has_value());
  if (parsed) return "";
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  EXPECT_THAT(parsed.error().message, testing::StartsWith("f.gguf: "));
  return parsed.error().message;
}

// The error after one change to a good file.
std::string gguf_error(const std::function<void(GgufBytes&)>& change) {
  GgufBytes file = good_gguf();
  change(file);
  return gguf_error(file);
}

TEST(HostileGguf, TheUnchangedFileIsGood) {
  const auto parsed = parse(good_gguf().bytes());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->metadata.at("tokens"), nlohmann::json({"a", "bc"}));
  EXPECT_EQ(parsed->metadata.at("nested"), nlohmann::json::parse("[[-3, 4]]"));
  EXPECT_EQ(parsed->tensors.at(0).shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(parsed->tensors.at(1).bytes.size(), 68u);
  GgufBytes v2 = good_gguf();
  v2.version = 2;
  EXPECT_TRUE(parse(v2.bytes()).has_value());
}

TEST(HostileGguf, TruncatedAnywhere) {
  const std::string whole = good_gguf().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    const auto parsed = parse(std::string(part.data(), part.size()));
    ASSERT_FALSE(parsed.has_value()) << size;
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorruptFile);
  }
}

// Any damage to one byte gives a file or an error; the sanitizers watch the rest.
TEST(HostileGguf, OneByteChanged) {
  const std::string whole = good_gguf().bytes();
  int n_errors = 0;
  for (size_t at = 0; at < whole.size() - 324; ++at) {
    for (const unsigned char value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      n_errors += parse(changed).has_value() ? 0 : 1;
    }
  }
  EXPECT_GT(n_errors, 500);
}

TEST(HostileGguf, Header) {
  EXPECT_THAT(gguf_error([](auto& f) { f.magic = 1; }), HasSubstr("expected magic"));
  EXPECT_THAT(gguf_error([](auto& f) { f.version = 1; }), HasSubstr("version 1, expected 2 or 3"));
  EXPECT_THAT(gguf_error([](auto& f) { f.version = 0x03000000; }), HasSubstr("little-endian"));
  for (const int64_t n : {int64_t{3}, int64_t{1000}, INT64_MAX}) {
    EXPECT_NE(gguf_error([&](auto& f) { f.claimed_tensors = n; }), "");
    EXPECT_NE(gguf_error([&](auto& f) { f.claimed_pairs = n; }), "");
  }
}

TEST(HostileGguf, Metadata) {
  const auto raw_array = [](GgufValueType type, uint64_t n) {
    return GgufBytes::raw(type) + GgufBytes::raw(n);
  };
  EXPECT_THAT(gguf_error([](auto& f) { f.pair_u32("llama.block_count", 1); }),
              HasSubstr("appears twice"));
  EXPECT_THAT(gguf_error([](auto& f) { f.pair_u32("", 1); }), HasSubstr("expected a key"));
  EXPECT_THAT(gguf_error([](auto& f) { f.pair_u32("\xff\xfe", 1); }), HasSubstr("\\xff\\xfe"));
  EXPECT_THAT(gguf_error([](auto& f) { f.pair("x", static_cast<GgufValueType>(13), "abcdefgh"); }),
              HasSubstr("value type 13"));
  EXPECT_THAT(gguf_error([&](auto& f) {
                f.pair("x", GgufValueType::kArray,
                       raw_array(static_cast<GgufValueType>(77), 1) + "abcd");
              }),
              HasSubstr("array of value type 77"));
  for (const uint64_t n : {uint64_t{1} << 20, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX / 8 + 1}) {
    for (const auto type : {GgufValueType::kUint8, GgufValueType::kFloat64, GgufValueType::kString,
                            GgufValueType::kArray}) {
      EXPECT_THAT(
          gguf_error([&](auto& f) { f.pair("x", GgufValueType::kArray, raw_array(type, n)); }),
          HasSubstr("does not fit"));
    }
    EXPECT_THAT(
        gguf_error([&](auto& f) { f.pair("x", GgufValueType::kString, GgufBytes::raw(n)); }),
        HasSubstr("does not fit"));
  }
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += raw_array(GgufValueType::kArray, 1);
  EXPECT_THAT(gguf_error([&](auto& f) { f.pair("x", GgufValueType::kArray, deep); }),
              HasSubstr("nest deeper"));
}

TEST(HostileGguf, Alignment) {
  for (const uint32_t bad : {0u, 1u, 7u, 33u, 48u, 1u << 21, 0x80000000u, 0xffffffffu}) {
    EXPECT_THAT(gguf_error([&](auto& f) { f.pair_u32("general.alignment", bad); }),
                HasSubstr("expected a power of two"));
  }
  EXPECT_THAT(gguf_error([](auto& f) {
                f.pair("general.alignment", GgufValueType::kString, GgufBytes::text("32"));
              }),
              HasSubstr("expected a power of two"));
  GgufBytes file = good_gguf();
  file.pair_u32("general.alignment", 128);
  file.alignment = 128;
  EXPECT_TRUE(parse(file.bytes()).has_value());
}

TEST(HostileGguf, Tensors) {
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].offset = 32; }), HasSubstr("overlap"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].offset = 257; }), HasSubstr("multiple of 32"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].offset = uint64_t{1} << 63; }),
              HasSubstr("do not fit"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].offset = UINT64_MAX - 31; }),
              HasSubstr("do not fit"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].dims = {63}; }), HasSubstr("multiple of 32"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].dims = {}; }), HasSubstr("0 dimensions"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].dims = {32, 1, 1, 1, 1}; }),
              HasSubstr("5 dimensions"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].dims = {32, 0}; }), HasSubstr("dimension 0"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].dims = {32, UINT64_MAX}; }),
              HasSubstr("dimension"));
  EXPECT_THAT(
      gguf_error([](auto& f) { f.tensors[1].dims = {uint64_t{1} << 32, uint64_t{1} << 32}; }),
      HasSubstr("2^48"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].name = ""; }), HasSubstr("expected a name"));
  EXPECT_THAT(gguf_error([](auto& f) { f.tensors[1].name = "\xc0\x80"; }),
              HasSubstr("expected a name"));
}

// Every number that is no type of a file is refused with the tensor, the number, what it stands for
// and what the file says of the program that wrote it.
TEST(HostileGguf, TypesThatAreNone) {
  const auto error = [](uint32_t type) {
    return gguf_error([&](auto& f) { f.tensors[1].type = type; });
  };
  for (const auto& [number, name] :
       {std::pair{9u, "q8_1"}, {15u, "q8_k"}, {4u, "q4_2"}, {33u, "q4_0_8_8"}}) {
    EXPECT_THAT(error(number), HasSubstr(fmt::format("tensor \"b\": type {} ({}, ", number, name)));
  }
  for (uint32_t number = 0; number < 300; ++number) {
    if (find_ggml_type(number) != nullptr) continue;
    EXPECT_THAT(error(number), HasSubstr(fmt::format("type {} (", number)));
  }
  EXPECT_THAT(error(139), HasSubstr("type 139 (iq4_k, an encoding of ik_llama.cpp alone; iq4_xs is "
                                    "what to quantize the original to)"));
  EXPECT_THAT(error(212), HasSubstr("type 212 (q4_k_r4, rows as ik_llama.cpp repacks them; q4_k"));
  int named = 0;
  for (uint32_t number = 0; number < 400; ++number) {
    const std::string text = foreign_type(number);
    if (text == "unknown") continue;
    ++named;
    EXPECT_EQ(find_ggml_type(number), nullptr) << text;
    const size_t semicolon = text.find("; ");
    if (semicolon == text.npos) continue;
    const std::string instead = text.substr(semicolon + 2, text.find(" is what") - semicolon - 2);
    EXPECT_NE(find_quant_type(instead), nullptr) << text;
  }
  EXPECT_EQ(named, 67);
  EXPECT_THAT(error(0xffffffff), HasSubstr("type 4294967295 (unknown) is not supported"));
  EXPECT_THAT(gguf_error([](auto& f) {
                f.tensors[1].type = 77;
                f.pair("general.quantized_by", GgufValueType::kString, GgufBytes::text("mill 3.1"));
                f.pair_u32("general.quantization_version", 2);
              }),
              HasSubstr("not supported; the file has general.quantized_by \"mill 3.1\", "
                        "general.quantization_version 2"));
}

TEST(HostileGguf, DuplicateTensorNames) {
  TempDir dir;
  GgufBytes file = good_gguf();
  file.tensors[1].name = "a";
  write_bytes(dir / "m.gguf", file.bytes());
  const auto source = open_weights(dir / "m.gguf");
  ASSERT_FALSE(source.has_value());
  EXPECT_THAT(source.error().message, HasSubstr("\"a\" appears twice"));
}

// A model of two shards; `change` may spoil the second before it is written.
std::string shard_error(const std::function<void(GgufBytes&, const TempDir&)>& change,
                        bool write_second = true) {
  TempDir dir;
  for (const uint32_t i : {0u, 1u}) {
    GgufBytes file;
    file.pair("split.count", GgufValueType::kUint16, GgufBytes::raw<uint16_t>(2));
    file.pair("split.tensors.count", GgufValueType::kInt32, GgufBytes::raw<int32_t>(2));
    file.tensors = {{i == 0 ? "a" : "b", {32}, 0, 0}};
    file.data_bytes = 128;
    if (i == 1) change(file, dir);
    const uint16_t number = i == 1 && file.claimed_pairs == -2 ? 0 : static_cast<uint16_t>(i);
    file.pair("split.no", GgufValueType::kUint16, GgufBytes::raw(number));
    file.claimed_pairs = -1;
    if (i == 0 || write_second)
      write_bytes(dir / fmt::format("m-0000{}-of-00002.gguf", i + 1), file.bytes());
  }
  const auto source = open_weights(dir / "m-00001-of-00002.gguf");
  if (!source) return source.error().message;
  return (*source)->find("a") != nullptr && (*source)->find("b") != nullptr ? ""
                                                                            : "a tensor is missing";
}

TEST(HostileGguf, Shards) {
  EXPECT_EQ(shard_error([](auto&, auto&) {}), "");
  EXPECT_THAT(shard_error([](auto&, auto&) {}, false), HasSubstr("m-00002-of-00002.gguf"));
  EXPECT_THAT(shard_error([](auto& f, auto&) { f.tensors[0].name = "a"; }),
              HasSubstr("appears twice"));
  EXPECT_THAT(shard_error([](auto& f, auto&) { f.claimed_pairs = -2; }),
              HasSubstr("expected shard split.no 1"));
  EXPECT_THAT(shard_error([](auto& f, auto&) { f.tensors.clear(); }),
              HasSubstr("expected 2 tensors"));
  // The second shard is the first again.
  EXPECT_THAT(shard_error(
                  [](auto&, const TempDir& dir) {
                    fs::create_symlink("m-00001-of-00002.gguf", dir / "m-00002-of-00002.gguf");
                  },
                  false),
              HasSubstr("expected shard split.no 1"));
  // The second shard is a link to itself.
  EXPECT_THAT(shard_error(
                  [](auto&, const TempDir& dir) {
                    fs::create_symlink("m-00002-of-00002.gguf", dir / "m-00002-of-00002.gguf");
                  },
                  false),
              HasSubstr("m-00002-of-00002.gguf"));
  TempDir dir;
  GgufBytes file = good_gguf();
  file.pair_u32("split.count", 2);
  write_bytes(dir / "m.gguf", file.bytes());
  EXPECT_THAT(open_weights(dir / "m.gguf").error().message,
              HasSubstr("must be named ...-00001-of-00002.gguf"));
  file.pair_u32("split.no", 1);
  write_bytes(dir / "m.gguf", file.bytes());
  EXPECT_THAT(open_weights(dir / "m.gguf").error().message, HasSubstr("open the first one"));
  GgufBytes many = good_gguf();
  many.pair("split.count", GgufValueType::kUint64, GgufBytes::raw(UINT64_MAX));
  write_bytes(dir / "m.gguf", many.bytes());
  EXPECT_THAT(open_weights(dir / "m.gguf").error().message, HasSubstr("split.count"));
}

const char* const kGoodHeader =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
    R"("a":{"dtype":"I8","shape":[],"data_offsets":[12,13]},"none":{"dtype":"F32","shape":[0,4],"data_offsets":[13,13]}})";

std::string safetensors_error(const std::string& bytes) {
  largest_allocation = 0;
  const auto parsed = parse_safetensors(as_bytes(bytes), "f.safetensors");
  EXPECT_LE(largest_allocation, 4096 + 16 * bytes.size());
  if (parsed) return "";
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  EXPECT_THAT(parsed.error().message, testing::StartsWith("f.safetensors: "));
  return parsed.error().message;
}

// The error for a file with one F32 tensor of two elements whose description is given.
std::string header_error(const std::string& description, size_t data_bytes = 8) {
  return safetensors_error(safetensors_bytes("{\"x\":" + description + "}", data_bytes));
}

TEST(HostileSafetensors, TheUnchangedFileIsGood) {
  const std::string bytes = safetensors_bytes(kGoodHeader, 13);
  const auto parsed = parse_safetensors(as_bytes(bytes), "f");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ASSERT_EQ(parsed->size(), 3u);
  EXPECT_EQ(parsed->at(0).name, "b");
  EXPECT_EQ(parsed->at(1).n_elements(), 1);
  EXPECT_EQ(safetensors_error(safetensors_bytes("{}", 0)), "");
}

TEST(HostileSafetensors, TruncatedAnywhere) {
  const std::string whole = safetensors_bytes(kGoodHeader, 13);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(safetensors_error(whole.substr(0, size)), "") << size;
  EXPECT_NE(safetensors_error(whole + "x"), "");
}

TEST(HostileSafetensors, OneByteChanged) {
  const std::string whole = safetensors_bytes(kGoodHeader, 13);
  int n_errors = 0;
  for (size_t at = 0; at < whole.size() - 13; ++at) {
    for (const char value : {'\0', '"', '{', '}', '[', ',', '9', '-', '\xff'}) {
      std::string changed = whole;
      changed[at] = value;
      n_errors += safetensors_error(changed).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(n_errors, 500);
}

TEST(HostileSafetensors, Length) {
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1} << 20, uint64_t{100'000'001}, UINT64_MAX}) {
    EXPECT_NE(safetensors_error(GgufBytes::raw(length) + "{}"), "") << length;
  }
}

TEST(HostileSafetensors, Descriptions) {
  EXPECT_EQ(header_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "");
  EXPECT_THAT(header_error(R"({"dtype":"F3","shape":[2],"data_offsets":[0,8]})"),
              HasSubstr("dtype \"F3\""));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
              HasSubstr("expected 12 bytes"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
              HasSubstr("the number -2"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"),
              HasSubstr("the number 2.0"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[1e400],"data_offsets":[0,8]})"),
              HasSubstr("syntax error"));
  EXPECT_THAT(
      header_error(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]})"),
      HasSubstr("the number"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8]})"),
              HasSubstr("dimension 9223372036854775807"));
  EXPECT_THAT(
      header_error(R"({"dtype":"F32","shape":[16777216,16777216,16777216],"data_offsets":[0,8]})"),
      HasSubstr("2^48"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})"),
              HasSubstr("more than 8 dimensions"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
              HasSubstr("do not fit"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})"),
              HasSubstr("do not fit"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2],"data_offsets":[1,9]})", 9),
              HasSubstr("a gap"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 9),
              HasSubstr("expected 8 bytes"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"),
              HasSubstr("more than two"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"),
              HasSubstr("incomplete"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2]})"), HasSubstr("incomplete"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"),
              HasSubstr("twice"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})"),
              HasSubstr("array"));
  EXPECT_THAT(header_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1})"),
              HasSubstr("\"extra\""));
  EXPECT_THAT(header_error(R"({"dtype":null})"), HasSubstr("null"));
  EXPECT_THAT(header_error("3"), HasSubstr("the number 3"));
  EXPECT_THAT(header_error("true"), HasSubstr("boolean"));
  EXPECT_THAT(header_error(std::string(50000, '[')), HasSubstr("array"));
  std::string deep;
  for (int i = 0; i < 50000; ++i) deep += "{\"x\":";
  EXPECT_THAT(header_error(deep), HasSubstr("the key \"x\""));
  EXPECT_THAT(
      safetensors_error(safetensors_bytes(
          R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
          6)),
      HasSubstr("an overlap"));
  EXPECT_THAT(safetensors_error(safetensors_bytes("[]", 0)), HasSubstr("array"));
  EXPECT_THAT(safetensors_error(safetensors_bytes("{\"\xff\":{}}", 0)), HasSubstr("syntax error"));
}

std::string directory_error(const TempDir& dir) {
  const auto source = open_weights(dir.path());
  return source ? "" : source.error().message;
}

TEST(HostileDirectory, OneClearErrorEach) {
  TempDir dir;
  EXPECT_THAT(directory_error(dir), HasSubstr("expected config.json"));
  write_bytes(dir / "config.json", "{\"a\":");
  EXPECT_THAT(directory_error(dir), HasSubstr("config.json"));
  write_bytes(dir / "config.json", "[]");
  EXPECT_THAT(directory_error(dir), HasSubstr("expected a JSON object, got array"));
  std::string deep = "{\"a\":" + std::string(100000, '[');
  write_bytes(dir / "config.json", deep + std::string(100000, ']') + "}");
  EXPECT_THAT(directory_error(dir), HasSubstr("nested deeper"));
  write_bytes(dir / "config.json", "{}");
  EXPECT_THAT(directory_error(dir), HasSubstr("expected model.safetensors"));
  write_bytes(dir / "model.safetensors.index.json", R"({"weight_map":{"x":"../etc/passwd"}})");
  EXPECT_THAT(directory_error(dir), HasSubstr("\"../etc/passwd\""));
  write_bytes(dir / "model.safetensors.index.json", R"({"weight_map":{"x":7}})");
  EXPECT_THAT(directory_error(dir), HasSubstr("got number"));
  write_bytes(dir / "model.safetensors.index.json", R"({"weight_map":{}})");
  EXPECT_THAT(directory_error(dir), HasSubstr("no entry"));
  write_bytes(dir / "model.safetensors.index.json", R"({"weight_map":{"x":"absent.safetensors"}})");
  EXPECT_THAT(directory_error(dir), HasSubstr("absent.safetensors"));
  write_bytes(dir / "model.safetensors.index.json",
              R"({"weight_map":{"x":"one.safetensors","b":"one.safetensors"}})");
  write_bytes(dir / "one.safetensors", safetensors_bytes(kGoodHeader, 13));
  EXPECT_THAT(directory_error(dir), HasSubstr("expected tensor \"x\""));
  write_bytes(dir / "generation_config.json", "nonsense");
  EXPECT_THAT(directory_error(dir), HasSubstr("generation_config.json"));
}

// As Python writes them, and only where they are numbers.
TEST(HostileDirectory, NumbersThatJsonDoesNotHave) {
  TempDir dir;
  write_bytes(dir / "model.safetensors", safetensors_bytes(kGoodHeader, 13));
  write_bytes(dir / "config.json",
              R"({"limit": [-Infinity, Infinity], "n": NaN, "text": "\"Infinity NaN\\"})");
  const auto source = open_weights(dir.path());
  ASSERT_TRUE(source) << source.error().message;
  const auto& config = (*source)->config();
  EXPECT_EQ(config["limit"][0]["__float__"], "-Infinity");
  EXPECT_EQ(config["limit"][1]["__float__"], "Infinity");
  EXPECT_EQ(config["n"]["__float__"], "NaN");
  EXPECT_EQ(config["text"], "\"Infinity NaN\\");
  write_bytes(dir / "config.json", R"({"a": Infinit})");
  EXPECT_THAT(directory_error(dir), HasSubstr("config.json"));
}

TEST(HostileDirectory, ShardsByIndex) {
  TempDir dir;
  write_bytes(dir / "config.json", "{}");
  write_bytes(dir / "one.safetensors", safetensors_bytes(kGoodHeader, 13));
  write_bytes(dir / "two.safetensors",
              safetensors_bytes(R"({"c":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  write_bytes(dir / "model.safetensors.index.json",
              R"({"weight_map":{"b":"one.safetensors","c":"two.safetensors"}})");
  const auto source = open_weights(dir.path());
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_EQ((*source)->tensors().size(), 2u);
  EXPECT_NE((*source)->find("c"), nullptr);
  EXPECT_EQ((*source)->find("a"), nullptr);  // in a file, but not in the index
  const auto single = open_weights(dir / "two.safetensors");
  ASSERT_TRUE(single.has_value()) << single.error().message;
  EXPECT_EQ((*single)->tensors().size(), 1u);
}

TEST(Open, OtherFilesAreRefused) {
  TempDir dir;
  EXPECT_EQ(open_weights(dir / "absent").error().code, ErrorCode::kNotFound);
  write_bytes(dir / "empty", "");
  EXPECT_THAT(open_weights(dir / "empty").error().message,
              HasSubstr("got 0 bytes of something else"));
  write_bytes(dir / "text", "hello there");
  EXPECT_THAT(open_weights(dir / "text").error().message,
              HasSubstr("got 11 bytes of something else"));
  write_bytes(dir / "ggml-tiny.bin", std::string("lmgg") + std::string(100, '\1'));
  EXPECT_THAT(open_weights(dir / "ggml-tiny.bin").error().message, HasSubstr("got a GGML file"));
  EXPECT_THAT(open_weights("/dev/null").error().message,
              HasSubstr("expected a regular file, got a device"));
}

TEST(Text, Utf8) {
  for (const char* good : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf",
                           "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xc3", "\xff"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace penstock
