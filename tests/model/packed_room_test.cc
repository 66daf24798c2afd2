// Packed files stay within a bound, and nothing else is touched.
#include "model/sources/packed_room.h"

#include <gtest/gtest.h>

#include <limits>

#include "formats/packed_file.h"
#include "formats/temp_dir.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

class PackedRoom : public ::testing::Test {
 protected:
  // Made `age` hours ago.
  fs::path file(const std::string& name, int age) {
    const fs::path path = dir_ / (name + std::string(kPackedSuffix));
    EXPECT_TRUE(write_packed_file(path, {name, "form"}, std::span<const PackedPart>()));
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(age));
    return path;
  }

  TempDir dir_;
};

TEST_F(PackedRoom, RemovesTheOldestUntilTheNewOneFits) {
  const fs::path old = file("old", 3), older = file("older", 5), young = file("young", 1);
  const uint64_t each = fs::file_size(old);
  write_bytes(dir_ / "notes.packed", "not ours");
  const fs::path own = dir_ / ("own" + std::string(kPackedSuffix));
  EXPECT_TRUE(make_packed_room(dir_ / "", own, each, 4 * each));
  EXPECT_TRUE(fs::exists(older));
  EXPECT_TRUE(make_packed_room(dir_ / "", own, each, 3 * each));
  EXPECT_FALSE(fs::exists(older));
  EXPECT_TRUE(fs::exists(old));
  EXPECT_TRUE(make_packed_room(dir_ / "", own, each, each));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_FALSE(fs::exists(young));
  EXPECT_TRUE(fs::exists(dir_ / "notes.packed"));
}

TEST_F(PackedRoom, AFileThatIsMadeAnewTakesItsOwnPlace) {
  const fs::path own = file("own", 9), other = file("other", 1);
  const uint64_t each = fs::file_size(own);
  EXPECT_TRUE(make_packed_room(own.parent_path(), own, each, 2 * each));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(PackedRoom, WhatAloneTakesTooMuchRemovesNothing) {
  const fs::path other = file("other", 1);
  EXPECT_FALSE(make_packed_room(other.parent_path(), dir_ / "own.packed", 101, 100));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(PackedRoom, TheLimitIsHalfOfTheDisksRoom) {
  const fs::path path = file("one", 1);
  const uint64_t available = fs::space(path.parent_path()).available,
                 limit = packed_limit(path.parent_path());
  EXPECT_NEAR(static_cast<double>(limit), static_cast<double>(available) / 2,
              static_cast<double>(available) / 20);
  EXPECT_EQ(packed_limit("/no/such/folder"), std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace penstock
