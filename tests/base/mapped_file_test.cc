#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <limits>

#include "base/file_time.h"
#include "formats/temp_dir.h"

namespace penstock {
namespace {

// Any time that a file system may tell, also one whose nanoseconds no 64 bits hold.
TEST(MappedFile, AnyTimeIsAStamp) {
  constexpr time_t kMost = std::numeric_limits<time_t>::max();
  EXPECT_EQ(nanoseconds_of({1, 2}), 1'000'000'002);
  EXPECT_NE(nanoseconds_of({kMost, 0}), nanoseconds_of({kMost - 1, 0}));
  EXPECT_NE(nanoseconds_of({std::numeric_limits<time_t>::min(), 1}),
            nanoseconds_of({std::numeric_limits<time_t>::min(), 0}));
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "file";
  std::ofstream(path) << "bytes";
  std::vector<FileStamp> stamps;
  for (const time_t seconds : {time_t{10'000'000'000}, time_t{10'000'000'001}}) {  // in 2286
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    stamps.push_back(MappedFile::open(path).value().stamp());
  }
  EXPECT_FALSE(stamps[0] == stamps[1]);
}

}  // namespace
}  // namespace penstock
