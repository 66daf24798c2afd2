// Resizing compared with torchvision (tools/make_image_vectors.py).
#include "images/resize.h"

#include <gtest/gtest.h>

#include "drawn_image.h"

namespace penstock {
namespace {

TEST(ResizeTest, EqualsTorchvision) {
  const std::pair<const char*, ResizeFilter> filters[] = {{"bilinear", ResizeFilter::kBilinear},
                                                          {"bicubic", ResizeFilter::kBicubic},
                                                          {"lanczos", ResizeFilter::kLanczos}};
  for (const auto& expected : golden_json("resize.json")) {
    const Image image = drawn_image(expected["from"][0], expected["from"][1], expected["seed"]);
    for (const auto& [name, filter] : filters) {
      const Image resized = resize_image(image, expected["to"][0], expected["to"][1], filter);
      EXPECT_EQ(crc32_of(resized.rgb.data(), resized.rgb.size()), expected[name])
          << name << " " << expected.dump();
    }
  }
}

}  // namespace
}  // namespace penstock
