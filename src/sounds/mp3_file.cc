#include "sounds/mp3_file.h"

#include <mpg123.h>

namespace penstock {
namespace {

ssize_t read_from(void* user, void* to, size_t n) {
  return static_cast<ssize_t>(static_cast<MemoryFile*>(user)->read(to, static_cast<int64_t>(n)));
}

off_t seek_in(void* user, off_t offset, int whence) {
  return static_cast<MemoryFile*>(user)->seek(offset, whence);
}

}  // namespace

void Mp3File::Close::operator()(mpg123_handle* handle) const {
  mpg123_close(handle);
  mpg123_delete(handle);
}

std::unique_ptr<Mp3File> Mp3File::open(std::span<const std::byte> bytes) {
  static const bool ready = mpg123_init() == MPG123_OK;
  if (!ready) return nullptr;
  std::unique_ptr<Mp3File> mp3(new Mp3File);
  mp3->file_.bytes = bytes;
  return mp3->start() ? std::move(mp3) : nullptr;
}

bool Mp3File::start() {
  handle_.reset(mpg123_new(nullptr, nullptr));
  mpg123_handle* const handle = handle_.get();
  if (handle == nullptr) return false;
  constexpr long kFlags =
      MPG123_FORCE_FLOAT | MPG123_GAPLESS | MPG123_NO_FRANKENSTEIN | MPG123_QUIET;
  mpg123_replace_reader_handle(handle, read_from, seek_in, nullptr);
  mpg123_param(handle, MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0);
  mpg123_param(handle, MPG123_ADD_FLAGS, kFlags, 0);
  long rate = 0;
  int encoding = 0;
  if (mpg123_open_handle(handle, &file_) != MPG123_OK ||
      mpg123_getformat(handle, &rate, &channels_, &encoding) != MPG123_OK ||
      encoding != MPG123_ENC_FLOAT_32)
    return false;
  rate_ = static_cast<int>(rate);
  off_t length = mpg123_length(handle);
  if (length <= 0) {
    if (mpg123_scan(handle) != MPG123_OK) return false;
    length = mpg123_length(handle);
  }
  if (length >= 0) n_frames_ = length;
  return true;
}

int64_t Mp3File::read(float* out, int64_t n) {
  const size_t frame = sizeof(float) * static_cast<size_t>(channels_);
  size_t done = 0;
  const int error = mpg123_read(handle_.get(), out, static_cast<size_t>(n) * frame, &done);
  const bool good = error == MPG123_OK || error == MPG123_DONE;
  return good ? static_cast<int64_t>(done / frame) : 0;
}

}  // namespace penstock
