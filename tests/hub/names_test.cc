// What a typed name means, and which files of a repository it chooses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/gguf_name.h"
#include "hub/model_name.h"
#include "hub/repo_files.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string parsed(std::string_view text, std::string_view endpoint = {}) {
  const auto name = parse_model_name(text, endpoint);
  return name ? name->repo + "|" + name->revision + "|" + name->what
              : "error: " + name.error().message;
}

TEST(ModelName, PartsOfARepository) {
  EXPECT_EQ(parsed("org/name"), "org/name||");
  EXPECT_EQ(parsed("org/name:model-Q4_K_M.gguf"), "org/name||model-Q4_K_M.gguf");
  EXPECT_EQ(parsed("org/name:sub/model.gguf"), "org/name||sub/model.gguf");
  EXPECT_EQ(parsed("org/name@v1.0:Q4_K_M"), "org/name|v1.0|Q4_K_M");
  EXPECT_EQ(parsed("org/name@refs/pr/3"), "org/name|refs/pr/3|");
  EXPECT_EQ(parsed("llama3.2:1b"), "llama3.2||1b");
  EXPECT_EQ(parsed("gpt2"), "gpt2||");
}

TEST(ModelName, AddressesOfAHub) {
  EXPECT_EQ(parsed("hf.co/org/name:Q8_0"), "org/name||Q8_0");
  // an organisation that is called like the hub
  const auto odd = parse_model_name("hf.co/hf.co/org:sub/m.gguf");
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->repo, "hf.co/org");
  EXPECT_EQ(parse_model_name(odd->text())->repo, "hf.co/org");
  EXPECT_EQ(parsed("hf://org/name@dev"), "org/name|dev|");
  EXPECT_EQ(parsed("https://huggingface.co/org/name"), "org/name||");
  EXPECT_EQ(parsed("https://huggingface.co/org/name/"), "org/name||");
  EXPECT_EQ(parsed("https://huggingface.co/org/name/blob/main/a/b.gguf"), "org/name|main|a/b.gguf");
  EXPECT_EQ(parsed("https://huggingface.co/org/name/resolve/v2/b.gguf?download=true"),
            "org/name|v2|b.gguf");
  EXPECT_EQ(parsed("https://huggingface.co/org/name/tree/dev"), "org/name|dev|");
  EXPECT_EQ(parsed("http://127.0.0.1:99/hub/org/name", "http://127.0.0.1:99/hub"), "org/name||");
  EXPECT_THAT(parsed("https://example.org/org/name"), HasSubstr("error: "));
  EXPECT_THAT(parsed("https://huggingface.co/org/name/discussions/1"),
              HasSubstr("expected the address"));
}

TEST(ModelName, WhatIsNoNameIsRefused) {
  for (const char* text : {"",
                           ":",
                           "@",
                           "org/",
                           "/name",
                           "org/name:",
                           "org/name@",
                           "org/name@:x",
                           "org//name",
                           "org/..",
                           "../name",
                           "org/na--me",
                           "org/na..me",
                           "-org/name",
                           "org/name.git",
                           "org/name:/etc/passwd",
                           "org/name:a/../b",
                           "org/name:a\\b",
                           "org/name@../../x",
                           "org/name@a..b",
                           "a/b/c",
                           "org/na me",
                           "org/name:a\nb"}) {
    EXPECT_THAT(parsed(text), HasSubstr("error: ")) << text;
  }
  EXPECT_THAT(parsed(std::string("org/name:a\0b", 12)), HasSubstr("error: "));
  EXPECT_THAT(parsed("org/" + std::string(97, 'a')), HasSubstr("error: "));
  EXPECT_THAT(parsed("org/name:\x1b[2J"), HasSubstr("\\x1b"));  // not a terminal's escape sequence
}

TEST(ModelName, PathsStayPaths) {
  for (const char* text : {"", "/a", "./a/b", "../a/b", "~/m/x", "a/b/c", "models/m.gguf", "m.gguf",
                           "a/m.safetensors", "org/name/", "."})
    EXPECT_TRUE(looks_like_path(text)) << text;
  for (const char* text :
       {"org/name", "org/name:m.gguf", "org/name@refs/pr/1", "llama3.2", "llama3.2:1b",
        "hf.co/org/name", "https://huggingface.co/org/name/blob/main/m.gguf"})
    EXPECT_FALSE(looks_like_path(text)) << text;
}

