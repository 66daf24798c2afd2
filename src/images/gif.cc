// The first frame of a GIF by giflib, on a canvas of its transparent colour, or else of colour 0.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "images/decoders.h"

namespace penstock {
namespace {

// Where the library reads.
struct GifInput {
  ImageBytes file;
  size_t at = 0;
};

int read_gif_bytes(GifFileType* gif, GifByteType* to, int n) {
  auto& input = *static_cast<GifInput*>(gif->UserData);
  const size_t count = std::min(static_cast<size_t>(std::max(n, 0)), input.file.size() - input.at);
  if (count > 0) std::memcpy(to, input.file.data() + input.at, count);
  input.at += count;
  return static_cast<int>(count);
}

struct GifDeleter {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using GifFile = std::unique_ptr<GifFileType, GifDeleter>;

struct GifFrame {
  GifFile gif;  // after the descriptor of its first picture
  int transparent = -1;
};

auto gif_error(int code) {
  const char* const text = GifErrorString(code);
  return errorf(ErrorCode::kInvalidArgument, "GIF image: {}",
                text == nullptr ? "damaged or truncated" : text);
}

// Reads one extension; of a graphics control block the transparent colour.
bool read_extension(GifFileType* gif, int& transparent) {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return false;
  while (block != nullptr) {
    if (code == GRAPHICS_EXT_FUNC_CODE) {
      GraphicsControlBlock control{};
      if (DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
        transparent = control.TransparentColor;
    }
    if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return false;
  }
  return true;
}

// Reads up to the first picture.
Result<GifFrame> find_first_frame(GifInput& input) {
  int code = 0;
  GifFrame frame{GifFile(DGifOpen(&input, read_gif_bytes, &code))};
  GifFileType* const gif = frame.gif.get();
  if (gif == nullptr) return gif_error(code);
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &type) == GIF_ERROR) return gif_error(gif->Error);
    if (type == TERMINATE_RECORD_TYPE)
      return errorf(ErrorCode::kInvalidArgument, "GIF image: a file without a picture");
    if (type == EXTENSION_RECORD_TYPE && !read_extension(gif, frame.transparent))
      return gif_error(gif->Error);
    if (type != IMAGE_DESC_RECORD_TYPE) continue;
    if (DGifGetImageDesc(gif) == GIF_ERROR) return gif_error(gif->Error);
    return frame;
  }
}

std::array<PaletteColor, 256> gif_palette(const GifFileType& gif, int transparent) {
  std::array<PaletteColor, 256> palette;
  for (size_t i = 0; i < palette.size(); ++i) {  // grey where the file has no colour
    const auto grey = static_cast<uint8_t>(i);
    palette[i] = {grey, grey, grey, 255};
  }
  const ColorMapObject* const map =
      gif.Image.ColorMap != nullptr ? gif.Image.ColorMap : gif.SColorMap;
  for (int i = 0; map != nullptr && i < std::min(map->ColorCount, 256); ++i)
    palette[i] = {map->Colors[i].Red, map->Colors[i].Green, map->Colors[i].Blue, 255};
  if (transparent >= 0 && transparent < 256) palette[transparent].alpha = 0;
  return palette;
}

}  // namespace

Result<ImageInfo> read_gif_info(ImageBytes file) {
  GifInput input{file};
  ASSIGN_OR_RETURN(const GifFrame frame, find_first_frame(input));
  const GifImageDesc& picture = frame.gif->Image;
  ImageInfo info;
  info.width = std::max(frame.gif->SWidth, picture.Left + picture.Width);
  info.height = std::max(frame.gif->SHeight, picture.Top + picture.Height);
  if (picture.Width < 1 || picture.Height < 1)
    return errorf(ErrorCode::kInvalidArgument,
                  "GIF image: expected at least one pixel, got {} x {}", picture.Width,
                  picture.Height);
  return info;
}

Result<Image> decode_gif(ImageBytes file, const ImageInfo& info, AlphaRule alpha) {
  GifInput input{file};
  ASSIGN_OR_RETURN(const GifFrame frame, find_first_frame(input));
  const GifImageDesc& picture = frame.gif->Image;
  const auto palette = gif_palette(*frame.gif, frame.transparent);
  Image image = blank_image(info);
  const PaletteColor& background = palette[std::max(frame.transparent, 0)];
  for (size_t i = 0; i < image.rgb.size(); i += 3)
    put_color(image.rgb.data() + i, background, alpha);
  std::vector<uint8_t> row(picture.Width);
  const auto read_row = [&](int y) {
    if (DGifGetLine(frame.gif.get(), row.data(), picture.Width) == GIF_ERROR) return false;
    uint8_t* to = image.row(picture.Top + y) + size_t{3} * picture.Left;
    for (const uint8_t index : row) put_color(to, palette[index], alpha), to += 3;
    return true;
  };
  constexpr int kFirst[] = {0, 4, 2, 1},
                kStep[] = {8, 8, 4, 2};  // of the passes of an interlaced picture
  for (int pass = 0; pass < (picture.Interlace ? 4 : 1); ++pass)
    for (int y = picture.Interlace ? kFirst[pass] : 0; y < picture.Height;
         y += picture.Interlace ? kStep[pass] : 1)
      if (!read_row(y)) return gif_error(frame.gif->Error);
  return image;
}

}  // namespace penstock
