// Decoding compared with Pillow (tools/make_image_vectors.py), and files that are damaged or too large.
#include "images/image.h"

#include <gtest/gtest.h>

#include "drawn_image.h"

namespace penstock {
namespace {

TEST(ImageTest, DecodesAsPillow) {
  const auto cases = golden_json("decode.json");
  EXPECT_GT(cases.size(), 80u);
  for (const auto& [name, expected] : cases.items()) {
    const std::string file = read_golden("files/" + name);
    const auto info = read_image_info(bytes_of(file));
    ASSERT_TRUE(info) << name << ": " << info.error().message;
    EXPECT_EQ(info->width, expected["width"]) << name;
    EXPECT_EQ(info->height, expected["height"]) << name;
    for (const AlphaRule rule : {AlphaRule::kDrop, AlphaRule::kWhite}) {
      const auto image = decode_image(bytes_of(file), {}, rule);
      ASSERT_TRUE(image) << name << ": " << image.error().message;
      ASSERT_EQ(image->width, expected["width"]) << name;
      ASSERT_EQ(image->height, expected["height"]) << name;
      const bool white = rule == AlphaRule::kWhite;
      EXPECT_EQ(crc32_of(image->rgb.data(), image->rgb.size()), expected[white ? "white" : "rgb"])
          << name << (white ? " on white" : "");
    }
  }
}

// Every file of the golden ones, cut at every length: an error, or for formats that say less than their file,
// the same picture.
TEST(ImageTest, TruncatedFilesAreErrors) {
  const auto cases = golden_json("decode.json");
  for (const auto& [name, expected] : cases.items()) {
    const std::string file = read_golden("files/" + name);
    for (size_t n = 0; n < file.size(); n += 1 + file.size() / 64) {
      const auto image = decode_image(bytes_of(file).first(n));
      if (image) {
        EXPECT_EQ(crc32_of(image->rgb.data(), image->rgb.size()), expected["rgb"])
            << name << " cut at " << n << " of " << file.size();
      } else {
        EXPECT_EQ(image.error().code, ErrorCode::kInvalidArgument)
            << name << " at " << n << ": " << image.error().message;
      }
    }
  }
}

void set_be32(std::string& file, size_t at, uint32_t value) {
  for (int i = 0; i < 4; ++i) file[at + i] = static_cast<char>(value >> (24 - 8 * i));
}

TEST(ImageTest, BombsAreRefusedByTheirHeader) {
  std::string png = read_golden("files/rgb8.png");
  set_be32(png, 16, 60000), set_be32(png, 20, 60000);
  const auto image = decode_image(bytes_of(png));
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(image.error().message,
            "PNG image: expected at most 67108864 pixels, got 60000 x 60000");
  std::string gif = read_golden("files/plain.gif");
  gif.replace(6, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(decode_image(bytes_of(gif)).error().code, ErrorCode::kInvalidArgument);
  std::string bmp = read_golden("files/rle8.bmp");
  bmp.replace(18, 8, std::string("\xff\xff\0\0\xff\xff\0\0", 8));
  EXPECT_EQ(decode_image(bytes_of(bmp)).error().code, ErrorCode::kInvalidArgument);
  std::string jpeg = read_golden("files/rgb.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  jpeg.replace(frame + 5, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(decode_image(bytes_of(jpeg)).error().code, ErrorCode::kInvalidArgument);
}

// The last scan of a progressive file, once more and a thousand times more.
TEST(ImageTest, ScansOfAJpegAreBounded) {
  const std::string file = read_golden("files/progressive.jpg");
  const size_t scan = file.rfind("\xff\xda");
  const std::string repeated = file.substr(scan, file.size() - 2 - scan);
  const auto with_scans = [&](int n) {
    std::string longer = file.substr(0, file.size() - 2);
    for (int i = 0; i < n; ++i) longer += repeated;
    return decode_image(bytes_of(longer + "\xff\xd9"));
  };
  EXPECT_TRUE(with_scans(1));
  const auto many = with_scans(1000);
  ASSERT_FALSE(many);
  EXPECT_EQ(
      many.error().message,
      "JPEG image of 37 x 21: expected at most 500 scans and 1073741824 pixels in them, got more");
}

TEST(ImageTest, LimitsAreSettings) {
  const std::string file = read_golden("files/rgb.jpg");
  EXPECT_TRUE(decode_image(bytes_of(file), {.max_bytes = file.size(), .max_pixels = 37 * 21}));
  EXPECT_EQ(decode_image(bytes_of(file), {.max_bytes = file.size() - 1}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode_image(bytes_of(file), {.max_pixels = 37 * 21 - 1}).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(ImageTest, OtherFilesAreNamed) {
  EXPECT_EQ(decode_image({}).error().message, "image: the file is empty");
  EXPECT_EQ(decode_image(bytes_of("%PDF-1.7")).error().code, ErrorCode::kUnsupported);
  const auto text = decode_image(bytes_of("hello"));
  EXPECT_EQ(text.error().message,
            "image: expected a JPEG, PNG, WebP, GIF or BMP file, got 5 bytes of something else");
}

TEST(ImageTest, OrientationIsInTheInfo) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto info = read_image_info(
        bytes_of(read_golden("files/turned" + std::to_string(orientation) + ".jpg")));
    ASSERT_TRUE(info);
    EXPECT_EQ(info->orientation, orientation);
    EXPECT_EQ(info->width, orientation >= 5 ? 6 : 9);
  }
}

}  // namespace
}  // namespace penstock
