// BMP, of Windows and OS/2: 1, 4 and 8 bits with a palette, RLE of 4 and 8 bits, 16, 24 and 32 bits with
// the usual masks or others.
#include <algorithm>
#include <array>
#include <bit>

#include "images/decoders.h"

namespace penstock {
namespace {

enum BmpCompression : uint32_t { kRaw = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

// The bits of a channel in a pixel, made 8 bits as value * 255 / greatest.
struct ChannelMask {
  uint32_t mask = 0;

  uint32_t shift() const { return static_cast<uint32_t>(std::countr_zero(mask)); }
  uint8_t read(uint32_t pixel) const {
    const uint64_t value = (pixel & mask) >> shift(), greatest = mask >> shift();
    return static_cast<uint8_t>(value * 255 / greatest);
  }
  // Whether the bits are next to each other.
  bool is_one_run() const {
    return mask != 0 && std::has_single_bit(uint64_t{mask >> shift()} + 1);
  }
};

struct BmpHeader {
  uint32_t header_bytes = 0, bits = 0, compression = kRaw, n_colors = 0, color_bytes = 4;
  size_t pixels_at = 0;
  int width = 0, height = 0;
  bool from_top = false;

  size_t palette_at() const { return size_t{14} + header_bytes; }
  size_t row_bytes() const { return (size_t{static_cast<uint32_t>(width)} * bits + 31) / 32 * 4; }
  // The line of the picture, from the top, that is stored as line i.
  int line(int i) const { return from_top ? i : height - 1 - i; }
};

auto bmp_truncated(size_t expected, size_t got) {
  return errorf(ErrorCode::kInvalidArgument, "BMP image: truncated: expected {} bytes, got {}",
                expected, got);
}

// Where pixels begin, with the repairs that Pillow makes.
void find_pixels(ImageBytes file, BmpHeader& bmp) {
  bmp.pixels_at = u32_le(file, 10);
  const size_t palette_bytes = bmp.bits <= 8 ? size_t{bmp.color_bytes} * bmp.n_colors : 0;
  const size_t masks = bmp.compression == kBitFields && bmp.header_bytes == 40 ? 12 : 0;
  if (bmp.bits <= 8 && bmp.pixels_at == bmp.palette_at()) bmp.pixels_at += palette_bytes;
  if (bmp.pixels_at == 0) bmp.pixels_at = bmp.palette_at() + palette_bytes + masks;
}

Status check_layout(const BmpHeader& bmp) {
  constexpr std::array<uint32_t, 6> kBits = {1, 4, 8, 16, 24, 32};
  if (std::find(kBits.begin(), kBits.end(), bmp.bits) == kBits.end())
    return errorf(ErrorCode::kUnsupported,
                  "BMP image: expected 1, 4, 8, 16, 24 or 32 bits per pixel, got {}", bmp.bits);
  const bool fits = bmp.compression == kRaw || (bmp.compression == kRle8 && bmp.bits == 8) ||
                    (bmp.compression == kRle4 && bmp.bits == 4) ||
                    (bmp.compression == kBitFields && bmp.bits >= 16);
  if (!fits)
    return errorf(ErrorCode::kUnsupported,
                  "BMP image: compression {} with {} bits per pixel is not decoded",
                  bmp.compression, bmp.bits);
  if (bmp.bits <= 8 && bmp.n_colors > 65536)
    return errorf(ErrorCode::kInvalidArgument, "BMP image: expected at most 65536 colours, got {}",
                  bmp.n_colors);
  return {};
}

Result<BmpHeader> read_bmp_header(ImageBytes file) {
  if (file.size() < 26) return bmp_truncated(26, file.size());
  BmpHeader bmp;
  bmp.header_bytes = u32_le(file, 14);
  constexpr std::array<uint32_t, 7> kKnown = {12, 40, 52, 56, 64, 108, 124};
  if (std::find(kKnown.begin(), kKnown.end(), bmp.header_bytes) == kKnown.end())
    return errorf(ErrorCode::kUnsupported, "BMP image: a header of {} bytes is not known",
                  bmp.header_bytes);
  if (file.size() < bmp.palette_at()) return bmp_truncated(bmp.palette_at(), file.size());
  int64_t height = 0, width = 0;
  if (bmp.header_bytes == 12) {
    width = u16_le(file, 18), height = u16_le(file, 20);
    bmp.bits = u16_le(file, 24);
    bmp.color_bytes = 3;
  } else {
    width = static_cast<int32_t>(u32_le(file, 18)), height = static_cast<int32_t>(u32_le(file, 22));
    bmp.bits = u16_le(file, 28);
    bmp.compression = u32_le(file, 30);
    bmp.n_colors = u32_le(file, 46);
  }
  bmp.from_top = height < 0;
  height = std::abs(height);
  if (width < 1 || height < 1 || height > INT32_MAX)
    return errorf(ErrorCode::kInvalidArgument, "BMP image: impossible size {} x {}", width, height);
  bmp.width = static_cast<int>(width), bmp.height = static_cast<int>(height);
  RETURN_IF_ERROR(check_layout(bmp));
  if (bmp.bits <= 8 && bmp.n_colors == 0) bmp.n_colors = 1u << bmp.bits;
  find_pixels(file, bmp);
  return bmp;
}

Result<std::array<PaletteColor, 256>> read_palette(ImageBytes file, const BmpHeader& bmp) {
  std::array<PaletteColor, 256> palette;
  const size_t end = bmp.palette_at() + size_t{bmp.color_bytes} * bmp.n_colors;
  if (file.size() < end) return bmp_truncated(end, file.size());
  for (size_t i = 0; i < palette.size(); ++i) {  // grey where the file has no colour
    const auto grey = static_cast<uint8_t>(i);
    palette[i] = {grey, grey, grey, 255};
    if (i >= bmp.n_colors) continue;
    const size_t at = bmp.palette_at() + bmp.color_bytes * i;
    const auto channel = [&](size_t c) { return static_cast<uint8_t>(byte_at(file, at + c)); };
    palette[i] = {channel(2), channel(1), channel(0), 255};
  }
  return palette;
}

// Red, green, blue and alpha of pixels of 16 bits and more.
Result<std::array<ChannelMask, 4>> read_masks(ImageBytes file, const BmpHeader& bmp) {
  constexpr std::array<ChannelMask, 4> kFive = {{{0x7c00}, {0x3e0}, {0x1f}, {0}}},
                                       kEight = {{{0xff0000}, {0xff00}, {0xff}, {0}}};
  if (bmp.compression != kBitFields) return bmp.bits == 16 ? kFive : kEight;
  constexpr size_t kMasksAt = 54;
  const size_t n = bmp.header_bytes >= 56 ? 4 : 3;
  if (file.size() < kMasksAt + 4 * n) return bmp_truncated(kMasksAt + 4 * n, file.size());
  std::array<ChannelMask, 4> masks;
  for (size_t i = 0; i < n; ++i) masks[i].mask = u32_le(file, kMasksAt + 4 * i);
  if (masks[0].mask == 0 && masks[1].mask == 0 && masks[2].mask == 0 && masks[3].mask == 0)
    return std::array<ChannelMask, 4>{{{0xff0000}, {0xff00}, {0xff}, {0xff000000}}};
  for (size_t i = 0; i < 4; ++i)
    if ((i < 3 || masks[i].mask != 0) && !masks[i].is_one_run())
      return errorf(ErrorCode::kUnsupported,
                    "BMP image: expected a run of bits for each channel, got the mask {:#x}",
                    masks[i].mask);
  return masks;
}

Status decode_true_color(ImageBytes file, const BmpHeader& bmp, Image& image, AlphaRule rule) {
  ASSIGN_OR_RETURN(const auto masks, read_masks(file, bmp));
  const bool has_alpha = masks[3].mask != 0 && bmp.bits == 32;
  const uint32_t n = bmp.bits / 8;
  for (int i = 0; i < bmp.height; ++i) {
    size_t at = bmp.pixels_at + bmp.row_bytes() * i;
    uint8_t* to = image.row(bmp.line(i));
    for (int x = 0; x < bmp.width; ++x, at += n, to += 3) {
      const uint32_t pixel = n == 2   ? u16_le(file, at)
                             : n == 3 ? u16_le(file, at) | byte_at(file, at + 2) << 16
                                      : u32_le(file, at);
      const uint8_t alpha = has_alpha ? masks[3].read(pixel) : 255;
      put_color(to, {masks[0].read(pixel), masks[1].read(pixel), masks[2].read(pixel), alpha},
                rule);
    }
  }
  return {};
}

// Writes the indices of run-length encoded pixels, in the order in which they are stored. What the file
// leaves out is colour 0.
class RleReader {
 public:
  RleReader(ImageBytes file, const BmpHeader& bmp)
      : file_(file),
        at_(bmp.pixels_at),
        width_(bmp.width),
        four_(bmp.compression == kRle4),
        indices_(size_t{1} * bmp.width * bmp.height) {}

