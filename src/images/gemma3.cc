// Gemma 3 and 3n: the whole picture distorted to a square, and in Gemma 3 on request ("pan and scan") crops of a
// long one.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

class Gemma3Processor : public ViewProcessor {
 public:
  Gemma3Processor(const FamilyInputs& inputs, bool nano) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(
        settings, {.filter = nano ? ResizeFilter::kBicubic : ResizeFilter::kBilinear});
    size_ = settings.size("size", {.height = 224, .width = 224});
    if (size_.height < 1 || size_.width < 1)
      settings.refuse("size", "height and width", "one or none of them");
    grid_patch_ = inputs.config_integer({"vision_config", "patch_size"});
    n_tokens_ =
        settings.processor_integer("image_seq_length", settings.integer("image_seq_length", 256));
    if (!nano) {  // the file's are overridden by transformers' processor
      pan_and_scan_ = settings.request_flag("do_pan_and_scan", false);
      least_crop_ = settings.request_integer("pan_and_scan_min_crop_size", 256);
      most_crops_ = settings.request_integer("pan_and_scan_max_num_crops", 4);
      least_ratio_ = settings.request_number("pan_and_scan_min_ratio_to_activate", 1.2);
    }
    begin_ = inputs.token("boi_token", "<start_of_image>");
    soft_token_ = inputs.token("image_token", "<image_soft_token>");
    placeholder_ = nano ? soft_token_ : begin_;
    end_ = inputs.token("eoi_token", "<end_of_image>");
  }

 private:
  // Returns how many crops a picture is cut into along its longer side, or 0.
  int count_crops(int width, int height) const {
    const double longer = std::max(width, height), shorter = std::min(width, height);
    if (!pan_and_scan_ || longer / shorter < least_ratio_) return 0;
    int n = static_cast<int>(std::floor(longer / shorter + 0.5));
    n = std::min(static_cast<int>(std::floor(longer / least_crop_)), n);
    n = std::min(most_crops_, std::max(2, n));
    const double side = std::ceil(longer / n);
    return std::min(side, shorter) < least_crop_ ? 0 : n;
  }

  void add_picture(ImagePlan& plan) const {
    add_view(plan, size_.height, size_.width, n_tokens_);
    add_text(plan, "\n\n" + begin_);
    add_soft(plan, n_tokens_);
    add_text(plan, end_ + "\n\n");
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const int n_crops = count_crops(width, height);
    if (n_crops > 0) add_text(plan, "Here is the original image ");
    add_picture(plan);
    if (n_crops > 0) add_text(plan, " and here are some crops to help you see better ");
    for (int i = 0; i < n_crops; ++i) {
      if (i > 0) add_text(plan, " ");
      add_picture(plan);
    }
    plan.tile_rows = n_crops == 0 ? 0 : width >= height ? 1 : n_crops;
    plan.tile_cols = n_crops == 0 ? 0 : width >= height ? n_crops : 1;
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    std::vector<Image> views;
    const auto add = [&](const Image& part) {
      views.push_back(resize_image(part, size_.width, size_.height, pixels_.filter));
    };
    add(image);
    const int n = std::max(plan.tile_rows, plan.tile_cols);
    const bool wide = image.width >= image.height;
    const int side = n == 0 ? 0 : ((wide ? image.width : image.height) + n - 1) / n;
    for (int i = 0; i < n; ++i)
      add(wide ? crop_image(image, side * i, 0, side, image.height)
               : crop_image(image, 0, side * i, image.width, side));
    return views;
  }

  SizeSetting size_;
  int n_tokens_ = 0;
  bool pan_and_scan_ = false;
  int least_crop_ = 0, most_crops_ = 0;
  double least_ratio_ = 0;
  std::string begin_, end_;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_gemma3_images(const FamilyInputs& inputs) {
  return std::make_unique<Gemma3Processor>(inputs, false);
}
std::unique_ptr<ImageProcessor> make_gemma3n_images(const FamilyInputs& inputs) {
  return std::make_unique<Gemma3Processor>(inputs, true);
}

}  // namespace penstock
