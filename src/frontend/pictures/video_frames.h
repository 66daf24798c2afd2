// Frames of a video: their headers, their pixels view by view, and the rows of all views.
#pragma once
#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/pictures/picture.h"

namespace penstock {

// Reads the headers of all frames, which have one size; nothing is decoded. Errors: those of
// read_image_info() and VideoProcessor::plan(), kInvalidArgument (no frames, other sizes, a frame over a
// limit).
Result<ImagePlan> plan_video(const VideoFrames& video, const VideoProcessor& processor,
                             const ImageLimits& limits);

// Returns a text that only this video has, read as the plan says.
using HashOfText = std::function<std::array<uint64_t, 2>(std::string_view)>;
std::string name_of(const VideoFrames& video, const ImagePlan& plan, const HashOfText& hash);

// Decodes the frames of a plan's views, one view after the other.
class VideoReader {
 public:
  // REQUIRES: video and plan outlive the reader.
  VideoReader(const VideoFrames& video, const ImagePlan& plan, const ImageLimits& limits)
      : video_(video), plan_(plan), limits_(limits) {}

  // REQUIRES: called at most once for each view. Errors: those of decode_image().
  Result<std::vector<Image>> next();

 private:
  const VideoFrames& video_;
  const ImagePlan& plan_;
  const ImageLimits limits_;
  size_t at_ = 0;  // in ImagePlan::frames
};

// Returns the rows of all views, level by level: each shrunk if the grid says so, with a newline behind the
// last. Error: kUnsupported (a view that is not the grid's).
Result<EmbeddingRows> joined(std::vector<EmbeddingRows>& views, const StitchedGrid& grid,
                             std::span<const float> newline);

}  // namespace penstock
