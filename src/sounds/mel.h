// Mel spectra: what of a sound lies in each of some bands of frequencies, frame by frame. Computed in
// double precision, as transformers' audio_utils does with NumPy.
#pragma once
#include <complex>
#include <memory>
#include <span>
#include <vector>

namespace penstock {

enum class MelScale {
  kSlaney,  // linear to 1 kHz, then logarithmic; bands have equal areas (librosa, Whisper)
  kHtk,     // 2595 log10(1 + f / 700); bands have equal heights (torchaudio, Gemma)
};

struct MelSettings {
  int rate = 16000;  // samples a second
  int n_fft = 400;   // even; samples of a transform
  int n_bands = 80;
  double least_hz = 0, most_hz = 8000;
  MelScale scale = MelScale::kSlaney;
  bool squared = true;  // bands sum powers; false: magnitudes
};

// Hann's window for frames that follow each other ("periodic").
std::vector<double> hann_window(int size);

class MelSpectrum {
 public:
  explicit MelSpectrum(const MelSettings& settings);
  ~MelSpectrum();

  // frame: at most n_fft samples, windowed; zeros are added behind. Writes [n_bands].
  void of(std::span<const double> frame, std::span<double> bands);

 private:
  // The weights of one band: of neighbouring frequencies from `first` on.
  struct Band {
    int first = 0;
    std::vector<double> weights;
  };
  struct Transform;

  const MelSettings settings_;
  std::vector<Band> bands_;
  const std::unique_ptr<Transform> transform_;
};

}  // namespace penstock
