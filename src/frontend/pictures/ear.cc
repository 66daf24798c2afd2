#include "frontend/pictures/ear.h"

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

}  // namespace penstock
