// Llama 4: a canvas of up to 16 tiles, with the picture in its upper left corner, then the whole as one tile.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

// transformers computes some scales as tensors, which are 32-bit, and others as Python's numbers; a comparison of
// the two is in 32 bits.
struct CanvasScale {
  double value = 0;
  bool single = false;

  static CanvasScale of(int target, int size, bool single) {
    if (single)
      return {static_cast<double>(static_cast<float>(target) / static_cast<float>(size)), true};
    return {static_cast<double>(target) / size, false};
  }
  bool operator<(const CanvasScale& other) const {
    if (single || other.single) return static_cast<float>(value) < static_cast<float>(other.value);
    return value < other.value;
  }
  int times(int size) const {
    const double product =
        single ? static_cast<double>(static_cast<float>(size) * static_cast<float>(value))
               : size * value;
    return static_cast<int>(std::floor(product));
  }
};

class Llama4Processor : public ViewProcessor {
 public:
  explicit Llama4Processor(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ =
        read_pixel_settings(settings, {.filter = ResizeFilter::kBilinear, .in_bfloat16 = true});
    const SizeSetting size = settings.size("size", {.height = 336, .width = 336});
    tile_ = size.height;
    if (tile_ < 1 || size.width != tile_) settings.refuse("size", "a square", "other sizes");
    max_tiles_ = settings.integer("max_patches", 16, 1, 1024);
    to_max_canvas_ = settings.flag("resize_to_max_canvas", false);
    grid_patch_ = settings.processor_integer("patch_size", 14, 1, 256);
    const double shuffle = settings.processor_number("pixel_shuffle_ratio", 0.5);
    if (!(shuffle > 0 && shuffle <= 1))
      settings.refuse("pixel_shuffle_ratio", "a number above 0, at most 1",
                      std::to_string(shuffle));
    const int downsample =
        shuffle > 0 ? std::max(1, static_cast<int>(python_round(1.0 / (shuffle * shuffle)))) : 1;
    n_tokens_ = (tile_ / grid_patch_) * (tile_ / grid_patch_) / downsample;
    placeholder_ = settings.processor_text("image_token", "<|image|>");
    soft_token_ = "<|patch|>";
    settings.ignore({"do_pad", "pad_size"});
  }

 private:
  struct Canvas {
    int rows = 1, columns = 1;
  };

  // Canvases by number of tiles from the most, those of an equal ratio behind the first of it.
  std::vector<Canvas> canvases() const {
    std::vector<std::vector<Canvas>> by_ratio;
    for (int n = max_tiles_; n > 0; --n)
      for (int rows = 1; rows <= n; ++rows) {
        if (n % rows != 0) continue;
        const Canvas canvas{rows, n / rows};
        const auto same = std::find_if(by_ratio.begin(), by_ratio.end(), [&](const auto& group) {
          return group[0].rows * canvas.columns == canvas.rows * group[0].columns;
        });
        if (same == by_ratio.end())
          by_ratio.push_back({canvas});
        else
          same->push_back(canvas);
      }
    std::vector<Canvas> all;
    for (const auto& group : by_ratio) all.insert(all.end(), group.begin(), group.end());
    return all;
  }

  // The canvas that enlarges least (most, with resize_to_max_canvas), or else the one that reduces least; of
  // equal ones the smallest.
  Canvas choose_canvas(int width, int height) const {
    const auto all = canvases();
    const auto scale_of = [&](const Canvas& canvas) {
      return std::min(static_cast<float>(canvas.columns * tile_) / static_cast<float>(width),
                      static_cast<float>(canvas.rows * tile_) / static_cast<float>(height));
    };
    float enlarging = to_max_canvas_ ? 0 : INFINITY, reducing = 0;
    for (const Canvas& canvas : all) {
      const float scale = scale_of(canvas);
      if (scale >= 1)
        enlarging = to_max_canvas_ ? std::max(enlarging, scale) : std::min(enlarging, scale);
      if (scale < 1) reducing = std::max(reducing, scale);
    }
    const bool enlarges = enlarging > 0 && enlarging < INFINITY;
    Canvas best{1 << 15, 1 << 15};
    for (const Canvas& canvas : all)
      if (scale_of(canvas) == (enlarges ? enlarging : reducing) &&
          canvas.rows * canvas.columns < best.rows * best.columns)
        best = canvas;
    return best;
  }

  // The size of the picture on its canvas: width, height.
  std::pair<int, int> size_on(const Canvas& canvas, int width, int height) const {
    const int tall = canvas.rows * tile_, wide = canvas.columns * tile_;
    // As Python's min() of a number and a tensor: the number where they are equal.
    const auto target = [&](int side, int most) {
      const int own = std::max(side, tile_);
      return to_max_canvas_ || most < own ? std::pair{most, true} : std::pair{own, false};
    };
    const auto [target_h, single_h] = target(height, tall);
    const auto [target_w, single_w] = target(width, wide);
    const auto scale_h = CanvasScale::of(target_h, height, single_h),
               scale_w = CanvasScale::of(target_w, width, single_w);
    int w = target_w, h = target_h;
    if (scale_w < scale_h)
      h = std::min(scale_w.times(height), target_h);
    else
      w = std::min(scale_h.times(width), target_w);
    return {std::max(w, 1), std::max(h, 1)};
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const Canvas canvas = choose_canvas(width, height);
    const bool several = canvas.rows * canvas.columns > 1;
    if (several) plan.tile_rows = canvas.rows, plan.tile_cols = canvas.columns;
    add_text(plan, "<|image_start|>");
    for (int row = 0; row < plan.tile_rows; ++row) {
      for (int column = 0; column < plan.tile_cols; ++column) {
        add_view(plan, tile_, tile_, n_tokens_);
        add_soft(plan, n_tokens_);
        if (column + 1 < plan.tile_cols) add_text(plan, "<|tile_x_separator|>");
      }
      add_text(plan, "<|tile_y_separator|>");
    }
    add_view(plan, tile_, tile_, n_tokens_);
    add_text(plan, "<|image|>");
    add_soft(plan, n_tokens_);
    add_text(plan, "<|image_end|>");
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    const Canvas canvas{std::max(plan.tile_rows, 1), std::max(plan.tile_cols, 1)};
    const auto [w, h] = size_on(canvas, image.width, image.height);
    const Image placed = pad_image(resize_image(image, w, h, pixels_.filter), 0, 0,
                                   canvas.columns * tile_, canvas.rows * tile_);
    std::vector<Image> views;
    add_tiles(placed, canvas.rows, canvas.columns, views);
    if (plan.tile_rows > 0) views.push_back(resize_image(image, tile_, tile_, pixels_.filter));
    return views;
  }

  int tile_ = 0, max_tiles_ = 0, n_tokens_ = 0;
  bool to_max_canvas_ = false;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_llama4_images(const FamilyInputs& inputs) {
  return std::make_unique<Llama4Processor>(inputs);
}

}  // namespace penstock
