// Reading of regular files: used for every path that comes from a user, a file or a client.
//
// Opening never blocks. Anything but a regular file (a FIFO without a writer, a terminal, a socket,
// a directory) is refused before it is opened, since opening has side effects on some devices.
#pragma once
#include <array>
#include <cstddef>
#include <filesystem>
#include <istream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace penstock {

// Owner of a file descriptor, which the destructor closes. -1: none.
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
  // Gives the descriptor up, for a caller that closes it.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

// Opens a file for reading. Errors: kNotFound; kIo, whose message says what the path is when it is
// not a regular file.
Result<FileDescriptor> open_regular_file(const std::filesystem::path& path);
// Returns the error with which open_regular_file() would refuse the path. For files that a library
// opens by name.
Status check_regular_file(const std::filesystem::path& path);
// Reads the whole file. Errors: those of open_regular_file(); kCorruptFile when it is longer than
// max_bytes.
Result<std::string> read_regular_file(const std::filesystem::path& path, size_t max_bytes);
// Creates a file for writing that nobody else has open. A regular file of that name, which an earlier run
// left, is removed (not written into: it may have another name too); anything else is refused, a symbolic
// link above all. For temporary files that are renamed when they are whole. Errors: kIo;
// kResourceExhausted.
Result<FileDescriptor> create_fresh_file(const std::filesystem::path& path);
// Whether the path is a regular file that is empty or begins with `magic`: an earlier output of the kind
// that magic tells, which a new one may replace.
bool begins_with(const std::filesystem::path& path, std::string_view magic);

// A regular file as a stream, to be read piece by piece. It can seek to offsets from the start. Not
// thread-safe.
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
    pos_type seekoff(off_type offset, std::ios_base::seekdir from,
                     std::ios_base::openmode which) override;
    pos_type seekpos(pos_type place, std::ios_base::openmode which) override;

   private:
    FileDescriptor file_;
    // file offset of the end of the content of bytes_
    off_type end_ = 0;
    std::array<char, 64 * 1024> bytes_;
  };
  Buffer buffer_;
};

}  // namespace penstock
