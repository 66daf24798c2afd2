// From frames of a video to what a vision tower reads, as the video processor of a Hugging Face checkpoint
// says (video_preprocessor_config.json): which frames are read, their size and patches, and the text that
// stands for the video. Pixels equal those of transformers 5.24 with torchvision 0.29 bit for bit.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "images/image_processor.h"

namespace penstock {

// Frames that a client gave, and what it says of the video that they are from.
struct VideoInfo {
  int n_frames = 0;
  int width = 0, height = 0;  // of each frame, upright
  std::vector<int> indices;   // of the frames in their video; empty: 0, 1, ...
  int n_of_video = 0;         // frames of the video; 0: n_frames
  double fps = 0;             // of the video; 0: not known
  double seconds = 0;         // of the video; 0: as fps says
  // Whether some of the frames are chosen. Absent: as the files say where fps is known, else all are read.
  std::optional<bool> choose;
};

class VideoProcessor {
 public:
  virtual ~VideoProcessor() = default;

  // Says what a video becomes: the frames that are read, a view for each step in time, the prompt.
  // Errors: kInvalidArgument (impossible sizes, numbers or times, too few frames).
  virtual Result<ImagePlan> plan(const VideoInfo& video) const = 0;
  // Returns the pixels of a view of plan(). frames: the view's, of VideoInfo's size.
  virtual std::vector<float> pixels(const ImageView& view, std::span<const Image> frames) const = 0;
  virtual PixelLayout layout() const = 0;
  // What the chat template writes for a video, which ImagePlan::prompt replaces.
  virtual std::string placeholder() const = 0;
  // The token in whose places the prompt has features.
  virtual std::string soft_token() const = 0;
};

// Makes the processor of a checkpoint; null: its family takes no videos. kwargs: settings of a request, which
// take precedence; null for none. Errors: kUnsupported (a field that is not known, by name),
// kInvalidArgument (a value that is impossible).
Result<std::unique_ptr<VideoProcessor>> make_video_processor(const ImageProcessorFiles& files,
                                                             const nlohmann::json& kwargs = {});

// Returns the settings of a request for pictures, or for videos: those that only the other kind has are
// left out.
nlohmann::json settings_for_images(const nlohmann::json& kwargs);
nlohmann::json settings_for_videos(const nlohmann::json& kwargs);

}  // namespace penstock
