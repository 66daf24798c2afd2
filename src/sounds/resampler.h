// Samples of one channel at another rate, piece by piece, by soxr at its quality "HQ" (librosa's).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

struct soxr;

namespace penstock {

class Resampler {
 public:
  // Rates are samples a second. Error: kInvalidArgument (rates that soxr does not take),
  // kResourceExhausted.
  static Result<Resampler> open(int from, int to);

  // Appends what the next samples become; equal rates: themselves.
  Status add(std::span<const float> samples, std::vector<float>& out);
  // Appends the rest; nothing may be added behind it.
  Status finish(std::vector<float>& out);

 private:
  struct Close {
    void operator()(soxr* handle) const;
  };
  Status process(const float* samples, size_t n, std::vector<float>& out);

  double ratio_ = 1;                     // to / from
  std::unique_ptr<soxr, Close> handle_;  // null: the rates are equal
};

}  // namespace penstock
