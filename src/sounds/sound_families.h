// The makers of sound processors, one for each kind of model, and what they are made from.
#pragma once
#include "images/view_processor.h"
#include "sounds/sound_processor.h"

namespace penstock {

// Each returns a processor; settings.status() says whether its settings were possible.
using SoundFamilyMaker = std::unique_ptr<SoundProcessor> (*)(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_gemma3n_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_gemma4_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_granite_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_qwen2_audio_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_qwen3_asr_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_qwen25_omni_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_qwen3_omni_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_ultravox_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_voxtral_sounds(const FamilyInputs& inputs);
std::unique_ptr<SoundProcessor> make_whisper_sounds(const FamilyInputs& inputs);

// Reads the settings of noise and padding, of which only none and silence behind a sound are known.
void read_padding(ProcessorSettings& settings);

// The error of a sound of which no token would be left.
tl::unexpected<Error> sound_too_short(int64_t n_samples);

}  // namespace penstock
