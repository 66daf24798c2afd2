// Models in the folders of other tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "formats/temp_dir.h"
#include "hub/hf_cache.h"
#include "hub/hub.h"
#include "hub/ollama.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kCommit(40, 'c');
const std::string kDigest(64, 'd');

// Folders as other tools fill them, in a directory of the test's own.
class Folders : public ::testing::Test {
 protected:
  Folders() {
    settings_.cache = dir_ / "hub";
    settings_.lm_studio = {dir_ / "lmstudio"};
    settings_.ollama = {dir_ / "ollama"};
  }

  void write(const fs::path& path, std::string_view text) {
    fs::create_directories(path.parent_path());
    write_bytes(path, text);
  }

  // A file of a snapshot, as a link to its blob.
  void cache_file(const std::string& path, std::string_view text,
                  const std::string& repo = "models--org--name") {
    const std::string blob = "blob-" + std::to_string(++n_blobs_);
    write(settings_.cache / repo / "blobs" / blob, text);
    const fs::path link = settings_.cache / repo / "snapshots" / kCommit / path;
    fs::create_directories(link.parent_path());
    fs::create_symlink(fs::relative(settings_.cache / repo / "blobs" / blob, link.parent_path()),
                       link);
    write(settings_.cache / repo / "refs" / "main", kCommit);
  }

  void ollama_manifest(const std::string& path, const json& manifest) {
    write(settings_.ollama[0] / "manifests" / path, manifest.dump());
  }
  json layers(const std::string& digest = "sha256:" + kDigest) const {
    return {{"layers",
             {{{"mediaType", "application/vnd.ollama.image.template"}, {"digest", "sha256:00"}},
              {{"mediaType", "application/vnd.ollama.image.model"}, {"digest", digest}}}}};
  }
  void ollama_blob_file(std::string_view text) {
    write(settings_.ollama[0] / "blobs" / ("sha256-" + kDigest), text);
  }

  std::string where(std::string_view name) const {
    const auto found = find_on_disk(settings_, name);
    return found ? found->path.lexically_relative(dir_.path()).string()
                 : "error: " + found.error().message;
  }

  TempDir dir_;
  HubSettings settings_;
  int n_blobs_ = 0;
};

TEST_F(Folders, SnapshotOfAHubCache) {
  cache_file("m-Q4_K_M.gguf", "12345");
  cache_file("m-Q8_0.gguf", "1234567");
  const auto found = find_on_disk(settings_, "org/name:q8_0");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->path,
            settings_.cache / "models--org--name" / "snapshots" / kCommit / "m-Q8_0.gguf");
  EXPECT_EQ(found->bytes, 7);
  EXPECT_EQ(found->name, "org/name:m-Q8_0.gguf");
  EXPECT_EQ(found->source, "Hugging Face cache");
  EXPECT_THAT(where("org/name"), HasSubstr("m-Q4_K_M.gguf"));
  EXPECT_THAT(where("org/name@" + kCommit), HasSubstr("m-Q4_K_M.gguf"));
  EXPECT_THAT(where("org/name@v2"), HasSubstr("has no snapshot of v2"));
  EXPECT_THAT(where("org/other"), HasSubstr("has no models--org--other"));
}

TEST_F(Folders, RevisionsAndOldNames) {
  cache_file("m.gguf", "1", "models--gpt2");
  EXPECT_THAT(where("gpt2"), HasSubstr("models--gpt2/snapshots"));
  cache_file("m.gguf", "1");
  write(settings_.cache / "models--org--name" / "refs" / "refs" / "pr" / "1", kCommit + "\n");
  EXPECT_THAT(where("org/name@refs/pr/1"), HasSubstr("m.gguf"));
  const HfCache cache(settings_.cache);
  EXPECT_THAT(cache.repos(), ElementsAre("gpt2", "org/name"));
  ASSERT_EQ(cache.revisions("org/name").size(), 2u);
  EXPECT_EQ(cache.revisions("org/name")[0].name, "main");
}

TEST_F(Folders, LinksOutOfTheCacheAreRefused) {
  write(dir_ / "secret.gguf", "secret");
  cache_file("other-Q2_K.gguf", "1");
  const fs::path snapshot = settings_.cache / "models--org--name" / "snapshots" / kCommit;
  fs::create_symlink(dir_ / "secret.gguf", snapshot / "m-Q4_K_M.gguf");
  fs::create_symlink(dir_.path(), snapshot / "folder");
  fs::create_symlink("loop.gguf", snapshot / "loop.gguf");
  fs::create_symlink("nowhere", snapshot / "dangling-Q4_K_M.gguf");
  EXPECT_THAT(where("org/name:Q4_K_M"), HasSubstr("refused: m-Q4_K_M.gguf leads out of the cache"));
  EXPECT_THAT(where("org/name:secret.gguf"), HasSubstr("error: "));
  EXPECT_THAT(where("org/name:loop.gguf"), HasSubstr("error: "));
  EXPECT_THAT(where("org/name"), HasSubstr("other-Q2_K.gguf"));
}