  Result<std::vector<uint8_t>> read() {
    while (filled_ < indices_.size()) {
      if (file_.size() < at_ + 2) return bmp_truncated(at_ + 2, file_.size());
      const uint32_t count = byte_at(file_, at_), value = byte_at(file_, at_ + 1);
      at_ += 2;
      if (count > 0) {
        const size_t n = std::min<size_t>(count, width_ - std::min(column_, width_));
        for (size_t i = 0; i < n; ++i) put(four_ ? (i % 2 == 0 ? value >> 4 : value & 15) : value);
        column_ += n;
      } else if (value == 0) {
        filled_ = (filled_ + width_ - 1) / width_ * width_;
        column_ = 0;
      } else if (value == 1) {
        break;
      } else if (value == 2) {
        if (file_.size() < at_ + 2) return bmp_truncated(at_ + 2, file_.size());
        filled_ = std::min(indices_.size(),
                           filled_ + byte_at(file_, at_) + byte_at(file_, at_ + 1) * width_);
        at_ += 2;
        column_ = filled_ % width_;
      } else {
        RETURN_IF_ERROR(read_literal(value));
      }
    }
    return std::move(indices_);
  }

 private:
  void put(uint32_t index) {
    if (filled_ < indices_.size()) indices_[filled_++] = static_cast<uint8_t>(index);
  }
  Status read_literal(uint32_t count) {
    const size_t bytes = four_ ? (count + 1) / 2 : count;
    if (file_.size() < at_ + bytes) return bmp_truncated(at_ + bytes, file_.size());
    for (size_t i = 0; i < count; ++i) {
      const uint32_t byte = byte_at(file_, at_ + (four_ ? i / 2 : i));
      put(four_ ? (i % 2 == 0 ? byte >> 4 : byte & 15) : byte);
    }
    column_ += count;
    at_ += bytes;
    at_ += at_ % 2;
    return {};
  }

