// Pictures of the usual file formats (JPEG, PNG, WebP, GIF, BMP) as 8-bit RGB, with the same values
// as Pillow's load, exif_transpose and convert("RGB").
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

// 8-bit RGB: rgb has 3 * width * height bytes, rows from the top, without padding.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;

  const uint8_t* row(int y) const { return rgb.data() + size_t{3} * width * y; }
  uint8_t* row(int y) { return rgb.data() + size_t{3} * width * y; }
};

enum class ImageFormat { kJpeg, kPng, kWebp, kGif, kBmp };
// Returns "JPEG", "PNG", ...
std::string_view name_of(ImageFormat format);

// What the header of a file says of its picture.
struct ImageInfo {
  ImageFormat format = ImageFormat::kPng;
  int width = 0, height = 0;  // of the upright picture, in pixels: what decode_image() gives
  int orientation = 1;        // EXIF's, 1…8: how the stored picture is turned; 1 is upright
};

struct ImageLimits {
  size_t max_bytes = size_t{32} << 20;     // of the file
  int64_t max_pixels = int64_t{64} << 20;  // width * height
};

// What becomes of transparency.
enum class AlphaRule {
  kDrop,   // colours as they are stored, hidden ones too (transformers, for files and data URLs)
  kWhite,  // blended with white (transformers, for pictures that are given as PIL objects)
};

// Reads size and orientation without decoding pixels; the time is linear in the number of the file's
// sections. Errors: kInvalidArgument (no format of the list, or an impossible header), kUnsupported.
Result<ImageInfo> read_image_info(std::span<const std::byte> file);

// Decodes a file; of an animation the first frame. Sizes are compared with the limits before memory
// for pixels is allocated. Errors: kInvalidArgument (damaged, truncated, not a picture, an empty
// one, over a limit), kUnsupported (a variant that is not decoded).
Result<Image> decode_image(std::span<const std::byte> file, const ImageLimits& limits = {},
                           AlphaRule alpha = AlphaRule::kDrop);

}  // namespace penstock
