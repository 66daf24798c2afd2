#include "base/background_read.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/mapped_file.h"

namespace penstock {
namespace {

size_t n_pages_in_memory(std::span<const std::byte> bytes) {
  std::vector<unsigned char> there(bytes.size() / static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), there.data()), 0);
  size_t n = 0;
  for (const unsigned char each : there) n += each & 1u;
  return n;
}

class BackgroundReadTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{16} << 20;
  // In the build's folder: what lies in memory only could not be dropped.
  const std::filesystem::path path_ = "background_read_" + std::to_string(getpid());

  // Mapped, and but for its last pages on disk only; empty where the file system keeps it in
  // memory, or where nothing is read ahead, as in an emulator of programs.
  MappedFile on_disk() const {
    std::ofstream(path_, std::ios::binary) << std::string(kBytes, 'x');
    const int file = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(fsync(file), 0);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
    MappedFile map = MappedFile::open(path_).value();
    if (n_pages_in_memory(map.bytes()) > 0) return {};
    read_missing(map.bytes().last(1));
    for (int i = 0; i < 2000 && n_pages_in_memory(map.bytes()) == 0; ++i) usleep(1000);
    return n_pages_in_memory(map.bytes()) > 0 ? std::move(map) : MappedFile();
  }
  void TearDown() override { std::filesystem::remove(path_); }
};

TEST_F(BackgroundReadTest, BringsItsPartsIntoMemoryAndNoMore) {
  MappedFile map = on_disk();
  if (map.bytes().empty()) GTEST_SKIP() << "this system drops or reads ahead nothing";
  const std::vector<std::byte> no_file(100);
  const auto first = map.bytes().first(kBytes / 4), last = map.bytes().last(kBytes / 4);
  const size_t wanted = kBytes / 2 / static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const BackgroundRead reading({first, no_file, last});
  const auto there = [&] { return n_pages_in_memory(first) + n_pages_in_memory(last); };
  for (int i = 0; i < 10000 && there() < wanted; ++i) usleep(1000);
  EXPECT_EQ(there(), wanted);
  // What the system adds on its own at the ends is far less than the half between.
  EXPECT_LT(n_pages_in_memory(map.bytes().subspan(kBytes / 4, kBytes / 2)), wanted / 4);
}

TEST_F(BackgroundReadTest, EndsBeforeItsFileIsGone) {
  MappedFile map = on_disk();
  if (map.bytes().empty()) GTEST_SKIP() << "this system drops or reads ahead nothing";
  BackgroundRead reading({map.bytes()});
  map = MappedFile();  // still mapped for the thread
  reading = BackgroundRead();
}

}  // namespace
}  // namespace penstock
