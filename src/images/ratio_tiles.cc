// InternVL, Aya Vision and Command A Vision: a grid of tiles that suits the picture's ratio, then the whole.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

// Sizes, tiles and pixels; families write the prompt.
class GridTileProcessor : public ViewProcessor {
 protected:
  void read(const FamilyInputs& inputs, int side, bool as_file_says) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(settings, {.mean = kClipMean, .std = kClipStd});
    size_ = settings.size("size", {.height = side, .width = side});
    if (size_.height < 1 || size_.width < 1)
      settings.refuse("size", "height and width", "one or none of them");
    // transformers' processors of InternVL and Aya override the file's setting, not a request's.
    settings.ignore({"crop_to_patches"});
    crop_ = as_file_says ? settings.flag("crop_to_patches", true)
                         : settings.request_flag("crop_to_patches", true);
    least_ = settings.integer("min_patches", 1, 1, 1024);
    most_ = settings.integer("max_patches", 12, 1, 1024);
    if (least_ > most_)
      settings.refuse("min_patches", "at most max_patches", std::to_string(least_));
    grid_patch_ = inputs.config_integer({"vision_config", "patch_size"});
  }

  virtual std::pair<int, int> choose_grid(int width, int height) const {
    return nearest_tiles(width, height, size_.width, size_.height, least_, most_);
  }
  virtual void write_prompt(ImagePlan& plan) const = 0;

  int n_tokens_ = 0;  // of a view
  SizeSetting size_;
  int least_ = 1, most_ = 1;

 private:
  Status plan_views(int width, int height, ImagePlan& plan) const override {
    int n = 1;
    if (crop_) {
      const auto [columns, rows] = choose_grid(width, height);
      if (columns * rows > 1) {
        plan.tile_cols = columns, plan.tile_rows = rows;
        n = columns * rows + 1;
      }
    }
    for (int i = 0; i < n; ++i) add_view(plan, size_.height, size_.width, n_tokens_);
    write_prompt(plan);
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    std::vector<Image> views;
    if (plan.tile_rows > 0)
      add_tiles(resize_image(image, size_.width * plan.tile_cols, size_.height * plan.tile_rows,
                             pixels_.filter),
                plan.tile_rows, plan.tile_cols, views);
    views.push_back(resize_image(image, size_.width, size_.height, pixels_.filter));
    return views;
  }

  bool crop_ = true;
};

class InternVlProcessor : public GridTileProcessor {
 public:
  explicit InternVlProcessor(const FamilyInputs& inputs) {
    read(inputs, 384, false);
    n_tokens_ = inputs.settings.processor_integer("image_seq_length",
                                                  inputs.settings.integer("image_seq_length", 256));
    begin_ = inputs.token("start_image_token", "<img>");
    end_ = inputs.token("end_image_token", "</img>");
    placeholder_ = soft_token_ = inputs.token("context_image_token", "<IMG_CONTEXT>");
  }

 private:
  void write_prompt(ImagePlan& plan) const override {
    add_text(plan, begin_);
    add_soft(plan, n_tokens_ * static_cast<int>(plan.views.size()));
    add_text(plan, end_);
  }

  std::string begin_, end_;
};

class AyaProcessor : public GridTileProcessor {
 public:
  explicit AyaProcessor(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    read(inputs, 384, false);
    const int patch = settings.processor_integer("patch_size", 28, 1, 4096) *
                      settings.processor_integer("downsample_factor", 1, 1, 64);
    const int side = settings.processor_integer("img_size", 364, 1, 65536) / patch;
    n_tokens_ = side * side;
    placeholder_ = settings.processor_text("image_token", "<image>");
    soft_token_ = settings.processor_text("img_patch_token", "<|IMG_PATCH|>");
    begin_ = settings.processor_text("start_of_img_token", "<|START_OF_IMG|>");
    end_ = settings.processor_text("end_of_img_token", "<|END_OF_IMG|>");
    tile_ = settings.processor_text("tile_token", "TILE");
    global_ = settings.processor_text("tile_global_token", "TILE_GLOBAL");
  }

 private:
  void write_prompt(ImagePlan& plan) const override {
    add_text(plan, begin_);
    for (size_t i = 1; i < plan.views.size(); ++i) {
      add_text(plan, fmt::format("{}_{}", tile_, i));
      add_soft(plan, n_tokens_);
    }
    add_text(plan, global_);
    add_soft(plan, n_tokens_);
    add_text(plan, end_);
  }

  std::string begin_, end_, tile_, global_;
};

class CohereProcessor : public GridTileProcessor {
 public:
  explicit CohereProcessor(const FamilyInputs& inputs) {
    read(inputs, 512, true);
    const int side = inputs.settings.integer("patch_size", 16, 1, 4096);  // of tokens in a tile
    n_tokens_ = side * side;
    placeholder_ = soft_token_ = inputs.token("image_token", "<|IMG_PATCH|>");
    begin_ = inputs.token("boi_token", "<|START_OF_IMG|>");
    end_ = inputs.token("eoi_token", "<|END_OF_IMG|>");
    line_ = inputs.token("img_line_break_token", "<|IMG_LINE_BREAK|>");
  }

 private:
  // The grid that enlarges least, or else the one that reduces least; of equal ones the first by area.
  std::pair<int, int> choose_grid(int width, int height) const override {
    std::pair<int, int> enlarging, reducing;
    double least = 10e9, greatest = -1;
    for (int n = 1; n <= most_; ++n)
      for (int columns = 1; columns <= n; ++columns) {
        if (n % columns != 0) continue;
        const int rows = n / columns;
        const double scale = std::min(static_cast<double>(columns) * size_.height / width,
                                      static_cast<double>(rows) * size_.height / height);
        if (scale >= 1 && scale < least) least = scale, enlarging = {columns, rows};
        if (scale > greatest) greatest = scale, reducing = {columns, rows};
      }
    return enlarging.first > 0 ? enlarging : reducing;
  }

  void write_prompt(ImagePlan& plan) const override {
    add_text(plan, begin_);
    for (size_t i = 0; i < plan.views.size(); ++i) {
      add_soft(plan, n_tokens_);
      add_text(plan, line_);
    }
    add_text(plan, end_);
  }

  std::string begin_, end_, line_;
};

}  // namespace

std::unique_ptr<ImageProcessor> make_ratio_tile_images(const FamilyInputs& inputs) {
  if (inputs.model_type() == "aya_vision") return std::make_unique<AyaProcessor>(inputs);
  return std::make_unique<InternVlProcessor>(inputs);
}
std::unique_ptr<ImageProcessor> make_cohere_images(const FamilyInputs& inputs) {
  return std::make_unique<CohereProcessor>(inputs);
}

}  // namespace penstock
