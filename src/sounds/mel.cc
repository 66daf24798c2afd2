#include "sounds/mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unsupported/Eigen/FFT>

#include "base/check.h"

namespace penstock {
namespace {

constexpr double kSlaneyKnee = 15.0;  // mel of 1 kHz, from where the scale is logarithmic

double mel_of(double hz, MelScale scale) {
  if (scale == MelScale::kHtk) return 2595.0 * std::log10(1.0 + hz / 700.0);
  return hz < 1000.0 ? 3.0 * hz / 200.0
                     : kSlaneyKnee + std::log(hz / 1000.0) * (27.0 / std::log(6.4));
}

double hz_of(double mel, MelScale scale) {
  if (scale == MelScale::kHtk) return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0);
  return mel < kSlaneyKnee ? 200.0 * mel / 3.0
                           : 1000.0 * std::exp(std::log(6.4) / 27.0 * (mel - kSlaneyKnee));
}

// Corners of all triangles: band b rises from corner b to b + 1 and falls to b + 2.
std::vector<double> corners_of(const MelSettings& s) {
  const double low = mel_of(s.least_hz, s.scale), high = mel_of(s.most_hz, s.scale);
  const int last = s.n_bands + 1;
  std::vector<double> corners;
  for (int i = 0; i <= last; ++i) corners.push_back(hz_of(low + (high - low) * i / last, s.scale));
  return corners;
}

}  // namespace

std::vector<double> hann_window(int size) {
  std::vector<double> window(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i)
    window[static_cast<size_t>(i)] = 0.5 - 0.5 * std::cos(2.0 * std::numbers::pi * i / size);
  return window;
}

struct MelSpectrum::Transform {
  Eigen::FFT<double> fft;
  std::vector<double> samples, powers;
  std::vector<std::complex<double>> spectrum;
};

MelSpectrum::MelSpectrum(const MelSettings& settings)
    : settings_(settings), transform_(std::make_unique<Transform>()) {
  PENSTOCK_CHECK(settings.n_fft > 1 && settings.n_fft % 2 == 0 && settings.n_bands > 0);
  transform_->fft.SetFlag(Eigen::FFT<double>::HalfSpectrum);
  const int n_bins = settings.n_fft / 2 + 1;
  transform_->samples.resize(static_cast<size_t>(settings.n_fft));
  transform_->spectrum.resize(static_cast<size_t>(n_bins));
  transform_->powers.resize(static_cast<size_t>(n_bins));
  const std::vector<double> corners = corners_of(settings);
  for (size_t b = 0; b + 2 < corners.size(); ++b) {
    const double left = corners[b], middle = corners[b + 1], right = corners[b + 2];
    Band& band = bands_.emplace_back();
    for (int i = 0; i < n_bins; ++i) {
      const double hz = static_cast<double>(settings.rate) * i / settings.n_fft;
      double weight = std::min((hz - left) / (middle - left), (right - hz) / (right - middle));
      if (!(weight > 0)) continue;
      if (settings.scale == MelScale::kSlaney) weight *= 2.0 / (right - left);
      if (band.weights.empty()) band.first = i;
      band.weights.push_back(weight);
    }
  }
}

MelSpectrum::~MelSpectrum() = default;

void MelSpectrum::of(std::span<const double> frame, std::span<double> bands) {
  Transform& t = *transform_;
  PENSTOCK_CHECK(frame.size() <= t.samples.size() && bands.size() == bands_.size());
  std::ranges::copy(frame, t.samples.begin());
  std::fill(t.samples.begin() + static_cast<ptrdiff_t>(frame.size()), t.samples.end(), 0.0);
  t.fft.fwd(t.spectrum.data(), t.samples.data(), settings_.n_fft);
  for (size_t i = 0; i < t.powers.size(); ++i)
    t.powers[i] = settings_.squared ? std::norm(t.spectrum[i]) : std::abs(t.spectrum[i]);
  for (size_t b = 0; b < bands_.size(); ++b) {
    double sum = 0;
    const double* power = t.powers.data() + bands_[b].first;
    for (const double weight : bands_[b].weights) sum += weight * *power++;
    bands[b] = sum;
  }
}

}  // namespace penstock