TEST(ModelName, FilesOfAServerStayInside) {
  for (const char* path : {"a", "a/b.gguf", "a b", ".gitattributes", "\xc3\xa9.json"})
    EXPECT_TRUE(check_repo_path(path, "x")) << path;
  for (const char* path :
       {"", "/a", "a/", "a//b", "..", "../a", "a/../b", ".", "a/./b", "a\\b", "a\nb",
        "a\xc2\x9b"
        "31m"})
    EXPECT_FALSE(check_repo_path(path, "x")) << path;
  EXPECT_FALSE(check_repo_path(std::string(2000, 'a'), "x"));
  EXPECT_FALSE(check_repo_path(std::string("a\0b", 3), "x"));
}

TEST(GgufName, Shards) {
  const GgufName shard = parse_gguf_name("q/model-00002-of-00003.gguf");
  EXPECT_EQ(shard.stem, "q/model");
  EXPECT_EQ(shard.shard, 2);
  EXPECT_EQ(shard.n_shards, 3);
  EXPECT_EQ(parse_gguf_name("model-00004-of-00003.gguf").stem, "model-00004-of-00003");
  EXPECT_EQ(parse_gguf_name("model-00000-of-00003.gguf").n_shards, 1);
  EXPECT_EQ(parse_gguf_name("MODEL.GGUF").stem, "MODEL");
  EXPECT_EQ(parse_gguf_name("model.bin").stem, "");
  EXPECT_EQ(parse_gguf_name(".gguf").stem, "");
}

TEST(GgufName, QuantizationIsAWord) {
  EXPECT_TRUE(has_quantization("Model-Q4_K_M.gguf", "q4_k_m"));
  EXPECT_TRUE(has_quantization("model.Q4_K.gguf", "Q4_K"));
  EXPECT_TRUE(has_quantization("Q8_0/model-00001-of-00002.gguf", "Q8_0"));
  EXPECT_TRUE(has_quantization("m-UD-Q4_K_XL-00001-of-00002.gguf", "Q4_K_XL"));
  EXPECT_FALSE(has_quantization("Model-Q4_K_M.gguf", "Q4_K"));
  EXPECT_FALSE(has_quantization("Model-IQ4_NL.gguf", "Q4_NL"));
  EXPECT_FALSE(has_quantization("Model-Q4_K_M.gguf", "gguf"));
}

std::vector<RepoFile> files(std::initializer_list<const char*> paths) {
  std::vector<RepoFile> result;
  for (const char* path : paths) result.push_back({.path = path});
  return result;
}

Result<std::string> no_reading(const std::string& path) {
  return errorf(ErrorCode::kNotFound, "{} is not to be read", path);
}

Result<ModelFiles> choose(std::initializer_list<const char*> paths, const std::string& what = "",
                          const ReadRepoFile& read = no_reading) {
  return choose_model_files(files(paths), what, read, "org/name");
}

std::string entry(const Result<ModelFiles>& model) {
  return model ? model->entry : "error: " + model.error().message;
}

TEST(ModelFiles, DefaultIsFourBitsThenTheStatedOrder) {
  EXPECT_EQ(entry(choose({"m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-Q4_K_M.gguf"})),
            "m-Q4_K_M.gguf");
  EXPECT_EQ(entry(choose({"m-F16.gguf", "m-Q8_0.gguf", "m-q5_k_m.gguf"})), "m-q5_k_m.gguf");
  EXPECT_EQ(entry(choose({"m-F16.gguf", "m-Q8_0.gguf"})), "m-Q8_0.gguf");
  EXPECT_EQ(entry(choose({"a-longer-name-Q4_K_M.gguf", "name-Q4_K_M.gguf"})), "name-Q4_K_M.gguf");
  EXPECT_EQ(entry(choose({"README.md", "weights.gguf"})), "weights.gguf");
}

