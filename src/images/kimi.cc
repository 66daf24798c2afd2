// Kimi K2.5 and Kimi-VL: reduced to limits of patches, never enlarged, padded with black to whole blocks.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

class KimiProcessor : public ViewProcessor {
 public:
  KimiProcessor(const FamilyInputs& inputs, bool older) : older_(older) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(settings, {});
    order_ = {PixelLayout::kPatches, settings.integer("patch_size", 14, 1, 256)};
    if (older) {
      const SizeSetting kernel = settings.size("merge_kernel_size", {.height = 2, .width = 2});
      merge_ = kernel.height;
      if (kernel.width != merge_)
        settings.refuse("merge_kernel_size", "two equal numbers", "others");
      if (!settings.flag("pad_input", true)) settings.refuse("pad_input", "true", "false");
      max_patches_ = settings.integer("in_token_limit", 4096);
      longest_side_ = 511;  // the tower's position table
      settings.ignore({"num_pooled_tokens"});
    } else {
      merge_ = settings.integer("merge_size", 2, 1, 16);
      max_patches_ = settings.integer("max_patches", 16384);
      const SizeSetting most = settings.size("size", {.max_height = 512, .max_width = 512});
      longest_side_ = most.max_height;
      if (longest_side_ < 1 || most.max_width != longest_side_)
        settings.refuse("size", "equal max_height and max_width", "others");
    }
    placeholder_ = soft_token_ = inputs.token("image_token", "<|media_pad|>");
  }

 private:
  std::pair<int, int> reduced(int width, int height) const {
    const int patch = order_.patch;
    const double n_h = older_ ? height / patch : std::max(1.0, static_cast<double>(height / patch));
    const double n_w = older_ ? width / patch : std::max(1.0, static_cast<double>(width / patch));
    if (older_) {
      const double scale = n_h * n_w > max_patches_ ? std::sqrt(max_patches_ / (n_h * n_w)) : 1.0;
      return {static_cast<int>(width * scale), static_cast<int>(height * scale)};
    }
    const double most = static_cast<double>(longest_side_) * patch;
    const double scale =
        std::min({1.0, std::sqrt(max_patches_ / (n_h * n_w)), most / height, most / width});
    const auto side = [&](int length) {
      return static_cast<int>(
          std::min<double>(std::max(1, static_cast<int>(length * scale)), most));
    };
    return {side(width), side(height)};
  }

  int padded(int side) const {
    const int block = merge_ * order_.patch;
    return (side + block - 1) / block * block;
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const auto [w, h] = reduced(width, height);
    const bool fits = !older_ || std::max(padded(w), padded(h)) / order_.patch <= longest_side_;
    if (w < 1 || h < 1 || !fits)
      return errorf(
          ErrorCode::kInvalidArgument,
          "image of {} x {}: expected sides of 1 to {} patches after reducing, got {} x {} pixels",
          width, height, longest_side_, w, h);
    const int n = (padded(h) / order_.patch) * (padded(w) / order_.patch) / (merge_ * merge_);
    add_view(plan, padded(h), padded(w), n);
    add_soft(plan, n);
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    const auto [w, h] = reduced(image.width, image.height);
    return {pad_image(resize_image(image, w, h, pixels_.filter), 0, 0, plan.views[0].width,
                      plan.views[0].height)};
  }

  bool older_;
  int merge_ = 0, max_patches_ = 0, longest_side_ = 0;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_kimi_images(const FamilyInputs& inputs) {
  return std::make_unique<KimiProcessor>(inputs, false);
}
std::unique_ptr<ImageProcessor> make_kimi_vl_images(const FamilyInputs& inputs) {
  return std::make_unique<KimiProcessor>(inputs, true);
}

}  // namespace penstock
