// WebP by libwebp; of an animation the first frame, on a transparent black canvas as in Pillow.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "images/decoders.h"

namespace penstock {
namespace {

const uint8_t* webp_data(ImageBytes bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

// RGBA to RGB in place of the target's rows.
void take_rgba(const std::vector<uint8_t>& rgba, Image& image, AlphaRule rule) {
  for (size_t i = 0; i < rgba.size() / 4; ++i) {
    const uint8_t* const from = rgba.data() + 4 * i;
    put_color(image.rgb.data() + 3 * i, {from[0], from[1], from[2], from[3]}, rule);
  }
}

struct DemuxDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

// Decodes the first frame of an animation into its place on the canvas.
Status decode_first_frame(ImageBytes file, const ImageInfo& info, std::vector<uint8_t>& canvas) {
  const WebPData data{webp_data(file), file.size()};
  const std::unique_ptr<WebPDemuxer, DemuxDeleter> demuxer(WebPDemux(&data));
  WebPIterator frame{};
  if (!demuxer || WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "WebP image of {} x {}: the animation's first frame is missing or truncated",
                  info.width, info.height);
  bool decoded = frame.x_offset >= 0 && frame.y_offset >= 0 &&
                 frame.width <= info.width - frame.x_offset &&
                 frame.height <= info.height - frame.y_offset;
  if (decoded) {
    const size_t stride = size_t{4} * info.width;
    const size_t offset = stride * frame.y_offset + size_t{4} * frame.x_offset;
    decoded = WebPDecodeRGBAInto(frame.fragment.bytes, frame.fragment.size, canvas.data() + offset,
                                 canvas.size() - offset, static_cast<int>(stride)) != nullptr;
  }
  WebPDemuxReleaseIterator(&frame);
  if (!decoded)
    return errorf(ErrorCode::kInvalidArgument,
                  "WebP image of {} x {}: the animation's first frame is damaged", info.width,
                  info.height);
  return {};
}

}  // namespace

Result<ImageInfo> read_webp_info(ImageBytes file) {
  WebPBitstreamFeatures features{};
  const VP8StatusCode code = WebPGetFeatures(webp_data(file), file.size(), &features);
  if (code != VP8_STATUS_OK)
    return errorf(ErrorCode::kInvalidArgument, "WebP image: {} header in {} bytes",
                  code == VP8_STATUS_NOT_ENOUGH_DATA ? "truncated" : "impossible", file.size());
  ImageInfo info;
  info.width = features.width, info.height = features.height;
  int exif = 0, xmp = 0;
  for (size_t at = 12; at + 8 <= file.size();) {  // the chunks of the RIFF file
    const size_t length = u32_le(file, at + 4);
    if (length > file.size() - at - 8) break;
    const ImageBytes chunk = file.subspan(at + 8, length);
    if (has_text(file, at, "EXIF")) exif = exif_orientation(chunk);
    if (has_text(file, at, "XMP ")) xmp = xmp_orientation(chunk);
    at += 8 + length + length % 2;
  }
  info.orientation = orientation_of(exif, xmp);
  return info;
}

Result<Image> decode_webp(ImageBytes file, const ImageInfo& info, AlphaRule alpha) {
  WebPBitstreamFeatures features{};
  WebPGetFeatures(webp_data(file), file.size(), &features);
  Image image = blank_image(info);
  if (features.has_animation == 0 && features.has_alpha == 0) {
    if (WebPDecodeRGBInto(webp_data(file), file.size(), image.rgb.data(), image.rgb.size(),
                          3 * info.width) == nullptr)
      return errorf(ErrorCode::kInvalidArgument,
                    "WebP image of {} x {}: damaged or truncated ({} bytes)", info.width,
                    info.height, file.size());
    return image;
  }
  std::vector<uint8_t> rgba(size_t{4} * info.width * info.height);
  if (features.has_animation != 0) {
    RETURN_IF_ERROR(decode_first_frame(file, info, rgba));
  } else if (WebPDecodeRGBAInto(webp_data(file), file.size(), rgba.data(), rgba.size(),
                                4 * info.width) == nullptr) {
    return errorf(ErrorCode::kInvalidArgument,
                  "WebP image of {} x {}: damaged or truncated ({} bytes)", info.width, info.height,
                  file.size());
  }
  take_rgba(rgba, image, features.has_alpha != 0 ? alpha : AlphaRule::kDrop);
  return image;
}

}  // namespace penstock
