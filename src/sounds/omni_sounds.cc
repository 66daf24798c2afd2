// Sounds of models whose towers hear pieces of Whisper's spectra as long as the sound is: Ultravox, in
// pieces of half a minute, Qwen2.5-Omni, in windows of two seconds, and Qwen3-Omni, in chunks of a second.
#include <algorithm>

#include "sounds/whisper_sounds.h"

namespace penstock {
namespace {

// Names of image processors that lie in the same file.
void ignore_pictures(ProcessorSettings& settings) {
  settings.ignore({"crop_size", "do_center_crop", "do_normalize", "do_rescale", "do_resize",
                   "image_mean", "image_std", "max_pixels", "merge_size", "min_pixels",
                   "patch_size", "resample", "rescale_factor", "size", "temporal_patch_size"});
}

int bands_of(const FamilyInputs& inputs, int usual) {
  const int bands = inputs.config_integer({"audio_config", "num_mel_bins"});
  return bands > 0 && bands <= 1024 ? bands : usual;
}

// The published processor writes the tokenizer's end of text in the places of a sound.
class UltravoxSounds final : public WhisperSounds {
 public:
  explicit UltravoxSounds(const FamilyInputs& inputs)
      : WhisperSounds(read_whisper(inputs, bands_of(inputs, 80))) {
    ProcessorSettings& settings = inputs.settings;
    const int stacked = inputs.config_integer({"stack_factor"});
    stacked_ = stacked > 0 ? stacked : 8;
    const auto expect = [&](const char* name, int wanted) {
      if (const int got = settings.processor_integer(name, wanted, 0, 1 << 24); got != wanted)
        settings.refuse(name, std::to_string(wanted), std::to_string(got));
    };
    expect("stack_factor", stacked_);
    expect("audio_context_size", whisper_.window_frames());
    // Frames, or samples in older files, of a position.
    const int of_position = settings.processor_integer("encoder_ds_factor", 2, 1, 1 << 20);
    if (of_position != 2 && of_position != 2 * whisper_.hop)
      settings.refuse("encoder_ds_factor", "2", std::to_string(of_position));
    if (const std::string text = settings.processor_text("audio_placeholder", kPlaceholder);
        text != kPlaceholder)
      settings.refuse("audio_placeholder", kPlaceholder, text);
    soft_token_ = inputs.token("eos_token", "<|eot_id|>");
  }

  std::string placeholder() const override { return kPlaceholder; }
  bool soft_token_is_text() const override { return true; }

  Result<SoundPlan> plan(int64_t n_samples) const override {
    const int64_t window = whisper_.window_frames(), n_frames = frames_in(n_samples);
    const int64_t n = n_frames / window * tokens_of(window) + tokens_of(n_frames % window);
    return plan_of(n_samples < 1 ? 0 : n, n_samples);
  }

 private:
  static constexpr const char* kPlaceholder = "<|audio|>";

  SpectrumSize spectrum_size(int64_t n_samples) const override { return {frames_in(n_samples)}; }
  std::vector<SoundView> views_of(std::vector<float> frames, int64_t n_samples) const override {
    const int64_t window = whisper_.window_frames(), n_frames = frames_in(n_samples);
    std::vector<SoundView> views;
    for (int64_t first = 0; first < n_frames; first += window) {
      const int64_t n = std::min(window, n_frames - first);
      // Behind a piece that continues a sound stand frames of zeros.
      views.push_back(
          frames_of(frames, first, first > 0 ? (n + 1) / 2 * 2 : n, static_cast<int>((n + 1) / 2)));
    }
    return views;
  }
  int64_t frames_in(int64_t n_samples) const {
    return std::max<int64_t>((n_samples + whisper_.hop - 1) / whisper_.hop, 2);
  }
  int64_t tokens_of(int64_t n_frames) const {
    return (n_frames + 2 * stacked_ - 1) / (2 * stacked_);
  }

  int stacked_ = 8;  // positions of a token
};

class Qwen25OmniSounds final : public WhisperSounds {
 public:
  explicit Qwen25OmniSounds(const FamilyInputs& inputs)
      : WhisperSounds(read_whisper(inputs, bands_of(inputs, 80), false)) {
    ignore_pictures(inputs.settings);
    soft_token_ = inputs.token("audio_token", "<|AUDIO|>");
    const int half = inputs.config_integer({"audio_config", "n_window"});
    heard_ = 2 * (half > 0 ? half : 100);
  }

