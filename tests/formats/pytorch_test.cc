// a list that is twice as long each time
// PyTorch's files: as torch wrote them (tests/golden/make_pytorch.py), and hostile ones.
#include "formats/pytorch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/regular_file.h"
#include "formats/file_bytes.h"
#include "formats/hf_directory.h"
#include "formats/pickle.h"
#include "formats/temp_dir.h"
#include "formats/zip_archive.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kFiles = tests_dir() / "golden" / "pytorch";

// Sums over all bytes, so that a sanitizer sees each being read.
uint64_t touch(std::span<const TensorInfo> tensors) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors) {
    for (const std::byte byte : tensor.bytes) sum += std::to_integer<uint64_t>(byte);
  }
  return sum;
}

void expect_as_expected(const WeightSource& source) {
  TempDir dir;
  fs::copy(kFiles / "config.json", dir / "config.json");
  fs::copy(kFiles / "expected.safetensors", dir / "model.safetensors");
  const auto expected = open_weights(dir.path()).value();
  ASSERT_EQ(source.tensors().size(), expected->tensors().size());
  for (const TensorInfo& tensor : expected->tensors()) {
    const TensorInfo* found = source.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->type, tensor.type) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(found->bytes, tensor.bytes)) << tensor.name;
  }
}

TEST(Pytorch, FilesOfTorchAreReadAsTorchReadsThem) {
  for (const char* name : {"pytorch_model.bin", "older.bin", "zip64.bin"}) {
    SCOPED_TRACE(name);
    const auto source = open_weights(kFiles / name);
    ASSERT_TRUE(source) << source.error().message;
    expect_as_expected(**source);
  }
}

TEST(Pytorch, DirectoriesMayHaveShards) {
  for (const fs::path& directory : {kFiles, kFiles / "sharded"}) {
    TempDir dir;  // without expected.safetensors
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().extension() == ".bin" || entry.path().extension() == ".json")
        fs::copy(entry.path(), dir / entry.path().filename().string());
    }
    const auto source = open_weights(dir.path());
    ASSERT_TRUE(source) << source.error().message;
    expect_as_expected(**source);
  }
}

std::string zip_of(const std::string& pickle, const std::string& storage = std::string(64, '\1')) {
  const auto raw = [](auto value) { return GgufBytes::raw(value); };
  std::string out, directory;
  uint16_t count = 0;
  for (const auto& [name, data] :
       {std::pair<std::string, std::string>{"a/data.pkl", pickle}, {"a/data/0", storage}}) {
    const std::string sizes = raw(uint32_t{0}) + raw(static_cast<uint32_t>(data.size())) +
                              raw(static_cast<uint32_t>(data.size())) +
                              raw(static_cast<uint16_t>(name.size())) + raw(uint16_t{0});
    directory += raw(uint32_t{0x02014b50}) + std::string(4, '\0') + std::string(8, '\0') + sizes +
                 std::string(2 + 2 + 2 + 4, '\0') + raw(static_cast<uint32_t>(out.size())) + name;
    out += raw(uint32_t{0x04034b50}) + std::string(10, '\0') + sizes + name + data;
    ++count;
  }
  const auto at = static_cast<uint32_t>(out.size());
  return out + directory + raw(uint32_t{0x06054b50}) + std::string(4, '\0') + raw(count) +
         raw(count) + raw(static_cast<uint32_t>(directory.size())) + raw(at) + raw(uint16_t{0});
}

std::string error_of(const std::string& bytes) {
  std::vector<std::vector<std::byte>> copies;
  const auto parsed = parse_pytorch(as_bytes(bytes), "f.bin", copies);
  if (parsed) touch(*parsed);
  return parsed ? "" : parsed.error().message;
}

const std::string kBegin = "\x80\x02";
std::string text(const std::string& value) {
  return "X" + GgufBytes::raw(static_cast<uint32_t>(value.size())) + value;
}
std::string number(int32_t value) { return "J" + GgufBytes::raw(value); }
std::string tuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const std::string& item : items) out += item;
  return out + "t";
}
std::string sizes(const std::vector<int32_t>& numbers) {
  std::vector<std::string> items;
  for (const int32_t n : numbers) items.push_back(number(n));
  return tuple(items);
}
// A view of the storage of 16 floats.
std::string tensor(int32_t offset, const std::vector<int32_t>& shape,
                   const std::vector<int32_t>& strides, int32_t n_floats = 16) {
  const std::string storage =
      tuple({text("storage"), "ctorch\nFloatStorage\n", text("0"), text("cpu"), number(n_floats)}) +
      "Q";
  return "ctorch._utils\n_rebuild_tensor_v2\n" +
         tuple({storage, number(offset), sizes(shape), sizes(strides), "\x89",
                "ccollections\nOrderedDict\n)R"}) +
         "R";
}
std::string dict_of(const std::string& value) { return kBegin + "}" + text("w") + value + "s."; }

