// Videos of InternVL, LLaVA-OneVision and SmolVLM: each frame is a square.
#include <algorithm>
#include <cmath>

#include "images/video_parts.h"

namespace penstock {
namespace {

// English, from 0 to 999,999: "forty-two", "one hundred and one", "one thousand, two hundred".
std::string number_in_words(int n) {
  static constexpr const char* kSmall[] = {
      "zero",     "one",     "two",     "three",     "four",     "five",    "six",
      "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
      "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static constexpr const char* kTens[] = {"",      "",      "twenty",  "thirty", "forty",
                                          "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (n < 20) return kSmall[n];
  if (n < 100) return kTens[n / 10] + (n % 10 > 0 ? "-" + number_in_words(n % 10) : "");
  const int unit = n < 1000 ? 100 : 1000, rest = n % unit;
  const std::string head = number_in_words(n / unit) + (unit == 100 ? " hundred" : " thousand");
  if (rest == 0) return head;
  return head + (rest < 100 ? " and " : ", ") + number_in_words(rest);
}

// Python's str(timedelta(seconds=...)): "0:00:05", "1 day, 2:03:04".
std::string length_in_hours(double seconds) {
  constexpr int64_t kDay = 86400;
  const auto whole = static_cast<int64_t>(seconds);
  const int64_t days = whole / kDay, rest = whole % kDay;
  const std::string ahead = days == 0 ? "" : fmt::format("{} day{}, ", days, days == 1 ? "" : "s");
  return fmt::format("{}{}:{:02}:{:02}", ahead, rest / 3600, rest / 60 % 60, rest % 60);
}

// Videos of which each frame is a view, resized as a whole.
class WholeFrames : public VideoProcessor {
 public:
  Result<ImagePlan> plan(const VideoInfo& video) const override {
    RETURN_IF_ERROR(check_video(video));
    ImagePlan plan;
    plan.width = video.width, plan.height = video.height;
    ASSIGN_OR_RETURN(plan.frames, frames_read(all_, video));
    const auto n = static_cast<int64_t>(plan.frames.size());
    if (n * n_tokens_ > kMostVideoTokens || n * size_.height * size_.width > kMostVideoPixels)
      return errorf(ErrorCode::kInvalidArgument,
                    "video: expected to become at most {} tokens and {} pixels, got {} frames",
                    kMostVideoTokens, kMostVideoPixels, n);
    plan.views.assign(plan.frames.size(), {size_.height, size_.width, 0, 0, n_tokens_});
    plan.n_soft = static_cast<int>(n * n_tokens_);
    write_prompt(video, plan);
    return plan;
  }
  std::vector<float> pixels(const ImageView& view, std::span<const Image> frames) const override {
    const Image sized = resize_image(frames[0], view.width, view.height, all_.pixels.filter);
    std::vector<float> values(sized.rgb.size());
    write_planes(sized, all_.pixels.table(), values.data());
    return values;
  }
  PixelLayout layout() const override { return PixelLayout::kPlanes; }
  std::string placeholder() const override { return all_.placeholder; }
  std::string soft_token() const override { return all_.soft_token; }

 protected:
  VideoSettings all_;
  SizeSetting size_;  // of a view
  int n_tokens_ = 0;  // of a view

 private:
  // Writes the prompt of a plan that has all else; what joins the views is the family's too.
  virtual void write_prompt(const VideoInfo& video, ImagePlan& plan) const = 0;
};

class InternVideos : public WholeFrames {
 public:
  explicit InternVideos(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    all_.pixels = read_pixel_settings(settings, {.mean = kClipMean, .std = kClipStd});
    size_ = settings.size("size", {.height = 384, .width = 384});
    if (size_.height < 1 || size_.width < 1 || size_.height > 4096 || size_.width > 4096)
      settings.refuse("size", "height and width from 1 to 4096", "others");
    all_.sampling = read_sampling(settings, {.rule = SamplingRule::kUniform, .least = 1});
    read_shift(settings);
    all_.chooses = settings.flag("do_sample_frames", false);
    settings.ignore(
        {"return_metadata", "crop_size", "crop_to_patches", "min_patches", "max_patches"});
    n_tokens_ = settings.processor_integer("image_seq_length", 256, 1);
    all_.placeholder = inputs.token("video_token", "<video>");
    all_.soft_token = inputs.token("context_image_token", "<IMG_CONTEXT>");
    start_ = inputs.token("start_image_token", "<img>");
    end_ = inputs.token("end_image_token", "</img>");
  }

 private:
  void write_prompt(const VideoInfo&, ImagePlan& plan) const override {
    for (size_t i = 0; i < plan.frames.size(); ++i) {
      plan.prompt.push_back({fmt::format("{}Frame{}: {}", i == 0 ? "" : "\n", i + 1, start_)});
      plan.prompt.push_back({all_.soft_token, n_tokens_});
      plan.prompt.push_back({end_});
    }
  }
  // true: the middle of a frame's share; else its place.
  void read_shift(ProcessorSettings& settings) {
    if (settings.is_flag("initial_shift")) {
      if (!settings.flag("initial_shift", true)) all_.sampling.shift = 0;
      return;
    }
    all_.sampling.shift = settings.number("initial_shift", -1);
    if (all_.sampling.shift > 1e6)
      settings.refuse("initial_shift", "at most 1000000", fmt::format("{}", all_.sampling.shift));
  }

  std::string start_, end_;
};

// Each frame is a square whose features are shrunk to a half; one newline ends the video.
class OneVisionVideos : public WholeFrames {
 public:
  explicit OneVisionVideos(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    all_.pixels = read_pixel_settings(settings, {.mean = kClipMean, .std = kClipStd});
    size_ = settings.size("size", {.height = 384, .width = 384});
    const int patch = inputs.config_integer({"vision_config", "patch_size"});
    side_ = patch > 0 ? size_.height / patch : 0;
    if (side_ < 1 || size_.height != size_.width || size_.height > 4096)
      settings.refuse("size", "a square of patches, up to 4096", "another");
    n_tokens_ = (side_ + 1) / 2 * ((side_ + 1) / 2);
    all_.sampling = read_sampling(settings, {.rule = SamplingRule::kFloor, .least = 1});
    all_.chooses = settings.flag("do_sample_frames", false);
    settings.ignore({"return_metadata", "crop_size", "image_grid_pinpoints"});
    all_.placeholder = all_.soft_token = inputs.token("video_token", "<video>");
  }

 private:
  void write_prompt(const VideoInfo&, ImagePlan& plan) const override {
    const int half = (side_ + 1) / 2;
    plan.stitched = {side_, side_, 0, side_, 0, side_, half, half, true};
    plan.n_soft += 1;
    plan.prompt.push_back({all_.soft_token, plan.n_soft});
  }

  int side_ = 0;  // patches
};

// Each frame is resized as a picture is and then to a square, and stands behind its time; the number of frames and the
// video's length stand ahead of all, in words.
class SmolVlmVideos : public WholeFrames {
 public:
  explicit SmolVlmVideos(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    all_.pixels = read_pixel_settings(settings, {.filter = ResizeFilter::kLanczos});
    const nlohmann::json sampling = settings.object("video_sampling");
    all_.sampling = {.rule = SamplingRule::kSmolVlm, .least = 1};
    read_sampling_of(settings, sampling);
    const int side = settings.size("max_image_size", {.longest_edge = 364}).longest_edge;
    if (side < 1 || side > kMostSide)
      settings.refuse("max_image_size", "longest_edge from 1 to 4096", "another");
    size_.height = size_.width = side;
    if (first_.longest_edge < 1 && (std::min(first_.height, first_.width) < 1 ||
                                    std::max(first_.height, first_.width) > kMostSide))
      settings.refuse("size", "longest_edge, or height and width from 1 to 4096", "neither");
    all_.chooses = settings.flag("do_sample_frames", false);
    settings.ignore({"do_pad", "return_metadata", "crop_size", "pad_size", "do_image_splitting",
                     "return_row_col_info"});
    n_tokens_ = idefics3_tokens(inputs);
    all_.placeholder = inputs.token("video_token", "<video>");
    all_.soft_token = "<image>";
  }

  std::vector<float> pixels(const ImageView& view, std::span<const Image> frames) const override {
    const auto [width, height] = first_size(frames[0].width, frames[0].height);
    const Image sized = resize_image(frames[0], width, height, all_.pixels.filter);
    return WholeFrames::pixels(view, {&sized, 1});
  }

 private:
  static constexpr int kMostSide = 4096;

  // Files may have these in an object as well, which counts more than the file, but for its size.
  void read_sampling_of(ProcessorSettings& settings, const nlohmann::json& object) {
    ProcessorSettings own(std::string("video_sampling"), object, nlohmann::json::object());
    own.ignore({"min_frames"});
    first_ = settings.size("size", own.size("video_size", {.longest_edge = 4 * 364}));
    VideoSampling& sampling = all_.sampling;
    sampling.fps = settings.number("fps", 0);
    if (!settings.in_request("fps")) sampling.fps = own.number("fps", sampling.fps);
    sampling.n_frames = settings.integer("num_frames", 0);
    if (!settings.in_request("num_frames"))
      sampling.n_frames = own.integer("max_frames", sampling.n_frames);
    check_wanted_fps(settings, sampling.fps);
    if (const Status read = own.status(); !read)
      settings.refuse("video_sampling", "fps, max_frames and video_size", read.error().message);
  }

  // Width and height of the first resizing.
  std::pair<int, int> first_size(int width, int height) const {
    if (first_.longest_edge < 1) return {first_.width, first_.height};
    const int longer = std::min(first_.longest_edge, kMostSide);
    const double ratio = static_cast<double>(width) / height;
    const bool wide = width >= height;
    int shorter = static_cast<int>(wide ? longer / ratio : longer * ratio);
    shorter = std::max(shorter + shorter % 2, 1);
    return wide ? std::pair(longer, shorter) : std::pair(shorter, longer);
  }

  void write_prompt(const VideoInfo& video, ImagePlan& plan) const override {
    const bool chosen = chooses_frames(all_, video);
    const std::vector<double> times = times_of(video, plan.frames, chosen);
    const double seconds = video.seconds > 0 ? video.seconds
                           : chosen          ? video.n_frames / video.fps
                                             : times.back();
    plan.prompt.push_back({fmt::format(
        "You are provided the following series of {} frames from a {} [H:MM:SS] video.\n",
        number_in_words(static_cast<int>(times.size())), length_in_hours(seconds))});
    for (const double time : times) {
      const auto whole = static_cast<int64_t>(time);
      plan.prompt.push_back({fmt::format("\nFrame from {:02}:{:02}:{}<global-img>", whole / 60,
                                         whole % 60, kAround)});
      plan.prompt.push_back({all_.soft_token, n_tokens_});
      plan.prompt.push_back({kAround});
    }
    plan.prompt.push_back({"\n\n"});
  }

  static constexpr const char* kAround = "<fake_token_around_image>";

  SizeSetting first_;
};

}  // namespace

std::unique_ptr<VideoProcessor> make_intern_videos(const FamilyInputs& inputs) {
  return std::make_unique<InternVideos>(inputs);
}

std::unique_ptr<VideoProcessor> make_onevision_videos(const FamilyInputs& inputs) {
  return std::make_unique<OneVisionVideos>(inputs);
}

std::unique_ptr<VideoProcessor> make_smolvlm_videos(const FamilyInputs& inputs) {
  return std::make_unique<SmolVlmVideos>(inputs);
}

}  // namespace penstock
