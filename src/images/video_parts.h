// Settings, choice of frames and times that all families of videos share.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "images/video_processor.h"
#include "images/video_sampling.h"
#include "images/view_processor.h"

namespace penstock {

inline constexpr int64_t kMostVideoPixels = 1ll << 28;  // of all views
inline constexpr int64_t kMostVideoTokens = 1ll << 24;  // of all views

// The settings of a video processor that every family reads.
struct VideoSettings {
  PixelSettings pixels;
  PatchOrder order;
  VideoSampling sampling;
  bool chooses = false;  // where the video's fps is known
  std::string placeholder, soft_token;
};

// Reads fps, num_frames, min_frames and max_frames.
VideoSampling read_sampling(ProcessorSettings& settings, VideoSampling sampling);
// Refuses fps beyond 1000.
void check_wanted_fps(ProcessorSettings& settings, double fps);
// Whether some of a video's frames are chosen.
bool chooses_frames(const VideoSettings& settings, const VideoInfo& video);
// Returns the frames that are read. Errors: those of choose_frames(), kInvalidArgument.
Result<std::vector<int>> frames_read(const VideoSettings& settings, const VideoInfo& video);
// Error: kInvalidArgument (impossible sizes, numbers or times).
Status check_video(const VideoInfo& video);
// Times of frames in seconds; of frames that were chosen, their places among the given ones count.
std::vector<double> times_of(const VideoInfo& video, std::span<const int> frames, bool chosen);

// The families: each returns a processor; settings.status() says whether its settings were possible.
using VideoFamilyMaker = std::unique_ptr<VideoProcessor> (*)(const FamilyInputs& inputs);
std::unique_ptr<VideoProcessor> make_qwen2_videos(const FamilyInputs& inputs);
std::unique_ptr<VideoProcessor> make_qwen3_videos(const FamilyInputs& inputs);
std::unique_ptr<VideoProcessor> make_glm4v_videos(const FamilyInputs& inputs);
std::unique_ptr<VideoProcessor> make_glm46v_videos(const FamilyInputs& inputs);
std::unique_ptr<VideoProcessor> make_intern_videos(const FamilyInputs& inputs);
std::unique_ptr<VideoProcessor> make_onevision_videos(const FamilyInputs& inputs);
std::unique_ptr<VideoProcessor> make_smolvlm_videos(const FamilyInputs& inputs);

}  // namespace penstock
