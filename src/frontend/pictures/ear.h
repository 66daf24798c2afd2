// The ear of a model that hears: what a sound becomes in the prompt, and what the tower reads of it.
//
// Thread-safe.
#pragma once
#include <memory>
#include <optional>
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
  // A sound that is decoded and becomes spectra, piece by piece.
  class Listening {
   public:
    bool done() const { return spectra_ != nullptr && spectra_->done(); }
    // Decodes some seconds, or makes spectra of a minute; the last piece of the former and the first of
    // the latter are one. REQUIRES: not done. Errors: those of SoundDecoder and SoundProcessor::plan().
    Status advance();
    // Returns what the tower reads. REQUIRES: done.
    std::vector<SoundView> take() { return spectra_->take(); }
    // The most bytes of its samples and spectra, which are no more numbers than samples.
    size_t bytes() const { return bytes_; }

   private:
    friend class Ear;
    Listening(const SoundProcessor& processor, SoundDecoder decoder)
        : processor_(&processor),
          bytes_(2 * sizeof(float) * static_cast<size_t>(decoder.n_samples())),
          decoder_(std::move(decoder)) {}

    const SoundProcessor* processor_;
    const size_t bytes_;
    std::optional<SoundDecoder> decoder_;  // until the sound is decoded
    std::unique_ptr<SoundSpectra> spectra_;
  };
  // REQUIRES: the file and the ear outlive it. Errors: those of SoundDecoder::open().
  Result<std::unique_ptr<Listening>> listen(std::span<const std::byte> file) const;

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
