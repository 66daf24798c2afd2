// Sets of byte ranges of a file.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

namespace penstock {

struct ByteRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

class RangeSet {
 public:
  void add(ByteRange range);  // the range may touch or overlap others
  int64_t total() const { return total_; }
  int64_t prefix() const;  // length of the prefix without gaps
  std::vector<ByteRange> ranges() const;
  std::vector<ByteRange> gaps(int64_t size) const;  // the ranges of [0, size) that are missing

 private:
  // begin -> end; ranges neither overlap nor touch
  std::map<int64_t, int64_t> ranges_;
  int64_t total_ = 0;
};

}  // namespace penstock
