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

Result<std::vector<SoundView>> Ear::hear(std::span<const std::byte> file,
                                         const std::function<Status()>& goes_on) const {
  ASSIGN_OR_RETURN(const std::vector<float> samples,
                   decode_sound(file, processor_->rate(), limits_, goes_on));
  RETURN_IF_ERROR(goes_on());
  RETURN_IF_ERROR(processor_->plan(static_cast<int64_t>(samples.size())));
  return processor_->process(samples);
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
