// A blob that is being received: its bytes lie at their places in BLOB.penstock.incomplete, and BLOB.penstock.ranges says
// which of them are there, so that another run goes on where this one was stopped. The checksum is taken as the start of the
// file fills up. Only a whole and checked file gets the blob's name.
//
// One process at a time works on a blob: it holds the blob's lock.
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
  // Takes up what an earlier run received, also a plain BLOB.incomplete from the start as older hub tools leave it. Takes the
  // disk space for all of it, where the file system can. Errors: kResourceExhausted, kIo.
  static Result<PartialBlob> open(const std::filesystem::path& blob, int64_t size, Checksum checksum);

  PartialBlob(PartialBlob&& other) noexcept;
  PartialBlob& operator=(PartialBlob&&) = delete;
  ~PartialBlob();  // keeps what was received

  int64_t size() const { return size_; }
  const RangeSet& received() const { return received_; }
  bool complete() const { return received_.total() == size_; }
  bool resumed() const { return resumed_; }  // some bytes are of an earlier run

  // Errors: kResourceExhausted, kIo.
  Status write(int64_t offset, std::span<const std::byte> data);

  // Forgets all bytes.
  Status restart();

  // Takes the checksum of up to max_bytes more of what has no gap before it; true when there is no more to take.
  Result<bool> hash_some(int64_t max_bytes);

  // Removes all of it from the disk. Nothing else may be called then.
  void discard();

  // Of a complete and hashed file: compares the checksum and gives the file its name. Error: kCorruptFile when it differs,
  // which forgets all bytes; kIo.
  Status finish();

  // Writes down what is there; by itself at most once a second.
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
  int64_t n_kept_ = -1;  // received bytes when the ranges were last written down
  std::chrono::steady_clock::time_point kept_at_;
};

}  // namespace penstock
