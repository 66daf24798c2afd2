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

// Returns [n_frames, n_bands] of a sound padded with silence to n samples (0: n_frames * hop). The eighth
// decade below the loudest band of all is the floor.
std::vector<float> log_mel(std::span<const float> samples, const WhisperSettings& whisper,
                           int64_t n_frames, int64_t n = 0);

class WhisperSounds : public SoundProcessor {
 public:
  explicit WhisperSounds(WhisperSettings whisper) : whisper_(std::move(whisper)) {}

  int rate() const final { return whisper_.mel.rate; }
  std::string placeholder() const override { return soft_token_; }
  std::string soft_token() const final { return soft_token_; }

 protected:
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
};

}  // namespace penstock
