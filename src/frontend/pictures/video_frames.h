// Frames of a video: their headers, and the rows of its views.
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

// Rows of a video, view by view.
class VideoRows {
 public:
  // REQUIRES: video and plan outlive it.
  VideoRows(const VideoFrames& video, const ImagePlan& plan, const ImageLimits& limits)
      : video_(video), plan_(plan), limits_(limits) {}

  bool complete() const { return views_.size() == plan_.views.size(); }
  // The view that is next. REQUIRES: !complete().
  const ImageView& view() const { return plan_.views[views_.size()]; }
  // Decodes its frames. Errors: those of decode_image().
  Result<std::vector<Image>> frames() const;
  // Takes its rows, shrunk if the plan's grid says so. Error: kUnsupported (a view that is not the grid's).
  Status add(EmbeddingRows rows);
  // Returns the rows of all views, level by level, with a newline behind the last if the grid says so.
  EmbeddingRows joined(std::span<const float> newline) const;

 private:
  const VideoFrames& video_;
  const ImagePlan& plan_;
  const ImageLimits limits_;
  std::vector<EmbeddingRows> views_;
};

}  // namespace penstock
