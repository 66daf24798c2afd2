#include "images/video_parts.h"

namespace penstock {

VideoSampling read_sampling(ProcessorSettings& settings, VideoSampling sampling) {
  if (settings.in_request("fps") && settings.in_request("num_frames"))
    settings.refuse("fps", "fps or num_frames", "both");
  sampling.fps = settings.number("fps", sampling.fps);
  sampling.n_frames = settings.integer("num_frames", sampling.n_frames);
  if (settings.in_request("fps")) sampling.n_frames = 0;
  check_wanted_fps(settings, sampling.fps);
  sampling.least = settings.integer("min_frames", sampling.least);
  sampling.most = settings.integer("max_frames", sampling.most);
  if (sampling.least > sampling.most)
    settings.refuse("max_frames", fmt::format("at least min_frames ({})", sampling.least),
                    fmt::format("{}", sampling.most));
  return sampling;
}

void check_wanted_fps(ProcessorSettings& settings, double fps) {
  constexpr double kMostFps = 1000;
  if (fps < 0 || fps > kMostFps)
    settings.refuse("fps", fmt::format("0 to {}", kMostFps), fmt::format("{}", fps));
}

bool chooses_frames(const VideoSettings& settings, const VideoInfo& video) {
  return video.choose.value_or(settings.chooses && video.fps > 0);
}

Result<std::vector<int>> frames_read(const VideoSettings& settings, const VideoInfo& video) {
  std::vector<int> frames;
  if (chooses_frames(settings, video)) {
    if (video.n_of_video > 0 && video.n_of_video != video.n_frames)
      return errorf(ErrorCode::kInvalidArgument,
                    "video: frames are chosen among all of a video: expected {}, got {}",
                    video.n_of_video, video.n_frames);
    ASSIGN_OR_RETURN(frames, choose_frames(settings.sampling, video));
  } else {
    for (int i = 0; i < video.n_frames; ++i) frames.push_back(i);
  }
  return frames;
}

Status check_video(const VideoInfo& video) {
  const auto wrong = [](const char* what, const std::string& expected, double got) {
    return errorf(ErrorCode::kInvalidArgument, "video: {}: expected {}, got {}", what, expected,
                  got);
  };
  if (video.n_frames < 1 || video.width < 1 || video.height < 1)
    return wrong("frames", "at least one with pixels", video.n_frames);
  if (!(video.fps == 0 || (video.fps >= 1e-3 && video.fps <= 1e6)))
    return wrong("fps", "0.001 to 1000000", video.fps);
  if (!(video.seconds >= 0 && video.seconds <= 1e9))
    return wrong("duration", "0 to 1000000000 seconds", video.seconds);
  if (video.n_of_video != 0 && video.n_of_video < video.n_frames)
    return wrong("total_num_frames", fmt::format("at least {}", video.n_frames), video.n_of_video);
  if (!video.indices.empty() && static_cast<int>(video.indices.size()) != video.n_frames)
    return wrong("frames_indices", fmt::format("{}, one for each frame", video.n_frames),
                 static_cast<double>(video.indices.size()));
  for (const int index : video.indices)
    if (index < 0 || index > (1 << 30)) return wrong("frames_indices", "0 to 2^30", index);
  return {};
}

std::vector<double> times_of(const VideoInfo& video, std::span<const int> frames, bool chosen) {
  const double fps = video.fps > 0 ? video.fps : kUsualFps;
  std::vector<double> times;
  for (const int frame : frames) {
    const bool own = !chosen && !video.indices.empty();
    times.push_back((own ? video.indices[static_cast<size_t>(frame)] : frame) / fps);
  }
  return times;
}

}  // namespace penstock