TEST(Pytorch, ViewsStayWithinTheirStorage) {
  EXPECT_EQ(error_of(zip_of(dict_of(tensor(0, {4, 4}, {4, 1})))), "");
  EXPECT_EQ(error_of(zip_of(dict_of(tensor(0, {4, 4}, {1, 4})))), "");
  EXPECT_EQ(error_of(zip_of(dict_of(tensor(16, {0, 4}, {4, 1})))), "");
  for (const std::string& bad :
       {tensor(1, {4, 4}, {4, 1}), tensor(0, {4, 5}, {4, 1}), tensor(0, {2, 2}, {15, 1}),
        tensor(17, {0}, {1}), tensor(0, {3}, {0x7fffffff}), tensor(0x7fffffff, {}, {})})
    EXPECT_THAT(error_of(zip_of(dict_of(bad))),
                HasSubstr("does not fit into its storage of 16 numbers"));
  EXPECT_THAT(error_of(zip_of(dict_of(tensor(0, {4}, {1}, 17)))),
              HasSubstr("expected a storage of 17 numbers, got one of 64 bytes"));
  EXPECT_THAT(error_of(zip_of(dict_of(tensor(0, {2}, {-1})))), HasSubstr("shape and strides"));
  EXPECT_THAT(error_of(zip_of(dict_of(tensor(-1, {2}, {1})))), HasSubstr("an offset"));
  EXPECT_THAT(error_of(zip_of(dict_of(tensor(0, {2, 2}, {1})))), HasSubstr("shape and strides"));
  EXPECT_THAT(
      error_of(zip_of(dict_of(tensor(0, std::vector<int32_t>(9, 1), std::vector<int32_t>(9, 1))))),
      HasSubstr("at most 8"));
}

// A stride of 0 repeats numbers: as many tensors as there is room to name would take memory without
// bound.
TEST(Pytorch, WhatIsLaidInOrderTakesNoMoreThanTheFile) {
  EXPECT_THAT(error_of(zip_of(dict_of(tensor(0, {1 << 30}, {0})))),
              HasSubstr("more bytes than the file has"));
  std::string many = kBegin + "}(";
  for (int i = 0; i < 50; ++i) many += text("w" + std::to_string(i)) + tensor(0, {4, 4}, {1, 4});
  EXPECT_EQ(error_of(zip_of(many + "u.")), "");
  many = kBegin + "}(";
  for (int i = 0; i < 50; ++i) many += text("w" + std::to_string(i)) + tensor(0, {100, 4}, {0, 1});
  EXPECT_THAT(error_of(zip_of(many + "u.")), HasSubstr("more bytes than the file has"));
}

TEST(Pytorch, NothingIsCalled) {
  const std::string argument = tuple({text("touch /tmp/owned")});
  for (const std::string global :
       {"cos\nsystem\n", "cposix\nsystem\n", "c__builtin__\neval\n", "cbuiltins\ngetattr\n",
        "ctorch._utils\n_rebuild_tensor\n", "ctorch\nload\n", "ctorch._utils\n__builtins__.eval\n",
        "ccollections\nOrderedDict.__class__\n", "ctorch.storage\n_load_from_bytes\n"})
    EXPECT_THAT(error_of(zip_of(dict_of(global + argument + "R"))),
                HasSubstr("is neither a tensor nor a dict"))
        << global;
  // Opcodes that call, import or make objects otherwise.
  for (const char opcode : {'i', 'o', '\x81', '\x92', '\x93', '\x82', '\x83', '\x84', 'P', '\x97',
                            'p', 'I', 'S', 'd', 'l', 'L'})
    EXPECT_THAT(error_of(zip_of(dict_of(tuple({}) + std::string(1, opcode)))),
                HasSubstr("is not one that describes tensors"));
  EXPECT_THAT(error_of(zip_of(dict_of("ctorch\nFloatStorage\n" + argument + "R"))),
              HasSubstr("called to make"));
  EXPECT_THAT(error_of(zip_of(dict_of(text("x") + argument + "R"))),
              HasSubstr("expected a global and a tuple"));
  EXPECT_THAT(error_of(zip_of(dict_of(argument + "Q"))), HasSubstr("\"storage\", type, key"));
  EXPECT_THAT(error_of(zip_of(dict_of(argument + "}b"))),
              HasSubstr("a dict that is given attributes"));
}

