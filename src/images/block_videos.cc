// Videos of Qwen2-VL, 2.5-VL, 3-VL, 3.5, the Omni models and GLM-4V: each view is a few frames whose patches are one, in
// the order of pictures' patches; sides become multiples of a factor within limits of area.
#include <algorithm>
#include <cmath>

#include "images/block_patches.h"
#include "images/video_parts.h"

namespace penstock {
namespace {

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
    omni_ = inputs.model_type().find("_omni_") != std::string::npos;
    read_times(settings);
    if (omni_) read_omni(inputs);
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
    const bool chosen = chooses_frames(all_, video);
    const int n_read = static_cast<int>(plan.frames.size()), factor = side();
    ASSIGN_OR_RETURN(const BlockSize size, size_of(video, n_read));
    while (plan.frames.size() % static_cast<size_t>(all_.order.frames) != 0)
      plan.frames.push_back(plan.frames.back());
    const int n_views = static_cast<int>(plan.frames.size()) / all_.order.frames;
    const int64_t n_tokens = int64_t{size.height / factor} * (size.width / factor);
    if (n_tokens * n_views > kMostVideoTokens ||
        int64_t{size.height} * size.width * n_views > kMostVideoPixels)
      return errorf(ErrorCode::kInvalidArgument,
                    "video: expected to become at most {} tokens and {} pixels, got {} steps of "
                    "{} x {}",
                    kMostVideoTokens, kMostVideoPixels, n_views, size.width, size.height);
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
    if (step_ > 0) plan.frame_step = step_;
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

  // Qwen2.5-Omni and 3-Omni: the processor's limits take the place of the file's, and positions count seconds of the
  // rate at which frames were asked for, whatever that of the video.
  void read_omni(const FamilyInputs& inputs) {
    ProcessorSettings& settings = inputs.settings;
    settings.ignore_sounds();
    const bool third = inputs.model_type().starts_with("qwen3");
    const int side = third ? 32 : 28, said = inputs.config_integer({"position_id_per_seconds"});
    limits_ = {.shortest_edge = 128 * side * side, .longest_edge = 768 * side * side};
    const double fps = settings.request_number("fps", third ? 1 : 2);
    if (fps <= 0) {
      settings.refuse("fps", "more than 0", fmt::format("{}", fps));
      return;
    }
    const auto seconds = static_cast<float>(all_.order.frames / fps);
    step_ = static_cast<float>(said > 0 ? said : 25) * seconds;
    // Positions of Qwen3-Omni may have fractions in transformers.
    if (third && step_ != std::floor(step_))
      settings.refuse("fps", "a rate at which a view is a whole number of positions",
                      fmt::format("{}", fps));
  }

  void read_limits(ProcessorSettings& settings) {
    const SizeSetting published =
        omni_ ? limits_
        : kind_ == BlockKind::kQwen2
            ? SizeSetting{.shortest_edge = 128 * 28 * 28, .longest_edge = 28 * 28 * 768}
        : kind_ == BlockKind::kQwen3
            ? SizeSetting{.shortest_edge = 128 * 32 * 32, .longest_edge = 32 * 32 * 768}
            : SizeSetting{.shortest_edge = 112 * 112, .longest_edge = 28 * 28 * 2 * 30000};
    const bool whole = settings.in_request("size");
    limits_ = published;
    settings.ignore({"size"});
    if (!omni_ || whole) limits_ = settings.size("size", published);
    // Older files of Qwen2-VL and requests.
    for (const auto& [name, edge] : {std::pair{"min_pixels", &SizeSetting::shortest_edge},
                                     std::pair{"max_pixels", &SizeSetting::longest_edge}}) {
      settings.ignore({name});
      const bool asked = settings.in_request(name);
      if (asked || (kind_ == BlockKind::kQwen2 && !whole && !omni_))
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
  float positions_per_second_ = 0;  // 0: a view is one position, or
  float step_ = 0;                  // so many
  bool omni_ = false;
  std::string start_, end_;
};

}  // namespace

std::unique_ptr<VideoProcessor> make_qwen2_videos(const FamilyInputs& inputs) {
  return std::make_unique<BlockVideos>(inputs, BlockKind::kQwen2);
}

std::unique_ptr<VideoProcessor> make_qwen3_videos(const FamilyInputs& inputs) {
  return std::make_unique<BlockVideos>(inputs, BlockKind::kQwen3);
}

std::unique_ptr<VideoProcessor> make_glm4v_videos(const FamilyInputs& inputs) {
  return std::make_unique<BlockVideos>(inputs, BlockKind::kGlm4v);
}

std::unique_ptr<VideoProcessor> make_glm46v_videos(const FamilyInputs& inputs) {
  return std::make_unique<BlockVideos>(inputs, BlockKind::kGlm46v);
}

}  // namespace penstock
