// Gemma 4: the largest size with the picture's ratio that a budget of soft tokens allows.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

class Gemma4Processor : public ViewProcessor {
 public:
  explicit Gemma4Processor(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ =
        read_pixel_settings(settings, {.do_normalize = false, .mean = {0, 0, 0}, .std = {1, 1, 1}});
    order_ = {.layout = PixelLayout::kPatches,
              .patch = settings.integer("patch_size", 16, 1, 256),
              .channels_last = true};
    pool_ = settings.integer("pooling_kernel_size", 3, 1, 16);
    budget_ = settings.integer("max_soft_tokens", 280);
    constexpr int kBudgets[] = {70, 140, 280, 560, 1120};
    if (std::find(std::begin(kBudgets), std::end(kBudgets), budget_) == std::end(kBudgets))
      settings.refuse("max_soft_tokens", "70, 140, 280, 560 or 1120", std::to_string(budget_));
    settings.ignore({"size", "image_seq_length"});
    placeholder_ = soft_token_ = inputs.token("image_token", "<|image|>");
    begin_ = inputs.token("boi_token", "<|image>");
    end_ = inputs.token("eoi_token", "<image|>");
  }

 private:
  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const double total = static_cast<double>(height) * width;
    const double target =
        static_cast<double>(budget_) * pool_ * pool_ * order_.patch * order_.patch;
    const double factor = std::sqrt(target / total);
    const int side = pool_ * order_.patch;
    double h = std::floor(factor * height / side) * side,
           w = std::floor(factor * width / side) * side;
    const double longest = static_cast<double>(budget_) * side;
    if (h == 0 && w == 0)
      return errorf(ErrorCode::kInvalidArgument,
                    "image of {} x {}: both sides would become 0 pixels", width, height);
    if (h == 0) {
      h = side;
      w = std::min(std::floor(static_cast<double>(width) / height) * side, longest);
    } else if (w == 0) {
      w = side;
      h = std::min(std::floor(static_cast<double>(height) / width) * side, longest);
    }
    if (h * w > target)
      return errorf(ErrorCode::kInvalidArgument,
                    "image of {} x {}: expected at most {} soft tokens, {} x {} pixels have more",
                    width, height, budget_, w, h);
    const int n =
        static_cast<int>(h / order_.patch) * static_cast<int>(w / order_.patch) / (pool_ * pool_);
    add_view(plan, static_cast<int>(h), static_cast<int>(w), n);
    add_text(plan, begin_);
    add_soft(plan, n);
    add_text(plan, end_);
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    return {resize_image(image, plan.views[0].width, plan.views[0].height, pixels_.filter)};
  }

  int pool_ = 0, budget_ = 0;
  std::string begin_, end_;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_gemma4_images(const FamilyInputs& inputs) {
  return std::make_unique<Gemma4Processor>(inputs);
}

}  // namespace penstock