TEST(Pytorch, WhatIsNoStateDictIsTold) {
  EXPECT_THAT(error_of(zip_of(kBegin + tensor(0, {4}, {1}) + ".")),
              HasSubstr("expected a dict of tensors"));
  EXPECT_THAT(error_of(zip_of(dict_of(number(3)))),
              HasSubstr("\"w\": expected a name and a tensor"));
  EXPECT_THAT(error_of(zip_of(dict_of("}"))), HasSubstr("\"w\": expected a name and a tensor"));
  EXPECT_THAT(error_of(zip_of(kBegin + "}" + number(1) + tensor(0, {4}, {1}) + "s.")),
              HasSubstr("entry 0"));
  EXPECT_THAT(error_of(zip_of("\x80\x04}.")), HasSubstr("expected protocol 2"));
  EXPECT_THAT(error_of("PK\3\4" + std::string(40, '\0')), HasSubstr("is it cut off?"));
}

// Values that the pickle builds are bounded, and the machine has no recursion.
TEST(Pytorch, BombsAreEndedByCounting) {
  EXPECT_THAT(error_of(zip_of(kBegin + std::string(PickleMachine::kMostValues + 1, ']') + ".")),
              HasSubstr("expected at most"));
  std::string deep = kBegin + ")";
  for (int i = 0; i < 300'000; ++i) deep += '\x85';
  EXPECT_THAT(error_of(zip_of(deep + ".")), HasSubstr("expected a dict of tensors"));
  std::string doubling = kBegin + "]q" + std::string(1, '\0');
  for (int i = 0; i < 64; ++i) doubling += std::string("(h\0h\0h\0e", 8);
  EXPECT_THAT(error_of(zip_of(doubling + ".")), HasSubstr("expected a dict of tensors"));
  std::string itself = kBegin + "}q" + std::string(1, '\0') + text("w") + std::string("h\0s.", 4);
  EXPECT_THAT(error_of(zip_of(itself)), HasSubstr("expected a name and a tensor"));
}

// Cut off anywhere, and with any byte another one: an error, or tensors that can be read.
TEST(Pytorch, DamagedFilesAreErrors) {
  for (const char* name : {"pytorch_model.bin", "older.bin", "zip64.bin"}) {
    const std::string whole = read_regular_file(kFiles / name, 1 << 20).value();
    for (size_t size = 0; size < whole.size(); size += 7)
      EXPECT_NE(error_of(whole.substr(0, size)), "") << name << " " << size;
    int n_errors = 0;
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string bad = whole;
      bad[at] = static_cast<char>(bad[at] ^ (at % 2 == 0 ? 0xff : 0x01));
      n_errors += error_of(bad).empty() ? 0 : 1;
    }
    EXPECT_GT(n_errors, 500) << name;
  }
}

// A whole file wins over an index that is left of an earlier form, as in transformers.
TEST(Directories, AStaleIndexIsPassedOver) {
  for (const char* index : {"model.safetensors.index.json", "pytorch_model.bin.index.json"}) {
    TempDir dir;
    fs::copy(kFiles / "config.json", dir / "config.json");
    fs::copy(kFiles / "expected.safetensors", dir / "model.safetensors");
    write_bytes(dir / index, R"({"weight_map": {"whole": "absent-00001-of-00002.bin"}})");
    const auto source = open_weights(dir.path());
    ASSERT_TRUE(source) << source.error().message;
    expect_as_expected(**source);
  }
}

TEST(Directories, PointersOfGitLfsAreTold) {
  const std::string pointer =
      "version https://git-lfs.example.org/spec/v1\noid "
      "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
  const auto error = [&](const std::string& name, bool whole_directory) {
    TempDir dir;
    fs::copy(kFiles / "config.json", dir / "config.json");
    if (name != "model.safetensors" && !name.ends_with(".bin"))
      fs::copy(kFiles / "expected.safetensors", dir / "model.safetensors");
    write_bytes(dir / name, pointer);
    const auto source = open_weights(whole_directory ? dir.path() : dir / name);
    return source ? std::string() : source.error().message;
  };
  for (const char* name : {"model.safetensors", "pytorch_model.bin", "tokenizer.json",
                           "tokenizer.model", "tekken.json", "vocab.txt", "qwen.tiktoken",
                           "chat_template.jinja", "generation_config.json"})
    EXPECT_THAT(error(name, true),
                ::testing::AllOf(HasSubstr(name), HasSubstr("a pointer of Git LFS")))
        << name;
  for (const char* name : {"model.gguf", "model.safetensors", "pytorch_model.bin"})
    EXPECT_THAT(error(name, false), ::testing::AllOf(HasSubstr(name), HasSubstr("git lfs pull")))
        << name;
  TempDir dir;
  write_bytes(dir / "tokenizer.json", pointer);
  EXPECT_THAT(open_fetched(dir / "tokenizer.json").error().message, HasSubstr("git lfs pull"));
}

}  // namespace
}  // namespace penstock
