// Resizing of 8-bit pictures, bit for bit as torchvision 0.29 on processors with AVX2 (antialiased, 16-bit
// weights) and within 2 levels of Pillow.
#pragma once
#include "images/image.h"

namespace penstock {

enum class ResizeFilter { kBilinear, kBicubic, kLanczos };

// Resizes to width x height pixels, each at least 1, first along rows and then along columns, with 8 bits
// between. A picture that has the size already is returned as it is.
Image resize_image(const Image& image, int width, int height, ResizeFilter filter);

}  // namespace penstock
