#include "frontend/pictures/ear.h"

#include <algorithm>

#include "base/work.h"

namespace penstock {

Result<std::unique_ptr<Ear>> Ear::open(const ImageProcessorFiles& files,
                                       const SoundLimits& limits) {
  ASSIGN_OR_RETURN(auto processor, make_sound_processor(files));
  return std::unique_ptr<Ear>(new Ear(std::move(processor), limits));
}

Result<ImagePlan> Ear::plan(std::span<const std::byte> file) const {
  ASSIGN_OR_RETURN(const SoundInfo info, read_sound_info(file, limits_));
  ASSIGN_OR_RETURN(SoundPlan sound, processor_->plan(n_samples_at(info, processor_->rate())));
  ImagePlan plan;
  plan.n_soft = sound.n_soft, plan.prompt = std::move(sound.prompt);
  return plan;
}

Result<std::unique_ptr<Ear::Listening>> Ear::listen(std::span<const std::byte> file) const {
  ASSIGN_OR_RETURN(SoundDecoder decoder, SoundDecoder::open(file, processor_->rate(), limits_));
  return std::unique_ptr<Listening>(new Listening(*processor_, std::move(decoder)));
}

Status Ear::Listening::advance() {
  constexpr int64_t kFramesOfPiece = 1 << 20;
  if (decoder_) {
    RETURN_IF_ERROR(decoder_->advance(kFramesOfPiece));
    if (!decoder_->done()) return {};
    std::vector<float> samples = decoder_->take();
    decoder_.reset();
    RETURN_IF_ERROR(processor_->plan(static_cast<int64_t>(samples.size())));
    spectra_ = processor_->begin(std::move(samples));
  }
  if (!spectra_->done()) spectra_->advance();
  return {};
}

Result<Ear::Spectrum> Ear::spectrum(std::span<const std::byte> file) const {
  const auto goes_on = []() -> Status {
    give_way();
    return {};
  };
  ASSIGN_OR_RETURN(const std::vector<float> samples,
                   decode_sound(file, processor_->rate(), limits_, goes_on));
  RETURN_IF_ERROR(processor_->plan(static_cast<int64_t>(samples.size())));
  Spectrum spectrum;
  spectrum.seconds = static_cast<double>(samples.size()) / processor_->rate();
  spectrum.values = processor_->spectrum(samples);
  const int width = processor_->window({}, 0).width;
  spectrum.n_frames = static_cast<int64_t>(spectrum.values.size()) / std::max(width, 1);
  return spectrum;
}

// Samples, and frames of at most 128 numbers each.
Result<int64_t> Ear::spectrum_bytes(std::span<const std::byte> file) const {
  ASSIGN_OR_RETURN(const SoundInfo info, read_sound_info(file, limits_));
  const int64_t n_samples = n_samples_at(info, processor_->rate());
  const double frames =
      static_cast<double>(n_samples) / (processor_->seconds_per_frame() * processor_->rate());
  const int width = processor_->window({}, 0).width;
  return static_cast<int64_t>(sizeof(float)) *
         (n_samples + (static_cast<int64_t>(frames) + processor_->window_frames()) * width);
}

}  // namespace penstock
