#include "frontend/pictures/video_frames.h"

#include "base/work.h"
#include "engine/open/picture_encoder.h"
#include "frontend/pictures/stitch.h"

namespace penstock {
namespace {

constexpr size_t kFramesBetweenPauses = 16;
// Pixels that a video's frames have together: 2,048 frames of 1,920 x 1,080.
constexpr int64_t kMostPixelsOfFrames = int64_t{1} << 32;

std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

}  // namespace

size_t Picture::bytes() const {
  if (window != nullptr) return window->values.size() * sizeof(float);
  if (video == nullptr) return file->size();
  size_t n = 0;
  for (const std::string& frame : video->files) n += frame.size();
  return n;
}

Result<ImagePlan> plan_video(const VideoFrames& video, const VideoProcessor& processor,
                             const ImageLimits& limits) {
  VideoInfo info = video.info;
  info.n_frames = static_cast<int>(video.files.size());
  for (size_t i = 0; i < video.files.size(); ++i) {
    if (i % kFramesBetweenPauses == 0) give_way();
    const auto fail = [&](const std::string& what) {
      return errorf(ErrorCode::kInvalidArgument, "frame {}: {}", i, what);
    };
    if (video.files[i].size() > limits.max_bytes)
      return fail(fmt::format("expected at most {} bytes, got {}", limits.max_bytes,
                              video.files[i].size()));
    const Result<ImageInfo> frame = read_image_info(bytes_of(video.files[i]));
    if (!frame) return errorf(frame.error().code, "frame {}: {}", i, frame.error().message);
    if (int64_t{frame->width} * frame->height > limits.max_pixels)
      return fail(fmt::format("expected at most {} pixels, got {} x {}", limits.max_pixels,
                              frame->width, frame->height));
    if (i == 0) info.width = frame->width, info.height = frame->height;
    if (int64_t{info.width} * info.height > kMostPixelsOfFrames / info.n_frames)
      return fail(fmt::format("expected frames of at most {} pixels together, got {} of {} x {}",
                              kMostPixelsOfFrames, info.n_frames, info.width, info.height));
    if (frame->width != info.width || frame->height != info.height)
      return fail(fmt::format("expected {} x {} pixels as frame 0, got {} x {}", info.width,
                              info.height, frame->width, frame->height));
  }
  if (video.files.empty())
    return make_error(ErrorCode::kInvalidArgument, "expected at least one frame, got none");
  return processor.plan(info);
}

Result<std::vector<Image>> VideoRows::frames() const {
  const size_t n = plan_.frames.size() / plan_.views.size(), first = views_.size() * n;
  std::vector<Image> frames;
  for (size_t i = 0; i < n; ++i) {
    const int frame = plan_.frames[first + i];
    if (i > 0 && frame == plan_.frames[first + i - 1]) {
      frames.push_back(frames.back());
      continue;
    }
    auto image = decode_image(bytes_of(video_.files[static_cast<size_t>(frame)]), limits_);
    if (!image) return errorf(image.error().code, "frame {}: {}", frame, image.error().message);
    frames.push_back(*std::move(image));
  }
  return frames;
}

Status VideoRows::add(EmbeddingRows rows) {
  const StitchedGrid& grid = plan_.stitched;
  if (grid.rows > 0) {
    if (rows.n_rows != grid.rows * grid.cols)
      return errorf(ErrorCode::kUnsupported, "expected {} x {} features of a frame, got {}",
                    grid.rows, grid.cols, rows.n_rows);
    rows = shrunk(rows, grid);
  }
  views_.push_back(std::move(rows));
  return {};
}

std::string name_of(const VideoFrames& video, const ImagePlan& plan, const HashOfText& hash) {
  // The views' size is part of the name: the same frames make other views when another number of frames came.
  std::string name = fmt::format("video {}", plan.frame_step);
  for (const ImageView& view : std::span(plan.views).first(std::min<size_t>(1, plan.views.size())))
    name += fmt::format(" {} x {}", view.width, view.height);
  for (const int frame : plan.frames) {
    const auto own = hash(video.files[static_cast<size_t>(frame)]);
    name += fmt::format(" {:016x}{:016x}", own[0], own[1]);
  }
  return name;
}

EmbeddingRows VideoRows::joined(std::span<const float> newline) const {
  EmbeddingRows result = joined_rows(views_);
  if (plan_.stitched.newline_behind) {
    result.values.insert(result.values.end(), newline.begin(), newline.end());
    ++result.n_rows;
  }
  return result;
}

}  // namespace penstock
