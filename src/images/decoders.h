// The decoders behind image.h, one per format: a header reader and a pixel reader each.
#pragma once
#include <string>

#include "images/image.h"

namespace penstock {

using ImageBytes = std::span<const std::byte>;

// Numbers at a position of a file. The caller has checked that they are inside of it.
inline uint32_t byte_at(ImageBytes bytes, size_t at) {
  return std::to_integer<uint32_t>(bytes[at]);
}
inline uint32_t u16_le(ImageBytes b, size_t at) { return byte_at(b, at) | byte_at(b, at + 1) << 8; }
inline uint32_t u16_be(ImageBytes b, size_t at) { return byte_at(b, at) << 8 | byte_at(b, at + 1); }
inline uint32_t u32_le(ImageBytes b, size_t at) { return u16_le(b, at) | u16_le(b, at + 2) << 16; }
inline uint32_t u32_be(ImageBytes b, size_t at) { return u16_be(b, at) << 16 | u16_be(b, at + 2); }
// Whether the bytes at a position are this text; false where they end before.
inline bool has_text(ImageBytes bytes, size_t at, std::string_view text) {
  if (at > bytes.size() || bytes.size() - at < text.size()) return false;
  for (size_t i = 0; i < text.size(); ++i)
    if (byte_at(bytes, at + i) != static_cast<uint8_t>(text[i])) return false;
  return true;
}

// Returns the orientation of an EXIF block (a TIFF file, with or without "Exif\0\0" before it), or 0
// where it has none.
int exif_orientation(ImageBytes exif);
// Returns the orientation of an XMP text, or 0 where it has none.
int xmp_orientation(ImageBytes xmp);
// What a file says of orientation in both words. Returns 1…8; EXIF takes precedence, as in Pillow.
int orientation_of(int exif, int xmp);

// One colour of a palette, and how opaque it is.
struct PaletteColor {
  uint8_t red = 0, green = 0, blue = 0, alpha = 255;
};
// Returns the colour blended with white: Pillow's alpha_composite() on an opaque white picture.
void blend_with_white(uint8_t* rgb, int alpha);
// Writes a pixel in a colour of a palette.
inline void put_color(uint8_t* rgb, const PaletteColor& color, AlphaRule rule) {
  rgb[0] = color.red, rgb[1] = color.green, rgb[2] = color.blue;
  if (rule == AlphaRule::kWhite && color.alpha != 255) blend_with_white(rgb, color.alpha);
}

// ImageInfo of the readers: size as the file stores the picture, before it is turned. Images of the
// decoders likewise; `info` is what the format's reader returned for the same file, its size is within
// limits.
Result<ImageInfo> read_jpeg_info(ImageBytes file);
Result<Image> decode_jpeg(ImageBytes file, const ImageInfo& info, AlphaRule alpha);
Result<ImageInfo> read_png_info(ImageBytes file);
Result<Image> decode_png(ImageBytes file, const ImageInfo& info, AlphaRule alpha);
Result<ImageInfo> read_webp_info(ImageBytes file);
Result<Image> decode_webp(ImageBytes file, const ImageInfo& info, AlphaRule alpha);
Result<ImageInfo> read_gif_info(ImageBytes file);
Result<Image> decode_gif(ImageBytes file, const ImageInfo& info, AlphaRule alpha);
Result<ImageInfo> read_bmp_info(ImageBytes file);
Result<Image> decode_bmp(ImageBytes file, const ImageInfo& info, AlphaRule alpha);

// Allocates a black picture of the stored size.
Image blank_image(const ImageInfo& info);

}  // namespace penstock
