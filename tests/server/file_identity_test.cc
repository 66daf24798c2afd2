#include "server/services/file_identity.h"

#include <gtest/gtest.h>

#include <fstream>

#include "formats/temp_dir.h"

namespace penstock {
namespace {

TEST(FileIdentity, IsThatOfAllShards) {
  const TempDir dir;
  const auto write = [&](const char* name, const char* text) { std::ofstream(dir / name) << text; };
  write("m-00001-of-00002.gguf", "a"), write("m-00002-of-00002.gguf", "b");
  write("other.gguf", "c"), write("other-2.gguf", "d");
  const std::string first = (dir / "m-00001-of-00002.gguf").string(),
                    other = (dir / "other.gguf").string();
  const std::string before = identity_of_files(first), of_other = identity_of_files(other);
  EXPECT_FALSE(before.empty());
  write("other-2.gguf", "more");
  EXPECT_EQ(identity_of_files(first), before);
  EXPECT_EQ(identity_of_files(other), of_other);
  write("m-00002-of-00002.gguf", "longer");
  EXPECT_NE(identity_of_files(first), before);
  EXPECT_EQ(identity_of_files((dir / "none.gguf").string()), "");
}

}  // namespace
}  // namespace penstock
