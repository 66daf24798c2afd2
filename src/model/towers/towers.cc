// THE list of towers, and how the one of a file is found.
#include <algorithm>

#include "formats/hf_config.h"
#include "model/towers/families.h"
#include "model/towers/tower.h"

namespace penstock {

extern const TowerFamily kAyaTower, kCohere2Tower, kGemma4Tower, kGlm4vTower, kLlavaNextTower,
    kOneVisionTower, kGemma3Tower, kIdefics3Tower, kLfm2VlTower, kLlama4Tower, kInternVlTower,
    kLlavaTower, kMistral3Tower, kQwen2VlTower, kQwen25VlTower, kQwen35Tower, kQwen3VlTower,
    kQwen2AudioTower, kQwen3AsrTower, kVoxtralTower, kWhisperTower, kUltravoxTower, kQwen25OmniEar,
    kQwen25OmniEye, kQwen3OmniEar, kQwen3OmniEye, kGraniteSpeechTower, kGemma4Ear, kGemma3nEar;

namespace {

constexpr const TowerFamily* kFamilies[] = {
    &kGemma4Tower,   &kGlm4vTower,         &kLlavaNextTower,  &kOneVisionTower, &kAyaTower,
    &kCohere2Tower,  &kLfm2VlTower,        &kLlama4Tower,     &kGemma3Tower,    &kIdefics3Tower,
    &kInternVlTower, &kLlavaTower,         &kMistral3Tower,   &kQwen2VlTower,   &kQwen25VlTower,
    &kQwen35Tower,   &kQwen3VlTower,       &kQwen2AudioTower, &kVoxtralTower,   &kQwen3AsrTower,
    &kWhisperTower,  &kUltravoxTower,      &kQwen25OmniEar,   &kQwen25OmniEye,  &kQwen3OmniEar,
    &kQwen3OmniEye,  &kGraniteSpeechTower, &kGemma4Ear,       &kGemma3nEar,
};

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : std::string();
}

// Returns the type of the file's tower for a sense, "" if it has none.
std::string tower_type(const WeightSource& source, TowerSense sense) {
  const nlohmann::json& config = multimodal_part(source.config());
  if (source.naming() == Naming::kGguf || !config.is_object()) return "";
  // Whisper's encoder has no section of its own.
  const std::string type = text_of(config, "model_type");
  if (type == "whisper") return sense == TowerSense::kHearing ? type : "";
  // Ultravox names an encoder whose configuration and weights may be elsewhere.
  if (sense == TowerSense::kHearing && !text_of(config, "audio_model_id").empty()) return type;
  auto own = config.find(sense == TowerSense::kSight ? "vision_config" : "audio_config");
  if (own == config.end() && sense == TowerSense::kHearing && config.contains("projector_config"))
    own = config.find("encoder_config");  // Granite Speech
  return own == config.end() || !own->is_object() ? "" : type;
}

}  // namespace

std::span<const TowerFamily* const> tower_families() { return kFamilies; }

Result<std::optional<TowerConfig>> Tower::read_config(const WeightSource& source,
                                                      TowerSense sense) {
  const std::string type = tower_type(source, sense);
  if (type.empty()) return std::nullopt;
  std::vector<std::string_view> known;
  for (const TowerFamily* family : kFamilies) {
    if (family->sense != sense) continue;
    const auto& types = family->hf_types;
    known.insert(known.end(), types.begin(), types.end());
    if (std::ranges::find(types, type) == types.end()) continue;
    TowerReader reader(source, family->hf_defaults, sense);
    TowerConfig config;
    config.names = NameTable(false);
    config.family = family->name;
    family->configure(reader, config);
    RETURN_IF_ERROR(reader.status());
    const TowerPositions& positions = config.positions;
    const bool has_grid =
        positions.kind == TowerPositions::Kind::kNone || (positions.rows > 0 && positions.cols > 0);
    if (!has_grid || config.unit < 1)
      return errorf(ErrorCode::kCorruptFile, "{}: image_size: expected at least {} pixels",
                    source.path().string(), config.patch_size);
    const int n_ropes = static_cast<int>(config.ropes.size());
    for (LayerConfig& layer : config.layers.layers)
      layer.rope = n_ropes - 1, layer.first_rope = n_ropes > 1 ? 0 : -1;
    return config;
  }
  return errorf(ErrorCode::kUnsupported,
                "{}: config.json: model_type: the {} of '{}' is not known here: expected one of {}",
                source.path().string(),
                sense == TowerSense::kSight ? "vision tower" : "tower that hears", type,
                fmt::join(known, ", "));
}

}  // namespace penstock
