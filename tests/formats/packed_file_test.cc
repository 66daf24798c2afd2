// Files of packed weights: what is written is read back; anything else is an error, never a crash.
#include "formats/packed_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "base/checksum.h"
#include "formats/packed_head.h"
#include "formats/temp_dir.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::string content(size_t n, int seed) {
  std::string text(n, '\0');
  for (size_t i = 0; i < n; ++i)
    text[i] = static_cast<char>((i * 31 + i / 97) * static_cast<size_t>(seed) + 5);
  return text;
}

struct Parts {
  std::vector<std::string> contents;
  std::vector<PackedPart> parts;
};
// Sizes around those of pages and chunks.
Parts some_parts(int seed) {
  static const char* const kNames[] = {"none", "one", "page", "chunk", "many", "last"};
  Parts result;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{4096}, PackedFile::kChunk,
                         PackedFile::kChunk + 70001, size_t{65}})
    result.contents.push_back(content(n, seed));
  for (size_t i = 0; i < result.contents.size(); ++i)
    result.parts.push_back(
        {kNames[i], kNames[5 - i], std::as_bytes(std::span(result.contents[i]))});
  return result;
}

const PackedOrigin kOrigin = {"/models/a.gguf\nsecond line\n", "cpu panels 1\n"};

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Reads all that an accepted file offers.
bool whole(const PackedFile& file) {
  bool good = true;
  for (int i = 0; i < file.n_chunks(); ++i) good = file.check_chunk(i) && good;
  uint64_t sum = 0;
  for (const PackedPart& part : file.parts())
    sum += checksum64(part.bytes) + part.description.size();
  return good && sum != 1;
}

// The head's checksum made right again, as only someone who means harm would.
void sign(std::string& file) {
  PackedHead head;
  std::memcpy(&head, file.data(), sizeof head);
  if (head.head_bytes < sizeof head || head.head_bytes > file.size()) return;
  const uint64_t sum = checksum64(bytes_of(file).first(head.head_bytes).subspan(kPackedSumEnd));
  std::memcpy(file.data() + offsetof(PackedHead, checksum), &sum, sizeof sum);
}

std::string small_file(const TempDir& dir) {
  const std::string a = content(100, 3), b = content(5000, 7);
  const std::vector<PackedPart> parts = {{"a", "x", bytes_of(a)}, {"bb", "", bytes_of(b)}};
  EXPECT_TRUE(write_packed_file(dir / "small.packed", kOrigin, parts));
  return read_all(dir / "small.packed");
}

TEST(PackedFile, RoundTrip) {
  TempDir dir;
  const Parts parts = some_parts(3);
  ASSERT_TRUE(write_packed_file(dir / "f.packed", kOrigin, parts.parts));
  const auto file = PackedFile::open(dir / "f.packed");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->origin(), kOrigin);
  EXPECT_EQ(PackedFile::read_origin(dir / "f.packed").value(), kOrigin);
  ASSERT_EQ(file->parts().size(), parts.parts.size());
  EXPECT_TRUE(whole(*file));
  for (size_t i = 0; i < parts.parts.size(); ++i) {
    const PackedPart* part = file->find(parts.parts[i].name);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->description, parts.parts[i].description);
    EXPECT_TRUE(std::ranges::equal(part->bytes, parts.parts[i].bytes)) << part->name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(part->bytes.data()) % 64, 0u);
  }
  EXPECT_EQ(file->find("other"), nullptr);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);  // no temporary file is left
}

TEST(PackedFile, NoParts) {
  TempDir dir;
  ASSERT_TRUE(write_packed_file(dir / "f.packed", {}, std::span<const PackedPart>()));
  const auto file = PackedFile::open(dir / "f.packed");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->parts().empty());
  EXPECT_TRUE(whole(*file));
}

// The first chunk is the head's alone; the second has the head's end and the first parts.
TEST(PackedFile, HeadLongerThanAChunk) {
  TempDir dir;
  Parts parts = some_parts(5);
  const std::string description = content(PackedFile::kChunk + 12345, 9);
  parts.parts[1].description = description;
  ASSERT_TRUE(write_packed_file(dir / "f.packed", kOrigin, parts.parts));
  const auto file = PackedFile::open(dir / "f.packed");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(whole(*file));
  for (const PackedPart& part : parts.parts) {
    ASSERT_NE(file->find(part.name), nullptr);
    EXPECT_EQ(file->find(part.name)->description, part.description);
    EXPECT_TRUE(std::ranges::equal(file->find(part.name)->bytes, part.bytes)) << part.name;
  }
  std::string damaged = read_all(dir / "f.packed");
  damaged.back() ^= 1;  // filler of the last part, which has a checksum too
  const auto parsed = PackedFile::parse(bytes_of(damaged), "t");
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(whole(*parsed));
}

