// From sounds to what a tower that hears reads, as the feature extractor of a Hugging Face checkpoint
// says (preprocessor_config.json): log-mel spectra, and the tokens that stand for a sound in the
// prompt. Features equal those of transformers 5.24 in NumPy's double precision within 1e-6.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "images/image_processor.h"

namespace penstock {

// What the tower reads at once: the whole sound, or a block of it.
struct SoundView {
  std::vector<float> values;  // [n_frames, width]
  int n_frames = 0, width = 0;
  int n_positions = 0;  // of the tower's layers
};

struct SoundPlan {
  int n_soft = 0;                   // soft tokens in the prompt
  std::vector<PromptPiece> prompt;  // what replaces the placeholder
};

// A sound on its way to views, piece by piece.
class SoundSpectra {
 public:
  virtual ~SoundSpectra() = default;

  virtual bool done() const = 0;
  // Makes spectra of about a minute. REQUIRES: not done.
  virtual void advance() = 0;
  // Returns the views. REQUIRES: done.
  virtual std::vector<SoundView> take() = 0;
};

class SoundProcessor {
 public:
  virtual ~SoundProcessor() = default;

  // Samples a second that process() reads.
  virtual int rate() const = 0;
  // Says what a sound of this many samples becomes. Error: kInvalidArgument (too short,
  // longer than the model hears).
  virtual Result<SoundPlan> plan(int64_t n_samples) const = 0;
  // Begins a sound. REQUIRES: plan() takes as many samples; the processor outlives what is returned.
  virtual std::unique_ptr<SoundSpectra> begin(std::vector<float> samples) const = 0;
  // All pieces of begin().
  std::vector<SoundView> process(std::vector<float> samples) const;
  // --- Of models that hear one window of a sound after the other (Whisper)
  int window_frames() const { return window_frames_; }  // 0: of no other model
  double seconds_per_frame() const { return seconds_per_frame_; }
  // Returns [n_frames, n_bands] of a whole sound, at least a window. REQUIRES: window_frames() > 0.
  virtual std::vector<float> spectrum(std::span<const float> /*samples*/) const { return {}; }
  // Returns the window that begins with frame `first`; zeros are behind the spectrum's end.
  virtual SoundView window(std::span<const float> /*spectrum*/, int64_t /*first*/) const {
    return {};
  }

  // What the chat template writes for a sound, which SoundPlan::prompt replaces.
  virtual std::string placeholder() const = 0;
  // The token in whose places the prompt has features.
  virtual std::string soft_token() const = 0;
  // Whether prompts have it elsewhere, too (Ultravox: the end of a turn).
  virtual bool soft_token_is_text() const { return false; }

 protected:
  int window_frames_ = 0;
  double seconds_per_frame_ = 0;
};

// Makes the processor of a checkpoint; ImageProcessorFiles::image_processor is the feature extractor.
// Errors: kUnsupported (a type or a field that is not known, by name), kInvalidArgument (a value that
// is impossible).
Result<std::unique_ptr<SoundProcessor>> make_sound_processor(const ImageProcessorFiles& files);

}  // namespace penstock