  // transformers cuts what is longer than the extractor's window.
  Result<SoundPlan> plan(int64_t n_samples) const override {
    if (n_samples > whisper_.window) {
      return errorf(ErrorCode::kInvalidArgument,
                    "sound: expected at most {} seconds, as long as the model hears, got {:.1f}",
                    whisper_.window / rate(), static_cast<double>(n_samples) / rate());
    }
    return plan_of((frames_in(n_samples) + 1) / 2 / 2, n_samples);
  }

 private:
  SpectrumSize spectrum_size(int64_t n_samples) const override {
    return {frames_in(n_samples), whisper_.window};
  }
  std::vector<SoundView> views_of(std::vector<float> frames, int64_t n_samples) const override {
    const int64_t n_frames = frames_in(n_samples);
    std::vector<SoundView> views;
    for (int64_t first = 0; first < n_frames; first += heard_) {
      const int64_t n = std::min<int64_t>(heard_, n_frames - first);
      const auto positions = static_cast<int>((n + 1) / 2);
      if (positions > 1) views.push_back(frames_of(frames, first, n, positions));
    }
    return views;
  }
  int64_t frames_in(int64_t n_samples) const {
    return (n_samples + whisper_.hop - 1) / whisper_.hop;
  }

  int heard_ = 200;  // frames that the layers hear at once
};

class Qwen3OmniSounds final : public WhisperSounds {
 public:
  explicit Qwen3OmniSounds(const FamilyInputs& inputs)
      : WhisperSounds(read_whisper(inputs, bands_of(inputs, 80), false)) {
    ignore_pictures(inputs.settings);
    soft_token_ = inputs.token("audio_token", "<|audio_pad|>");
    if (const int half = inputs.config_integer({"audio_config", "n_window"}); half > 0)
      chunk_ = 2 * half;
    if (positions_of(chunk_) != kTokensOfChunk)
      inputs.settings.refuse("n_window", "50", std::to_string(chunk_ / 2));
    const int heard = inputs.config_integer({"audio_config", "n_window_infer"});
    heard_ = (heard > 0 ? heard : 800) / chunk_ * chunk_;
    if (heard_ == 0)
      inputs.settings.refuse("n_window_infer", fmt::format("at least {}", chunk_),
                             std::to_string(heard));
  }

  Result<SoundPlan> plan(int64_t n_samples) const override {
    const bool fits = n_samples > whisper_.mel.n_fft / 2;  // else there is nothing to mirror
    return plan_of(fits ? positions_of(n_samples / whisper_.hop) : 0, n_samples);
  }

 private:
  static constexpr int kTokensOfChunk = 13;

  SpectrumSize spectrum_size(int64_t n_samples) const override {
    return {n_samples / whisper_.hop, n_samples};
  }
  std::vector<SoundView> views_of(std::vector<float> frames, int64_t n_samples) const override {
    const int64_t n_frames = n_samples / whisper_.hop;
    std::vector<SoundView> views;
    for (int64_t first = 0; first < n_frames; first += heard_) {
      const int64_t n = std::min<int64_t>(heard_, n_frames - first);
      // Chunks are as long as the longest, which is whole unless the sound is shorter.
      const int64_t given = n_frames < chunk_ ? n : (n + chunk_ - 1) / chunk_ * chunk_;
      views.push_back(frames_of(std::span(frames).first(static_cast<size_t>(first + n) *
                                                        static_cast<size_t>(whisper_.mel.n_bands)),
                                first, given, static_cast<int>(positions_of(n))));
    }
    return views;
  }
  // Of so many frames after three convolutions of every second place.
  int64_t positions_of(int64_t n_frames) const {
    return n_frames / chunk_ * ((chunk_ + 7) / 8) + (n_frames % chunk_ + 7) / 8;
  }

  int chunk_ = 100, heard_ = 800;  // frames
};

}  // namespace

std::unique_ptr<SoundProcessor> make_ultravox_sounds(const FamilyInputs& inputs) {
  return std::make_unique<UltravoxSounds>(inputs);
}

std::unique_ptr<SoundProcessor> make_qwen25_omni_sounds(const FamilyInputs& inputs) {
  return std::make_unique<Qwen25OmniSounds>(inputs);
}

std::unique_ptr<SoundProcessor> make_qwen3_omni_sounds(const FamilyInputs& inputs) {
  return std::make_unique<Qwen3OmniSounds>(inputs);
}

}  // namespace penstock