TEST(PackedFile, EveryTruncationIsAnError) {
  TempDir dir;
  const std::string file = small_file(dir);
  for (size_t n = 0; n < file.size(); n += n < 1024 ? 1 : 61) {
    const std::string part = file.substr(0, n);
    EXPECT_FALSE(PackedFile::parse(bytes_of(part), "t")) << n;
  }
  EXPECT_FALSE(PackedFile::parse(bytes_of(file + "x"), "t"));
  EXPECT_EQ(PackedFile::open(dir / "missing").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(PackedFile::open(dir.path()));
}

TEST(PackedFile, EveryFlippedBitIsSeen) {
  TempDir dir;
  std::string file = small_file(dir);
  PackedHead head;
  std::memcpy(&head, file.data(), sizeof head);
  const size_t data_begin = (head.head_bytes + PackedFile::kAlignment - 1) /
                            PackedFile::kAlignment * PackedFile::kAlignment;
  for (size_t i = 0; i < file.size(); i += i < head.head_bytes || i >= data_begin ? 1 : 64) {
    const char bit = static_cast<char>(1 << i % 8);
    file[i] ^= bit;
    const auto parsed = PackedFile::parse(bytes_of(file), "t");
    const bool filler = i >= head.head_bytes && i < data_begin;  // which nobody reads
    EXPECT_EQ(parsed && whole(*parsed), filler) << "byte " << i;
    file[i] ^= bit;
  }
}

// Heads with any one field wrong and the checksum right: an error, or parts within the file.
TEST(PackedFile, ForgedHeads) {
  TempDir dir;
  const std::string file = small_file(dir);
  PackedHead head;
  std::memcpy(&head, file.data(), sizeof head);
  int accepted = 0;
  for (size_t at = sizeof(PackedHead) - 24; at + 8 <= head.head_bytes; ++at) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, uint64_t{63}, uint64_t{1} << 31, uint64_t{1} << 62,
          ~uint64_t{0}, ~uint64_t{63}, uint64_t{file.size()}, uint64_t{file.size() + 64},
          uint64_t{4096}}) {
      std::string forged = file;
      std::memcpy(forged.data() + at, &value, sizeof value);
      sign(forged);
      const auto parsed = PackedFile::parse(bytes_of(forged), "t");
      accepted += parsed && (whole(*parsed) || true) ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 0);  // changed texts and sums: the signature was right
}

TEST(PackedFile, FullDisk) {
  const int fd = open("/dev/full", O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const Parts parts = some_parts(3);
  const Status status = write_packed_parts(fd, "/dev/full", kOrigin, parts_to_write(parts.parts));
  close(fd);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(status.error().message.find("No space left"), std::string::npos)
      << status.error().message;
}

TEST(PackedFile, LimitOnFileSizes) {
  TempDir dir;
  rlimit limit = {};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small = {1 << 20, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write_packed_file(dir / "f.packed", kOrigin, some_parts(3).parts);
  setrlimit(RLIMIT_FSIZE, &limit);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(PackedFile, FolderThatIsNone) {
  TempDir dir;
  write_bytes(dir / "file", "x");
  const Parts parts = some_parts(3);
  EXPECT_EQ(write_packed_file(dir / "file" / "f.packed", kOrigin, parts.parts).error().code,
            ErrorCode::kIo);
  EXPECT_EQ(write_packed_file(dir / "missing" / "f.packed", kOrigin, parts.parts).error().code,
            ErrorCode::kIo);
}

TEST(PackedFile, WritersAtOnce) {
  TempDir dir;
  const Parts first = some_parts(1);
  ASSERT_TRUE(write_packed_file(dir / "f.packed", {"1", ""}, first.parts));
  std::vector<std::thread> writers;
  for (int seed = 2; seed <= 4; ++seed) {
    writers.emplace_back([&dir, seed] {
      const Parts parts = some_parts(seed);
      for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(write_packed_file(dir / "f.packed", {std::to_string(seed), ""}, parts.parts));
    });
  }
  for (int i = 0; i < 10; ++i) {
    const auto file = PackedFile::open(dir / "f.packed");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(whole(*file));
    const Parts expected = some_parts(std::stoi(file->origin().source));
    EXPECT_TRUE(std::ranges::equal(file->find("many")->bytes, expected.parts[4].bytes));
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);
}

// As ranks do that pack at the same time: each removes what is abandoned and writes a file of its
// own.
TEST(PackedFile, WhatIsBeingWrittenIsNotTakenForAbandoned) {
  TempDir dir;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&dir, writer] {
      const std::string content = "x";
      const PackedPart part{"one", "", std::as_bytes(std::span(content))};
      for (int i = 0; i < 200; ++i) {
        remove_abandoned_parts(dir.path());
        const Status status = write_packed_file(dir / (std::to_string(writer) + ".packed"), kOrigin,
                                                std::span(&part, 1));
        ASSERT_TRUE(status) << status.error().message;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
}

TEST(PackedFile, AbandonedPartsAreRemoved) {
  TempDir dir;
  for (const char* name :
       {"a.packed.aBcDeF.part", "b.packed.aBcDeF.part", "download.part", "a.packed", "other"})
    write_bytes(dir / name, "x");
  const int busy = open((dir / "b.packed.aBcDeF.part").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(busy, LOCK_EX), 0);
  remove_abandoned_parts(dir.path());
  EXPECT_FALSE(fs::exists(dir / "a.packed.aBcDeF.part"));
  EXPECT_TRUE(fs::exists(dir / "b.packed.aBcDeF.part"));
  close(busy);
  remove_abandoned_parts(dir.path());
  EXPECT_FALSE(fs::exists(dir / "b.packed.aBcDeF.part"));
  for (const char* name : {"download.part", "a.packed", "other"})
    EXPECT_TRUE(fs::exists(dir / name)) << name;
}

}  // namespace
}  // namespace penstock
