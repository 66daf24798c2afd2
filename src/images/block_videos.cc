// Videos of Qwen2-VL, 2.5-VL, 3-VL, 3.5 and GLM-4V: each view is a few frames whose patches are one, in the order of
// pictures' patches; sides become multiples of a factor within limits of area. InternVL and LLaVA-OneVision: each frame is
// a square.
#include <algorithm>
#include <cmath>

#include "images/block_patches.h"
#include "images/video_sampling.h"
#include "images/view_processor.h"

namespace penstock {
namespace {

constexpr double kUsualFps = 24;            // of videos that do not say it
constexpr int64_t kMostPixels = 1ll << 28;  // of all views
constexpr int64_t kMostTokens = 1ll << 24;  // of all views

// The settings of a video processor that every family reads.
struct VideoSettings {
  PixelSettings pixels;
  PatchOrder order;
  VideoSampling sampling;
  bool chooses = false;  // where the video's fps is known
  std::string placeholder, soft_token;
};

VideoSampling read_sampling(ProcessorSettings& settings, VideoSampling sampling) {
  constexpr double kMostFps = 1000;
  if (settings.in_request("fps") && settings.in_request("num_frames"))
    settings.refuse("fps", "fps or num_frames", "both");
  sampling.fps = settings.number("fps", sampling.fps);
  sampling.n_frames = settings.integer("num_frames", sampling.n_frames);
  if (settings.in_request("fps")) sampling.n_frames = 0;
  if (sampling.fps < 0 || sampling.fps > kMostFps)
    settings.refuse("fps", fmt::format("0 to {}", kMostFps), fmt::format("{}", sampling.fps));
  sampling.least = settings.integer("min_frames", sampling.least);
  sampling.most = settings.integer("max_frames", sampling.most);
  if (sampling.least > sampling.most)
    settings.refuse("max_frames", fmt::format("at least min_frames ({})", sampling.least),
                    fmt::format("{}", sampling.most));
  return sampling;
}

// Returns the frames that are read, filled up with the last one to whole views.
Result<std::vector<int>> frames_read(const VideoSettings& settings, const VideoInfo& video) {
  std::vector<int> frames;
  if (video.choose.value_or(settings.chooses && video.fps > 0)) {
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

// Times of frames in seconds; of frames that were chosen, their places among the given ones count.
std::vector<double> times_of(const VideoInfo& video, std::span<const int> frames, bool chosen) {
  const double fps = video.fps > 0 ? video.fps : kUsualFps;
  std::vector<double> times;
  for (const int frame : frames) {
    const bool own = !chosen && !video.indices.empty();
    times.push_back((own ? video.indices[static_cast<size_t>(frame)] : frame) / fps);
  }
  return times;
}

enum class BlockKind { kQwen2, kQwen3, kGlm4v, kGlm46v };

class BlockVideos : public VideoProcessor {
 public:
  BlockVideos(const FamilyInputs& inputs, BlockKind kind) : kind_(kind) {
    ProcessorSettings& settings = inputs.settings;
    const bool qwen3 = kind == BlockKind::kQwen3, glm = is_glm();
    PixelSettings usual{.mean = kClipMean, .std = kClipStd};
    if (qwen3) usual.mean = usual.std = kHalf;
    all_.pixels = read_pixel_settings(settings, usual);
    all_.order = {PixelLayout::kPatches, settings.integer("patch_size", qwen3 ? 16 : 14, 1, 256),
                  settings.integer("merge_size", 2, 1, 16),
                  settings.integer("temporal_patch_size", 2, 1, 16)};
    read_times(settings);
    read_limits(settings);
    all_.placeholder = inputs.token("video_token", glm ? "<|video|>" : "<|video_pad|>");
    all_.soft_token = glm ? inputs.token("image_token", "<|image|>") : all_.placeholder;
    start_ = inputs.token("vision_start_token", "<|vision_start|>");
    end_ = inputs.token("vision_end_token", "<|vision_end|>");
    if (inputs.model_type() == "qwen2_5_vl") {
      const int said = inputs.config_integer({"vision_config", "tokens_per_second"});
      positions_per_second_ = static_cast<float>(said > 0 ? said : 4);
    }
  }

  Result<ImagePlan> plan(const VideoInfo& video) const override {
    RETURN_IF_ERROR(check_video(video));
    ImagePlan plan;
    plan.width = video.width, plan.height = video.height;
    ASSIGN_OR_RETURN(plan.frames, frames_read(all_, video));
    const bool chosen = video.choose.value_or(all_.chooses && video.fps > 0);
    const int n_read = static_cast<int>(plan.frames.size()), factor = side();
    ASSIGN_OR_RETURN(const BlockSize size, size_of(video, n_read));
    while (plan.frames.size() % static_cast<size_t>(all_.order.frames) != 0)
      plan.frames.push_back(plan.frames.back());
    const int n_views = static_cast<int>(plan.frames.size()) / all_.order.frames;
    const int64_t n_tokens = int64_t{size.height / factor} * (size.width / factor);
    if (n_tokens * n_views > kMostTokens ||
        int64_t{size.height} * size.width * n_views > kMostPixels)
      return errorf(ErrorCode::kInvalidArgument,
                    "video: expected to become at most {} tokens and {} pixels, got {} steps of "
                    "{} x {}",
                    kMostTokens, kMostPixels, n_views, size.width, size.height);
    const ImageView view{size.height, size.width, size.height / all_.order.patch,
                         size.width / all_.order.patch, static_cast<int>(n_tokens)};
    plan.views.assign(static_cast<size_t>(n_views), view);
    plan.n_soft = static_cast<int>(n_tokens) * n_views;
    if (positions_per_second_ > 0) {
      const double rate = video.fps > 0 ? video.fps : kUsualFps;
      const bool fewer = video.fps > 0 && (chosen || !video.indices.empty());
      const double share = fewer ? n_read / static_cast<double>(total_of(video)) : 1;
      plan.frame_step =
          positions_per_second_ * static_cast<float>(all_.order.frames / (share * rate));
    }
    write_prompt(times_of(video, plan.frames, chosen), plan);
    return plan;
  }

  std::vector<float> pixels(const ImageView& view, std::span<const Image> frames) const override {
    std::vector<Image> sized;
    for (const Image& frame : frames)
      sized.push_back(resize_image(frame, view.width, view.height, all_.pixels.filter));
    std::vector<float> values(size_t{3} * view.width * view.height * all_.order.frames);
    write_patches(sized, all_.order, all_.pixels.table(), values.data());
    return values;
  }
  PixelLayout layout() const override { return PixelLayout::kPatches; }
  std::string placeholder() const override { return all_.placeholder; }
  std::string soft_token() const override { return all_.soft_token; }

 private:
  bool is_glm() const { return kind_ == BlockKind::kGlm4v || kind_ == BlockKind::kGlm46v; }
  int side() const { return all_.order.patch * all_.order.merge; }
  static int total_of(const VideoInfo& video) {
    return video.n_of_video > 0 ? video.n_of_video : video.n_frames;
  }

  void read_times(ProcessorSettings& settings) {
    VideoSampling usual{.temporal = all_.order.frames};
    usual.rule = kind_ == BlockKind::kQwen2   ? SamplingRule::kQwen2
                 : kind_ == BlockKind::kQwen3 ? SamplingRule::kQwen3
                 : kind_ == BlockKind::kGlm4v ? SamplingRule::kGlm4v
                                              : SamplingRule::kGlm46v;
    if (kind_ != BlockKind::kQwen2) usual.fps = 2;
    all_.sampling = read_sampling(settings, usual);
    all_.sampling.seconds = settings.integer("max_duration", 300);
    all_.chooses = settings.flag("do_sample_frames", kind_ != BlockKind::kQwen2);
    settings.ignore({"max_image_size", "return_metadata", "crop_size"});
  }

  void read_limits(ProcessorSettings& settings) {
    const SizeSetting published =
        kind_ == BlockKind::kQwen2
            ? SizeSetting{.shortest_edge = 128 * 28 * 28, .longest_edge = 28 * 28 * 768}
        : kind_ == BlockKind::kQwen3
            ? SizeSetting{.shortest_edge = 128 * 32 * 32, .longest_edge = 32 * 32 * 768}
            : SizeSetting{.shortest_edge = 112 * 112, .longest_edge = 28 * 28 * 2 * 30000};
    limits_ = settings.size("size", published);
    // Older files of Qwen2-VL and requests.
    const bool whole = settings.in_request("size");
    for (const auto& [name, edge] : {std::pair{"min_pixels", &SizeSetting::shortest_edge},
                                     std::pair{"max_pixels", &SizeSetting::longest_edge}}) {
      settings.ignore({name});
      const bool asked = settings.in_request(name);
      if (asked || (kind_ == BlockKind::kQwen2 && !whole))
        limits_.*edge = settings.integer(name, limits_.*edge, 1, 1 << 28);
    }
    if (limits_.shortest_edge < 1 || limits_.longest_edge < 1)
      settings.refuse("size", "shortest_edge and longest_edge (areas in pixels)",
                      "one or none of them");
    if (is_glm()) return;
    shares_ = settings.flag("cap_pixels_per_frame", false);
    most_tokens_ = settings.integer("max_video_tokens", kind_ == BlockKind::kQwen3 ? 768 : 128000);
  }

  Result<BlockSize> size_of(const VideoInfo& video, int n_frames) const {
    const double factor = side(), area = factor * factor, frames = n_frames;
    const double floor = std::trunc(limits_.shortest_edge * 1.05);
    AreaRule rule{side(), static_cast<double>(limits_.shortest_edge),
                  static_cast<double>(limits_.longest_edge)};
    if (kind_ == BlockKind::kQwen2) {
      const double budget = std::trunc(most_tokens_ * area * 0.9);
      if (shares_)
        rule.most =
            std::max(std::min(rule.most, std::floor(budget * all_.order.frames / frames)), floor);
      return fit_area(video.width, video.height, rule);
    }
    if (n_frames < all_.order.frames)
      return errorf(ErrorCode::kInvalidArgument, "video: expected at least {} frames, got {}",
                    all_.order.frames, n_frames);
    if (shares_)
      rule.most =
          std::max(std::min(most_tokens_ * area, std::floor(rule.most / frames)), floor) * frames;
    rule.enlarges = true, rule.n_frames = frames;
    rule.n_counted = python_round(frames / all_.order.frames) * all_.order.frames;
    return fit_area(video.width, video.height, rule);
  }

  // times: of all frames that are read.
  void write_prompt(std::span<const double> times, ImagePlan& plan) const {
    std::vector<PromptPiece>& prompt = plan.prompt;
    if (kind_ == BlockKind::kQwen2) {
      prompt.push_back({all_.soft_token, plan.n_soft});
      return;
    }
    const auto n_frames = static_cast<size_t>(all_.order.frames);
    for (size_t i = 0; i < plan.views.size(); ++i) {
      const PromptPiece soft{all_.soft_token, plan.views[i].n_tokens};
      if (is_glm()) {  // every second frame has a time
        const double time = times[std::min(2 * i, times.size() - 1)];
        prompt.push_back({"<|begin_of_image|>"});
        prompt.push_back(soft);
        prompt.push_back({kind_ == BlockKind::kGlm4v
                              ? fmt::format("<|end_of_image|>{}", static_cast<int64_t>(time))
                              : fmt::format("<|end_of_image|>{:.1f} seconds", time)});
        continue;
      }
      const double time = (times[i * n_frames] + times[(i + 1) * n_frames - 1]) / 2;
      prompt.push_back({fmt::format("<{:.1f} seconds>{}", time, start_)});
      prompt.push_back(soft);
      prompt.push_back({end_});
    }
  }

  const BlockKind kind_;
  VideoSettings all_;
  SizeSetting limits_;
  bool shares_ = false;             // frames share a budget of pixels
  int most_tokens_ = 0;             // of it
  float positions_per_second_ = 0;  // 0: a view is one position
  std::string start_, end_;
};

// Videos of which each frame is a view, resized as a whole.
class WholeFrames : public VideoProcessor {
 public:
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

  Result<ImagePlan> plan(const VideoInfo& video) const override {
    RETURN_IF_ERROR(check_video(video));
    ImagePlan plan;
    plan.width = video.width, plan.height = video.height;
    ASSIGN_OR_RETURN(plan.frames, frames_read(all_, video));
    const auto n = static_cast<int64_t>(plan.frames.size());
    if (n * n_tokens_ > kMostTokens || n * size_.height * size_.width > kMostPixels)
      return errorf(ErrorCode::kInvalidArgument,
                    "video: expected to become at most {} tokens and {} pixels, got {} frames",
                    kMostTokens, kMostPixels, n);
    plan.views.assign(plan.frames.size(), {size_.height, size_.width, 0, 0, n_tokens_});
    plan.n_soft = static_cast<int>(n * n_tokens_);
    for (size_t i = 0; i < plan.frames.size(); ++i) {
      plan.prompt.push_back({fmt::format("{}Frame{}: {}", i == 0 ? "" : "\n", i + 1, start_)});
      plan.prompt.push_back({all_.soft_token, n_tokens_});
      plan.prompt.push_back({end_});
    }
    return plan;
  }

 private:
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

  int n_tokens_ = 0;
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
    all_.sampling = read_sampling(settings, {.rule = SamplingRule::kFloor, .least = 1});
    all_.chooses = settings.flag("do_sample_frames", false);
    settings.ignore({"return_metadata", "crop_size", "image_grid_pinpoints"});
    all_.placeholder = all_.soft_token = inputs.token("video_token", "<video>");
  }

  Result<ImagePlan> plan(const VideoInfo& video) const override {
    RETURN_IF_ERROR(check_video(video));
    ImagePlan plan;
    plan.width = video.width, plan.height = video.height;
    ASSIGN_OR_RETURN(plan.frames, frames_read(all_, video));
    const auto n = static_cast<int64_t>(plan.frames.size());
    const int half = (side_ + 1) / 2, n_tokens = half * half;
    if (n * n_tokens > kMostTokens || n * size_.height * size_.width > kMostPixels)
      return errorf(ErrorCode::kInvalidArgument,
                    "video: expected to become at most {} tokens and {} pixels, got {} frames",
                    kMostTokens, kMostPixels, n);
    plan.views.assign(plan.frames.size(), {size_.height, size_.width, 0, 0, n_tokens});
    plan.stitched = {side_, side_, 0, side_, 0, side_, half, half, true};
    plan.n_soft = static_cast<int>(n * n_tokens) + 1;
    plan.prompt.push_back({all_.soft_token, plan.n_soft});
    return plan;
  }

 private:
  int side_ = 0;  // patches
};

std::string video_text(const nlohmann::json& object, const char* name) {
  const bool named = object.is_object() && object.contains(name) && object[name].is_string();
  return named ? object[name].get<std::string>() : "";
}

struct VideoFamily {
  std::string_view type;                 // video_processor_type
  std::vector<std::string_view> models;  // model types whose files name none
  std::unique_ptr<VideoProcessor> (*make)(const FamilyInputs& inputs);
};

template <BlockKind kKind>
std::unique_ptr<VideoProcessor> make_blocks(const FamilyInputs& inputs) {
  return std::make_unique<BlockVideos>(inputs, kKind);
}

std::unique_ptr<VideoProcessor> make_intern(const FamilyInputs& inputs) {
  return std::make_unique<InternVideos>(inputs);
}

std::unique_ptr<VideoProcessor> make_onevision(const FamilyInputs& inputs) {
  return std::make_unique<OneVisionVideos>(inputs);
}

// THE list of families that take videos.
const std::vector<VideoFamily>& video_families() {
  static const std::vector<VideoFamily> list = {
      {"Qwen2VLVideoProcessor", {"qwen2_vl", "qwen2_5_vl"}, make_blocks<BlockKind::kQwen2>},
      {"Qwen3VLVideoProcessor",
       {"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"},
       make_blocks<BlockKind::kQwen3>},
      {"Glm4vVideoProcessor", {"glm4v", "glm4v_moe", "glm46v"}, make_blocks<BlockKind::kGlm4v>},
      {"Glm46VVideoProcessor", {"glm46v", "glm4v", "glm4v_moe"}, make_blocks<BlockKind::kGlm46v>},
      {"InternVLVideoProcessor", {"internvl"}, make_intern},
      {"LlavaOnevisionVideoProcessor", {"llava_onevision"}, make_onevision},
  };
  return list;
}

// Settings of videos only, and those that pictures have as well.
constexpr const char* kVideoNames[] = {"fps",           "num_frames",           "min_frames",
                                       "max_frames",    "do_sample_frames",     "max_duration",
                                       "initial_shift", "cap_pixels_per_frame", "max_video_tokens"};
constexpr const char* kCommonNames[] = {
    "size",       "min_pixels", "max_pixels",          "do_resize",      "resample",
    "do_rescale", "image_mean", "rescale_factor",      "do_normalize",   "image_std",
    "patch_size", "merge_size", "temporal_patch_size", "do_convert_rgb", "device"};

bool is_one_of(std::span<const char* const> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

nlohmann::json settings_for_images(const nlohmann::json& kwargs) {
  if (!kwargs.is_object()) return kwargs;
  nlohmann::json result = nlohmann::json::object();
  for (const auto& [name, value] : kwargs.items())
    if (!is_one_of(kVideoNames, name)) result[name] = value;
  return result;
}

nlohmann::json settings_for_videos(const nlohmann::json& kwargs) {
  if (!kwargs.is_object()) return kwargs;
  nlohmann::json result = nlohmann::json::object();
  for (const auto& [name, value] : kwargs.items())
    if (is_one_of(kVideoNames, name) || is_one_of(kCommonNames, name)) result[name] = value;
  return result;
}

Result<std::unique_ptr<VideoProcessor>> make_video_processor(const ImageProcessorFiles& files,
                                                             const nlohmann::json& kwargs) {
  const nlohmann::json* file = &files.image_processor;
  if (files.processor.is_object() && files.processor.contains("video_processor")) {
    file = &files.processor["video_processor"];
  } else if (files.video_processor.is_object()) {
    file = &files.video_processor;
  }
  const std::string type = video_text(*file, "video_processor_type"),
                    model = video_text(files.config, "model_type");
  for (const VideoFamily& family : video_families()) {
    // A model of another family may read the same frames and place them otherwise (Omni).
    const bool knows_model = std::ranges::find(family.models, model) != family.models.end();
    const bool is_it =
        type.empty() ? knows_model : family.type == type && (model.empty() || knows_model);
    if (!is_it) continue;
    ProcessorSettings settings("video processor", kwargs, *file, files.processor);
    auto made = family.make({files, settings});
    RETURN_IF_ERROR(settings.status());
    return made;
  }
  return nullptr;
}

}  // namespace penstock
