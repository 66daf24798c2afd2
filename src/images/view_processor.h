// What all image processors share: 8-bit views of a picture become normalised numbers in the layout that a
// tower reads. A family says which views there are and how they are made.
#pragma once
#include <array>
#include <span>

#include "images/image_processor.h"
#include "images/processor_settings.h"
#include "images/resize.h"

namespace penstock {

inline constexpr std::array<float, 3> kClipMean = {0.48145466f, 0.4578275f, 0.40821073f};
inline constexpr std::array<float, 3> kClipStd = {0.26862954f, 0.26130258f, 0.27577711f};
inline constexpr std::array<float, 3> kHalf = {0.5f, 0.5f, 0.5f};

// How 8-bit values become numbers: by a table, so that they are those of torch whatever its arithmetic.
struct PixelSettings {
  ResizeFilter filter = ResizeFilter::kBicubic;
  bool do_rescale = true, do_normalize = true;
  double rescale_factor = 1.0 / 255;
  std::array<float, 3> mean = kHalf, std = kHalf;
  bool in_bfloat16 = false;  // Llama 4 computes in BF16

  std::array<std::array<float, 256>, 3> table() const;
};
// Reads do_resize (true), resample, do_rescale, rescale_factor, do_normalize, image_mean and image_std.
PixelSettings read_pixel_settings(ProcessorSettings& settings, PixelSettings defaults);

// The order of numbers in ProcessedImage::pixels.
struct PatchOrder {
  PixelLayout layout = PixelLayout::kPlanes;
  int patch = 0;               // side, in pixels
  int merge = 1;               // patches are ordered by blocks of merge x merge
  int frames = 1;              // each patch is [channel][frame][y][x], with equal frames
  bool channels_last = false;  // instead [y][x][channel]
};

class ViewProcessor : public ImageProcessor {
 public:
  Result<ImagePlan> plan(int width, int height) const final;
  Result<ProcessedImage> process(const Image& image) const final;
  std::string placeholder() const final { return placeholder_; }
  std::string soft_token() const final { return soft_token_; }

 protected:
  // Whether the square around a picture, on which it is padded, has at most 2^27 pixels. Error:
  // kInvalidArgument.
  static Status check_square(int width, int height);
  // Fills in all of a plan but the size of the picture.
  virtual Status plan_views(int width, int height, ImagePlan& plan) const = 0;
  // Returns the views of the plan, in its order and sizes.
  virtual std::vector<Image> make_views(const Image& image, const ImagePlan& plan) const = 0;

  // Adds a view of this size to a plan.
  void add_view(ImagePlan& plan, int height, int width, int n_tokens) const;
  void add_text(ImagePlan& plan, std::string text) const {
    plan.prompt.push_back({std::move(text), 0});
  }
  void add_soft(ImagePlan& plan, int n) const {
    plan.prompt.push_back({soft_token_, n});
    plan.n_soft += n;
  }

  PixelSettings pixels_;
  PatchOrder order_;
  int grid_patch_ = 0;  // the tower's patch, for ImageView::grid_h and grid_w
  std::string placeholder_, soft_token_;
};

// Writes a view as patches, block by block and inside of a block row by row. frames: PatchOrder::frames
// pictures of one size, or one that stands for all of them.
void write_patches(std::span<const Image> frames, const PatchOrder& order,
                   const std::array<std::array<float, 256>, 3>& table, float* to);
// Writes a view as planes: [3][height][width].
void write_planes(const Image& view, const std::array<std::array<float, 256>, 3>& table, float* to);
// Returns the part of a picture that is inside of it.
Image crop_image(const Image& image, int left, int top, int width, int height);
// Returns a picture of this size with `image` at a place in it, and one colour around.
Image pad_image(const Image& image, int left, int top, int width, int height,
                std::array<uint8_t, 3> color = {0, 0, 0});
// Adds rows x columns equal tiles of a picture, row by row.
void add_tiles(const Image& image, int rows, int columns, std::vector<Image>& views);

// Python's round(): to the nearest integer, halves to the even one.
double python_round(double value);
// Returns columns and rows of tiles, min…max in all, whose ratio is nearest to a picture's; at a tie the larger
// number if the picture has more than half of its pixels (InternVL, Aya, LFM2-VL).
std::pair<int, int> nearest_tiles(int width, int height, int tile_width, int tile_height,
                                  int min_tiles, int max_tiles);

// What a family is made from.
struct FamilyInputs {
  const ImageProcessorFiles& files;
  ProcessorSettings& settings;

  // The name of a special token: tokenizer_config.json's, or else the published one.
  std::string token(const char* name, const char* published) const;
  // A number of config.json: at a path such as {"vision_config", "patch_size"}; 0 where it is absent.
  int config_integer(std::initializer_list<const char*> path) const;
  std::string model_type() const;
};

// The families: each returns a processor; settings.status() says whether its settings were possible.
using FamilyMaker = std::unique_ptr<ImageProcessor> (*)(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_qwen_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_glm_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_gemma3_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_gemma3n_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_gemma4_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_pixtral_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_idefics3_images(const FamilyInputs& inputs);
int idefics3_tokens(const FamilyInputs& inputs);  // soft tokens of a tile
std::unique_ptr<ImageProcessor> make_ratio_tile_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_cohere_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_llava_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_siglip_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_llava_next_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_onevision_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_lfm2_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_llama4_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_kimi_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_kimi_vl_images(const FamilyInputs& inputs);
std::unique_ptr<ImageProcessor> make_minicpm_images(const FamilyInputs& inputs);

}  // namespace penstock
