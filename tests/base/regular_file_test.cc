#include "base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RegularFileTest : public testing::Test {
 protected:
  RegularFileTest() { fs::create_directories(folder_); }
  ~RegularFileTest() override { fs::remove_all(folder_); }

  fs::path write(const char* name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  fs::path fifo() const {
    EXPECT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
    return folder_ / "fifo";
  }
  fs::path socket_file() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const fs::path path = folder_ / "socket";
    path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    const int number = ::socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(bind(number, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    close(number);
    return path;
  }
  const fs::path folder_ = fs::temp_directory_path() / ("regular_file_" + std::to_string(getpid()));
};

TEST_F(RegularFileTest, Beginnings) {
  EXPECT_TRUE(begins_with(write("a", "GGUF and more"), "GGUF"));
  EXPECT_TRUE(begins_with(write("b", ""), "GGUF"));
  EXPECT_FALSE(begins_with(write("c", "GGU"), "GGUF"));
  EXPECT_FALSE(begins_with(write("d", "my notes"), "GGUF"));
  EXPECT_FALSE(begins_with(folder_ / "nothing", "GGUF"));
  EXPECT_FALSE(begins_with(fifo(), "GGUF"));
}

// Every way to read: none waits, and each says what is there.
TEST_F(RegularFileTest, OtherThanFilesAreRefusedAtOnce) {
  const std::pair<fs::path, const char*> others[] = {{fifo(), "a FIFO"},
                                                     {socket_file(), "a socket"},
                                                     {folder_, "a directory"},
                                                     {"/dev/zero", "a device"},
                                                     {"/dev/null", "a device"}};
  for (const auto& [path, kind] : others) {
    for (const Error& error :
         {open_regular_file(path).error(), check_regular_file(path).error(),
          read_regular_file(path, 100).error(), MappedFile::open(path).error()}) {
      EXPECT_EQ(error.code, ErrorCode::kIo);
      EXPECT_THAT(error.message,
                  HasSubstr(path.string() + ": expected a regular file, got " + kind));
    }
  }
}

TEST_F(RegularFileTest, LinksAreFollowedToWhatTheyAre) {
  fs::create_symlink(write("file", "content"), folder_ / "link");
  fs::create_symlink(fifo(), folder_ / "bad");
  EXPECT_EQ(read_regular_file(folder_ / "link", 100).value(), "content");
  EXPECT_THAT(read_regular_file(folder_ / "bad", 100).error().message, HasSubstr("got a FIFO"));
}

TEST_F(RegularFileTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(open_regular_file(folder_ / "none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(open_regular_file(write("file", "") / "below").error().code, ErrorCode::kNotFound);
}

TEST_F(RegularFileTest, ReadsUpToTheBound) {
  for (const size_t n : {0, 1, 65535, 65536, 65537, 200000}) {
    const std::string content(n, 'x');
    const fs::path path = write("file", content);
    EXPECT_EQ(read_regular_file(path, n).value(), content);
    EXPECT_EQ(read_regular_file(path, n + 1).value(), content);
    if (n == 0) continue;
    const Error error = read_regular_file(path, n - 1).error();
    EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
    EXPECT_THAT(error.message, HasSubstr("expected at most " + std::to_string(n - 1) +
                                         " bytes, got " + std::to_string(n)));
  }
}

// The system's own files say that they have no bytes.
TEST_F(RegularFileTest, ReadsWhatIsThereWhateverItsSizeSays) {
  EXPECT_THAT(read_regular_file("/proc/self/status", 1 << 20).value(), HasSubstr("Name:"));
  EXPECT_EQ(read_regular_file("/proc/self/status", 10).error().code, ErrorCode::kCorruptFile);
}

TEST_F(RegularFileTest, StreamsReadAndSeek) {
  std::string content;
  while (content.size() < 200000) content += std::to_string(content.size()) + "\n";
  FileStream in(open_regular_file(write("file", content)).value());
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  EXPECT_EQ(line, "0");
  const auto place = in.tellg();
  EXPECT_EQ(place, 2);
  std::string rest(content.size() - 2, '\0');
  ASSERT_TRUE(in.read(rest.data(), static_cast<std::streamsize>(rest.size())));
  EXPECT_EQ(rest, content.substr(2));
  EXPECT_EQ(in.tellg(), static_cast<std::streamoff>(content.size()));
  EXPECT_EQ(in.peek(), std::istream::traits_type::eof());
  in.clear();
  in.seekg(place);
  ASSERT_TRUE(std::getline(in, line));
  EXPECT_EQ(line, "2");
}

std::string content_of(const fs::path& path) { return read_regular_file(path, 1 << 20).value(); }

// What lies under the name of a temporary file is never written into.
TEST_F(RegularFileTest, FreshFilesAreNobodyElses) {
  const fs::path place = folder_ / "out.partial";
  const auto write_fresh = [&](const std::string& text) {
    const auto file = create_fresh_file(place);
    return file && ::write(file->number(), text.data(), text.size()) == ssize_t(text.size());
  };
  EXPECT_TRUE(write_fresh("new"));
  EXPECT_EQ(content_of(place), "new");
  // what an earlier run left goes, and what has its bytes under another name stays
  fs::create_hard_link(place, folder_ / "other");
  EXPECT_TRUE(write_fresh("newest"));
  EXPECT_EQ(content_of(place), "newest");
  EXPECT_EQ(content_of(folder_ / "other"), "new");
  fs::remove(place);
  for (const char* target : {"other", "none"}) {
    fs::create_symlink(folder_ / target, place);
    const auto refused = create_fresh_file(place);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kIo);
    EXPECT_THAT(refused.error().message, HasSubstr("got a symbolic link"));
    fs::remove(place);
  }
  EXPECT_EQ(content_of(folder_ / "other"), "new");
  EXPECT_FALSE(fs::exists(folder_ / "none"));
  fs::create_directory(place);
  EXPECT_THAT(create_fresh_file(place).error().message, HasSubstr("got a directory"));
  EXPECT_EQ(create_fresh_file(folder_ / "no" / "place").error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace penstock
