// Gemma 3n and 4: logarithms of mel spectra of magnitudes, a frame every 10 ms. Gemma 4's first frame is centred
// at the sound's beginning, and frames that end behind the sound are not heard; Gemma 3n's first one begins with
// the sound, and its places in the prompt are as many for all sounds.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/work.h"
#include "sounds/mel.h"
#include "sounds/sound_families.h"

namespace penstock {
namespace {

constexpr int64_t kMostSamples = 480'000;  // what transformers cuts a sound to

// What files need not say.
struct GemmaDefaults {
  double frame_ms = 20.0;
  bool overdrive = false;
  double least_hz = 0.0, most_hz = 8000.0, preemphasis = 0.0, floor = 1e-3;
};
constexpr GemmaDefaults kGemma3n = {32.0, true, 125.0, 7600.0, 0.97, 1e-5};

struct GemmaSettings {
  MelSettings mel;
  int frame = 320, hop = 160;  // samples
  double preemphasis = 0.0;
  bool by_frame = true;  // a frame's first sample is emphasised without the one before it
  double input_scale = 1.0, floor = 1e-3;
};

// Samples of so many milliseconds, rounded to even.
int samples_of(ProcessorSettings& settings, const char* name, double usual, int rate) {
  const double samples = settings.number(name, usual) * rate / 1000.0;
  if (samples >= 1 && samples <= 1 << 14) return static_cast<int>(std::nearbyint(samples));
  settings.refuse(name, "1 to 16384 samples", std::to_string(samples));
  return 1;
}

GemmaSettings read_gemma(const FamilyInputs& inputs, const GemmaDefaults& usual) {
  ProcessorSettings& settings = inputs.settings;
  GemmaSettings made;
  made.mel.rate = settings.integer("sampling_rate", 16000, 8000, 192'000);
  made.mel.n_bands = settings.integer("feature_size", 128, 1, 1024);
  made.mel.scale = MelScale::kHtk, made.mel.squared = false;
  made.frame = samples_of(settings, "frame_length_ms", usual.frame_ms, made.mel.rate);
  made.hop = samples_of(settings, "hop_length_ms", 10.0, made.mel.rate);
  made.mel.n_fft = 2;
  while (made.mel.n_fft < made.frame) made.mel.n_fft *= 2;
  if (settings.flag("fft_overdrive", usual.overdrive)) made.mel.n_fft *= 2;
  // Files have them, too; transformers reads milliseconds only.
  const auto expect = [&](const char* name, int wanted) {
    if (const int got = settings.integer(name, wanted, 1, 1 << 20); got != wanted)
      settings.refuse(name, std::to_string(wanted), std::to_string(got));
  };
  expect("frame_length", made.frame), expect("hop_length", made.hop);
  expect("fft_length", made.mel.n_fft);
  made.mel.least_hz = settings.number("min_frequency", usual.least_hz);
  made.mel.most_hz = settings.number("max_frequency", usual.most_hz);
  if (!(made.mel.least_hz >= 0 && made.mel.least_hz < made.mel.most_hz &&
        made.mel.most_hz <= made.mel.rate))
    settings.refuse("max_frequency", "more than min_frequency and at most sampling_rate",
                    std::to_string(made.mel.most_hz));
  made.preemphasis = std::max(settings.number("preemphasis", usual.preemphasis), 0.0);
  made.by_frame = settings.flag("preemphasis_htk_flavor", true);
  made.input_scale = settings.number("input_scale_factor", 1.0);
  made.floor = settings.number("mel_floor", usual.floor);
  if (!(made.floor > 0)) settings.refuse("mel_floor", "more than 0", std::to_string(made.floor));
  read_padding(settings);
  for (const char* const name : {"per_bin_mean", "per_bin_stddev"})
    if (settings.in_file(name)) settings.refuse(name, "null", "another");
  settings.ignore({"return_attention_mask"});
  return made;
}

// The cosine of 0 to 2 pi in NumPy's single precision, of which Gemma 3n's window is made: quiet bands beside loud
// ones show its last bit. The angle is taken to within pi / 4 of a multiple of pi / 2, of which three parts are
// subtracted, and goes into a polynomial.
float cosine(float angle) {
  constexpr float kRounder = 12582912.0f, kQuartersInOne = 0.63661975f;
  const float quarters = std::fma(angle, kQuartersInOne, kRounder) - kRounder;
  float rest = std::fma(quarters, -1.57079601287841796875f, angle);
  rest = std::fma(quarters, -3.1391647326017846e-07f, rest);
  rest = std::fma(quarters, -5.390302529957765e-15f, rest);
  const float square = rest * rest;
  const auto polynomial = [&](std::initializer_list<float> coefficients) {
    float sum = 0;
    for (const float one : coefficients) sum = std::fma(sum, square, one);
    return sum;
  };
  const int quarter = (static_cast<int>(quarters) + 1) % 4;
  float value = 0;
  if (quarter % 2 == 1) {
    value = polynomial({0x1.98e616p-16f, -0x1.6c06dcp-10f, 0x1.55553cp-05f, -0.5f, 1.0f});
  } else {
    const float odd =
        polynomial({0x1.7d3bbcp-19f, -0x1.a06bbap-13f, 0x1.11119ap-07f, -0x1.555556p-03f});
    value = std::fma(odd * square, rest, rest);
  }
  return quarter >= 2 ? -value : value;
}

class GemmaSounds : public SoundProcessor {
 public:
  GemmaSounds(const FamilyInputs& inputs, const GemmaDefaults& usual, const char* soft_token)
      : gemma_(read_gemma(inputs, usual)), soft_token_(inputs.token("audio_token", soft_token)) {}

  int rate() const override { return gemma_.mel.rate; }
  std::string placeholder() const override { return soft_token_; }
  std::string soft_token() const override { return soft_token_; }

  std::unique_ptr<SoundSpectra> begin(std::vector<float> samples) const override {
    return std::make_unique<Spectra>(*this, std::move(samples));
  }

  SoundView view_of(std::span<const float> samples) const {
    const auto n_samples = static_cast<int64_t>(samples.size());
    SoundView view;
    view.n_frames = static_cast<int>(frames_in(n_samples)), view.width = gemma_.mel.n_bands;
    view.n_positions = (view.n_frames + 3) / 4;
    MelSpectrum spectrum(gemma_.mel);
    const std::vector<float> window = frame_window();
    std::vector<double> frame(window.size()), bands(static_cast<size_t>(view.width));
    const auto sample = [&](int64_t i) {
      return i < 0 || i >= n_samples ? 0.0 : samples[static_cast<size_t>(i)] * gemma_.input_scale;
    };
    for (int64_t t = 0; t < view.n_frames; ++t) {
      if (t % 256 == 0) give_way();
      const int64_t first = t * gemma_.hop - lead();
      for (int64_t i = 0; i < gemma_.frame; ++i)
        frame[static_cast<size_t>(i)] =
            emphasised(sample, first, i) * window[static_cast<size_t>(i)];
      spectrum.of(frame, bands);
      for (const double band : bands)
        view.values.push_back(static_cast<float>(std::log(floored(band))));
    }
    return view;
  }

 protected:
  // Samples of the first frame that lie before the sound.
  virtual int lead() const = 0;
  virtual int64_t frames_in(int64_t n_samples) const = 0;
  virtual std::vector<float> frame_window() const = 0;
  virtual double floored(double band) const = 0;

  Result<SoundPlan> plan_of(std::vector<PromptPiece> prompt, int64_t n_samples) const {
    if (n_samples > kMostSamples) {
      return errorf(ErrorCode::kInvalidArgument,
                    "sound: expected at most {} seconds, as long as the model hears, got {:.1f}",
                    kMostSamples / rate(), static_cast<double>(n_samples) / rate());
    }
    SoundPlan plan;
    for (const PromptPiece& piece : prompt) plan.n_soft += piece.n_soft;
    plan.prompt = std::move(prompt);
    return plan;
  }
  // Refuses another number of bands than the tower's.
  void expect_bands(const FamilyInputs& inputs, int bands) const {
    if (bands != gemma_.mel.n_bands)
      inputs.settings.refuse("feature_size", fmt::format("{}, as the tower reads", bands),
                             std::to_string(gemma_.mel.n_bands));
  }

  const GemmaSettings gemma_;
  const std::string soft_token_;

 private:
  // Of half a minute at most, in one piece.
  class Spectra final : public SoundSpectra {
   public:
    Spectra(const GemmaSounds& sounds, std::vector<float> samples)
        : sounds_(sounds), samples_(std::move(samples)) {}

    bool done() const override { return done_; }
    void advance() override {
      views_.push_back(sounds_.view_of(samples_));
      done_ = true;
    }
    std::vector<SoundView> take() override { return std::move(views_); }

   private:
    const GemmaSounds& sounds_;
    const std::vector<float> samples_;
    std::vector<SoundView> views_;
    bool done_ = false;
  };

  // Sample i of the frame that begins at `first`.
  template <class Sample>
  double emphasised(const Sample& sample, int64_t first, int64_t i) const {
    const double p = gemma_.preemphasis;
    if (p == 0.0) return sample(first + i);
    if (!gemma_.by_frame) return sample(first + i + 1) - p * sample(first + i);
    return i == 0 ? sample(first) * (1.0 - p) : sample(first + i) - p * sample(first + i - 1);
  }
};

class Gemma4Sounds final : public GemmaSounds {
 public:
  explicit Gemma4Sounds(const FamilyInputs& inputs) : GemmaSounds(inputs, {}, "<|audio|>") {
    ProcessorSettings& settings = inputs.settings;
    begin_ = inputs.token("boa_token", "<|audio>"), end_ = inputs.token("eoa_token", "<audio|>");
    most_tokens_ = settings.processor_integer("audio_seq_length", 750, 1, 1 << 20);
    const int of_token = 4 * gemma_.hop * 1000 / gemma_.mel.rate;
    if (const int got = settings.processor_integer("audio_ms_per_token", of_token); got != of_token)
      settings.refuse("audio_ms_per_token", std::to_string(of_token), std::to_string(got));
    // The first convolution has as many channels.
    const nlohmann::json& config = inputs.files.config;
    const nlohmann::json none;
    const nlohmann::json channels =
        config.is_object()
            ? config.value(nlohmann::json::json_pointer("/audio_config/subsampling_conv_channels"),
                           none)
            : none;
    const bool said = channels.is_array() && !channels.empty() && channels[0].is_number_integer();
    expect_bands(inputs, said ? channels[0].get<int>() : 128);
  }

  Result<SoundPlan> plan(int64_t n_samples) const override {
    if (frames_in(n_samples) < 1) return sound_too_short(n_samples);
    const int64_t n = (std::min(frames_in(n_samples), kMostSamples) + 3) / 4;
    if (n > most_tokens_ && n_samples <= kMostSamples) {
      return errorf(ErrorCode::kInvalidArgument, "sound: expected at most {} tokens, got {}",
                    most_tokens_, n);
    }
    return plan_of({{begin_, 0}, {soft_token_, static_cast<int>(n)}, {end_, 0}}, n_samples);
  }

 private:
  int lead() const override { return gemma_.frame / 2; }
  // Frames that end within the sound, with the sample behind them.
  int64_t frames_in(int64_t n_samples) const override {
    const int64_t behind = n_samples - 1 - (gemma_.frame - lead());
    return behind < 0 ? 0 : behind / gemma_.hop + 1;
  }
  std::vector<float> frame_window() const override {
    const std::vector<double> window = hann_window(gemma_.frame);
    return {window.begin(), window.end()};
  }
  double floored(double band) const override { return band + gemma_.floor; }

  std::string begin_, end_;
  int most_tokens_ = 750;
};

class Gemma3nSounds final : public GemmaSounds {
 public:
  explicit Gemma3nSounds(const FamilyInputs& inputs)
      : GemmaSounds(inputs, kGemma3n, "<audio_soft_token>") {
    ProcessorSettings& settings = inputs.settings;
    begin_ = inputs.token("boa_token", "<start_of_audio>");
    end_ = inputs.token("eoa_token", "<end_of_audio>");
    reduction_ = inputs.config_integer({"audio_config", "conf_reduction_factor"});
    const int of_model = inputs.config_integer({"audio_soft_tokens_per_image"}),
              wanted = of_model > 0 ? of_model : 188;
    n_soft_ = settings.processor_integer("audio_seq_length", 188, 1, 1 << 14);
    if (n_soft_ != wanted)
      settings.refuse("audio_seq_length", std::to_string(wanted), std::to_string(n_soft_));
    // Names of the image processor that lie in the same file.
    settings.ignore({"crop_size", "data_format", "default_to_square", "device", "disable_grouping",
                     "do_center_crop", "do_convert_rgb", "do_normalize", "do_rescale", "do_resize",
                     "image_mean", "image_processor_type", "image_seq_length", "image_std",
                     "input_data_format", "resample", "rescale_factor", "return_tensors", "size"});
    const int bands = inputs.config_integer({"audio_config", "input_feat_size"});
    expect_bands(inputs, bands > 0 ? bands : 128);
  }

  // The token behind the sound has a row of the tower, too.
  Result<SoundPlan> plan(int64_t n_samples) const override {
    if (frames_in(n_samples) < 1) return sound_too_short(n_samples);
    constexpr int kReduced = 4;
    const int reduced = reduction_ > 0 ? reduction_ : kReduced;
    const int64_t n =
        (std::min(frames_in(n_samples), kMostSamples) + 4 * reduced - 1) / 4 / reduced;
    if (n > n_soft_ && n_samples <= kMostSamples) {
      return errorf(ErrorCode::kInvalidArgument, "sound: expected at most {} tokens, got {}",
                    n_soft_, n);
    }
    return plan_of({{"\n\n" + begin_, 0}, {soft_token_, n_soft_}, {end_, 1}, {"\n\n", 0}},
                   n_samples);
  }

 private:
  int lead() const override { return 0; }
  // Whole frames, with the sample behind them, of a sound that is silent up to a multiple of 128 samples.
  int64_t frames_in(int64_t n_samples) const override {
    constexpr int64_t kFilledTo = 128;
    const int64_t behind = (n_samples + kFilledTo - 1) / kFilledTo * kFilledTo - (gemma_.frame + 1);
    return behind < 0 ? 0 : behind / gemma_.hop + 1;
  }
  std::vector<float> frame_window() const override {
    std::vector<float> window;
    for (int i = 0; i < gemma_.frame; ++i) {
      const float angle = static_cast<float>(2 * std::numbers::pi) * static_cast<float>(i) /
                          static_cast<float>(gemma_.frame);
      window.push_back(0.5f * (1.0f - cosine(angle)));
    }
    return window;
  }
  double floored(double band) const override { return std::max(band, gemma_.floor); }

  std::string begin_, end_;
  int n_soft_ = 188, reduction_ = 0;
};

}  // namespace

std::unique_ptr<SoundProcessor> make_gemma4_sounds(const FamilyInputs& inputs) {
  return std::make_unique<Gemma4Sounds>(inputs);
}

std::unique_ptr<SoundProcessor> make_gemma3n_sounds(const FamilyInputs& inputs) {
  return std::make_unique<Gemma3nSounds>(inputs);
}

}  // namespace penstock