  ImageBytes file_;
  size_t at_;
  size_t width_;
  bool four_;
  std::vector<uint8_t> indices_;
  size_t filled_ = 0, column_ = 0;
};

Status decode_indexed(ImageBytes file, const BmpHeader& bmp, Image& image) {
  ASSIGN_OR_RETURN(const auto palette, read_palette(file, bmp));
  std::vector<uint8_t> indices;
  const bool rle = bmp.compression != kRaw;
  if (rle) {
    ASSIGN_OR_RETURN(indices, RleReader(file, bmp).read());
  }
  for (int i = 0; i < bmp.height; ++i) {
    uint8_t* to = image.row(bmp.line(i));
    const size_t at = bmp.pixels_at + bmp.row_bytes() * i;
    for (int x = 0; x < bmp.width; ++x, to += 3) {
      const uint32_t bit = static_cast<uint32_t>(x) * bmp.bits;
      const uint32_t index =
          rle ? indices[size_t{1} * bmp.width * i + x]
              : byte_at(file, at + bit / 8) >> (8 - bmp.bits - bit % 8) & ((1u << bmp.bits) - 1);
      put_color(to, palette[index], AlphaRule::kDrop);
    }
  }
  return {};
}

}  // namespace

Result<ImageInfo> read_bmp_info(ImageBytes file) {
  ASSIGN_OR_RETURN(const BmpHeader bmp, read_bmp_header(file));
  ImageInfo info;
  info.width = bmp.width, info.height = bmp.height;
  return info;
}

Result<Image> decode_bmp(ImageBytes file, const ImageInfo& info, AlphaRule alpha) {
  ASSIGN_OR_RETURN(const BmpHeader bmp, read_bmp_header(file));
  if (bmp.compression == kRaw || bmp.compression == kBitFields) {
    const size_t end = bmp.pixels_at + bmp.row_bytes() * bmp.height;
    if (file.size() < end) return bmp_truncated(end, file.size());
  }
  Image image = blank_image(info);
  if (bmp.bits <= 8) {
    RETURN_IF_ERROR(decode_indexed(file, bmp, image));
  } else {
    RETURN_IF_ERROR(decode_true_color(file, bmp, image, alpha));
  }
  return image;
}

}  // namespace penstock