TEST(ModelFiles, CompanionsOnlyByTheirName) {
  EXPECT_THAT(entry(choose({"mmproj-F16.gguf", "imatrix_x.gguf", "mtp-m-Q4_K_M.gguf"})),
              HasSubstr("error: "));
  EXPECT_EQ(entry(choose({"m-Q4_K_M.gguf", "mtp-m-Q8_0.gguf"}, "Q8_0")).substr(0, 6), "error:");
  EXPECT_EQ(entry(choose({"m-Q4_K_M.gguf", "mtp-m-Q8_0.gguf"}, "mtp-m-Q8_0.gguf")),
            "mtp-m-Q8_0.gguf");
}

TEST(ModelFiles, ByFileByNameByQuantization) {
  const auto pick = [](const std::string& what) {
    return entry(
        choose({"a/m-Q4_K_M.gguf", "a/m-Q8_0.gguf", "b/m-Q8_0.gguf", "b/other.gguf"}, what));
  };
  EXPECT_EQ(pick("a/m-Q8_0.gguf"), "a/m-Q8_0.gguf");
  EXPECT_EQ(pick("other.gguf"), "b/other.gguf");
  EXPECT_EQ(pick("OTHER.gguf"), "b/other.gguf");
  EXPECT_EQ(pick("q4_k_m"), "a/m-Q4_K_M.gguf");
  EXPECT_EQ(pick("Q8_0"), "a/m-Q8_0.gguf");
  // two have that name
  EXPECT_THAT(pick("m-Q8_0.gguf"), HasSubstr("nothing there is called m-Q8_0.gguf"));
  EXPECT_THAT(pick("Q5_0"), HasSubstr("there is a/m-Q4_K_M.gguf, a/m-Q8_0.gguf"));
}

