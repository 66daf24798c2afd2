// Qwen2-VL, 2.5-VL, 3-VL, 3.5 and GLM-4V: sides become multiples of a factor within limits of area, patches
// are ordered by blocks of merge x merge, each with two equal frames.
#include <algorithm>
#include <cmath>

#include "images/block_patches.h"
#include "images/view_processor.h"

namespace penstock {

Result<BlockSize> fit_area(int width, int height, const AreaRule& rule) {
  const int factor = rule.factor;
  double w = width, h = height;
  if (rule.enlarges && (height < factor || width < factor)) {
    const double scale = std::max(factor / h, factor / w);
    h = std::floor(h * scale), w = std::floor(w * scale);
  }
  if (std::max(h, w) / std::min(h, w) > 200)
    return errorf(ErrorCode::kInvalidArgument,
                  "image of {} x {}: expected sides whose ratio is at most 200", width, height);
  double bar_h = python_round(h / factor) * factor, bar_w = python_round(w / factor) * factor;
  const double n = rule.n_frames, area = rule.n_counted * bar_h * bar_w;
  if (area > rule.most) {
    const double beta = std::sqrt(n * h * w / rule.most);
    bar_h = std::max<double>(factor, std::floor(h / beta / factor) * factor);
    bar_w = std::max<double>(factor, std::floor(w / beta / factor) * factor);
  } else if (area < rule.least) {
    const double beta = std::sqrt(rule.least / (n * h * w));
    bar_h = std::ceil(h * beta / factor) * factor, bar_w = std::ceil(w * beta / factor) * factor;
  }
  if (bar_h < 1 || bar_w < 1)
    return errorf(ErrorCode::kInvalidArgument,
                  "image of {} x {}: a side would become 0 pixels (multiples of {})", width, height,
                  factor);
  return BlockSize{static_cast<int>(bar_h), static_cast<int>(bar_w)};
}

namespace {

class BlockPatchProcessor : public ViewProcessor {
 public:
  BlockPatchProcessor(const FamilyInputs& inputs, bool glm) : glm_(glm) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(settings, {.mean = kClipMean, .std = kClipStd});

    order_ = {PixelLayout::kPatches, settings.integer("patch_size", 14, 1, 256),
              settings.integer("merge_size", 2, 1, 16),
              settings.integer("temporal_patch_size", 2, 1, 16)};
    placeholder_ = soft_token_ = inputs.token("image_token", glm ? "<|image|>" : "<|image_pad|>");
    const SizeSetting published =
        glm ? SizeSetting{.shortest_edge = 112 * 112, .longest_edge = 28 * 28 * 15000}
            : SizeSetting{.shortest_edge = 56 * 56, .longest_edge = 28 * 28 * 1280};
    limits_ = settings.size("size", published);
    read_older_limits(settings);
    if (limits_.shortest_edge < 1 || limits_.longest_edge < 1)
      settings.refuse("size", "shortest_edge and longest_edge (areas in pixels)",
                      "one or none of them");
  }

 private:
  // min_pixels and max_pixels of older files. A request's size counts more than those of the file.
  void read_older_limits(ProcessorSettings& settings) {
    settings.ignore({"min_pixels", "max_pixels"});
    const bool other_size = settings.in_request("size");
    if (!other_size || settings.in_request("min_pixels"))
      limits_.shortest_edge = settings.integer("min_pixels", limits_.shortest_edge, 1, 1 << 28);
    if (!other_size || settings.in_request("max_pixels"))
      limits_.longest_edge = settings.integer("max_pixels", limits_.longest_edge, 1, 1 << 28);
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const int factor = order_.patch * order_.merge;
    AreaRule rule{factor, static_cast<double>(limits_.shortest_edge),
                  static_cast<double>(limits_.longest_edge)};
    if (glm_) rule.enlarges = true, rule.n_frames = rule.n_counted = order_.frames;
    ASSIGN_OR_RETURN(const BlockSize size, fit_area(width, height, rule));
    const int n_tokens = size.height / factor * (size.width / factor);
    add_view(plan, size.height, size.width, n_tokens);
    add_soft(plan, n_tokens);
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    return {resize_image(image, plan.views[0].width, plan.views[0].height, pixels_.filter)};
  }

  bool glm_;
  SizeSetting limits_;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_qwen_images(const FamilyInputs& inputs) {
  return std::make_unique<BlockPatchProcessor>(inputs, false);
}
std::unique_ptr<ImageProcessor> make_glm_images(const FamilyInputs& inputs) {
  return std::make_unique<BlockPatchProcessor>(inputs, true);
}

}  // namespace penstock
