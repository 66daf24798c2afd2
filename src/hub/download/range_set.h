// Which bytes of a file are there.
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
  void add(ByteRange range);  // may touch or overlap what is there
  int64_t total() const { return total_; }
  int64_t prefix() const;  // bytes from the start of the file without a gap
  std::vector<ByteRange> ranges() const;
  std::vector<ByteRange> gaps(int64_t size) const;  // what [0, size) lacks

 private:
  std::map<int64_t, int64_t> ranges_;  // begin -> end, apart from each other
  int64_t total_ = 0;
};

}  // namespace penstock
