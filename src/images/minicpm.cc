// MiniCPM-V 4.6: the whole picture, then slices of a large one.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

class MiniCpmProcessor : public ViewProcessor {
 public:
  explicit MiniCpmProcessor(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(settings, {});
    order_ = {PixelLayout::kPatches, settings.integer("patch_size", 14, 1, 256)};
    max_slices_ = settings.integer("max_slice_nums", 9, 1, 1024);
    scale_ = settings.integer("scale_resolution", 448, 1, 16384);
    slice_ = settings.flag("slice_mode", true);
    const std::string mode = settings.text("downsample_mode", "16x");
    if (mode != "4x" && mode != "16x") settings.refuse("downsample_mode", "4x or 16x", mode);
    merge_ = mode == "4x" ? 2 : 4;
    numbered_ = settings.flag("use_image_id", true);
    placeholder_ = soft_token_ = inputs.token("image_token", "<|image_pad|>");
    begin_ = inputs.token("image_start_token", "<image>"),
    end_ = inputs.token("image_end_token", "</image>");
    slice_begin_ = inputs.token("slice_start_token", "<slice>"),
    slice_end_ = inputs.token("slice_end_token", "</slice>");
    number_begin_ = inputs.token("image_id_start_token", "<image_id>"),
    number_end_ = inputs.token("image_id_end_token", "</image_id>");
  }

 private:
  struct Size {
    double height = 0, width = 0;
  };

  static double divided(double length, double divisor) {
    return std::max(python_round(length / divisor) * divisor, divisor);
  }

  Size best_size(Size size, bool enlarge) const {
    if (size.height * size.width > static_cast<double>(scale_) * scale_ || enlarge) {
      const double ratio = size.width / size.height;
      size.height = std::floor(scale_ / std::sqrt(ratio));
      size.width = std::floor(size.height * ratio);
    }
    const double block = order_.patch * merge_;
    return {divided(size.height, block), divided(size.width, block)};
  }

  // Rows and columns of slices; {0, 0} without.
  std::pair<int, int> choose_grid(int width, int height) const {
    const double ratio = std::log(static_cast<double>(width) / height);
    const double area =
        static_cast<double>(width) * height / (static_cast<double>(scale_) * scale_);
    const int multiple = static_cast<int>(std::min<double>(std::ceil(area), max_slices_));
    if (!slice_ || multiple <= 1) return {0, 0};
    std::pair<int, int> best = {1, 1};
    double least = INFINITY;
    for (int n = multiple - 1; n <= multiple + 1; ++n) {
      if (n == 1 || n > max_slices_) continue;
      for (int rows = 1; rows <= n; ++rows) {
        if (n % rows != 0) continue;
        const int columns = n / rows;
        const double error = std::abs(ratio - std::log(static_cast<double>(columns) / rows));
        if (error < least || (error == least && rows > best.first)) best = {rows, columns};
        least = std::min(least, error);
      }
    }
    return best;
  }

  // The size of a slice.
  Size slice_size(int width, int height, int rows, int columns) const {
    return best_size({divided(height, rows) / rows, divided(width, columns) / columns}, true);
  }

  void add_part(ImagePlan& plan, Size size, const std::string& begin,
                const std::string& end) const {
    const double most = 1 << 16;
    const int h = static_cast<int>(std::min(size.height, most)),
              w = static_cast<int>(std::min(size.width, most));
    const int n = (h / order_.patch) * (w / order_.patch) / (merge_ * merge_);
    add_view(plan, h, w, n);
    add_text(plan, begin);
    add_soft(plan, n);
    add_text(plan, end);
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    if (numbered_) {
      add_text(plan, number_begin_);
      plan.prompt.push_back({.is_number = true});
      add_text(plan, number_end_);
    }
    const auto [rows, columns] = choose_grid(width, height);
    plan.tile_rows = rows, plan.tile_cols = columns;
    add_part(plan, best_size({static_cast<double>(height), static_cast<double>(width)}, rows == 0),
             begin_, end_);
    for (int row = 0; row < rows; ++row) {
      if (row > 0) add_text(plan, "\n");
      for (int column = 0; column < columns; ++column)
        add_part(plan, slice_size(width, height, rows, columns), slice_begin_, slice_end_);
    }
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    std::vector<Image> views = {
        resize_image(image, plan.views[0].width, plan.views[0].height, pixels_.filter)};
    if (plan.tile_rows > 0)
      add_tiles(resize_image(image, plan.views[1].width * plan.tile_cols,
                             plan.views[1].height * plan.tile_rows, pixels_.filter),
                plan.tile_rows, plan.tile_cols, views);
    return views;
  }

  int max_slices_ = 0, scale_ = 0, merge_ = 0;
  bool slice_ = true, numbered_ = true;
  std::string begin_, end_, slice_begin_, slice_end_, number_begin_, number_end_;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_minicpm_images(const FamilyInputs& inputs) {
  return std::make_unique<MiniCpmProcessor>(inputs);
}

}  // namespace penstock
