#include "images/video_processor.h"

#include <algorithm>

#include "images/video_parts.h"

namespace penstock {
namespace {

std::string video_text(const nlohmann::json& object, const char* name) {
  const bool named = object.is_object() && object.contains(name) && object[name].is_string();
  return named ? object[name].get<std::string>() : "";
}

struct VideoFamily {
  std::string_view type;                 // video_processor_type
  std::vector<std::string_view> models;  // model types whose files name none
  VideoFamilyMaker make;
};

// THE list of families that take videos.
const std::vector<VideoFamily>& video_families() {
  static const std::vector<VideoFamily> list = {
      {"Qwen2VLVideoProcessor",
       {"qwen2_vl", "qwen2_5_vl", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"},
       make_qwen2_videos},
      {"Qwen3VLVideoProcessor",
       {"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"},
       make_qwen3_videos},
      {"Glm4vVideoProcessor", {"glm4v", "glm4v_moe", "glm46v"}, make_glm4v_videos},
      {"Glm46VVideoProcessor", {"glm46v", "glm4v", "glm4v_moe"}, make_glm46v_videos},
      {"InternVLVideoProcessor", {"internvl"}, make_intern_videos},
      {"LlavaOnevisionVideoProcessor", {"llava_onevision"}, make_onevision_videos},
      {"SmolVLMVideoProcessor", {"smolvlm"}, make_smolvlm_videos},
  };
  return list;
}

// Settings of videos only, and those that pictures have as well.
constexpr const char* kVideoNames[] = {"fps",           "num_frames",           "min_frames",
                                       "max_frames",    "do_sample_frames",     "max_duration",
                                       "initial_shift", "cap_pixels_per_frame", "max_video_tokens"};
constexpr const char* kCommonNames[] = {
    "size",       "min_pixels", "max_pixels",          "do_resize",      "resample",
    "do_rescale", "image_mean", "rescale_factor",      "do_normalize",   "image_std",
    "patch_size", "merge_size", "temporal_patch_size", "do_convert_rgb", "device"};

bool is_one_of(std::span<const char* const> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

nlohmann::json settings_for_images(const nlohmann::json& kwargs) {
  if (!kwargs.is_object()) return kwargs;
  nlohmann::json result = nlohmann::json::object();
  for (const auto& [name, value] : kwargs.items())
    if (!is_one_of(kVideoNames, name)) result[name] = value;
  return result;
}

nlohmann::json settings_for_videos(const nlohmann::json& kwargs) {
  if (!kwargs.is_object()) return kwargs;
  nlohmann::json result = nlohmann::json::object();
  for (const auto& [name, value] : kwargs.items())
    if (is_one_of(kVideoNames, name) || is_one_of(kCommonNames, name)) result[name] = value;
  return result;
}

Result<std::unique_ptr<VideoProcessor>> make_video_processor(const ImageProcessorFiles& files,
                                                             const nlohmann::json& kwargs) {
  const nlohmann::json* file = &files.image_processor;
  if (files.processor.is_object() && files.processor.contains("video_processor")) {
    file = &files.processor["video_processor"];
  } else if (files.video_processor.is_object()) {
    file = &files.video_processor;
  }
  const std::string type = video_text(*file, "video_processor_type"),
                    model = video_text(files.config, "model_type");
  for (const VideoFamily& family : video_families()) {
    // A model of another family may read the same frames and place them otherwise.
    const bool knows_model = std::ranges::find(family.models, model) != family.models.end();
    const bool is_it =
        type.empty() ? knows_model : family.type == type && (model.empty() || knows_model);
    if (!is_it) continue;
    ProcessorSettings settings("video processor", kwargs, *file, files.processor);
    auto made = family.make({files, settings});
    RETURN_IF_ERROR(settings.status());
    return made;
  }
  return nullptr;
}

}  // namespace penstock
