// PNG by libspng. Samples are converted here, as Pillow does: of 16 bits the upper 8, except in grey
// pictures without alpha, whose values above 255 become 255.
#include <spng.h>

#include <algorithm>
#include <array>
#include <memory>

#include "images/decoders.h"

namespace penstock {
namespace {

constexpr size_t kMaxChunk = size_t{32} << 20;  // of one ancillary chunk, unpacked

struct SpngDeleter {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};
using SpngContext = std::unique_ptr<spng_ctx, SpngDeleter>;

// How rows of a file become RGB.
struct PngRows {
  spng_ihdr header{};
  std::array<PaletteColor, 256> palette;
  bool has_key = false;  // tRNS of grey and RGB pictures: one colour is transparent
  std::array<uint32_t, 3> key{};
  AlphaRule rule = AlphaRule::kDrop;

  size_t n_channels() const {
    switch (header.color_type) {
      case SPNG_COLOR_TYPE_TRUECOLOR: return 3;
      case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA: return 2;
      case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA: return 4;
      default: return 1;
    }
  }
  size_t row_bytes() const {
    return (size_t{header.width} * n_channels() * header.bit_depth + 7) / 8;
  }

  // Sample i of a row, as it is stored; 16-bit samples are in the host's byte order.
  uint32_t sample(const uint8_t* row, size_t i) const {
    if (header.bit_depth == 8) return row[i];
    if (header.bit_depth == 16) return reinterpret_cast<const uint16_t*>(row)[i];
    const size_t per_byte = 8 / header.bit_depth;
    const size_t shift = 8 - header.bit_depth * (i % per_byte + 1);
    return (row[i / per_byte] >> shift) & ((1u << header.bit_depth) - 1);
  }
  uint8_t as_byte(uint32_t value) const {
    switch (header.bit_depth) {
      case 1: return static_cast<uint8_t>(value * 255);
      case 2: return static_cast<uint8_t>(value * 85);
      case 4: return static_cast<uint8_t>(value * 17);
      case 16: return static_cast<uint8_t>(n_channels() == 1 ? std::min(value, 255u) : value >> 8);
      default: return static_cast<uint8_t>(value);
    }
  }
  void convert(const uint8_t* row, uint8_t* rgb) const {
    if (header.bit_depth == 8 && header.color_type == SPNG_COLOR_TYPE_TRUECOLOR &&
        (!has_key || rule == AlphaRule::kDrop)) {
      std::copy_n(row, size_t{3} * header.width, rgb);
      return;
    }
    const size_t channels = n_channels(), colors = channels >= 3 ? 3 : 1;
    for (size_t x = 0; x < header.width; ++x, rgb += 3) {
      if (header.color_type == SPNG_COLOR_TYPE_INDEXED) {
        put_color(rgb, palette[sample(row, x)], rule);
        continue;
      }
      bool keyed = has_key;
      for (size_t c = 0; c < 3; ++c) {
        const uint32_t value = sample(row, x * channels + (colors == 3 ? c : 0));
        keyed = keyed && value == key[c];
        rgb[c] = as_byte(value);
      }
      if (rule == AlphaRule::kDrop) continue;
      const uint8_t alpha = channels % 2 == 0 ? as_byte(sample(row, x * channels + colors))
                            : keyed           ? 0
                                              : 255;
      if (alpha != 255) blend_with_white(rgb, alpha);
    }
  }
};

auto png_error(const ImageInfo& info, int code) {
  return errorf(ErrorCode::kInvalidArgument, "PNG image of {} x {}: {}", info.width, info.height,
                spng_strerror(code));
}

// Reads palette and transparent colours.
void read_colors(spng_ctx* context, PngRows& rows) {
  for (size_t i = 0; i < rows.palette.size(); ++i) {  // grey where the file has no colour
    const auto grey = static_cast<uint8_t>(i);
    rows.palette[i] = {grey, grey, grey, 255};
  }
  spng_plte colors{};
  if (spng_get_plte(context, &colors) == 0)
    for (uint32_t i = 0; i < colors.n_entries; ++i)
      rows.palette[i] = {colors.entries[i].red, colors.entries[i].green, colors.entries[i].blue,
                         255};
  spng_trns transparent{};
  if (spng_get_trns(context, &transparent) != 0) return;
  if (rows.header.color_type == SPNG_COLOR_TYPE_INDEXED) {
    for (uint32_t i = 0; i < transparent.n_type3_entries; ++i)
      rows.palette[i].alpha = transparent.type3_alpha[i];
    return;
  }
  rows.has_key = true;
  if (rows.header.color_type == SPNG_COLOR_TYPE_GRAYSCALE)
    rows.key.fill(transparent.gray);
  else
    rows.key = {transparent.red, transparent.green, transparent.blue};
}

// Decodes all rows: one at a time, or into a picture as stored when the file is interlaced.
int read_rows(spng_ctx* context, const PngRows& rows, Image& image) {
  const bool interlaced = rows.header.interlace_method != SPNG_INTERLACE_NONE;
  const size_t row_bytes = rows.row_bytes();
  std::vector<uint16_t> stored((row_bytes * (interlaced ? rows.header.height : 1) + 1) /
                               2);  // aligned for 16-bit samples
  auto* const bytes = reinterpret_cast<uint8_t*>(stored.data());
  if (interlaced) {
    const int code =
        spng_decode_image(context, bytes, row_bytes * rows.header.height, SPNG_FMT_PNG, 0);
    if (code != 0) return code;
    for (int y = 0; y < image.height; ++y) {
      std::vector<uint16_t> row((row_bytes + 1) / 2);
      std::copy_n(bytes + row_bytes * y, row_bytes, reinterpret_cast<uint8_t*>(row.data()));
      rows.convert(reinterpret_cast<const uint8_t*>(row.data()), image.row(y));
    }
    return 0;
  }
  int code = spng_decode_image(context, nullptr, 0, SPNG_FMT_PNG, SPNG_DECODE_PROGRESSIVE);
  for (int y = 0; y < image.height && code == 0; ++y) {
    code = spng_decode_row(context, bytes, row_bytes);
    if (code == 0 || code == SPNG_EOI) rows.convert(bytes, image.row(y));
  }
  return code == SPNG_EOI ? 0 : code;
}

// Orientation in an iTXt chunk of XMP that is not compressed: keyword, 0, 0, 0, language, 0, keyword, 0, text.
int itxt_orientation(ImageBytes chunk) {
  constexpr std::string_view kHead("XML:com.adobe.xmp\0\0", 19);
  return has_text(chunk, 0, kHead) ? xmp_orientation(chunk) : 0;
}

}  // namespace

Result<ImageInfo> read_png_info(ImageBytes file) {
  constexpr size_t kHeaderEnd = 8 + 8 + 13 + 4;
  if (file.size() < kHeaderEnd || !has_text(file, 12, "IHDR"))
    return errorf(ErrorCode::kInvalidArgument,
                  "PNG image: expected the chunk IHDR in its first {} bytes, got {} bytes without",
                  kHeaderEnd, file.size());
  ImageInfo info;
  const uint32_t width = u32_be(file, 16), height = u32_be(file, 20);
  if (width > INT32_MAX || height > INT32_MAX)
    return errorf(ErrorCode::kInvalidArgument, "PNG image: impossible size {} x {}", width, height);
  info.width = static_cast<int>(width), info.height = static_cast<int>(height);
  int exif = 0, xmp = 0;
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t length = u32_be(file, at);
    if (length > file.size() - at - 12) break;  // the decoder says what is missing
    const ImageBytes chunk = file.subspan(at + 8, length);
    if (has_text(file, at + 4, "eXIf")) exif = exif_orientation(chunk);
    if (has_text(file, at + 4, "iTXt") && xmp == 0) xmp = itxt_orientation(chunk);
    if (has_text(file, at + 4, "IEND")) break;
    at += 12 + length;
  }
  info.orientation = orientation_of(exif, xmp);
  return info;
}

Result<Image> decode_png(ImageBytes file, const ImageInfo& info, AlphaRule alpha) {
  const SpngContext context(spng_ctx_new(0));
  if (!context) return errorf(ErrorCode::kResourceExhausted, "PNG image: no memory for a decoder");
  spng_set_image_limits(context.get(), static_cast<uint32_t>(info.width),
                        static_cast<uint32_t>(info.height));
  spng_set_chunk_limits(context.get(), kMaxChunk, kMaxChunk);
  PngRows rows;
  rows.rule = alpha;
  int code = spng_set_png_buffer(context.get(), file.data(), file.size());
  if (code == 0) code = spng_get_ihdr(context.get(), &rows.header);
  if (code != 0) return png_error(info, code);
  read_colors(context.get(), rows);
  Image image = blank_image(info);
  code = read_rows(context.get(), rows, image);
  if (code != 0) return png_error(info, code);
  return image;
}

}  // namespace penstock
