#include "images/video_sampling.h"

#include <algorithm>
#include <cmath>

#include "images/view_processor.h"

namespace penstock {
namespace {

tl::unexpected<Error> bad_number(double wanted, int there) {
  return errorf(ErrorCode::kInvalidArgument,
                "video: expected to read 1 to {} frames, as many as there are, got {}", there,
                wanted);
}

// torch.arange(first, total, step).int()
std::vector<int> even_steps(double first, int total, double step) {
  std::vector<int> indices;
  const int n = static_cast<int>(std::ceil((total - first) / step));
  for (int i = 0; i < n; ++i)
    indices.push_back(std::min(static_cast<int>(static_cast<float>(first + step * i)), total - 1));
  return indices;
}

Result<double> fps_of(const VideoInfo& video) {
  if (video.fps > 0) return video.fps;
  return errorf(ErrorCode::kInvalidArgument,
                "video: frames are chosen by their time: expected fps of the video, got none");
}

Result<std::vector<int>> choose_qwen2(const VideoSampling& sampling, const VideoInfo& video) {
  const int total = video.n_frames;
  const double temporal = sampling.temporal;
  double n = total;
  if (sampling.n_frames > 0) {
    n = python_round(sampling.n_frames / temporal) * temporal;
  } else if (sampling.fps > 0) {
    ASSIGN_OR_RETURN(const double fps, fps_of(video));
    const double most = std::floor(std::min(sampling.most, total) / temporal) * temporal;
    n = std::min({std::max<double>(total / fps * sampling.fps, sampling.least), most,
                  static_cast<double>(total)});
    n = std::floor(n / temporal) * temporal;
  }
  if (n < 1 || n > total) return bad_number(n, total);
  return even_steps(0, total, total / n);
}

Result<std::vector<int>> choose_qwen3(const VideoSampling& sampling, const VideoInfo& video) {
  const int total = video.n_frames;
  double n = sampling.n_frames;
  if (n == 0 && sampling.fps > 0) {
    const double fps = video.fps > 0 ? video.fps : kUsualFps;
    n = std::trunc(total / fps * sampling.fps);
    n = std::min({std::max<double>(n, sampling.least), static_cast<double>(sampling.most),
                  static_cast<double>(total)});
  } else if (n == 0) {
    n = std::min(std::max(total, sampling.least), sampling.most);
  }
  if (n < 1 || n > total) return bad_number(n, total);
  std::vector<int> indices;
  for (const double at : linspace(0, total - 1, static_cast<int>(n)))
    indices.push_back(static_cast<int>(python_round(at)));
  return indices;
}

double seconds_of(const VideoInfo& video, double fps) {
  return video.seconds > 0 ? video.seconds : python_round((video.n_frames - 1) / fps) + 1;
}

// Each index once, and the last one twice if their number is odd.
std::vector<int> in_pairs(std::vector<int> indices) {
  std::vector<int> once;
  std::vector<char> seen(indices.empty() ? 0 : static_cast<size_t>(std::ranges::max(indices)) + 1);
  for (const int index : indices) {
    if (seen[static_cast<size_t>(index)] == 0) once.push_back(index);
    seen[static_cast<size_t>(index)] = 1;
  }
  if (once.size() % 2 == 1) once.push_back(once.back());
  return once;
}

Result<std::vector<int>> choose_glm4v(const VideoSampling& sampling, const VideoInfo& video) {
  ASSIGN_OR_RETURN(const double fps, fps_of(video));
  const int total = video.n_frames, last = total - 1;
  const double seconds = seconds_of(video, fps), wanted = sampling.fps > 0 ? sampling.fps : 2;
  std::vector<int> indices;
  if (seconds <= sampling.seconds) {
    const double n = std::max(std::floor(seconds * wanted), 1.0);
    for (double i = 0; i < n; ++i) {
      const double at = std::ceil(i * fps / wanted);
      indices.push_back(static_cast<int>(std::min<double>(last, at)));
      if (at >= last || indices.size() > (size_t{1} << 20)) break;  // all others are the last one
    }
  } else if (const double n = std::trunc(sampling.seconds * wanted); n >= total) {
    for (int i = 0; i < total; ++i) indices.push_back(i);
  } else {
    if (n < 1) return bad_number(n, total);
    for (const double at : linspace(0, seconds, static_cast<int>(n)))
      indices.push_back(static_cast<int>(std::min<double>(last, std::ceil(at * fps))));
  }
  return in_pairs(std::move(indices));
}

std::vector<int> whole_numbers(double start, double stop, int n) {
  std::vector<int> numbers;
  for (const double at : linspace(start, stop, n)) numbers.push_back(static_cast<int>(at));
  return numbers;
}

// More frames a second of shorter videos, at most 640.
Result<std::vector<int>> choose_glm46v(const VideoSampling& sampling, const VideoInfo& video) {
  ASSIGN_OR_RETURN(const double fps, fps_of(video));
  const int total = video.n_frames;
  const double seconds = seconds_of(video, fps), read = std::min(seconds, 2400.0);
  const double wanted = read <= 30 ? 3 : read <= 300 ? 1 : 0.5;
  const int n = static_cast<int>(std::min(std::trunc(read * wanted * sampling.temporal), 640.0));
  std::vector<int> indices;
  if (total < n) return in_pairs(whole_numbers(0, total - 1, n));
  double next = 0;
  for (int i = 0; i < total; ++i) {
    if (i * (1 / fps) < next) continue;
    next += 1 / (sampling.temporal * wanted);
    indices.push_back(i);
    if (next >= std::trunc(seconds)) break;
  }
  const int found = static_cast<int>(indices.size());
  if (found < n) {
    indices = whole_numbers(indices.front(), indices.back(), n);
  } else if (found > n) {
    indices = whole_numbers(0, total - 1, n);
  }
  if (indices.empty()) return bad_number(0, total);
  return in_pairs(std::move(indices));
}

Result<std::vector<int>> choose_uniform(const VideoSampling& sampling, const VideoInfo& video) {
  const int total = video.n_frames;
  double n = sampling.n_frames;
  if (n == 0 && sampling.fps > 0) {
    ASSIGN_OR_RETURN(const double fps, fps_of(video));
    n = std::trunc(total / fps * sampling.fps);
  } else if (n == 0) {
    n = total;
  }
  if (n < 1 || n > total) return bad_number(n, total);
  const double shift = sampling.shift < 0 ? total / n / 2 : sampling.shift;
  if (shift >= total) return bad_number(0, total);
  return even_steps(shift, total, total / n);
}

// Equal parts, each by its first frame.
Result<std::vector<int>> choose_floor(const VideoSampling& sampling, const VideoInfo& video) {
  const int64_t total = video.n_frames;
  double n = sampling.n_frames;
  if (n == 0 && sampling.fps > 0) {
    ASSIGN_OR_RETURN(const double fps, fps_of(video));
    n = std::max(std::trunc(static_cast<double>(total) / fps * sampling.fps), 1.0);
  } else if (n == 0) {
    n = static_cast<double>(total);
  }
  if (n < 1 || n > static_cast<double>(total)) return bad_number(n, video.n_frames);
  std::vector<int> indices;
  for (int64_t i = 0; i < static_cast<int64_t>(n); ++i)
    indices.push_back(static_cast<int>(i * total / static_cast<int64_t>(n)));
  return indices;
}

// At most n_frames at the rate fps; of videos that are long enough the first and the last second are left out.
Result<std::vector<int>> choose_smolvlm(const VideoSampling& sampling, const VideoInfo& video) {
  ASSIGN_OR_RETURN(const double fps, fps_of(video));
  if (sampling.fps <= 0 || sampling.n_frames < 1)
    return make_error(
        ErrorCode::kInvalidArgument,
        "video: frames are chosen: expected both fps and num_frames, got one or none");
  const int total = video.n_frames;
  const double seconds = video.seconds > 0 ? video.seconds : total / fps;
  const double most = sampling.n_frames,
               n = std::max(std::min(python_round(sampling.fps * seconds), most), 1.0);
  int first = 0, last = total - 1;
  if (seconds - 2 > most * sampling.fps) {
    first = static_cast<int>(std::min<double>(fps, total));
    last = std::min(static_cast<int>(std::max(total - fps, 0.0)), last);
    if (first >= last) first = 0, last = total - 1;
  }
  std::vector<int> indices = whole_numbers(first, last, static_cast<int>(n));
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

}  // namespace

std::vector<double> linspace(double start, double stop, int n) {
  std::vector<double> numbers;
  const double step = (stop - start) / (n - 1);
  for (int i = 0; i < n; ++i)
    numbers.push_back(n == 1 ? start : i == n - 1 ? stop : i * step + start);
  return numbers;
}

Result<std::vector<int>> choose_frames(const VideoSampling& sampling, const VideoInfo& video) {
  switch (sampling.rule) {
    case SamplingRule::kQwen2: return choose_qwen2(sampling, video);
    case SamplingRule::kQwen3: return choose_qwen3(sampling, video);
    case SamplingRule::kGlm4v: return choose_glm4v(sampling, video);
    case SamplingRule::kGlm46v: return choose_glm46v(sampling, video);
    case SamplingRule::kUniform: return choose_uniform(sampling, video);
    case SamplingRule::kFloor: return choose_floor(sampling, video);
    case SamplingRule::kSmolVlm: return choose_smolvlm(sampling, video);
  }
  return video.indices;
}

}  // namespace penstock
