// The environment variables of the tools whose folders are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "formats/temp_dir.h"
#include "hub/settings.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kVariables[] = {"HF_ENDPOINT",
                                      "HF_HOME",
                                      "HF_HUB_CACHE",
                                      "HUGGINGFACE_HUB_CACHE",
                                      "HF_TOKEN",
                                      "HUGGING_FACE_HUB_TOKEN",
                                      "HF_TOKEN_PATH",
                                      "HF_HUB_OFFLINE",
                                      "TRANSFORMERS_OFFLINE",
                                      "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                      "XDG_CACHE_HOME",
                                      "OLLAMA_MODELS",
                                      "LLAMA_CACHE",
                                      "HF_HUB_ETAG_TIMEOUT",
                                      "HF_HUB_DOWNLOAD_TIMEOUT",
                                      "HOME"};

// A home of the test's own and none of the variables.
class Environment : public ::testing::Test {
 protected:
  Environment() {
    for (const char* name : kVariables) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? std::optional<std::string>() : value);
      unsetenv(name);
    }
    set("HOME", home_.path().string());
  }
  ~Environment() override {
    for (const auto& [name, value] : before_)
      value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  void write(const std::string& path, std::string_view text) {
    fs::create_directories((home_ / path).parent_path());
    write_bytes(home_ / path, text);
  }
  static HubSettings settings() {
    const auto result = hub_settings();
    EXPECT_TRUE(result) << result.error().message;
    return result.value_or(HubSettings());
  }

  TempDir home_;
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST_F(Environment, FoldersWithoutAnyVariable) {
  const HubSettings found = settings();
  EXPECT_EQ(found.cache, home_ / ".cache/huggingface/hub");
  EXPECT_EQ(found.endpoint, "https://huggingface.co");
  EXPECT_EQ(found.token, "");
  EXPECT_FALSE(found.offline);
  EXPECT_THAT(found.lm_studio,
              ElementsAre(home_ / ".lmstudio/models", home_ / ".cache/lm-studio/models"));
  EXPECT_EQ(found.ollama[0], home_ / ".ollama/models");
}

TEST_F(Environment, CacheFolders) {
  set("XDG_CACHE_HOME", "/x");
  EXPECT_EQ(settings().cache, "/x/huggingface/hub");
  set("HF_HOME", "~/hf");
  EXPECT_EQ(settings().cache, home_ / "hf/hub");
  set("HUGGINGFACE_HUB_CACHE", "/old");
  EXPECT_EQ(settings().cache, "/old");
  set("HF_HUB_CACHE", "$HOME/a/${HOME}/$NONE_SUCH/${NONE_SUCH}");
  EXPECT_EQ(settings().cache.string(),
            home_.path().string() + "/a/" + home_.path().string() + "/$NONE_SUCH/${NONE_SUCH}");
  set("OLLAMA_MODELS", "/o");
  EXPECT_THAT(settings().ollama, ElementsAre(fs::path("/o")));
  set("LLAMA_CACHE", "/l");
  EXPECT_THAT(settings().more_caches, ElementsAre(fs::path("/l")));
}

TEST_F(Environment, Endpoint) {
  set("HF_ENDPOINT", "http://127.0.0.1:8000/hub//");
  EXPECT_EQ(settings().endpoint, "http://127.0.0.1:8000/hub");
  for (const char* text :
       {"ftp://a", "host", "https://", "https://a b", "https://a?x", "file:///etc"}) {
    set("HF_ENDPOINT", text);
    ASSERT_FALSE(hub_settings()) << text;
    EXPECT_THAT(hub_settings().error().message, HasSubstr("HF_ENDPOINT")) << text;
  }
}

TEST_F(Environment, TokenAndItsFile) {
  write(".cache/huggingface/token", " hf_file\n");
  EXPECT_EQ(settings().token, "hf_file");
  write("elsewhere", "hf_elsewhere");
  set("HF_TOKEN_PATH", (home_ / "elsewhere").string());
  EXPECT_EQ(settings().token, "hf_elsewhere");
  set("HUGGING_FACE_HUB_TOKEN", "hf_old");
  EXPECT_EQ(settings().token, "hf_old");
  set("HF_TOKEN", " hf_new\r\n");
  EXPECT_EQ(settings().token, "hf_new");
  set("HF_TOKEN", "hf_a b");
  EXPECT_THAT(hub_settings().error().message, HasSubstr("HF_TOKEN"));
  EXPECT_THAT(hub_settings().error().message,
              ::testing::Not(HasSubstr("hf_a")));  // a message is no place for it
  set("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
  EXPECT_EQ(settings().token, "");
}

TEST_F(Environment, OfflineAndTimeouts) {
  for (const char* value : {"1", "on", "Yes", "TRUE"}) {
    set("HF_HUB_OFFLINE", value);
    EXPECT_TRUE(settings().offline) << value;
  }
  set("HF_HUB_OFFLINE", "0");
  EXPECT_FALSE(settings().offline);
  set("HF_HUB_DOWNLOAD_TIMEOUT", "3");
  EXPECT_EQ(settings().transfer_timeout.count(), 3);
  for (const char* value : {"0", "-1", "x", "99999999999999999999"}) {
    set("HF_HUB_ETAG_TIMEOUT", value);
    EXPECT_FALSE(hub_settings()) << value;
  }
}

TEST_F(Environment, LmStudioMovedItsModels) {
  write(".lmstudio-home-pointer", (home_ / "lms").string() + "\n");
  EXPECT_EQ(settings().lm_studio[0], home_ / "lms/models");
  write("lms/settings.json", R"({"downloadsFolder": "/big/models"})");
  EXPECT_EQ(settings().lm_studio[0], "/big/models");
  write("lms/settings.json", "{");
  EXPECT_EQ(settings().lm_studio[0], home_ / "lms/models");
}

}  // namespace
}  // namespace penstock
