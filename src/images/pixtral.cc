// Pixtral and Mistral 3: reduced to a longest edge, sides rounded up to patches (times the merge); a row of
// soft tokens ends in a break, the last in an end.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

class PixtralProcessor : public ViewProcessor {
 public:
  explicit PixtralProcessor(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(settings, {.mean = kClipMean, .std = kClipStd});
    const SizeSetting size = settings.size("size", {.longest_edge = 1024});
    most_height_ = size.longest_edge > 0 ? size.longest_edge : size.height;
    most_width_ = size.longest_edge > 0 ? size.longest_edge : size.width;
    if (most_height_ < 1 || most_width_ < 1)
      settings.refuse("size", "longest_edge, or height and width", "neither");
    // The patch of the image processor is overridden by transformers' processor, but where there is none.
    const SizeSetting own = settings.size("patch_size", {.height = 16, .width = 16});
    const int tower = inputs.config_integer({"vision_config", "patch_size"});
    grid_patch_ = settings.processor_integer("patch_size", tower > 0 ? tower : own.height, 1, 256);
    const int merge = inputs.config_integer({"spatial_merge_size"});
    block_ =
        grid_patch_ * settings.processor_integer("spatial_merge_size", std::max(merge, 1), 1, 16);
    settings.ignore({"do_pad"});
    placeholder_ = soft_token_ = settings.processor_text("image_token", "[IMG]");
    break_ = settings.processor_text("image_break_token", "[IMG_BREAK]");
    end_ = settings.processor_text("image_end_token", "[IMG_END]");
  }

 private:
  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const double ratio = std::max(static_cast<double>(height) / most_height_,
                                  static_cast<double>(width) / most_width_);
    if (ratio > 1) {
      height = static_cast<int>(std::floor(height / ratio));
      width = static_cast<int>(std::floor(width / ratio));
    }
    // Python's (n - 1) // block + 1, which is 0 for n = 0.
    const int rows = height == 0 ? 0 : (height - 1) / block_ + 1,
              columns = width == 0 ? 0 : (width - 1) / block_ + 1;
    if (rows == 0 || columns == 0)
      return errorf(ErrorCode::kInvalidArgument, "image of {} x {}: a side would become 0 pixels",
                    plan.width, plan.height);
    add_view(plan, rows * block_, columns * block_, rows * columns);
    for (int row = 0; row < rows; ++row) {
      add_soft(plan, columns);
      add_text(plan, row + 1 < rows ? break_ : end_);
    }
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    return {resize_image(image, plan.views[0].width, plan.views[0].height, pixels_.filter)};
  }

  int most_height_ = 0, most_width_ = 0, block_ = 0;
  std::string break_, end_;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_pixtral_images(const FamilyInputs& inputs) {
  return std::make_unique<PixtralProcessor>(inputs);
}

}  // namespace penstock
