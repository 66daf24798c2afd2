// MP3 files by libmpg123, with the settings of libsndfile, whose samples are the reference's. Behind
// libsndfile, libmpg123 writes notes of damaged files to standard error, for which there is no switch.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "sounds/memory_file.h"

struct mpg123_handle_struct;

namespace penstock {

class Mp3File {
 public:
  // Walks through the frames where no header says how many there are. Null: a damaged file.
  static std::unique_ptr<Mp3File> open(std::span<const std::byte> bytes);
  Mp3File(const Mp3File&) = delete;  // libmpg123 has the address of file_
  Mp3File& operator=(const Mp3File&) = delete;

  int rate() const { return rate_; }
  int channels() const { return channels_; }
  std::optional<int64_t> n_frames() const { return n_frames_; }  // nothing: not known
  // Reads up to n samples of each channel, in turn, from -1 to 1. Returns how many; 0: the end, or
  // damage.
  int64_t read(float* out, int64_t n);

 private:
  struct Close {
    void operator()(mpg123_handle_struct* handle) const;
  };

  Mp3File() = default;
  bool start();

  MemoryFile file_;
  std::unique_ptr<mpg123_handle_struct, Close> handle_;
  int rate_ = 0, channels_ = 0;
  std::optional<int64_t> n_frames_;
};

}  // namespace penstock
