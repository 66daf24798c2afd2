// What all processors with Whisper's log-mel spectra share.
#pragma once
#include "sounds/mel.h"
#include "sounds/sound_families.h"

namespace penstock {

struct WhisperSettings {
  MelSettings mel;
  int hop = 160;   // samples from frame to frame
  int shown = 0;   // samples in the middle of a frame that the window shows; 0: all
  int window = 0;  // samples of a block that the tower hears at once

  int window_frames() const { return window / hop; }
};

// Reads the feature extractor. usual_bands: where it does not say. windows: the tower hears blocks of the
// extractor's length, which config.json must agree with.
WhisperSettings read_whisper(const FamilyInputs& inputs, int usual_bands = 80, bool windows = true);

// Frames of a sound's spectrum, and the samples that they are made of: the sound is padded with silence.
struct SpectrumSize {
  int64_t n_frames = 0;
  int64_t n_samples = 0;  // 0: n_frames * hop
};

// The spectrum of a sound, frame by frame. The eighth decade below the loudest band of all is the floor.
class LogMel {
 public:
  // REQUIRES: samples outlive it.
  LogMel(const WhisperSettings& whisper, std::span<const float> samples, const SpectrumSize& size);

  bool done() const { return n_done_ == size_.n_frames; }
  // Makes so many frames, or the rest. Gives way meanwhile.
  void advance(int64_t n_frames);
  // Returns [n_frames, n_bands]. REQUIRES: done.
  std::vector<float> take();

 private:
  // Sample i, mirrored at both ends.
  double sample_at(int64_t i) const;
  void make(int64_t t);

  const std::span<const float> samples_;
  const SpectrumSize size_;
  const int hop_;
  MelSpectrum spectrum_;
  std::vector<double> window_, frame_, bands_;
  std::vector<float> out_;
  int64_t n_done_ = 0;
};

class WhisperSounds : public SoundProcessor {
 public:
  explicit WhisperSounds(WhisperSettings whisper) : whisper_(std::move(whisper)) {}

  int rate() const final { return whisper_.mel.rate; }
  std::string placeholder() const override { return soft_token_; }
  std::string soft_token() const final { return soft_token_; }
  std::unique_ptr<SoundSpectra> begin(std::vector<float> samples) const final;

 protected:
  virtual SpectrumSize spectrum_size(int64_t n_samples) const = 0;
  // Cuts the spectrum of a sound.
  virtual std::vector<SoundView> views_of(std::vector<float> frames, int64_t n_samples) const = 0;

  // Positions of the tower's layers, two frames each, from `first` on. The tower's convolutions read
  // one frame behind them; behind the last one stand zeros.
  SoundView view_of(std::span<const float> frames, int64_t first, int n_positions) const;
  // So many frames from `first` on, and zeros behind the spectrum's end.
  SoundView frames_of(std::span<const float> frames, int64_t first, int64_t n_frames,
                      int n_positions) const;
  // One run of soft tokens. Error: kInvalidArgument (none).
  Result<SoundPlan> plan_of(int64_t n_soft, int64_t n_samples) const;

  const WhisperSettings whisper_;
  std::string soft_token_;

 private:
  class Spectra;
};

}  // namespace penstock
