#include "sounds/resampler.h"

#include <soxr.h>

#include <cmath>

namespace penstock {

void Resampler::Close::operator()(soxr* handle) const { soxr_delete(handle); }

Result<Resampler> Resampler::open(int from, int to) {
  Resampler resampler;
  if (from == to) return resampler;
  soxr_error_t error = nullptr;
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  resampler.ratio_ = static_cast<double>(to) / from;
  resampler.handle_.reset(soxr_create(from, to, 1, &error, &io, &quality, &runtime));
  if (error == nullptr && resampler.handle_ != nullptr) return resampler;
  return errorf(ErrorCode::kInvalidArgument, "sound: {} to {} samples a second: soxr: {}", from, to,
                error == nullptr ? "no memory" : error);
}

Status Resampler::process(const float* samples, size_t n, std::vector<float>& out) {
  constexpr size_t kPiece = 4096;
  size_t used = 0;
  while (true) {
    const size_t before = out.size();
    out.resize(before + kPiece);
    size_t taken = 0, made = 0;
    const soxr_error_t error =
        soxr_process(handle_.get(), samples == nullptr ? nullptr : samples + used,
                     samples == nullptr ? 0 : n - used, &taken, out.data() + before, kPiece, &made);
    out.resize(before + made);
    if (error != nullptr) return errorf(ErrorCode::kResourceExhausted, "sound: soxr: {}", error);
    used += taken;
    if (made < kPiece && used == n) return {};
  }
}

Status Resampler::add(std::span<const float> samples, std::vector<float>& out) {
  if (handle_ != nullptr) return process(samples.data(), samples.size(), out);
  out.insert(out.end(), samples.begin(), samples.end());
  return {};
}

Status Resampler::finish(std::vector<float>& out) {
  if (handle_ == nullptr) return {};
  return process(nullptr, 0, out);
}

}  // namespace penstock
