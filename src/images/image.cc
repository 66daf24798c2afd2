#include "images/image.h"

#include <algorithm>
#include <utility>

#include "images/decoders.h"

namespace penstock {
namespace {

struct ImageDecoder {
  ImageFormat format;
  std::string_view name;
  bool (*recognizes)(ImageBytes file);
  Result<ImageInfo> (*read_info)(ImageBytes file);
  Result<Image> (*decode)(ImageBytes file, const ImageInfo& info, AlphaRule alpha);
};

// The list of formats.
constexpr ImageDecoder kDecoders[] = {
    {ImageFormat::kJpeg, "JPEG", [](ImageBytes f) { return has_text(f, 0, "\xff\xd8\xff"); },
     read_jpeg_info, decode_jpeg},
    {ImageFormat::kPng, "PNG", [](ImageBytes f) { return has_text(f, 0, "\x89PNG\r\n\x1a\n"); },
     read_png_info, decode_png},
    {ImageFormat::kWebp, "WebP",
     [](ImageBytes f) { return has_text(f, 0, "RIFF") && has_text(f, 8, "WEBP"); }, read_webp_info,
     decode_webp},
    {ImageFormat::kGif, "GIF",
     [](ImageBytes f) { return has_text(f, 0, "GIF87a") || has_text(f, 0, "GIF89a"); },
     read_gif_info, decode_gif},
    {ImageFormat::kBmp, "BMP", [](ImageBytes f) { return has_text(f, 0, "BM"); }, read_bmp_info,
     decode_bmp},
};

// Names formats that are recognised and not decoded, for the error.
std::string_view foreign_format(ImageBytes file) {
  if (has_text(file, 0, std::string_view("II*\0", 4)) ||
      has_text(file, 0, std::string_view("MM\0*", 4)))
    return "TIFF";
  if (has_text(file, 4, "ftypavif")) return "AVIF";
  if (has_text(file, 4, "ftyphei") || has_text(file, 4, "ftypmif1")) return "HEIC";
  if (has_text(file, 0, "%PDF")) return "PDF";
  if (has_text(file, 0, "<svg") || has_text(file, 0, "<?xml")) return "SVG";
  return "";
}

Result<const ImageDecoder*> find_decoder(ImageBytes file) {
  for (const ImageDecoder& decoder : kDecoders)
    if (decoder.recognizes(file)) return &decoder;
  if (file.empty()) return errorf(ErrorCode::kInvalidArgument, "image: the file is empty");
  if (const auto foreign = foreign_format(file); !foreign.empty())
    return errorf(ErrorCode::kUnsupported, "image: a {} file; expected JPEG, PNG, WebP, GIF or BMP",
                  foreign);
  return errorf(
      ErrorCode::kInvalidArgument,
      "image: expected a JPEG, PNG, WebP, GIF or BMP file, got {} bytes of something else",
      file.size());
}

// Returns the picture upright: row and column of each pixel of the result are looked up in the stored
// one (orientations of EXIF: 2 mirrored, 3 upside down, 4 both, 5…8 the same with axes swapped).
Image upright(Image stored, int orientation) {
  if (orientation <= 1) return stored;
  const bool swapped = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image turned;
  turned.width = swapped ? stored.height : stored.width;
  turned.height = swapped ? stored.width : stored.height;
  turned.rgb.resize(stored.rgb.size());
  for (int y = 0; y < turned.height; ++y) {
    uint8_t* to = turned.row(y);
    for (int x = 0; x < turned.width; ++x, to += 3) {
      const int column = swapped ? y : x, line = swapped ? x : y;
      const uint8_t* from = stored.row(from_bottom ? stored.height - 1 - line : line) +
                            size_t{3} * (from_right ? stored.width - 1 - column : column);
      std::copy_n(from, 3, to);
    }
  }
  return turned;
}

Result<ImageInfo> stored_info(const ImageDecoder& decoder, ImageBytes file) {
  ASSIGN_OR_RETURN(ImageInfo info, decoder.read_info(file));
  if (info.width < 1 || info.height < 1)
    return errorf(ErrorCode::kInvalidArgument, "{} image: expected at least one pixel, got {} x {}",
                  decoder.name, info.width, info.height);
  info.format = decoder.format;
  return info;
}

}  // namespace

std::string_view name_of(ImageFormat format) {
  for (const ImageDecoder& decoder : kDecoders)
    if (decoder.format == format) return decoder.name;
  return "";
}

Result<ImageInfo> read_image_info(ImageBytes file) {
  ASSIGN_OR_RETURN(const ImageDecoder* decoder, find_decoder(file));
  ASSIGN_OR_RETURN(ImageInfo info, stored_info(*decoder, file));
  if (info.orientation >= 5) std::swap(info.width, info.height);
  return info;
}

Result<Image> decode_image(ImageBytes file, const ImageLimits& limits, AlphaRule alpha) {
  if (file.size() > limits.max_bytes)
    return errorf(ErrorCode::kInvalidArgument, "image: expected a file of at most {} bytes, got {}",
                  limits.max_bytes, file.size());
  ASSIGN_OR_RETURN(const ImageDecoder* decoder, find_decoder(file));
  ASSIGN_OR_RETURN(const ImageInfo info, stored_info(*decoder, file));
  if (int64_t{info.width} * info.height > limits.max_pixels)
    return errorf(ErrorCode::kInvalidArgument, "{} image: expected at most {} pixels, got {} x {}",
                  decoder->name, limits.max_pixels, info.width, info.height);
  ASSIGN_OR_RETURN(Image image, decoder->decode(file, info, alpha));
  return upright(std::move(image), info.orientation);
}

Image blank_image(const ImageInfo& info) {
  return {info.width, info.height, std::vector<uint8_t>(size_t{3} * info.width * info.height)};
}

void blend_with_white(uint8_t* rgb, int alpha) {
  constexpr uint32_t kBits = 7;
  const uint32_t share = static_cast<uint32_t>(alpha) << kBits, rest = (255u << kBits) - share;
  for (int c = 0; c < 3; ++c) {
    const uint32_t sum = rgb[c] * share + 255u * rest + (0x80u << kBits);
    rgb[c] = static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> kBits);
  }
}

}  // namespace penstock
