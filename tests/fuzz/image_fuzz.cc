// Any bytes are a picture of at most as many pixels as allowed, or one error. Size and orientation of the
// header are what decoding gives.
#include "images/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  const auto file = std::as_bytes(std::span(data, size));
  constexpr int64_t kMaxPixels = 1 << 18;
  const auto info = read_image_info(file);
  const auto image = decode_image(file, {.max_pixels = kMaxPixels}, AlphaRule::kWhite);
  if (!image) return 0;
  const bool fits = info && info->width == image->width && info->height == image->height &&
                    int64_t{image->width} * image->height <= kMaxPixels &&
                    image->rgb.size() == size_t{3} * image->width * image->height;
  if (!fits) __builtin_trap();
  return 0;
}
