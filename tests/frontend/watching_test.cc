// Models that take videos against transformers: tokens of prompts with lists of frames, log-probabilities and greedy
// replies of tiny random checkpoints (tools/make_tiny_seeing.py --videos), and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "frontend/pictures/message_pictures.h"
#include "frontend/pictures/message_videos.h"
#include "sensing_model.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using Json = SensedJson;
using testing::AllOf;
using testing::HasSubstr;

// The Omni models hear, too.
std::filesystem::path watching(const std::string& name) {
  return tests_dir() / "golden" / (name.ends_with("_omni") ? "hearing" : "seeing") / name;
}

Json watched_talks(const std::string& name) {
  return Json::parse(std::ifstream(watching(name) / "videos.json"));
}

// Of those that have this file too.
std::vector<std::string> watching_names(const char* file = "videos.json") {
  std::vector<std::string> result;
  for (const auto& folder : {watching(""), watching("_omni").parent_path()})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (std::filesystem::exists(entry.path() / "videos.json") &&
          std::filesystem::exists(entry.path() / file))
        result.push_back(entry.path().filename().string());
  std::ranges::sort(result);
  return result;
}

class WatchingModels : public testing::TestWithParam<std::string> {};

// One after the other, and all at once; whole, and in steps of few tokens.
TEST_P(WatchingModels, GiveTheReferencesTokensAndProbabilities) {
  const Json talks = watched_talks(GetParam());
  const bool has_states = GetParam() == "qwen3_5";
  for (const int most_tokens : {0, 17}) {
    const SensingModel model(watching(GetParam()), most_tokens);
    expect_replies(model, talks, !has_states);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, WatchingModels, testing::ValuesIn(watching_names()),
                         [](const auto& info) { return info.param; });

// Towers as llama.cpp's converter writes them, of those that it has.
class WatchingWithMmproj : public testing::TestWithParam<std::string> {};

TEST_P(WatchingWithMmproj, GivesTheSame) {
  const std::filesystem::path file = watching(GetParam()) / "mmproj.gguf";
  const SensingModel model(watching(GetParam()), 0, "", file.string());
  for (const Json& talk : watched_talks(GetParam())) {
    const auto task = model.read(talk["messages"], "", talk.value("mm_processor_kwargs", Json()));
    ASSERT_TRUE(task) << task.error().message;
    expect_reply(model.run({model.request_of(*task)})[0]->result.sequences.at(0), talk);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, WatchingWithMmproj, testing::ValuesIn(watching_names("mmproj.gguf")),
                         [](const auto& info) { return info.param; });

Json part_of_first(const std::string& name) {
  return watched_talks(name)[0]["messages"][0]["content"][0];
}

Json asked(const Json& part) {
  return Json::array({{{"role", "user"}, {"content", Json::array({part})}}});
}

// The message of the error, "" where there is none.
std::string refusal(const SensingModel& model, const Json& part) {
  const auto task = model.read(asked(part));
  return task ? "" : task.error().message;
}

TEST(WatchingModel, EachVideoHasAnIdentityOfItsOwn) {
  const SensingModel model(watching("qwen2_5_vl"));
  const Json part = part_of_first("qwen2_5_vl");
  const auto identity = [&](const Json& one) {
    return model.read(asked(one)).value().pictures.pictures.at(0).identity;
  };
  EXPECT_EQ(identity(part), identity(part));
  Json slower = part, shorter = part;
  slower["fps"] = 2;  // the same tokens at other positions
  EXPECT_EQ(model.read(asked(slower))->prompt, model.read(asked(part))->prompt);
  EXPECT_NE(identity(slower), identity(part));
  std::string url = part["video_url"]["url"];
  shorter["video_url"]["url"] = url.substr(0, url.rfind(','));
  EXPECT_NE(identity(shorter), identity(part));
}

TEST(WatchingModel, ListsOfFramesAreVideosToo) {
  const SensingModel model(watching("qwen3_vl"));
  const Json part = part_of_first("qwen3_vl");
  std::string url = part["video_url"]["url"];
  url.erase(0, url.find(',') + 1);
  Json frames = Json::array();
  for (size_t at = 0; at != std::string::npos;) {
    const size_t end = url.find(',', at);
    frames.push_back("data:image/jpeg;base64," + url.substr(at, end - at));
    at = end == std::string::npos ? end : end + 1;
  }
  const auto list = model.read(asked({{"type", "video"}, {"video", frames}}));
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->prompt, model.read(asked(part))->prompt);
  EXPECT_EQ(list->pictures.pictures[0].identity,
            model.read(asked(part))->pictures.pictures[0].identity);
}

TEST(WatchingModel, MetadataChoosesFrames) {
  const SensingModel model(watching("qwen3_vl"));
  Json part = part_of_first("qwen3_vl");
  const auto n_views = [&](const Json& metadata) {
    part["metadata"] = metadata;
    return model.read(asked(part)).value().pictures.pictures.at(0).plan.views.size();
  };
  EXPECT_EQ(n_views({{"fps", 24}}), 2u);  // four of five frames
  EXPECT_EQ(n_views({{"fps", 24}, {"do_sample_frames", false}}), 3u);
  EXPECT_EQ(n_views({{"fps", 24},
                     {"total_num_frames", 50},
                     {"do_sample_frames", false},
                     {"frames_indices", {0, 10, 20, 30, 40}}}),
            3u);
  part.erase("metadata");
  Conversation conversation;
  conversation.messages = asked(part);
  conversation.picture_settings = {{"do_sample_frames", true}, {"num_frames", 4}};
  const auto task = model.chat->read(std::move(conversation));
  ASSERT_TRUE(task) << task.error().message;
}

TEST(WatchingModel, OtherVideosAreRefusedByName) {
  const SensingModel model(watching("qwen3_vl"));
  const auto url_is = [&](const std::string& url) {
    return refusal(model, {{"type", "video_url"}, {"video_url", {{"url", url}}}});
  };
  EXPECT_THAT(url_is("data:video/mp4;base64,AAAA"),
              AllOf(HasSubstr("messages[0].content[0]: expected the frames of a video"),
                    HasSubstr("got video/mp4: containers are not taken apart here")));
  EXPECT_THAT(url_is("data:video/webm;base64,AAAA"), HasSubstr("got video/webm"));
  EXPECT_THAT(url_is("https://example.com/a.mp4"), HasSubstr("a URL with scheme https"));
  EXPECT_THAT(url_is("data:video/jpeg,AAAA"), HasSubstr("a data URL without base64"));
  EXPECT_THAT(url_is("data:video/jpeg;base64,AAA!"), HasSubstr("of a frame is no base64"));
  EXPECT_THAT(url_is("data:video/jpeg;base64,AAAA"), HasSubstr("frame 0: "));
  EXPECT_THAT(url_is("data:video/jpeg;base64," + std::string(3000, ',')),
              HasSubstr("more than 2048"));
  EXPECT_THAT(refusal(model, {{"type", "video_url"}}), HasSubstr("got none"));
  EXPECT_THAT(refusal(model, {{"type", "video"}, {"video", {1, 2}}}),
              HasSubstr("a frame that is no data URL of an image"));
  Json part = part_of_first("qwen3_vl");
  part["fps"] = -3;
  EXPECT_THAT(refusal(model, part), HasSubstr("fps: expected a number above 0, got -3"));
  part["fps"] = 2, part["metadata"] = {{"frames_indices", {0, -1}}};
  EXPECT_THAT(refusal(model, part), HasSubstr("frames_indices: expected integers"));
  part["metadata"] = {{"frames_indices", {0, 1}}};
  EXPECT_THAT(refusal(model, part), HasSubstr("frames_indices: expected 5"));
}

TEST(WatchingModel, FramesHaveOneSize) {
  const SensingModel model(watching("qwen3_vl"));
  const Json talks = watched_talks("qwen3_vl");
  std::string url = talks[0]["messages"][0]["content"][0]["video_url"]["url"];
  const std::string other = talks[1]["messages"][0]["content"][1]["video_url"]["url"];
  url += other.substr(other.rfind(','));
  EXPECT_THAT(refusal(model, {{"type", "video_url"}, {"video_url", {{"url", url}}}}),
              HasSubstr("frame 5: expected 40 x 30 pixels as frame 0, got 30 x 44"));
}

TEST(WatchingModel, ModelsWithoutVideosSaySo) {
  const SensingModel model(watching("gemma3"));
  EXPECT_FALSE(model.session->eyes()->watches());
  EXPECT_THAT(refusal(model, part_of_first("qwen3_vl")), HasSubstr("takes no videos"));
}

// Names of videos that somebody types are characters, as those of pictures are.
TEST(WatchingModel, TypedPlaceholdersStayText) {
  const SensingModel model(watching("qwen2_vl"));
  Json messages = asked(part_of_first("qwen2_vl"));
  messages[0]["content"].push_back(
      {{"type", "text"}, {"text", "<|video_pad|> and <|image_pad|><|video_pad|>"}});
  const ChatTask task = model.read(messages).value();
  ASSERT_EQ(task.pictures.runs.size(), 1u);
  const auto soft = model.session->tokenizer().find("<|video_pad|>");
  EXPECT_EQ(std::ranges::count(task.prompt, *soft), task.pictures.runs[0].count);
  EXPECT_EQ(std::ranges::count(task.prompt, *model.session->tokenizer().find("<|image_pad|>")), 0);
}

// Frames alone are read: a video's sound is refused by the name of its setting.
TEST(WatchingModel, SoundsOfVideosAreRefusedByName) {
  for (const char* const name : {"qwen2_5_omni", "qwen3_omni"}) {
    const SensingModel model(watching(name));
    const Json talk = watched_talks(name)[0];
    for (const char* const setting : {"use_audio_in_video", "load_audio_from_video"}) {
      const auto task = model.read(talk["messages"], "", Json{{setting, true}});
      ASSERT_FALSE(task) << name;
      EXPECT_THAT(task.error().message, HasSubstr(std::string("\"") + setting + "\" is not known"));
    }
    Json settings = talk["mm_processor_kwargs"];
    settings["use_audio_in_video"] = false;
    EXPECT_TRUE(model.read(talk["messages"], "", settings)) << name;
  }
}

// A long video leaves the encoder to others between its views.
TEST(WatchingModel, OthersTakeTurnsWithAVideo) {
  const SensingModel model(watching("qwen2_vl"));
  Json part = part_of_first("qwen2_vl");
  std::string url = part["video_url"]["url"];
  const std::string frame = url.substr(url.rfind(','));
  for (int i = 0; i < 15; ++i) url += frame;
  part["video_url"]["url"] = url;
  const auto video = model.read(asked(part)).value().pictures.pictures;
  ASSERT_GE(video.at(0).plan.views.size(), 4u);
  const Json talks = golden_talks(watching("qwen2_vl"));
  Eyes& eyes = *model.session->eyes();
  std::promise<void> waiting, over;
  std::vector<std::string> order;
  const auto add = [&](std::vector<PlannedPicture> pictures, const std::string& tenant) {
    const auto done = [&, tenant](const Result<PictureRows>& rows) {
      EXPECT_TRUE(rows) << rows.error().message;
      if (tenant == "gate") waiting.get_future().wait();  // until both others wait
      order.push_back(tenant);
      if (order.size() == 3) over.set_value();
    };
    EXPECT_TRUE(eyes.submit({.pictures = std::move(pictures), .tenant = tenant}, done));
  };
  add(model.read(talks[0]["messages"]).value().pictures.pictures, "gate");
  add(video, "video");
  add(model.read(talks[1]["messages"]).value().pictures.pictures, "picture");
  waiting.set_value();
  over.get_future().wait();
  EXPECT_EQ(order, (std::vector<std::string>{"gate", "picture", "video"}));
  // The rows are those of a video that nobody interrupts.
  const SensingModel other(watching("qwen2_vl"));
  EXPECT_EQ(eyes.encode({.pictures = video}).value()[0]->values,
            other.session->eyes()->encode({.pictures = video}).value()[0]->values);
}

// Frames are decoded view by view, and a damaged one ends its request.
TEST(WatchingModel, DamagedFramesEndTheirRequest) {
  const SensingModel model(watching("qwen2_vl"));
  Json part = part_of_first("qwen2_vl");
  std::string url = part["video_url"]["url"];
  const size_t last = url.rfind(',');
  std::string file = *decode_base64(url.substr(last + 1), Base64::kLoose);
  file.resize(file.size() - 40);
  url = url.substr(0, last + 1) + encode_base64(file);
  part["video_url"]["url"] = url;
  const auto task = model.read(asked(part));
  ASSERT_TRUE(task) << task.error().message;
  const auto rows = model.session->eyes()->encode({.pictures = task->pictures.pictures});
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message, HasSubstr("messages[0].content[0]: frame 4: "));
}

}  // namespace
}  // namespace penstock
