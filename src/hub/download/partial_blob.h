// A partially downloaded blob. Received bytes are stored at their offsets in
// BLOB.penstock.incomplete, and BLOB.penstock.ranges lists the received ranges, so that a later run
// can resume. The prefix without gaps is hashed as it grows. The file gets the blob's name only
// when it is complete and its checksum is correct.
//
// REQUIRES: the process holds the blob's lock (FileLock).
#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "hub/download/digest.h"
#include "hub/download/range_set.h"

namespace penstock {

class PartialBlob {
 public:
  // Opens a blob and resumes what an earlier run received, including a BLOB.incomplete of older hub
  // tools. Reserves the disk space for the whole blob, if the file system supports it. Errors:
  // kResourceExhausted, kIo.
  static Result<PartialBlob> open(const std::filesystem::path& blob, int64_t size,
                                  Checksum checksum);

  PartialBlob(PartialBlob&& other) noexcept;
  PartialBlob& operator=(PartialBlob&&) = delete;
  ~PartialBlob();  // keeps the received bytes on disk

  int64_t size() const { return size_; }
  const RangeSet& received() const { return received_; }
  bool complete() const { return received_.total() == size_; }
  bool resumed() const { return resumed_; }  // some bytes were received by an earlier run

  // Writes received bytes. Errors: kResourceExhausted, kIo.
  Status write(int64_t offset, std::span<const std::byte> data);

  // Discards all received bytes and starts again.
  Status restart();

  // Hashes up to max_bytes more of the prefix without gaps; returns whether the prefix is fully
  // hashed.
  Result<bool> hash_some(int64_t max_bytes);

  // Removes the files from disk. REQUIRES: nothing is called afterwards.
  void discard();

  // Verifies the checksum and renames the file to the blob. REQUIRES: complete() and fully hashed.
  // Errors: kCorruptFile, when the checksum differs; all bytes are discarded then; kIo.
  Status finish();

  // Writes the list of received ranges to disk, at most once a second unless `now`.
  void keep(bool now);

 private:
  PartialBlob(std::filesystem::path blob, int64_t size, Checksum checksum);
  void read_ranges();
  Status reserve_space() const;
  std::filesystem::path with_suffix(const char* suffix) const;

  std::filesystem::path blob_;
  int64_t size_;
  Checksum checksum_;
  int fd_ = -1;
  RangeSet received_;
  std::optional<Digest> digest_;
  int64_t n_hashed_ = 0;
  bool resumed_ = false;
  // number of received bytes when the ranges were last written
  int64_t n_kept_ = -1;
  std::chrono::steady_clock::time_point kept_at_;
};

}  // namespace penstock
