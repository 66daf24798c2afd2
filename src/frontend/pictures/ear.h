// The ear of a model that hears: what a sound becomes in the prompt, and what the tower reads of it.
//
// Thread-safe.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sounds/sound.h"
#include "sounds/sound_processor.h"

namespace penstock {

class Ear {
 public:
  // Errors: those of make_sound_processor().
  static Result<std::unique_ptr<Ear>> open(const ImageProcessorFiles& files,
                                           const SoundLimits& limits);

  std::string placeholder() const { return processor_->placeholder(); }
  std::string soft_token() const { return processor_->soft_token(); }
  bool soft_token_is_text() const { return processor_->soft_token_is_text(); }
  // Reads the header of a sound. Errors: those of read_sound_info() and SoundProcessor::plan().
  Result<ImagePlan> plan(std::span<const std::byte> file) const;
  // Decodes a sound and makes its spectra. Errors: those of decode_sound(), and what `goes_on`, which
  // is asked meanwhile, returns.
  Result<std::vector<SoundView>> hear(std::span<const std::byte> file,
                                      const std::function<Status()>& goes_on) const;

  // --- Of models that hear windows; REQUIRES: hears_windows().
  bool hears_windows() const { return processor_->window_frames() > 0; }
  int window_frames() const { return processor_->window_frames(); }
  double seconds_per_frame() const { return processor_->seconds_per_frame(); }
  // Spectrum [n_frames, n_bands] of a whole sound.
  struct Spectrum {
    std::vector<float> values;
    int64_t n_frames = 0;
    double seconds = 0;  // of the sound
  };
  // Decodes a sound; calls give_way() meanwhile. Errors: those of decode_sound().
  Result<Spectrum> spectrum(std::span<const std::byte> file) const;
  // Returns the most bytes that spectrum() takes. Errors: those of read_sound_info().
  Result<int64_t> spectrum_bytes(std::span<const std::byte> file) const;
  SoundView window(const Spectrum& spectrum, int64_t first) const {
    return processor_->window(spectrum.values, first);
  }

 private:
  Ear(std::unique_ptr<SoundProcessor> processor, const SoundLimits& limits)
      : processor_(std::move(processor)), limits_(limits) {}

  const std::unique_ptr<SoundProcessor> processor_;
  const SoundLimits limits_;
};

}  // namespace penstock
