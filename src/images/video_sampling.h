// Which frames of a video are read: the rules of transformers' video processors.
#pragma once
#include <vector>

#include "base/result.h"
#include "images/video_processor.h"

namespace penstock {

inline constexpr double kUsualFps = 24;  // of videos that do not say it

enum class SamplingRule { kQwen2, kQwen3, kGlm4v, kGlm46v, kUniform, kFloor, kSmolVlm };

struct VideoSampling {
  SamplingRule rule = SamplingRule::kQwen3;
  double fps = 0;    // frames a second that are wanted; 0: not said
  int n_frames = 0;  // that are wanted; 0: not said
  int least = 4, most = 768;
  int temporal = 2;   // frames of a view
  int seconds = 300;  // that are read at the rate `fps`
  double shift = -1;  // place of the first frame of kUniform; below 0: the middle of its share
};

// Returns indices of the frames that are read, ascending; some may come twice. Errors: kInvalidArgument
// (fps of the video is not known, more frames than there are, none).
Result<std::vector<int>> choose_frames(const VideoSampling& sampling, const VideoInfo& video);

// numpy.linspace(): n numbers from start to stop.
std::vector<double> linspace(double start, double stop, int n);

}  // namespace penstock
