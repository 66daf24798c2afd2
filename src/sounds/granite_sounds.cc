// Granite Speech: log-mel spectra as torchaudio makes them, of which two lie side by side in a frame.
#include <algorithm>

#include "sounds/whisper_sounds.h"

namespace penstock {
namespace {

int melspec_integer(const FamilyInputs& inputs, const char* name, int fallback, int most) {
  const nlohmann::json& file = inputs.files.image_processor;
  if (!file.is_object() || !file.contains("melspec_kwargs")) return fallback;
  const nlohmann::json& own = file["melspec_kwargs"];
  if (!own.is_object() || !own.contains(name)) return fallback;
  const nlohmann::json& value = own[name];
  if (value.is_number_integer() && value >= 1 && value <= most) return value.get<int>();
  inputs.settings.refuse(std::string("melspec_kwargs: ") + name,
                         fmt::format("an integer from 1 to {}", most), value.dump());
  return fallback;
}

WhisperSettings read_melspec(const FamilyInputs& inputs) {
  ProcessorSettings& settings = inputs.settings;
  WhisperSettings made;
  made.mel.rate = melspec_integer(inputs, "sample_rate", 16000, 192'000);
  made.mel.n_fft = melspec_integer(inputs, "n_fft", 512, 1 << 14);
  made.mel.n_bands = melspec_integer(inputs, "n_mels", 80, 1024);
  made.mel.scale = MelScale::kHtk;
  made.mel.most_hz = made.mel.rate / 2.0;
  made.hop = melspec_integer(inputs, "hop_length", 160, made.mel.n_fft);
  made.shown = melspec_integer(inputs, "win_length", 400, made.mel.n_fft);
  if (made.shown > made.mel.n_fft)
    settings.refuse("melspec_kwargs: win_length", "at most n_fft", std::to_string(made.shown));
  if (made.hop > made.mel.n_fft)
    settings.refuse("melspec_kwargs: hop_length", "at most n_fft", std::to_string(made.hop));
  if (made.mel.n_fft % 2 != 0 || made.mel.rate < 8000)
    settings.refuse("melspec_kwargs", "an even n_fft and a sample_rate of at least 8000",
                    "another");
  if (const nlohmann::json& file = inputs.files.image_processor;
      file.is_object() && file.contains("melspec_kwargs") && file["melspec_kwargs"].is_object()) {
    for (const auto& [name, value] : file["melspec_kwargs"].items())
      if (name != "sample_rate" && name != "n_fft" && name != "n_mels" && name != "hop_length" &&
          name != "win_length")
        settings.refuse("melspec_kwargs: " + name, "no such setting", value.dump());
  }
  const int rate = settings.integer("sampling_rate", made.mel.rate, 8000, 192'000);
  if (rate != made.mel.rate)
    settings.refuse("sampling_rate", std::to_string(made.mel.rate), std::to_string(rate));
  settings.integer("feature_size", made.mel.n_bands, 1, 1 << 14);
  if (settings.number("padding_value", 0.0) != 0.0)
    settings.refuse("padding_value", "0 (silence)", "another");
  settings.ignore({"melspec_kwargs", "padding_side", "return_attention_mask", "n_fft", "win_length",
                   "hop_length", "n_mels", "mel_filters", "audio_processor_type"});
  return made;
}

class GraniteSounds final : public WhisperSounds {
 public:
  explicit GraniteSounds(const FamilyInputs& inputs) : WhisperSounds(read_melspec(inputs)) {
    ProcessorSettings& settings = inputs.settings;
    soft_token_ = inputs.token("audio_token", "<|audio|>");
    const auto of_model = [&](const char* own, const char* name, int usual) {
      const int found = inputs.config_integer({name}), model = found > 0 ? found : usual;
      if (const int value = settings.integer(own, model, 1, 1 << 10); value != model)
        settings.refuse(own, fmt::format("{}, as the model has", model), std::to_string(value));
      return model;
    };
    window_ = of_model("projector_window_size", "window_size", 15);
    tokens_ = window_ / of_model("projector_downsample_rate", "downsample_rate", 5);
    const int width = inputs.config_integer({"encoder_config", "input_dim"});
    if (width > 0 && width != 2 * whisper_.mel.n_bands)
      settings.refuse("melspec_kwargs: n_mels", std::to_string(width / 2),
                      std::to_string(whisper_.mel.n_bands));
  }

  Result<SoundPlan> plan(int64_t n_samples) const override {
    constexpr int64_t kMostSeconds = 300;  // what a step's tensors have room for
    if (n_samples > kMostSeconds * rate()) {
      return errorf(ErrorCode::kInvalidArgument, "sound: expected at most {} seconds, got {:.1f}",
                    kMostSeconds, static_cast<double>(n_samples) / rate());
    }
    const bool fits = n_samples > whisper_.mel.n_fft / 2;  // else there is nothing to mirror
    const int64_t n = fits ? frames_in(n_samples) / 2 : 0;
    return plan_of((n + window_ - 1) / window_ * tokens_, n_samples);
  }

 private:
  SpectrumSize spectrum_size(int64_t n_samples) const override {
    return {frames_in(n_samples), n_samples};
  }
  std::vector<SoundView> views_of(std::vector<float> frames, int64_t n_samples) const override {
    SoundView view;
    view.n_frames = view.n_positions = static_cast<int>(frames_in(n_samples) / 2);
    view.width = 2 * whisper_.mel.n_bands;
    frames.resize(static_cast<size_t>(view.n_frames) * static_cast<size_t>(view.width));
    view.values = std::move(frames);
    return {std::move(view)};
  }
  int64_t frames_in(int64_t n_samples) const { return n_samples / whisper_.hop + 1; }

  int window_ = 15, tokens_ = 3;  // frames, and what they become
};

}  // namespace

std::unique_ptr<SoundProcessor> make_granite_sounds(const FamilyInputs& inputs) {
  return std::make_unique<GraniteSounds>(inputs);
}

}  // namespace penstock
