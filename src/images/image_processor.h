// From pictures to what a vision tower reads, as the image processor of a Hugging Face checkpoint
// says (preprocessor_config.json): resizing, tiles, normalised pixels, and the tokens that stand for
// a picture in the prompt. Pixels equal those of transformers 5.24 with torchvision 0.29 bit for bit.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "images/image.h"

namespace penstock {

// One picture as the tower reads it: the whole, a tile of it or a thumbnail.
struct ImageView {
  int height = 0, width = 0;   // pixels, padding included
  int grid_h = 0, grid_w = 0;  // patches; 0 for processors that do not know the patch size
  int n_tokens = 0;            // soft tokens in the prompt that are this view's; see ImagePlan
};

// A part of the text that replaces the placeholder in a rendered chat template.
struct PromptPiece {
  std::string text;  // literal text with names of special tokens; or the name of the soft token
  int n_soft = 0;    // 0: literal text; else the soft token stands this many times in a row
  bool is_number =
      false;  // instead of text: the picture's number in the prompt, from 0 (MiniCPM-V)
};

// How features of tiles become one picture (LLaVA-NeXT, OneVision): the tiles' features are laid
// side by side, cut to the rows and columns that are not padding, shrunk, and get a newline per row.
struct StitchedGrid {
  int rows = 0, cols = 0;         // features of all tiles side by side
  int first_row = 0, n_rows = 0;  // kept
  int first_col = 0, n_cols = 0;  // kept
  int shrunk_rows = 0,
      shrunk_cols = 0;  // after bilinear shrinking; equal to n_rows, n_cols without
  // There are no tiles, and a newline ends the whole. Of a video: each frame is shrunk.
  bool newline_behind = false;
};

struct ImagePlan {
  int width = 0, height = 0;         // of the upright picture
  std::vector<ImageView> views;      // in the order in which the tower gets them
  int tile_rows = 0, tile_cols = 0;  // of the views that are tiles; 0: the picture is not cut
  StitchedGrid stitched;             // LLaVA-NeXT and OneVision only
  int n_soft = 0;                    // soft tokens in the prompt, of all views and newlines
  std::vector<PromptPiece> prompt;   // what replaces the placeholder
  // Of a video: frames that are read, as many for each view; a view is a step in time.
  std::vector<int> frames;
  float frame_step = 1;  // of a video: positions from a view to the next, where they have axes
};

enum class PixelLayout {
  kPlanes,   // every view [3][height][width]
  kPatches,  // every view [grid_h * grid_w][patch_dim], in the family's order
};

struct ProcessedImage {
  ImagePlan plan;
  PixelLayout layout = PixelLayout::kPlanes;
  int patch_dim = 0;          // numbers of a patch; 0 for kPlanes
  std::vector<float> pixels;  // of all views, one after the other
};

// The files of a checkpoint that say how pictures are processed; objects that are null are absent.
struct ImageProcessorFiles {
  nlohmann::json config;  // config.json
  nlohmann::json
      image_processor;  // preprocessor_config.json, or image_processor of processor_config.json
  nlohmann::json processor;  // processor_config.json
  nlohmann::json tokenizer;  // tokenizer_config.json, for names of special tokens
  // video_preprocessor_config.json, or video_processor of processor_config.json
  nlohmann::json video_processor = nullptr;
};

class ImageProcessor {
 public:
  virtual ~ImageProcessor() = default;

  // Says what a picture of this size becomes; needs no pixels. width, height: upright, at least 1.
  // Errors: kInvalidArgument, where the family refuses such a size.
  virtual Result<ImagePlan> plan(int width, int height) const = 0;
  // Errors: those of plan().
  virtual Result<ProcessedImage> process(const Image& image) const = 0;
  // What the chat template writes for a picture, which ImagePlan::prompt replaces.
  virtual std::string placeholder() const = 0;
  // The token in whose places the prompt has features.
  virtual std::string soft_token() const = 0;
  // Returns the processor of pictures that are not alone in their conversation; null: this one.
  virtual std::unique_ptr<ImageProcessor> for_several() const { return nullptr; }
};

// Makes the processor of a checkpoint. kwargs: settings of a request that take precedence over the
// files' (vLLM's mm_processor_kwargs); null for none. Errors: kUnsupported (a type or a field that is
// not known, by name), kInvalidArgument (a value that is impossible).
Result<std::unique_ptr<ImageProcessor>> make_image_processor(const ImageProcessorFiles& files,
                                                             const nlohmann::json& kwargs = {});

}  // namespace penstock
