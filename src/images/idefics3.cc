// SmolVLM and Idefics 3: tiles of a picture whose longest edge has a given length, and the whole as one tile.
#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

constexpr int kLongestEdge = 4096;

class Idefics3Processor : public ViewProcessor {
 public:
  explicit Idefics3Processor(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    pixels_ = read_pixel_settings(settings, {.filter = ResizeFilter::kLanczos});
    size_ = settings.size("size", {.longest_edge = 4 * 364});
    tile_ = settings.size("max_image_size", {.longest_edge = 364}).longest_edge;
    if (tile_ < 1) settings.refuse("max_image_size", "longest_edge", "none");
    if (size_.longest_edge < 1 && (size_.height < 1 || size_.width < 1))
      settings.refuse("size", "longest_edge, or height and width", "neither");
    split_ = settings.flag("do_image_splitting", true);
    settings.ignore({"do_pad", "pad_size", "return_row_col_info", "video_sampling"});
    grid_patch_ = inputs.config_integer({"vision_config", "patch_size"});
    n_tokens_ = idefics3_tokens(inputs);
    placeholder_ = soft_token_ = "<image>";
  }

 private:
  struct Sizes {
    int height = 0, width = 0;                // after the first resizing
    int padded_height = 0, padded_width = 0;  // multiples of a tile
  };

  static int to_tiles(double side, int tile) {
    return static_cast<int>(std::ceil(side / tile)) * tile;
  }

  Sizes sizes(int width, int height) const {
    Sizes result{size_.height, size_.width};
    if (size_.longest_edge > 0) {
      const double ratio = static_cast<double>(width) / height;
      const bool wide = width >= height;
      int longer = size_.longest_edge;
      int shorter = static_cast<int>(wide ? longer / ratio : longer * ratio);
      shorter = std::max(shorter + shorter % 2, 1);
      if (longer > kLongestEdge) {
        const double larger =
            wide ? static_cast<double>(longer) / shorter : static_cast<double>(shorter) / longer;
        longer = kLongestEdge;
        shorter = std::max(static_cast<int>(wide ? longer / larger : longer * larger), 1);
      }
      result.height = wide ? shorter : longer, result.width = wide ? longer : shorter;
    }
    const double ratio = static_cast<double>(result.width) / result.height;
    if (result.width >= result.height) {
      result.padded_width = to_tiles(result.width, tile_);
      result.padded_height = to_tiles(static_cast<int>(result.padded_width / ratio), tile_);
    } else {
      result.padded_height = to_tiles(result.height, tile_);
      result.padded_width = to_tiles(static_cast<int>(result.padded_height * ratio), tile_);
    }
    return result;
  }

  Status plan_views(int width, int height, ImagePlan& plan) const override {
    const Sizes size = sizes(width, height);
    if (size.padded_height < 1 || size.padded_width < 1)
      return errorf(ErrorCode::kInvalidArgument, "image of {} x {}: a side would become 0 pixels",
                    width, height);
    if (split_ && (size.padded_height > tile_ || size.padded_width > tile_))
      plan.tile_rows = size.padded_height / tile_, plan.tile_cols = size.padded_width / tile_;
    const std::string around = "<fake_token_around_image>";
    for (int row = 0; row < plan.tile_rows; ++row) {
      for (int column = 0; column < plan.tile_cols; ++column) {
        add_view(plan, tile_, tile_, n_tokens_);
        add_text(plan, fmt::format("{}<row_{}_col_{}>", around, row + 1, column + 1));
        add_soft(plan, n_tokens_);
      }
      add_text(plan, "\n");
    }
    add_view(plan, tile_, tile_, n_tokens_);
    add_text(plan, (plan.tile_rows > 0 ? "\n" : "") + around + "<global-img>");
    add_soft(plan, n_tokens_);
    add_text(plan, around);
    return {};
  }

  std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const override {
    const Sizes size = sizes(image.width, image.height);
    Image resized = resize_image(image, size.width, size.height, pixels_.filter);
    std::vector<Image> views;
    if (split_)
      resized = resize_image(resized, size.padded_width, size.padded_height, pixels_.filter);
    if (plan.tile_rows > 0) add_tiles(resized, plan.tile_rows, plan.tile_cols, views);
    views.push_back(resize_image(resized, tile_, tile_, pixels_.filter));
    return views;
  }

  SizeSetting size_;
  int tile_ = 0, n_tokens_ = 0;
  bool split_ = true;
};

}  // namespace

// (size / patch / scale)^2
int idefics3_tokens(const FamilyInputs& inputs) {
  const int size = inputs.config_integer({"vision_config", "image_size"}),
            patch = inputs.config_integer({"vision_config", "patch_size"});
  const int scale = inputs.config_integer({"scale_factor"});
  const bool known = size > 0 && patch > 0 && scale > 0;
  const int side = known ? size / patch : 0;
  return inputs.settings.processor_integer("image_seq_len",
                                           known ? side * side / (scale * scale) : 169);
}

std::unique_ptr<ImageProcessor> make_idefics3_images(const FamilyInputs& inputs) {
  return std::make_unique<Idefics3Processor>(inputs);
}

}  // namespace penstock
