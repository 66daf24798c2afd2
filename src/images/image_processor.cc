#include "images/image_processor.h"

#include <algorithm>

#include "images/view_processor.h"

namespace penstock {
namespace {

struct ImageFamily {
  std::string_view type;  // image_processor_type without "Fast" and "Pil"
  FamilyMaker make;
  std::vector<std::string_view> models;  // model types whose older files name no type
};

// The list of families.
const std::vector<ImageFamily>& families() {
  static const std::vector<ImageFamily> list = {
      {"Qwen2VLImageProcessor",
       make_qwen_images,
       {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe",
        "qwen2_5_omni", "qwen3_omni_moe"}},
      {"Qwen2_5_VLImageProcessor", make_qwen_images, {}},
      {"Gemma3ImageProcessor", make_gemma3_images, {"gemma3"}},
      {"PixtralImageProcessor", make_pixtral_images, {"mistral3", "pixtral"}},
      {"Idefics3ImageProcessor", make_idefics3_images, {"idefics3"}},
      {"SmolVLMImageProcessor", make_idefics3_images, {"smolvlm"}},
      {"GotOcr2ImageProcessor", make_ratio_tile_images, {"internvl", "aya_vision"}},
      {"LlavaImageProcessor", make_llava_images, {}},
      {"CLIPImageProcessor", make_llava_images, {"llava"}},
      {"SiglipImageProcessor", make_siglip_images, {"gemma3n"}},
      {"LlavaNextImageProcessor", make_llava_next_images, {"llava_next"}},
      {"LlavaOnevisionImageProcessor", make_onevision_images, {"llava_onevision"}},
      {"Gemma4ImageProcessor", make_gemma4_images, {"gemma4"}},
      {"Lfm2VlImageProcessor", make_lfm2_images, {"lfm2_vl"}},
      {"Glm4vImageProcessor", make_glm_images, {"glm4v", "glm4v_moe"}},
      {"Glm46VImageProcessor", make_glm_images, {"glm46v"}},
      {"GlmOcrImageProcessor", make_glm_images, {"glm_ocr"}},
      {"Llama4ImageProcessor", make_llama4_images, {"llama4"}},
      {"Kimi_K25ImageProcessor", make_kimi_images, {"kimi_k25"}},
      {"KimiVLImageProcessor", make_kimi_vl_images, {"kimi_vl"}},
      {"MiniCPMV4_6ImageProcessor", make_minicpm_images, {"minicpmv4_6"}},
      {"Cohere2VisionImageProcessor", make_cohere_images, {"cohere2_vision"}},
  };
  return list;
}

// Translates the settings of Kimi K2.5 as it was published, which stand in an object of their own, into those of
// transformers. Names that are there already stay.
nlohmann::json plain_settings(nlohmann::json file) {
  if (!file.is_object() || !file.contains("media_proc_cfg") || !file["media_proc_cfg"].is_object())
    return file;
  const nlohmann::json media = file["media_proc_cfg"];
  file.erase("media_proc_cfg");
  const auto take = [&](const char* from, const char* to) {
    if (media.contains(from) && !media[from].is_null() && !file.contains(to))
      file[to] = media[from];
  };
  take("in_patch_limit", "max_patches");
  take("merge_kernel_size", "merge_size");
  take("fixed_output_tokens", "fixed_output_tokens");  // null, or refused by its name
  for (const char* const name : {"patch_size", "image_mean", "image_std"}) take(name, name);
  if (media.contains("patch_limit_on_one_side") && !file.contains("size"))
    file["size"] = {{"max_height", media["patch_limit_on_one_side"]},
                    {"max_width", media["patch_limit_on_one_side"]}};
  if (!file.contains("image_processor_type"))
    file["image_processor_type"] = "Kimi_K25ImageProcessor";
  return file;
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const bool named = object.is_object() && object.contains(name) && object[name].is_string();
  return named ? object[name].get<std::string>() : "";
}

Result<const ImageFamily*> find_family(const nlohmann::json& settings,
                                       const nlohmann::json& config) {
  std::string type = text_of(settings, "image_processor_type");
  if (type.empty()) type = text_of(settings, "feature_extractor_type");
  for (const std::string_view ending : {"Fast", "Pil"})
    if (type.ends_with(ending)) type.resize(type.size() - ending.size());
  if (type == "CLIPFeatureExtractor") type = "CLIPImageProcessor";
  const std::string model = text_of(config, "model_type");
  for (const ImageFamily& family : families()) {
    if (!type.empty() && family.type == type) return &family;
    if (type.empty() &&
        std::find(family.models.begin(), family.models.end(), model) != family.models.end())
      return &family;
  }
  return errorf(
      ErrorCode::kUnsupported,
      "image processor: expected a known image_processor_type, got \"{}\" (model type \"{}\")",
      type.substr(0, 80), model.substr(0, 80));
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> make_image_processor(const ImageProcessorFiles& files,
                                                             const nlohmann::json& kwargs) {
  const bool nested = !files.image_processor.is_object() && files.processor.is_object() &&
                      files.processor.contains("image_processor");
  const nlohmann::json file =
      plain_settings(nested ? files.processor["image_processor"] : files.image_processor);
  if (!kwargs.is_null() && !kwargs.is_object())
    return errorf(ErrorCode::kInvalidArgument,
                  "image processor: expected settings as an object, got {}", kwargs.type_name());
  ASSIGN_OR_RETURN(const ImageFamily* family, find_family(file, files.config));
  ProcessorSettings settings(kwargs, file, files.processor);
  std::unique_ptr<ImageProcessor> processor = family->make({files, settings});
  RETURN_IF_ERROR(settings.status());
  return processor;
}

}  // namespace penstock
