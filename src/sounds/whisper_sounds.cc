// Whisper's log-mel spectra: Whisper itself, which hears windows, Qwen2-Audio, which hears as much of
// its window as the sound is long, Voxtral, which hears whole windows, and Qwen3-ASR, which reads chunks
// of a second.
#include "sounds/whisper_sounds.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/free_memory.h"
#include "base/work.h"

namespace penstock {
namespace {

constexpr double kQuietest = 1e-10;  // of a band

}  // namespace

WhisperSettings read_whisper(const FamilyInputs& inputs, int usual_bands, bool windows) {
  ProcessorSettings& settings = inputs.settings;
  WhisperSettings whisper;
  whisper.mel.n_bands = settings.integer("feature_size", usual_bands, 1, 1024);
  whisper.mel.rate = settings.integer("sampling_rate", 16000, 8000, 192'000);
  whisper.mel.n_fft = settings.integer("n_fft", 400, 2, 1 << 14);
  whisper.hop = settings.integer("hop_length", 160, 1, whisper.mel.n_fft);
  whisper.window = settings.integer("chunk_length", 30, 1, windows ? 120 : 1800) * whisper.mel.rate;
  if (whisper.mel.n_fft % 2 != 0)
    settings.refuse("n_fft", "an even number", std::to_string(whisper.mel.n_fft));
  if (whisper.window % whisper.hop != 0)
    settings.refuse("hop_length", "a divisor of chunk_length * sampling_rate",
                    std::to_string(whisper.hop));
  read_padding(settings);
  // They follow from others, or say what the processor returns beside the features.
  settings.ignore({"n_samples", "nb_max_frames", "return_attention_mask", "mel_filters"});
  const int positions = inputs.config_integer({"audio_config", "max_source_positions"});
  if (windows && positions > 0 && 2 * positions != whisper.window_frames())
    settings.refuse("chunk_length",
                    fmt::format("{} frames, twice max_source_positions", 2 * positions),
                    fmt::format("{} frames", whisper.window_frames()));
  return whisper;
}

LogMel::LogMel(const WhisperSettings& whisper, std::span<const float> samples,
               const SpectrumSize& size)
    : samples_(samples),
      size_{size.n_frames, size.n_samples > 0 ? size.n_samples : size.n_frames * whisper.hop},
      hop_(whisper.hop),
      spectrum_(whisper.mel),
      window_(static_cast<size_t>(whisper.mel.n_fft)),
      frame_(window_.size()),
      bands_(static_cast<size_t>(whisper.mel.n_bands)),
      out_(static_cast<size_t>(size.n_frames) * bands_.size(),
           static_cast<float>(std::log10(kQuietest))) {
  const std::vector<double> shown =
      hann_window(whisper.shown > 0 ? whisper.shown : whisper.mel.n_fft);
  PENSTOCK_CHECK(shown.size() <= window_.size());
  std::ranges::copy(shown,
                    window_.begin() + static_cast<ptrdiff_t>((window_.size() - shown.size()) / 2));
}

double LogMel::sample_at(int64_t i) const {
  if (i < 0) i = -i;
  if (i >= size_.n_samples) i = 2 * (size_.n_samples - 1) - i;
  return i >= 0 && i < static_cast<int64_t>(samples_.size()) ? samples_[static_cast<size_t>(i)]
                                                             : 0.0;
}

void LogMel::make(int64_t t) {
  const auto n_fft = static_cast<int64_t>(window_.size()),
             end = static_cast<int64_t>(samples_.size());
  const int64_t first = t * hop_ - n_fft / 2;
  if (first >= end && 2 * (size_.n_samples - 1) - first - n_fft >= end) return;  // silent
  for (size_t i = 0; i < window_.size(); ++i)
    frame_[i] = window_[i] * sample_at(first + static_cast<int64_t>(i));
  spectrum_.of(frame_, bands_);
  for (size_t b = 0; b < bands_.size(); ++b)
    out_[static_cast<size_t>(t) * bands_.size() + b] =
        static_cast<float>(std::log10(std::max(kQuietest, bands_[b])));
}

void LogMel::advance(int64_t n_frames) {
  for (const int64_t end = std::min(n_done_ + n_frames, size_.n_frames); n_done_ < end; ++n_done_) {
    if (n_done_ % 256 == 0) give_way();
    make(n_done_);
  }
}

std::vector<float> LogMel::take() {
  if (out_.empty()) return {};
  const float least = *std::ranges::max_element(out_) - 8.0f;
  for (float& value : out_) value = (std::max(value, least) + 4.0f) / 4.0f;
  return std::move(out_);
}

class WhisperSounds::Spectra final : public SoundSpectra {
 public:
  Spectra(const WhisperSounds& sounds, std::vector<float> samples)
      : sounds_(sounds),
        samples_(std::move(samples)),
        mel_(sounds.whisper_, samples_, sounds.spectrum_size(n_samples())) {}

  bool done() const override { return mel_.done(); }
  void advance() override { mel_.advance(60 * sounds_.rate() / sounds_.whisper_.hop); }
  std::vector<SoundView> take() override {
    const int64_t n = n_samples();
    std::vector<float> frames = mel_.take();
    free_memory(samples_);
    return sounds_.views_of(std::move(frames), n);
  }

 private:
  int64_t n_samples() const { return static_cast<int64_t>(samples_.size()); }

  const WhisperSounds& sounds_;
  std::vector<float> samples_;
  LogMel mel_;
};

std::unique_ptr<SoundSpectra> WhisperSounds::begin(std::vector<float> samples) const {
  return std::make_unique<Spectra>(*this, std::move(samples));
}

SoundView WhisperSounds::view_of(std::span<const float> frames, int64_t first,
                                 int n_positions) const {
  const auto width = static_cast<size_t>(whisper_.mel.n_bands);
  const int n_frames = 2 * n_positions + 1;
  SoundView view{std::vector<float>(static_cast<size_t>(n_frames) * width), n_frames,
                 whisper_.mel.n_bands, n_positions};
  const auto from = frames.subspan(static_cast<size_t>(first) * width);
  const bool ends = 2 * n_positions == whisper_.window_frames();
  const size_t kept = static_cast<size_t>(ends ? n_frames - 1 : n_frames) * width;
  std::ranges::copy(from.first(kept), view.values.begin());
  return view;
}

SoundView WhisperSounds::frames_of(std::span<const float> frames, int64_t first, int64_t n_frames,
                                   int n_positions) const {
  const auto width = static_cast<size_t>(whisper_.mel.n_bands);
  SoundView view{std::vector<float>(static_cast<size_t>(n_frames) * width),
                 static_cast<int>(n_frames), whisper_.mel.n_bands, n_positions};
  const auto from = frames.subspan(static_cast<size_t>(first) * width);
  std::ranges::copy(from.first(std::min(from.size(), view.values.size())), view.values.begin());
  return view;
}

Result<SoundPlan> WhisperSounds::plan_of(int64_t n_soft, int64_t n_samples) const {
  if (n_soft < 1) return sound_too_short(n_samples);
  SoundPlan plan;
  plan.n_soft = static_cast<int>(n_soft);
  plan.prompt.push_back({soft_token_, plan.n_soft});
  return plan;
}

namespace {

class Qwen2AudioSounds final : public WhisperSounds {
 public:
  explicit Qwen2AudioSounds(const FamilyInputs& inputs) : WhisperSounds(read_whisper(inputs)) {
    soft_token_ = inputs.token("audio_token", "<|AUDIO|>");
  }

  // transformers cuts what is longer than the window.
  Result<SoundPlan> plan(int64_t n_samples) const override {
    if (n_samples > whisper_.window) {
      return errorf(ErrorCode::kInvalidArgument,
                    "sound: expected at most {} seconds, as long as the model hears, got {:.1f}",
                    whisper_.window / rate(), static_cast<double>(n_samples) / rate());
    }
    SoundPlan plan;
    plan.n_soft = positions_of(n_samples) / 2;
    if (plan.n_soft == 0) return sound_too_short(n_samples);
    plan.prompt.push_back({soft_token_, plan.n_soft});
    return plan;
  }

 private:
  SpectrumSize spectrum_size(int64_t) const override { return {whisper_.window_frames()}; }
  std::vector<SoundView> views_of(std::vector<float> frames, int64_t n_samples) const override {
    return {view_of(frames, 0, positions_of(n_samples))};
  }
  int positions_of(int64_t n_samples) const {
    const int64_t n_frames = (n_samples + whisper_.hop - 1) / whisper_.hop;
    return static_cast<int>((n_frames + 1) / 2);
  }
};

// Chunks of a second, padded with zeros behind the spectrum's end; the layers hear some at once.
class Qwen3AsrSounds final : public WhisperSounds {
 public:
  explicit Qwen3AsrSounds(const FamilyInputs& inputs) : WhisperSounds(read_whisper(inputs)) {
    ProcessorSettings& settings = inputs.settings;
    soft_token_ = inputs.token("audio_token", "<|audio_pad|>");
    chunk_ = 2 * settings.integer("n_window", 50, 1, 1 << 14);
    least_ = settings.integer("min_length", 8000, 0, 1 << 20);
    heard_ = inputs.config_integer({"audio_config", "n_window_infer"});
    if (heard_ == 0) heard_ = 800;
    const int of_tower = inputs.config_integer({"audio_config", "n_window"});
    if (of_tower > 0 && 2 * of_tower != chunk_)
      settings.refuse("n_window", fmt::format("{}, as the tower has", of_tower),
                      std::to_string(chunk_ / 2));
    if (heard_ % chunk_ != 0)
      settings.refuse("n_window", fmt::format("a divisor of n_window_infer ({})", heard_),
                      std::to_string(chunk_ / 2));
  }

  Result<SoundPlan> plan(int64_t n_samples) const override {
    SoundPlan plan;
    plan.n_soft = positions_of(frames_of(n_samples));
    if (plan.n_soft == 0 || n_samples == 0) return sound_too_short(n_samples);
    plan.prompt.push_back({soft_token_, plan.n_soft});
    return plan;
  }

 private:
  SpectrumSize spectrum_size(int64_t n_samples) const override {
    return {frames_of(n_samples), std::max<int64_t>(n_samples, least_)};
  }
  std::vector<SoundView> views_of(std::vector<float> frames, int64_t n_samples) const override {
    const int64_t n_frames = frames_of(n_samples);
    const auto width = static_cast<size_t>(whisper_.mel.n_bands);
    std::vector<SoundView> views;
    for (int64_t first = 0; first < n_frames; first += heard_) {
      const int64_t n = std::min<int64_t>(heard_, n_frames - first);
      const auto given = static_cast<int>((n + chunk_ - 1) / chunk_ * chunk_);
      SoundView& view =
          views.emplace_back(SoundView{{}, given, whisper_.mel.n_bands, positions_of(n)});
      const auto from = std::span(frames).subspan(static_cast<size_t>(first) * width,
                                                  static_cast<size_t>(n) * width);
      view.values.assign(from.begin(), from.end());
      view.values.resize(static_cast<size_t>(given) * width);
    }
    return views;
  }
  int64_t frames_of(int64_t n_samples) const {
    return std::max<int64_t>(n_samples, least_) / whisper_.hop;
  }
  // Of so many frames after three convolutions of every second place.
  int positions_of(int64_t n_frames) const {
    return static_cast<int>(n_frames / chunk_ * ((chunk_ + 7) / 8) + (n_frames % chunk_ + 7) / 8);
  }

  int chunk_ = 0, heard_ = 0;  // frames
  int least_ = 0;              // samples; shorter sounds are silent behind their end
};

// A window after the other, silent behind the sound's end. What is longer than a window has the
// spectrum of the whole, and zeros behind it.
class WindowSounds final : public WhisperSounds {
 public:
  explicit WindowSounds(const FamilyInputs& inputs) : WhisperSounds(read_whisper(inputs)) {
    soft_token_ = "<|startoftranscript|>";
    window_frames_ = whisper_.window_frames();
    seconds_per_frame_ = static_cast<double>(whisper_.hop) / rate();
    const int positions = inputs.config_integer({"max_source_positions"});
    if (positions > 0 && 2 * positions != window_frames_)
      inputs.settings.refuse("chunk_length",
                             fmt::format("{} frames, twice max_source_positions", 2 * positions),
                             fmt::format("{} frames", window_frames_));
  }

  Result<SoundPlan> plan(int64_t n_samples) const override {
    SoundPlan plan;
    plan.n_soft = window_frames_ / 2;
    if (n_samples < 1) return sound_too_short(n_samples);
    plan.prompt.push_back({soft_token_, plan.n_soft});
    return plan;
  }

  std::vector<float> spectrum(std::span<const float> samples) const override {
    const SpectrumSize size = spectrum_size(static_cast<int64_t>(samples.size()));
    LogMel mel(whisper_, samples, size);
    mel.advance(size.n_frames);
    return mel.take();
  }

  SoundView window(std::span<const float> spectrum, int64_t first) const override {
    const auto width = static_cast<size_t>(whisper_.mel.n_bands);
    const auto size = static_cast<size_t>(window_frames_) * width;
    SoundView view{std::vector<float>(size + width), window_frames_ + 1, whisper_.mel.n_bands,
                   window_frames_ / 2};
    const auto from =
        spectrum.subspan(std::min(static_cast<size_t>(first) * width, spectrum.size()));
    std::ranges::copy(from.first(std::min(from.size(), size)), view.values.begin());
    return view;
  }

 private:
  SpectrumSize spectrum_size(int64_t n_samples) const override {
    if (n_samples <= whisper_.window) return {window_frames_};
    return {n_samples / whisper_.hop, n_samples};
  }
  std::vector<SoundView> views_of(std::vector<float> frames, int64_t) const override {
    return {window(frames, 0)};
  }
};

class VoxtralSounds final : public WhisperSounds {
 public:
  explicit VoxtralSounds(const FamilyInputs& inputs) : WhisperSounds(read_whisper(inputs)) {
    soft_token_ = inputs.token("audio_token", "[AUDIO]");
    const int width = inputs.config_integer({"audio_config", "hidden_size"}),
              joined = inputs.config_integer({"audio_config", "intermediate_size"}),
              stacked = width > 0 ? joined / width : 4;
    block_tokens_ = whisper_.window_frames() / 2 / std::max(stacked, 1);
    if (stacked < 1 || whisper_.window_frames() / 2 % stacked != 0)
      inputs.settings.refuse("chunk_length",
                             fmt::format("a multiple of {} positions", std::max(stacked, 1)),
                             fmt::format("{} positions", whisper_.window_frames() / 2));
  }

  Result<SoundPlan> plan(int64_t n_samples) const override {
    SoundPlan plan;
    plan.n_soft = static_cast<int>(blocks_of(n_samples)) * block_tokens_;
    if (plan.n_soft == 0) return sound_too_short(n_samples);
    plan.prompt.push_back({soft_token_, plan.n_soft});
    return plan;
  }

 private:
  SpectrumSize spectrum_size(int64_t n_samples) const override {
    return {blocks_of(n_samples) * whisper_.window_frames()};
  }
  std::vector<SoundView> views_of(std::vector<float> frames, int64_t n_samples) const override {
    const int64_t n_blocks = blocks_of(n_samples);
    const int n_frames = whisper_.window_frames();
    std::vector<SoundView> views;
    for (int64_t b = 0; b < n_blocks; ++b)
      views.push_back(view_of(frames, b * n_frames, n_frames / 2));
    return views;
  }
  int64_t blocks_of(int64_t n_samples) const {
    return (n_samples + whisper_.window - 1) / whisper_.window;
  }

  int block_tokens_ = 0;
};

}  // namespace

std::unique_ptr<SoundProcessor> make_qwen2_audio_sounds(const FamilyInputs& inputs) {
  return std::make_unique<Qwen2AudioSounds>(inputs);
}

std::unique_ptr<SoundProcessor> make_qwen3_asr_sounds(const FamilyInputs& inputs) {
  return std::make_unique<Qwen3AsrSounds>(inputs);
}

std::unique_ptr<SoundProcessor> make_whisper_sounds(const FamilyInputs& inputs) {
  return std::make_unique<WindowSounds>(inputs);
}

std::unique_ptr<SoundProcessor> make_voxtral_sounds(const FamilyInputs& inputs) {
  return std::make_unique<VoxtralSounds>(inputs);
}

}  // namespace penstock
