// JPEG by libjpeg-turbo with its defaults (ISLOW, fancy upsampling), as Pillow.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
// After <cstdio>, which they need.
#include <jerror.h>
#include <jpeglib.h>

#include "images/decoders.h"

namespace penstock {
namespace {

// Bounds of a progressive file, whose every scan takes time in proportion to the pixels: 2^30 of them are 16 scans
// of 64 megapixels.
constexpr int kMaxScans = 500;
constexpr int64_t kMaxScanPixels = int64_t{1} << 30;

// The state of a decompression that callbacks of the library change.
struct JpegState {
  jpeg_error_mgr errors;  // first, since the library hands out its address
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
};

JpegState& state_of(j_common_ptr jpeg) { return *static_cast<JpegState*>(jpeg->client_data); }

[[noreturn]] void end_by_error(j_common_ptr jpeg) {
  JpegState& state = state_of(jpeg);
  jpeg->err->format_message(jpeg, state.message);
  std::longjmp(state.jump, 1);
}

// Warnings that pixels are missing are errors; others say that the file is odd, and are passed over.
void look_at_warning(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  ++jpeg->err->num_warnings;
  const int code = jpeg->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) end_by_error(jpeg);
}

// Bounds the time: a file of a few kilobytes may have thousands of scans.
void count_scans(j_common_ptr common) {
  if (!common->is_decompressor) return;
  auto* const jpeg = reinterpret_cast<j_decompress_ptr>(common);
  const int64_t n_pixels = int64_t{jpeg->image_width} * jpeg->image_height;
  if (jpeg->input_scan_number <= kMaxScans && jpeg->input_scan_number * n_pixels <= kMaxScanPixels)
    return;
  JpegState& state = state_of(common);
  std::snprintf(state.message, JMSG_LENGTH_MAX,
                "expected at most %d scans and %lld pixels in them, got more", kMaxScans,
                static_cast<long long>(kMaxScanPixels));
  std::longjmp(state.jump, 1);
}

// Pillow's conversion of CMYK pixels that are stored inverted, as Adobe's programs do.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, int width) {
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int white = cmyk[3];  // 255 - black
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * white + 128;
      rgb[c] = static_cast<uint8_t>(std::max(white - (((product >> 8) + product) >> 8), 0));
    }
  }
}

// Decodes into rgb; row has room for 4 * width bytes. False: state.message says why. No object with a
// destructor is in this function, since errors of the library end it by longjmp.
bool decompress(ImageBytes file, const ImageInfo& info, uint8_t* rgb, uint8_t* row,
                JpegState& state) {
  jpeg_decompress_struct jpeg{};
  jpeg.err = jpeg_std_error(&state.errors);
  jpeg.client_data = &state;
  state.errors.error_exit = end_by_error;
  state.errors.emit_message = look_at_warning;
  if (setjmp(state.jump) != 0) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg.progress = &state.progress;
  state.progress.progress_monitor = count_scans;
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&jpeg, TRUE);
  const bool cmyk = jpeg.num_components == 4;
  jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  bool fits = static_cast<int>(jpeg.image_width) == info.width &&
              static_cast<int>(jpeg.image_height) == info.height;
  fits = fits && (cmyk || jpeg.num_components == 3 || jpeg.num_components == 1);
  if (!fits) {
    std::snprintf(state.message, JMSG_LENGTH_MAX,
                  "expected %d x %d pixels of 1, 3 or 4 components, got %u x %u of %d", info.width,
                  info.height, jpeg.image_width, jpeg.image_height, jpeg.num_components);
    std::longjmp(state.jump, 1);
  }
  jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    uint8_t* const to = rgb + size_t{3} * info.width * jpeg.output_scanline;
    JSAMPROW target = cmyk ? row : to;
    if (jpeg_read_scanlines(&jpeg, &target, 1) != 1) break;
    if (cmyk) cmyk_to_rgb(row, to, info.width);
  }
  jpeg_destroy_decompress(&jpeg);
  return true;
}

bool is_frame_header(uint32_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

}  // namespace

Result<ImageInfo> read_jpeg_info(ImageBytes file) {
  ImageInfo info;
  int exif = 0, xmp = 0;
  size_t at = 2;
  while (at + 4 <= file.size()) {
    if (byte_at(file, at) != 0xff) {
      ++at;
      continue;
    }
    const uint32_t marker = byte_at(file, at + 1);
    if (marker == 0xff || marker == 0 || marker == 1 ||
        (marker >= 0xd0 && marker <= 0xd8)) {  // fill bytes, markers without data
      at += marker == 0xff ? 1 : 2;
      continue;
    }
    if (marker == 0xd9 || marker == 0xda) break;  // end of the image, start of a scan
    const size_t length = u16_be(file, at + 2);
    if (length < 2 || at + 2 + length > file.size())
      return errorf(ErrorCode::kInvalidArgument,
                    "JPEG image: truncated in the section at byte {} of {}", at, file.size());
    const ImageBytes section = file.subspan(at + 4, length - 2);
    if (is_frame_header(marker) && section.size() >= 5) {
      info.height = static_cast<int>(u16_be(section, 1));
      info.width = static_cast<int>(u16_be(section, 3));
    } else if (marker == 0xe1 && has_text(section, 0, "Exif")) {
      if (exif == 0) exif = exif_orientation(section);
    } else if (marker == 0xe1 && has_text(section, 0, "http://ns.adobe.com/xap/1.0/")) {
      xmp = xmp_orientation(section);
    }
    at += 2 + length;
  }
  if (info.width == 0 || info.height == 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "JPEG image: no size in its first {} bytes (truncated, or no picture)", at);
  info.orientation = orientation_of(exif, xmp);
  return info;
}

Result<Image> decode_jpeg(ImageBytes file, const ImageInfo& info, AlphaRule) {
  Image image = blank_image(info);
  std::vector<uint8_t> row(size_t{4} * info.width);
  JpegState state{};
  if (!decompress(file, info, image.rgb.data(), row.data(), state))
    return errorf(ErrorCode::kInvalidArgument, "JPEG image of {} x {}: {}", info.width, info.height,
                  state.message);
  return image;
}

}  // namespace penstock
