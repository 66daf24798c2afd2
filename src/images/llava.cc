// LLaVA with CLIP or SigLIP: the shortest edge to a length and a square from the middle, or a distorted square.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

class LlavaProcessor : public ViewProcessor {
 public:
  LlavaProcessor(const FamilyInputs& inputs, bool siglip) {
    ProcessorSettings& settings = inputs.settings;
    const std::array<float, 3> mean = siglip ? kHalf : kClipMean, std = siglip ? kHalf : kClipStd;
    pixels_ = read_pixel_settings(settings, {.mean = mean, .std = std});
    size_ = settings.size(
        "size",
        siglip ? SizeSetting{.height = 224, .width = 224} : SizeSetting{.shortest_edge = 224},
        !siglip);
    const bool known =
        size_.shortest_edge > 0 ? size_.longest_edge == 0 : size_.height > 0 && size_.width > 0;
    if (!known) settings.refuse("size", "shortest_edge, or height and width", "other names");
    crop_ = settings.flag("do_center_crop", !siglip);
    crop_size_ = settings.size("crop_size", {.height = 224, .width = 224});
    if (crop_ && (crop_size_.height < 1 || crop_size_.width < 1))
      settings.refuse("crop_size", "height and width", "other names");
    if (!crop_ && size_.shortest_edge > 0)
      settings.refuse("do_center_crop", "true with a shortest edge", "false");
    pad_ = settings.flag("do_pad", false);
    read_tokens(inputs, siglip);
    placeholder_ = soft_token_ =
        inputs.token("image_token", settings.processor_text("image_token", "<image>").c_str());
  }

 private:
  void read_tokens(const FamilyInputs& inputs, bool siglip) {
    ProcessorSettings& settings = inputs.settings;
    const int tower = inputs.config_integer({"vision_config", "patch_size"});
    grid_patch_ = settings.processor_integer("patch_size", tower > 0 ? tower : 14, 1, 256);
    const auto& config = inputs.files.config;
    const std::string name = "vision_feature_select_strategy";
    const bool named = config.is_object() && config.contains(name) && config[name].is_string();
    const std::string strategy = settings.processor_text(
        name.c_str(), named ? config[name].get<std::string>().c_str() : "default");
    if (strategy != "default" && strategy != "full")
      settings.refuse(name, "default or full", strategy);
    const bool described =
        inputs.files.processor.is_object() && inputs.files.processor.contains("patch_size");
    extra_tokens_ =
        settings.processor_integer("num_additional_image_tokens", described || siglip ? 0 : 1);
    if (strategy == "default") --extra_tokens_;
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const int h = crop_ ? crop_size_.height : size_.height,
              w = crop_ ? crop_size_.width : size_.width;
    const int64_t longer = std::max(width, height), shorter = std::min(width, height),
                  side = size_.shortest_edge;
    constexpr int64_t kMostPixels = int64_t{1} << 26;
    if (pad_) RETURN_IF_ERROR(check_square(width, height));
    if (!pad_ && side > 0 && side * longer / shorter > kMostPixels / side)
      return errorf(
          ErrorCode::kInvalidArgument,
          "image of {} x {}: expected at most {} pixels with a shortest edge of {}, got more",
          width, height, kMostPixels, side);
    const int n = (h / grid_patch_) * (w / grid_patch_) + extra_tokens_;
    add_view(plan, h, w, n);
    add_soft(plan, n);
    return {};
  }

  // A square with the picture in its middle, in the mean's colour.
  Image pad_to_square(const Image& image) const {
    const int side = std::max(image.width, image.height);
    std::array<uint8_t, 3> color{};
    for (size_t c = 0; c < 3; ++c)
      color[c] = static_cast<uint8_t>(std::clamp(std::floor(pixels_.mean[c] * 255.0), 0.0, 255.0));
    return pad_image(image, (side - image.width) / 2, (side - image.height) / 2, side, side, color);
  }

  // The middle of a picture; what it lacks is black.
  static Image crop_middle(Image image, int height, int width) {
    if (width > image.width || height > image.height) {
      const int padded_width = std::max(width, image.width),
                padded_height = std::max(height, image.height);
      image = pad_image(image, (padded_width - image.width) / 2, (padded_height - image.height) / 2,
                        padded_width, padded_height);
    }
    return crop_image(image, (image.width - width) / 2, (image.height - height) / 2, width, height);
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan&) const override {
    Image resized = pad_ ? pad_to_square(image) : image;
    int w = size_.width, h = size_.height;
    if (size_.shortest_edge > 0) {
      const int64_t longer = std::max(resized.width, resized.height),
                    shorter = std::min(resized.width, resized.height);
      const int other = static_cast<int>(static_cast<double>(size_.shortest_edge * longer) /
                                         static_cast<double>(shorter));
      w = resized.width <= resized.height ? size_.shortest_edge : other;
      h = resized.width <= resized.height ? other : size_.shortest_edge;
    }
    resized = resize_image(resized, w, h, pixels_.filter);
    std::vector<Image> views;
    views.push_back(crop_ ? crop_middle(std::move(resized), crop_size_.height, crop_size_.width)
                          : std::move(resized));
    return views;
  }

  SizeSetting size_, crop_size_;
  bool crop_ = true, pad_ = false;
  int extra_tokens_ = 0;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_llava_images(const FamilyInputs& inputs) {
  return std::make_unique<LlavaProcessor>(inputs, false);
}
std::unique_ptr<ImageProcessor> make_siglip_images(const FamilyInputs& inputs) {
  if (inputs.model_type() == "gemma3n") return make_gemma3n_images(inputs);
  return std::make_unique<LlavaProcessor>(inputs, true);
}

}  // namespace penstock
