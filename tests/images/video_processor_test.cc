// Frames that are read, sizes and pixels of videos compared with transformers (tools/make_image_vectors.py), and
// what is refused.
#include "images/video_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drawn_image.h"
#include "images/video_sampling.h"

namespace penstock {
namespace {

using testing::HasSubstr;

ImageProcessorFiles video_files(const nlohmann::json& settings) {
  ImageProcessorFiles files;
  files.config = {{"vision_config", {{"patch_size", 14}}}};
  files.video_processor = settings;
  return files;
}

VideoInfo video_info(const nlohmann::json& expected) {
  VideoInfo info{
      .n_frames = expected["n"], .width = expected["size"][0], .height = expected["size"][1]};
  info.fps = expected["fps"], info.seconds = info.n_frames / info.fps;
  return info;
}

// CRC-32 of all views, one after the other, as a batch of planes or of patches.
uint32_t video_checksum(const VideoProcessor& processor, const ImagePlan& plan,
                        const VideoInfo& info, int first_seed) {
  std::vector<float> all;
  const size_t n = plan.frames.size() / plan.views.size();
  for (size_t i = 0; i < plan.views.size(); ++i) {
    std::vector<Image> frames;
    for (size_t f = 0; f < n; ++f)
      frames.push_back(drawn_image(info.width, info.height,
                                   static_cast<uint32_t>(first_seed + plan.frames[i * n + f])));
    const std::vector<float> pixels = processor.pixels(plan.views[i], frames);
    all.insert(all.end(), pixels.begin(), pixels.end());
  }
  return crc32_of(all.data(), all.size() * sizeof(float));
}

// Fewest frames of a video.
size_t n_of(const std::string& name) {
  return name.starts_with("qwen3") || name.starts_with("glm") ? 2 : 1;
}

TEST(VideoProcessorTest, EqualsTransformers) {
  const auto golden = golden_json("videos.json");
  EXPECT_GT(golden.size(), 10u);
  for (const auto& [name, family] : golden.items()) {
    const auto processor = make_video_processor(video_files(family["video_processor"]));
    ASSERT_TRUE(processor) << name << ": " << processor.error().message;
    ASSERT_NE(*processor, nullptr) << name;
    for (const auto& expected : family["videos"]) {
      const std::string where = fmt::format("{} {} ", name, expected["seed"].dump());
      const VideoInfo info = video_info(expected);
      const auto plan = (*processor)->plan(info);
      // A view of two frames has not one, and none is no video.
      const bool few = !expected.contains("frames") || expected["frames"].size() < n_of(name);
      if (few) {
        EXPECT_FALSE(plan) << where;
        continue;
      }
      ASSERT_TRUE(plan) << where << plan.error().message;
      std::vector<int> frames = expected["frames"];
      while (frames.size() < plan->frames.size()) frames.push_back(frames.back());
      EXPECT_EQ(plan->frames, frames) << where;
      int n_soft = 0;
      for (const PromptPiece& piece : plan->prompt) n_soft += piece.n_soft;
      EXPECT_EQ(n_soft, plan->n_soft) << where;
      if (!expected.contains("pixels")) continue;
      const int first_seed = expected["seed"].get<int>() * 100;
      EXPECT_EQ(video_checksum(**processor, *plan, info, first_seed), expected["pixels"]) << where;
    }
  }
}

nlohmann::json video_settings(const std::string& name) {
  return golden_json("videos.json")[name]["video_processor"];
}

TEST(VideoProcessorTest, SettingsAreHonouredOrRefusedByName) {
  auto settings = video_settings("qwen3_vl");
  const auto message = [&](const nlohmann::json& kwargs) {
    const auto made = make_video_processor(video_files(settings), kwargs);
    return made ? "" : made.error().message;
  };
  EXPECT_EQ(message({{"colour", true}}),
            "video processor: the setting \"colour\" is not known for this type");
  EXPECT_EQ(message({{"fps", -1}}), "video processor: fps: expected 0 to 1000, got -1");
  EXPECT_EQ(message({{"fps", 1}, {"num_frames", 4}}),
            "video processor: fps: expected fps or num_frames, got both");
  EXPECT_EQ(message({{"max_frames", 2}}),
            "video processor: max_frames: expected at least min_frames (4), got 2");
  EXPECT_EQ(message({{"temporal_patch_size", 0}}),
            "video processor: temporal_patch_size: expected an integer from 1 to 16, got 0");
  EXPECT_EQ(message({{"max_pixels", 65536}, {"num_frames", 6}}), "");
  settings["video_processor_type"] = "Qwen9VideoProcessor";
  EXPECT_EQ(*make_video_processor(video_files(settings)), nullptr);
  EXPECT_EQ(*make_video_processor({}), nullptr);
}

TEST(VideoProcessorTest, ImpossibleVideosAreErrors) {
  const auto processor = make_video_processor(video_files(video_settings("qwen3_vl"))).value();
  const VideoInfo good{.n_frames = 4, .width = 64, .height = 64};
  ASSERT_TRUE(processor->plan(good));
  const auto message = [&](auto change) {
    VideoInfo info = good;
    change(info);
    const auto plan = processor->plan(info);
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_THAT(message([](VideoInfo& info) { info.n_frames = 0; }), HasSubstr("frames: expected"));
  EXPECT_THAT(message([](VideoInfo& info) { info.n_frames = 1; }), HasSubstr("at least 2 frames"));
  EXPECT_THAT(message([](VideoInfo& info) { info.fps = 1e-9; }), HasSubstr("fps: expected"));
  EXPECT_THAT(message([](VideoInfo& info) { info.fps = NAN; }), HasSubstr("fps: expected"));
  EXPECT_THAT(message([](VideoInfo& info) { info.seconds = INFINITY; }), HasSubstr("duration"));
  EXPECT_THAT(message([](VideoInfo& info) { info.n_of_video = 3; }), HasSubstr("at least 4"));
  EXPECT_THAT(message([](VideoInfo& info) { info.indices = {0, 1}; }), HasSubstr("one for each"));
  EXPECT_THAT(message([](VideoInfo& info) { info.indices = {0, 1, 2, -3}; }), HasSubstr("2^30"));
  EXPECT_THAT(message([](VideoInfo& info) { info.width = 100'000; }), HasSubstr("ratio"));
  EXPECT_THAT(message([](VideoInfo& info) { info.fps = 2, info.n_of_video = 9; }),
              HasSubstr("among all of a video: expected 9, got 4"));
}

// Every value of every family's files, replaced by values of other types: a processor or an error.
TEST(VideoProcessorTest, ImpossibleValuesAreErrors) {
  const auto golden = golden_json("videos.json");
  const nlohmann::json others[] = {
      nullptr, true, -1, 0, 1.5, 1e300, "text", nlohmann::json::array(), {{"height", 0}}};
  for (const auto& [name, family] : golden.items())
    for (const auto& [setting, value] : family["video_processor"].items())
      for (const auto& other : others) {
        auto settings = family["video_processor"];
        settings[setting] = other;
        const auto made = make_video_processor(video_files(settings));
        if (!made || *made == nullptr) continue;
        for (const double fps : {0.0, 1.0, 1000.0})
          (*made)->plan({.n_frames = 9, .width = 30, .height = 20, .fps = fps}).has_value();
      }
}

// Limits of Omni models are their processor's, not the file's, and positions do not depend on the video's rate.
TEST(VideoProcessorTest, OmniModelsHaveLimitsOfTheirOwn) {
  ImageProcessorFiles files;
  files.config = {{"model_type", "qwen2_5_omni_thinker"}, {"position_id_per_seconds", 25}};
  files.image_processor = {{"image_processor_type", "Qwen2VLImageProcessor"},
                           {"feature_extractor_type", "WhisperFeatureExtractor"},
                           {"min_pixels", 784},
                           {"max_pixels", 3136},
                           {"size", {{"shortest_edge", 784}, {"longest_edge", 3136}}},
                           {"n_fft", 400},
                           {"feature_size", 128}};
  const auto plan_of = [&](const nlohmann::json& kwargs, int width, int height) {
    const auto made = make_video_processor(files, kwargs);
    EXPECT_TRUE(made) << made.error().message;
    return (*made)->plan({.n_frames = 4, .width = width, .height = height, .fps = 24}).value();
  };
  EXPECT_EQ(plan_of({}, 640, 480).n_soft, 2 * 23 * 17);
  EXPECT_EQ(plan_of({}, 64, 64).n_soft, 2 * 12 * 12);
  EXPECT_EQ(plan_of({}, 64, 64).frame_step, 25.0f);
  EXPECT_EQ(plan_of({{"fps", 4}}, 64, 64).frame_step, 12.5f);
  EXPECT_EQ(plan_of({{"min_pixels", 784}}, 64, 64).n_soft, 2 * 2 * 2);
  EXPECT_EQ(plan_of({{"size", {{"shortest_edge", 784}, {"longest_edge", 1568}}}}, 64, 64).n_soft,
            2 * 1 * 1);
  files.config = {{"model_type", "qwen3_omni_moe_thinker"}, {"position_id_per_seconds", 13}};
  files.image_processor["patch_size"] = 16;
  EXPECT_EQ(plan_of({}, 64, 64).n_soft, 2 * 12 * 12);
  EXPECT_EQ(plan_of({}, 64, 64).frame_step, 26.0f);
  EXPECT_EQ(plan_of({{"fps", 2}}, 64, 64).frame_step, 13.0f);
  EXPECT_THAT(make_video_processor(files, {{"fps", 4}}).error().message,
              HasSubstr("fps: expected a rate at which a view is a whole number of positions"));
  EXPECT_THAT(make_video_processor(files, {{"fps", 0}}).error().message, HasSubstr("more than 0"));
}

// The text ahead of SmolVLM's frames, as num2words and timedelta write it.
TEST(VideoProcessorTest, FramesHaveTheirTimes) {
  const auto processor = make_video_processor(video_files(video_settings("smolvlm_all"))).value();
  const auto head = [&](int n_frames, double seconds) {
    return processor->plan({.n_frames = n_frames, .width = 8, .height = 8, .seconds = seconds})
        .value()
        .prompt[0]
        .text;
  };
  EXPECT_EQ(
      head(1, 5.9),
      "You are provided the following series of one frames from a 0:00:05 [H:MM:SS] video.\n");
  EXPECT_THAT(head(21, 90061), HasSubstr("of twenty-one frames from a 1 day, 1:01:01 ["));
  EXPECT_THAT(head(100, 172800), HasSubstr("of one hundred frames from a 2 days, 0:00:00 ["));
  EXPECT_THAT(head(119, 3599), HasSubstr("of one hundred and nineteen frames from a 0:59:59 ["));
  EXPECT_THAT(head(1234, 1), HasSubstr(" one thousand, two hundred and thirty-four frames "));
  EXPECT_THAT(head(2048, 1), HasSubstr(" two thousand and forty-eight frames "));
  EXPECT_THAT(head(1100, 1), HasSubstr(" one thousand, one hundred frames "));
  VideoInfo info{.n_frames = 3, .width = 8, .height = 8, .fps = 2};
  info.indices = {0, 151, 24000};
  const ImagePlan plan = processor->plan(info).value();
  ASSERT_EQ(plan.prompt.size(), 11u);
  EXPECT_THAT(plan.prompt[0].text, HasSubstr("of three frames from a 3:20:00 ["));
  EXPECT_EQ(plan.prompt[1].text, "\nFrame from 00:00:<fake_token_around_image><global-img>");
  EXPECT_EQ(plan.prompt[2].text, "<image>");
  EXPECT_EQ(plan.prompt[3].text, "<fake_token_around_image>");
  EXPECT_EQ(plan.prompt[4].text, "\nFrame from 01:15:<fake_token_around_image><global-img>");
  EXPECT_EQ(plan.prompt[7].text, "\nFrame from 200:00:<fake_token_around_image><global-img>");
  EXPECT_EQ(plan.prompt[10].text, "\n\n");
}

TEST(VideoProcessorTest, SettingsOfRequestsGoWhereTheyAreKnown) {
  const nlohmann::json both = {{"fps", 2}, {"size", 1}, {"crop_to_patches", true}};
  EXPECT_EQ(settings_for_images(both), (nlohmann::json{{"size", 1}, {"crop_to_patches", true}}));
  EXPECT_EQ(settings_for_videos(both), (nlohmann::json{{"fps", 2}, {"size", 1}}));
}

TEST(VideoSamplingTest, LinspaceEndsWhereItShould) {
  EXPECT_EQ(linspace(0, 9, 4), (std::vector<double>{0, 3, 6, 9}));
  EXPECT_EQ(linspace(5, 9, 1), (std::vector<double>{5}));
}

}  // namespace
}  // namespace penstock