TEST_F(Folders, CacheBehindALinkIsTheCache) {
  cache_file("m.gguf", "1");
  fs::create_symlink(settings_.cache, dir_ / "moved");
  settings_.cache = dir_ / "moved";
  EXPECT_THAT(where("org/name"), HasSubstr("m.gguf"));
}

TEST_F(Folders, WhatIsNoFileIsNoModel) {
  cache_file("config.json", "{}");
  const fs::path snapshot = settings_.cache / "models--org--name" / "snapshots" / kCommit;
  ASSERT_EQ(mkfifo((snapshot / "m.gguf").c_str(), 0600), 0);
  EXPECT_THAT(where("org/name"), HasSubstr("error: "));
  fs::remove(settings_.cache / "models--org--name" / "refs" / "main");
  ASSERT_EQ(mkfifo((settings_.cache / "models--org--name" / "refs" / "main").c_str(), 0600), 0);
  EXPECT_THAT(where("org/name"), HasSubstr("error: "));  // and does not wait for a writer
}

TEST_F(Folders, RefsThatAreNoCommits) {
  cache_file("m.gguf", "1");
  for (const std::string& ref :
       {std::string("../../../etc"), std::string(300, 'a'), std::string("a/b"), std::string()}) {
    write(settings_.cache / "models--org--name" / "refs" / "main", ref);
    EXPECT_THAT(where("org/name"), HasSubstr("has no snapshot of main")) << ref;
  }
}

TEST_F(Folders, ListingTellsWhatIsMissing) {
  cache_file("config.json", "{}");
  cache_file("model.safetensors", "1");
  EXPECT_EQ(find_on_disk(settings_, "org/name")->missing, "a vocabulary");
  cache_file("tokenizer.model", "1");
  EXPECT_EQ(find_on_disk(settings_, "org/name")->missing, "");
  const fs::path tree = settings_.cache / "models--org--name" / "trees" / (kCommit + ".json");
  json files;
  for (const char* path :
       {"config.json", "model.safetensors", "tokenizer.model", "tokenizer.json", "README.md"})
    files[path] = {{"size", 1}, {"blob_id", "x"}};
  write(tree, json({{"format_version", 1}, {"files", files}}).dump());
  EXPECT_EQ(find_on_disk(settings_, "org/name")->missing, "tokenizer.json");
  for (const char* text :
       {"", "[]", "{", R"({"format_version": 2, "files": {}})",
        R"({"format_version": 1, "files": []})", R"({"format_version": 1, "files": {"../x": {}}})",
        R"({"format_version": 1, "files": {"a": 3}})"}) {
    write(tree, text);
    EXPECT_EQ(find_on_disk(settings_, "org/name")->missing, "") << text;
  }
}

TEST_F(Folders, LmStudio) {
  write(settings_.lm_studio[0] / "org" / "name" / "m-Q4_K_M.gguf", "123");
  fs::create_directories(settings_.lm_studio[0] / "org" / "linked");
  fs::create_symlink(settings_.lm_studio[0] / "org" / "name" / "m-Q4_K_M.gguf",
                     settings_.lm_studio[0] / "org" / "linked" / "m.gguf");
  EXPECT_EQ(where("org/name"), "lmstudio/org/name/m-Q4_K_M.gguf");
  EXPECT_EQ(where("org/linked"), "lmstudio/org/linked/m.gguf");  // a link there is the user's own
  EXPECT_THAT(where("org/name:Q8_0"), HasSubstr("nothing there is called Q8_0"));
  EXPECT_THAT(where("org/name@v1"), HasSubstr("error: "));
}

TEST_F(Folders, OllamaNames) {
  ollama_blob_file("GGUF");
  ollama_manifest("registry.ollama.ai/library/llama3.2/1b", layers());
  ollama_manifest("registry.ollama.ai/library/llama3.2/latest", layers("sha256-" + kDigest));
  ollama_manifest("registry.ollama.ai/user/own/latest", layers());
  ollama_manifest("hf.co/org/name/Q4_K_M", layers());
  const std::string blob = "ollama/blobs/sha256-" + kDigest;
  for (const char* name :
       {"llama3.2", "llama3.2:1b", "user/own", "org/name:Q4_K_M", "hf.co/org/name:Q4_K_M"})
    EXPECT_EQ(where(name), blob) << name;
  EXPECT_THAT(where("llama3.2:70b"), HasSubstr("has no llama3.2:70b"));
  EXPECT_THAT(where("llama3.2:../latest"), HasSubstr("error: "));
  std::vector<std::string> names;
  for (const FoundModel& model : models_on_disk(settings_)) names.push_back(model.name);
  EXPECT_THAT(names,
              ElementsAre("org/name:Q4_K_M", "llama3.2:1b", "llama3.2:latest", "user/own:latest"));
}

