// Features of sounds compared with transformers' feature extractors (tools/make_sound_vectors.py).
#include "sounds/sound_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "golden_sound.h"

namespace penstock {
namespace {

using testing::HasSubstr;

std::vector<float> golden_signal(size_t n) {
  std::vector<float> samples;
  for (const int16_t value : golden_numbers<int16_t>("signal.i16"))
    samples.push_back(static_cast<float>(value) / 32768.0f);
  samples.resize(n);
  return samples;
}

std::unique_ptr<SoundProcessor> processor_of(const nlohmann::json& one) {
  ImageProcessorFiles files;
  files.config = one["config"], files.image_processor = one["extractor"];
  auto processor = make_sound_processor(files);
  EXPECT_TRUE(processor) << processor.error().message;
  return processor ? *std::move(processor) : nullptr;
}

TEST(SoundProcessorTest, FeaturesOfTheReference) {
  const auto cases = golden_sound_json("features.json");
  EXPECT_GE(cases.size(), 3u);
  for (const auto& [name, one] : cases.items()) {
    SCOPED_TRACE(name);
    const auto processor = processor_of(one);
    ASSERT_NE(processor, nullptr);
    const auto views = processor->process(golden_signal(one["n_samples"].get<size_t>()));
    const auto wanted = golden_numbers<float>("features/" + name + ".f32");
    ASSERT_EQ(views.size(), one["shape"][0].get<size_t>());
    const auto frames = one["shape"][1].get<size_t>(), width = one["shape"][2].get<size_t>();
    float worst = 0;
    for (size_t v = 0; v < views.size(); ++v) {
      ASSERT_EQ(static_cast<size_t>(views[v].width), width);
      const size_t n = static_cast<size_t>(views[v].n_frames) * width;
      ASSERT_EQ(views[v].values.size(), n);
      for (size_t i = 0; i < n; ++i) {
        // behind the window stand zeros
        const float is = i < frames * width ? wanted[v * frames * width + i] : 0.0f;
        worst = std::max(worst, std::abs(views[v].values[i] - is));
      }
    }
    EXPECT_LE(worst, 1e-6f);
  }
}

TEST(SoundProcessorTest, TokensByLength) {
  const auto cases = golden_sound_json("features.json");
  const auto qwen = processor_of(cases["qwen2_audio"]), voxtral = processor_of(cases["voxtral"]);
  // (((n - 1) / 2 + 1) - 2) / 2 + 1 of n frames
  const std::pair<int64_t, int> counts[] = {{321, 1}, {640, 1}, {961, 2}, {10001, 16}, {16000, 25}};
  for (const auto& [n_samples, n_tokens] : counts)
    EXPECT_EQ(qwen->plan(n_samples)->n_soft, n_tokens) << n_samples;
  EXPECT_THAT(qwen->plan(320).error().message, HasSubstr("320 samples are too short"));
  EXPECT_EQ(qwen->plan(16001).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(voxtral->plan(1)->n_soft, 25);
  EXPECT_EQ(voxtral->plan(16000)->n_soft, 25);
  EXPECT_EQ(voxtral->plan(16001)->n_soft, 50);
  EXPECT_FALSE(voxtral->plan(0));
  // ceil(frames / 16) of each piece of a second
  const auto ultravox = processor_of(cases["ultravox"]);
  for (const auto& [n_samples, n_tokens] :
       {std::pair<int64_t, int>{1, 1}, {2560, 1}, {2561, 2}, {16000, 7}, {16001, 8}, {32000, 14}})
    EXPECT_EQ(ultravox->plan(n_samples)->n_soft, n_tokens) << n_samples;
  EXPECT_FALSE(ultravox->plan(0));
  EXPECT_EQ(ultravox->placeholder(), "<|audio|>");
  const auto omni = processor_of(cases["qwen2_5_omni"]);
  EXPECT_EQ(omni->plan(20777)->n_soft, 32);
  EXPECT_EQ(omni->process(golden_signal(9761)).size(), 1u);  // a frame behind a window is no token
  EXPECT_EQ(omni->plan(9761)->n_soft, 15);
  EXPECT_FALSE(omni->plan(320));
  EXPECT_EQ(omni->plan(32001).error().code, ErrorCode::kInvalidArgument);
  const auto omni3 = processor_of(cases["qwen3_omni"]);
  EXPECT_EQ(omni3->plan(17003)->n_soft, 14);
  EXPECT_EQ(omni3->plan(5001)->n_soft, 4);
  EXPECT_FALSE(omni3->plan(200));
  // three for every 15 pairs of frames
  const auto granite = processor_of(cases["granite_speech"]);
  for (const auto& [n_samples, n_tokens] :
       {std::pair<int64_t, int>{257, 3}, {4799, 3}, {4960, 6}, {16000, 12}})
    EXPECT_EQ(granite->plan(n_samples)->n_soft, n_tokens) << n_samples;
  EXPECT_FALSE(granite->plan(256));
  EXPECT_EQ(granite->plan(300 * 16000 + 1).error().code, ErrorCode::kInvalidArgument);
  // A token for four frames, each of which ends within the sound.
  const auto gemma = processor_of(cases["gemma4"]);
  for (const auto& [n_samples, n_tokens] :
       {std::pair<int64_t, int>{161, 1}, {800, 1}, {801, 2}, {16000, 25}, {480'000, 750}})
    EXPECT_EQ(gemma->plan(n_samples)->n_soft, n_tokens) << n_samples;
  EXPECT_THAT(gemma->plan(160).error().message, HasSubstr("160 samples are too short"));
  EXPECT_THAT(gemma->plan(480'001).error().message, HasSubstr("at most 30 seconds"));
  ASSERT_EQ(gemma->plan(161)->prompt.size(), 3u);
  EXPECT_EQ(gemma->plan(161)->prompt[0].text, "<|audio>");
  EXPECT_EQ(gemma->plan(161)->prompt[2].text, "<audio|>");
  // As many for all sounds, and one behind them.
  const auto gemma3n = processor_of(cases["gemma3n"]);
  for (const int64_t n_samples : {513, 16000, 480'000})
    EXPECT_EQ(gemma3n->plan(n_samples)->n_soft, 189) << n_samples;
  EXPECT_FALSE(gemma3n->plan(512));
  EXPECT_FALSE(gemma3n->plan(480'001));
  const SoundPlan plan = qwen->plan(16000).value();
  ASSERT_EQ(plan.prompt.size(), 1u);
  EXPECT_EQ(plan.prompt[0].text, "<|AUDIO|>");
  EXPECT_EQ(plan.prompt[0].n_soft, 25);
}

TEST(SoundProcessorTest, WhatIsNotKnownIsRefusedByName) {
  const auto one = golden_sound_json("features.json")["qwen2_audio"];
  const auto message = [&](const char* key, const nlohmann::json& value) {
    ImageProcessorFiles files;
    files.config = one["config"], files.image_processor = one["extractor"];
    files.image_processor[key] = value;
    const auto processor = make_sound_processor(files);
    return processor ? std::string("it was made") : processor.error().message;
  };
  EXPECT_THAT(message("dither", 0.5), HasSubstr("feature extractor: dither: expected 0"));
  EXPECT_THAT(message("shiny", 1), HasSubstr("the setting \"shiny\" is not known"));
  EXPECT_THAT(message("n_fft", 401), HasSubstr("n_fft: expected an even number"));
  EXPECT_THAT(message("hop_length", 0), HasSubstr("hop_length: expected an integer from 1"));
  EXPECT_THAT(message("chunk_length", 2), HasSubstr("expected 100 frames, twice"));
  EXPECT_THAT(message("padding_side", "left"), HasSubstr("padding_side: expected right"));
  EXPECT_THAT(message("feature_extractor_type", "Other"), HasSubstr("got \"Other\""));
  const auto of_family = [&](const char* name, const char* key, const nlohmann::json& value,
                             bool in_processor) {
    const auto family = golden_sound_json("features.json")[name];
    ImageProcessorFiles files;
    files.config = family["config"], files.image_processor = family["extractor"];
    files.processor = nlohmann::json::object();
    (in_processor ? files.processor : files.image_processor)[key] = value;
    const auto processor = make_sound_processor(files);
    return processor ? std::string("it was made") : processor.error().message;
  };
  EXPECT_THAT(of_family("ultravox", "stack_factor", 4, true), HasSubstr("expected 8, got 4"));
  EXPECT_THAT(of_family("ultravox", "audio_context_size", 99, true),
              HasSubstr("audio_context_size: expected 100"));
  EXPECT_THAT(of_family("ultravox", "encoder_ds_factor", 4, true),
              HasSubstr("encoder_ds_factor: expected 2"));
  EXPECT_THAT(of_family("ultravox", "encoder_ds_factor", 320, true), HasSubstr("it was made"));
  EXPECT_THAT(of_family("ultravox", "audio_placeholder", "<sound>", true),
              HasSubstr("audio_placeholder: expected <|audio|>"));
  EXPECT_THAT(of_family("ultravox", "shiny", 1, false), HasSubstr("\"shiny\" is not known"));
  // Settings of pictures lie in the same file.
  EXPECT_THAT(of_family("qwen2_5_omni", "image_mean", {0.5, 0.5, 0.5}, false),
              HasSubstr("it was made"));
  EXPECT_THAT(of_family("qwen3_omni", "shiny", 1, false), HasSubstr("\"shiny\" is not known"));
  EXPECT_THAT(of_family("granite_speech", "projector_window_size", 14, false),
              HasSubstr("projector_window_size: expected 15, as the model has, got 14"));
  const nlohmann::json kwargs =
      golden_sound_json("features.json")["granite_speech"]["extractor"]["melspec_kwargs"];
  for (const auto& [key, value, wanted] :
       {std::tuple("n_mels", nlohmann::json(31), "n_mels: expected 32, got 31"),
        std::tuple("power", nlohmann::json(1), "melspec_kwargs: power: expected no such setting"),
        std::tuple("n_fft", nlohmann::json(511), "an even n_fft"),
        std::tuple("hop_length", nlohmann::json("a"), "hop_length: expected an integer")}) {
    nlohmann::json changed = kwargs;
    changed[key] = value;
    EXPECT_THAT(of_family("granite_speech", "melspec_kwargs", changed, false), HasSubstr(wanted));
  }
  EXPECT_THAT(of_family("gemma3n", "shiny", 1, false), HasSubstr("\"shiny\" is not known"));
  EXPECT_THAT(of_family("gemma3n", "image_mean", {0.5, 0.5, 0.5}, false), HasSubstr("it was made"));
  EXPECT_THAT(of_family("gemma3n", "feature_size", 64, false),
              HasSubstr("feature_size: expected 32"));
  EXPECT_THAT(of_family("gemma3n", "audio_seq_length", 187, true),
              HasSubstr("audio_seq_length: expected 188, got 187"));
  EXPECT_THAT(of_family("gemma4", "shiny", 1, false), HasSubstr("\"shiny\" is not known"));
  EXPECT_THAT(of_family("gemma4", "hop_length", 80, false),
              HasSubstr("hop_length: expected 160, got 80"));
  EXPECT_THAT(of_family("gemma4", "fft_length", 1024, false),
              HasSubstr("fft_length: expected 512"));
  EXPECT_THAT(of_family("gemma4", "feature_size", 64, false),
              HasSubstr("feature_size: expected 32, as the tower reads, got 64"));
  EXPECT_THAT(of_family("gemma4", "per_bin_mean", {1, 2}, false),
              HasSubstr("per_bin_mean: expected null"));
  EXPECT_THAT(of_family("gemma4", "dither", 0.1, false), HasSubstr("dither: expected 0"));
  EXPECT_THAT(of_family("gemma4", "padding_side", "left", false), HasSubstr("expected right"));
  EXPECT_THAT(of_family("gemma4", "frame_length_ms", 0.01, false), HasSubstr("1 to 16384 samples"));
  EXPECT_THAT(of_family("gemma4", "mel_floor", 0, false), HasSubstr("mel_floor: expected more"));
  EXPECT_THAT(of_family("gemma4", "max_frequency", 0, false), HasSubstr("more than min_frequency"));
  EXPECT_THAT(of_family("gemma4", "audio_ms_per_token", 50, true),
              HasSubstr("audio_ms_per_token: expected 40, got 50"));
  ImageProcessorFiles files;
  files.config = {{"model_type", "llama"}};
  EXPECT_THAT(make_sound_processor(files).error().message,
              HasSubstr("models of type \"llama\" are not known"));
}

}  // namespace
}  // namespace penstock
