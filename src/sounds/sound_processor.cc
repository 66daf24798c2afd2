#include "sounds/sound_processor.h"

#include "sounds/sound_families.h"

namespace penstock {
namespace {

// THE list of models that hear.
struct SoundFamily {
  std::string_view model;      // model_type of config.json
  std::string_view extractor;  // feature_extractor_type
  SoundFamilyMaker make;
};
constexpr SoundFamily kFamilies[] = {
    {"gemma3n", "Gemma3nAudioFeatureExtractor", make_gemma3n_sounds},
    {"gemma4", "Gemma4AudioFeatureExtractor", make_gemma4_sounds},
    {"granite_speech", "GraniteSpeechFeatureExtractor", make_granite_sounds},
    {"qwen2_5_omni_thinker", "WhisperFeatureExtractor", make_qwen25_omni_sounds},
    {"qwen2_audio", "WhisperFeatureExtractor", make_qwen2_audio_sounds},
    {"qwen3_asr", "Qwen3ASRFeatureExtractor", make_qwen3_asr_sounds},
    {"qwen3_omni_moe_thinker", "WhisperFeatureExtractor", make_qwen3_omni_sounds},
    {"ultravox", "WhisperFeatureExtractor", make_ultravox_sounds},
    {"voxtral", "WhisperFeatureExtractor", make_voxtral_sounds},
    {"whisper", "WhisperFeatureExtractor", make_whisper_sounds},
};

std::string text_of(const nlohmann::json& object, const char* name) {
  const bool named = object.is_object() && object.contains(name) && object[name].is_string();
  return named ? object[name].get<std::string>() : "";
}

}  // namespace

void read_padding(ProcessorSettings& settings) {
  if (settings.number("dither", 0.0) != 0.0)
    settings.refuse("dither", "0: features are the same each time", "another");
  if (settings.number("padding_value", 0.0) != 0.0)
    settings.refuse("padding_value", "0 (silence)", "another");
  if (const std::string side = settings.text("padding_side", "right"); side != "right")
    settings.refuse("padding_side", "right", side);
}

tl::unexpected<Error> sound_too_short(int64_t n_samples) {
  return errorf(ErrorCode::kInvalidArgument,
                "sound: {} samples are too short: no token of the prompt would be left of them",
                n_samples);
}

std::vector<SoundView> SoundProcessor::process(std::vector<float> samples) const {
  const std::unique_ptr<SoundSpectra> spectra = begin(std::move(samples));
  while (!spectra->done()) spectra->advance();
  return spectra->take();
}

Result<std::unique_ptr<SoundProcessor>> make_sound_processor(const ImageProcessorFiles& files) {
  const std::string model = text_of(files.config, "model_type");
  for (const SoundFamily& family : kFamilies) {
    if (family.model != model) continue;
    const std::string type = text_of(files.image_processor, "feature_extractor_type");
    if (!type.empty() && type != family.extractor) {
      return errorf(ErrorCode::kUnsupported,
                    "feature extractor: feature_extractor_type: expected {}, got \"{}\"",
                    family.extractor, type.substr(0, 80));
    }
    ProcessorSettings settings(std::string("feature extractor"), files.image_processor,
                               files.processor);
    std::unique_ptr<SoundProcessor> processor = family.make({files, settings});
    RETURN_IF_ERROR(settings.status());
    return processor;
  }
  return errorf(ErrorCode::kUnsupported,
                "feature extractor: sounds of models of type \"{}\" are not known here",
                model.substr(0, 80));
}

}  // namespace penstock
