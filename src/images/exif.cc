#include <optional>

#include "images/decoders.h"

namespace penstock {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;

// A TIFF file, whose numbers have the byte order that its first bytes name.
struct TiffReader {
  ImageBytes bytes;
  bool big = false;

  std::optional<uint32_t> u16(size_t at) const {
    if (at > bytes.size() || bytes.size() - at < 2) return std::nullopt;
    return big ? u16_be(bytes, at) : u16_le(bytes, at);
  }
  std::optional<uint32_t> u32(size_t at) const {
    if (at > bytes.size() || bytes.size() - at < 4) return std::nullopt;
    return big ? u32_be(bytes, at) : u32_le(bytes, at);
  }
};

}  // namespace

int exif_orientation(ImageBytes exif) {
  if (has_text(exif, 0, std::string_view("Exif\0\0", 6))) exif = exif.subspan(6);
  TiffReader tiff{exif};
  tiff.big = has_text(exif, 0, "MM");
  if (!tiff.big && !has_text(exif, 0, "II")) return 0;
  const auto directory = tiff.u32(4);
  if (!directory) return 0;
  const size_t n_entries = tiff.u16(*directory).value_or(0);
  for (size_t i = 0; i < n_entries; ++i) {
    const size_t entry = size_t{*directory} + 2 + 12 * i;
    const auto tag = tiff.u16(entry), type = tiff.u16(entry + 2), count = tiff.u32(entry + 4);
    if (!tag || !type || !count) return 0;
    if (*tag != kOrientationTag) continue;
    if (*count != 1 || (*type != 3 && *type != 4)) return 0;  // SHORT and LONG
    const auto value = *type == 3 ? tiff.u16(entry + 8) : tiff.u32(entry + 8);
    return value && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return 0;
}

int xmp_orientation(ImageBytes xmp) {
  const std::string_view text(reinterpret_cast<const char*>(xmp.data()), xmp.size());
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = text.find(kName); at != std::string_view::npos; at = text.find(kName, at + 1)) {
    std::string_view rest = text.substr(at + kName.size());
    const size_t skip = rest.starts_with("=\"") ? 2 : rest.starts_with(">") ? 1 : 0;
    if (skip == 0 || rest.size() <= skip || rest[skip] < '0' || rest[skip] > '9') continue;
    const int value = rest[skip] - '0';
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 0;
}

int orientation_of(int exif, int xmp) { return exif != 0 ? exif : xmp != 0 ? xmp : 1; }

}  // namespace penstock