TEST(ModelFiles, ShardsComeTogether) {
  const auto model = choose({"m-Q4_K_M-00001-of-00003.gguf", "m-Q4_K_M-00002-of-00003.gguf",
                             "m-Q4_K_M-00003-of-00003.gguf"},
                            "Q4_K_M");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->entry, "m-Q4_K_M-00001-of-00003.gguf");
  EXPECT_EQ(model->paths.size(), 3u);
  EXPECT_EQ(
      entry(choose({"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}, "m-00002-of-00002.gguf")),
      "m-00001-of-00002.gguf");
  EXPECT_THAT(entry(choose({"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"})),
              HasSubstr("one of 3 shards, 1 of them missing"));
  EXPECT_THAT(entry(choose({"m-00001-of-99999.gguf"})), HasSubstr("99998 of them missing"));
}

TEST(ModelFiles, CheckpointTakesOnlyWhatIsNeeded) {
  const auto model =
      choose({"config.json", "generation_config.json", "model.safetensors", "pytorch_model.bin",
              "tokenizer.json", "tokenizer_config.json", "README.md", "onnx/model.onnx",
              "original/consolidated.00.pth", "consolidated.safetensors", "modeling_x.py"});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(model->folder);
  EXPECT_EQ(model->entry, "");
  EXPECT_THAT(model->paths,
              ElementsAre("config.json", "generation_config.json", "model.safetensors",
                          "tokenizer.json", "tokenizer_config.json"));
  EXPECT_TRUE(model->tokenizer);
  EXPECT_FALSE(choose({"config.json", "model.safetensors"})->tokenizer);
}

TEST(ModelFiles, CheckpointTakesAllOfItsTemplates) {
  const auto model = choose({"config.json", "model.safetensors", "chat_template.jinja",
                             "chat_template.json", "additional_chat_templates/tool_use.jinja",
                             "additional_chat_templates/rag.jinja", "docs/chat_template.jinja"});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(
      model->paths,
      ElementsAre("additional_chat_templates/rag.jinja", "additional_chat_templates/tool_use.jinja",
                  "chat_template.jinja", "chat_template.json", "config.json", "model.safetensors"));
}

TEST(ModelFiles, CheckpointTakesTheShardsOfItsIndex) {
  const auto read = [](const std::string& path) -> Result<std::string> {
    EXPECT_EQ(path, "model.safetensors.index.json");
    return std::string(
        R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  };
  const auto model =
      choose({"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
              "model-00002-of-00002.safetensors", "extra.safetensors", "tokenizer.model"},
             "", read);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(model->paths, ElementsAre("config.json", "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "model.safetensors.index.json", "tokenizer.model"));
  EXPECT_THAT(entry(choose({"config.json", "model.safetensors.index.json",
                            "model-00001-of-00002.safetensors"},
                           "", read)),
              HasSubstr("model-00002-of-00002.safetensors is missing"));
}

TEST(ModelFiles, HostileIndexIsRefused) {
  for (const char* text : {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})",
                           R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": "../../x"}})",
                           R"({"weight_map": {"a": "/etc/passwd"}})"}) {
    const auto model =
        choose({"config.json", "model.safetensors.index.json"}, "",
               [&](const std::string&) -> Result<std::string> { return std::string(text); });
    ASSERT_FALSE(model) << text;
    EXPECT_EQ(model.error().code, ErrorCode::kCorruptFile) << text;
  }
  const std::string deep = R"({"weight_map": )" + std::string(100'000, '[');
  EXPECT_FALSE(choose({"config.json", "model.safetensors.index.json"}, "",
                      [&](const std::string&) -> Result<std::string> { return deep; }));
}

TEST(ModelFiles, FoldersByName) {
  EXPECT_EQ(entry(choose({"fp16/config.json", "fp16/model.safetensors", "m-Q4_0.gguf"}, "fp16")),
            "fp16");
  EXPECT_EQ(entry(choose({"fp16/config.json", "fp16/model.safetensors", "m-Q4_0.gguf"})),
            "m-Q4_0.gguf");
  EXPECT_EQ(entry(choose({"config.json", "model.safetensors", "m-Q4_0.gguf"})), "");
}

// In the order in which a directory is opened: a whole file before an index, safetensors before
// PyTorch's.
TEST(ModelFiles, WeightsAreChosenAsDirectoriesAreOpened) {
  const auto paths = [](std::initializer_list<const char*> files, const char* index) {
    return choose(files, "",
                  [&](const std::string&) -> Result<std::string> { return std::string(index); })
        .value()
        .paths;
  };
  EXPECT_EQ(paths({"config.json", "model.safetensors", "model.safetensors.index.json"}, "{}"),
            (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(paths({"config.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
                   "training_args.bin"},
                  "{}"),
            (std::vector<std::string>{"config.json", "pytorch_model.bin"}));
  EXPECT_EQ(paths({"config.json", "pytorch_model-1.bin", "pytorch_model-2.bin",
                   "pytorch_model.bin.index.json"},
                  R"({"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}})"),
            (std::vector<std::string>{"config.json", "pytorch_model-1.bin", "pytorch_model-2.bin",
                                      "pytorch_model.bin.index.json"}));
  EXPECT_EQ(paths({"config.json", "model.safetensors", "2_Dense/config.json",
                   "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin"},
                  "{}"),
            (std::vector<std::string>{"2_Dense/config.json", "2_Dense/model.safetensors",
                                      "config.json", "model.safetensors"}));
}

TEST(ModelFiles, OtherRepositoriesAreNamed) {
  EXPECT_THAT(entry(choose({"adapter_config.json", "adapter_model.safetensors"})),
              HasSubstr("an adapter"));
  EXPECT_THAT(entry(choose({"README.md"})),
              HasSubstr("no GGUF file and no safetensors checkpoint there, but README.md"));
  EXPECT_THAT(entry(choose({})), HasSubstr("but nothing"));
}

TEST(ModelFiles, AllOfThem) {
  std::vector<std::string> entries;
  for (const ModelFiles& model :
       all_models(files({"config.json", "model.safetensors", "a-Q4_0.gguf", "b-00001-of-00002.gguf",
                         "b-00002-of-00002.gguf", "c-00001-of-00002.gguf", "mmproj.gguf",
                         "sub/config.json"}),
                  no_reading))
    entries.push_back(model.entry);
  EXPECT_THAT(entries, ElementsAre("", "a-Q4_0.gguf", "b-00001-of-00002.gguf"));
}

}  // namespace
}  // namespace penstock
