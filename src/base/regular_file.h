// Regular files that are read: the one way to open a path that a person, a file or a client named.
//
// Opening never waits. What is no regular file (a FIFO without a writer, a terminal, a socket, a directory) is refused
// before it is opened: some devices do something when they are.
#pragma once
#include <array>
#include <cstddef>
#include <filesystem>
#include <istream>
#include <streambuf>
#include <string>
#include <utility>

#include "base/result.h"

namespace penstock {

// A descriptor, closed at the end. -1: none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number = -1) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor();
  int number() const { return number_; }

 private:
  int number_;
};

// For reading. Errors: kNotFound; kIo, which says what the path is instead.
Result<FileDescriptor> open_regular_file(const std::filesystem::path& path);
// Whether open_regular_file() would refuse it. For files that a library opens by their names.
Status check_regular_file(const std::filesystem::path& path);
// The whole content. Errors: of open_regular_file(); kCorruptFile, longer than max_bytes.
Result<std::string> read_regular_file(const std::filesystem::path& path, size_t max_bytes);

// A regular file as a stream, for what is read piece by piece. It can seek from the beginning. Not thread-safe.
class FileStream : public std::istream {
 public:
  explicit FileStream(FileDescriptor file) : std::istream(nullptr), buffer_(std::move(file)) {
    rdbuf(&buffer_);
  }

 private:
  class Buffer : public std::streambuf {
   public:
    explicit Buffer(FileDescriptor file) : file_(std::move(file)) {}

   protected:
    int_type underflow() override;
    pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode which) override;
    pos_type seekpos(pos_type place, std::ios_base::openmode which) override;

   private:
    FileDescriptor file_;
    off_type end_ = 0;  // place in the file behind what bytes_ holds
    std::array<char, 64 * 1024> bytes_;
  };
  Buffer buffer_;
};

}  // namespace penstock