TEST_F(Folders, OllamaListsOfManifests) {
  ollama_blob_file("GGUF");
  const auto list = [&](const json& entries) {
    return json{{"mediaType", "application/vnd.ollama.manifest.list.v2+json"},
                {"manifests", entries}};
  };
  json inner = layers();
  inner["runner"] = "ollama";
  ollama_manifest("registry.ollama.ai/library/a/latest",
                  list({{{"runner", "mlx"}, {"layers", json::array()}}, inner}));
  EXPECT_THAT(where("a"), HasSubstr("blobs/sha256-"));
  const std::string other(64, 'e');
  write(settings_.ollama[0] / "blobs" / ("sha256-" + other), layers().dump());
  write(settings_.ollama[0] / "manifests-v2" / "registry.ollama.ai/library/b/latest",
        list({{{"runner", "llamacpp"}, {"digest", "sha256:" + other}}}).dump());
  EXPECT_THAT(where("b"), HasSubstr("blobs/sha256-" + kDigest));
  ollama_manifest("registry.ollama.ai/library/c/latest",
                  list({{{"runner", "mlx"}, {"layers", json::array()}}}));
  EXPECT_THAT(where("c"), HasSubstr("none of its variants is a GGUF model"));
}

TEST_F(Folders, HostileManifests) {
  const std::string model = R"("mediaType": "application/vnd.ollama.image.model", "digest": )";
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"layers": {}})"),
        std::string(R"({"layers": []})"), std::string(R"({"layers": [1, null, []]})"),
        R"({"layers": [{)" + model + R"("sha256:../../../etc/passwd"}]})",
        R"({"layers": [{)" + model + "7}]}", std::string(100'000, '['),
        std::string("{\"a\":\xff}")}) {
    const auto blob = ollama_blob("/models", text, "manifest");
    ASSERT_FALSE(blob) << text.substr(0, 100);
    EXPECT_THAT(blob.error().message, HasSubstr("manifest")) << text.substr(0, 100);
  }
  json two = layers();
  two["layers"].push_back(two["layers"][1]);
  EXPECT_THAT(ollama_blob("/m", two.dump(), "x").error().message,
              HasSubstr("expected one GGUF file, got 2"));
  json adapter = layers();
  adapter["layers"].push_back(
      {{"mediaType", "application/vnd.ollama.image.adapter"}, {"digest", "sha256:" + kDigest}});
  EXPECT_EQ(ollama_blob("/m", adapter.dump(), "x").error().code, ErrorCode::kUnsupported);
  ollama_manifest("registry.ollama.ai/library/gone/latest", layers());
  EXPECT_THAT(where("gone"), HasSubstr("is missing, which"));
}

TEST_F(Folders, EverythingIsListed) {
  cache_file("m-Q4_K_M.gguf", "12");
  cache_file("fp16/config.json", "{}");
  cache_file("fp16/model.safetensors", "123");
  write(settings_.lm_studio[0] / "org" / "other" / "x.gguf", "1");
  ollama_blob_file("GGUF");
  ollama_manifest("registry.ollama.ai/library/llama3.2/1b", layers());
  std::vector<std::string> names;
  for (const FoundModel& model : models_on_disk(settings_)) {
    names.push_back(model.name);
    const auto again = find_on_disk(settings_, model.name);
    ASSERT_TRUE(again) << model.name << ": " << again.error().message;
    EXPECT_EQ(again->path, model.path) << model.name;
  }
  EXPECT_THAT(names, ElementsAre("org/name:fp16", "org/name:m-Q4_K_M.gguf", "org/other:x.gguf",
                                 "llama3.2:1b"));
}

TEST_F(Folders, AllPlacesAreNamedWhenNothingIsFound) {
  const std::string error = where("org/name");
  for (const char* place : {"/hub has no models--org--name", "/lmstudio has no org/name",
                            "/ollama has no org/name:latest"})
    EXPECT_THAT(error, HasSubstr(place));
  EXPECT_EQ(find_on_disk(settings_, "a/b/c").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock
