#include "server/services/adapter_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "server/routing/client_reason.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

class AdapterFoldersTest : public testing::Test {
 protected:
  AdapterFoldersTest() {
    for (const char* folder : {"loras/good", "loras/half", "loras-not", "outside"})
      fs::create_directories(folder_ / folder);
    for (const char* file : {"loras/good/a", "loras/half/a", "loras/one.gguf", "outside/a"})
      std::ofstream(folder_ / file) << "x";
    fs::create_symlink(folder_ / "outside" / "a", folder_ / "loras" / "half" / "b");
    fs::create_symlink(folder_ / "outside", folder_ / "loras" / "link");
    fs::create_symlink(folder_ / "loras" / "good", folder_ / "inward");
    folders_ = AdapterFolders::open({(folder_ / "loras").string()}).value();
  }
  ~AdapterFoldersTest() override { fs::remove_all(folder_); }

  // The real path below the test's folder; "outside", or "absent".
  std::string found(const std::string& path) const {
    const auto result = folders_.find(path);
    if (!result) return result.error().code == ErrorCode::kNotFound ? "absent" : "?";
    return *result ? fs::relative(**result, folder_).string() : "outside";
  }

  const fs::path folder_ =
      fs::canonical(fs::temp_directory_path()) / ("adapter_folders_" + std::to_string(getpid()));
  AdapterFolders folders_;
};

TEST_F(AdapterFoldersTest, WhatLiesInOneIsFoundHoweverItIsNamed) {
  for (const std::string& path :
       {(folder_ / "loras/good").string(), std::string("good"), std::string("./good/"),
        (folder_ / "loras/../loras/good").string(), (folder_ / "inward").string()})
    EXPECT_EQ(found(path), "loras/good") << path;
  EXPECT_EQ(found("one.gguf"), "loras/one.gguf");
  EXPECT_EQ(found("none"), "absent");
  EXPECT_EQ(found((folder_ / "loras/good/none").string()), "absent");
}

TEST_F(AdapterFoldersTest, NothingLeadsOut) {
  for (const char* path : {"../outside", "../loras-not", "link", "link/a", "link/none", "half",
                           "..", "/", "/etc/passwd", "/none", "good/../../outside"})
    EXPECT_EQ(found(path), "outside") << path;
  EXPECT_EQ(found((folder_ / "loras-not").string()), "outside");
  EXPECT_EQ(AdapterFolders().find("good").value(), std::nullopt);
}

TEST_F(AdapterFoldersTest, AFolderIsThere) {
  for (const char* path : {"none", "loras/one.gguf"})
    EXPECT_EQ(AdapterFolders::open({(folder_ / path).string()}).error().code, ErrorCode::kNotFound)
        << path;
}

TEST(ClientReason, PathsHaveNoFolders) {
  EXPECT_EQ(without_folders("/srv/models/a.gguf: expected a, got 1/2 of b"),
            "a.gguf: expected a, got 1/2 of b");
  EXPECT_EQ(without_folders("x (/a/b/c/), \"/d/e\" and /f"), "x (c/), \"e\" and /f");
  EXPECT_EQ(without_folders("relative/path stays, and / too"), "relative/path stays, and / too");
  EXPECT_EQ(without_folders(""), "");
  EXPECT_EQ(without_folders(" a: "), " a: ");
}

}  // namespace
}  // namespace penstock
