// Models that hear against transformers: tokens of prompts with sounds, log-probabilities and greedy
// replies of tiny random checkpoints (tools/make_tiny_hearing.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "engine/open/tower_file.h"
#include "formats/temp_dir.h"
#include "frontend/pictures/message_pictures.h"
#include "sensing_model.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using HeardJson = SensedJson;
using testing::HasSubstr;

std::filesystem::path hearing_path(const std::string& name) {
  return tests_dir() / "golden" / "hearing" / name;
}

struct Hearing : SensingModel {
  using SensingModel::SensingModel;

  std::string why_refused(const char* part, const std::string& chat_template = "") const {
    auto messages =
        HeardJson::parse(R"([{"role": "user", "content": [{"type": "text", "text": "x"}]}])");
    messages[0]["content"].push_back(HeardJson::parse(part));
    const auto task = read(std::move(messages), chat_template);
    return task ? std::string("it was read") : task.error().message;
  }
};

HeardJson heard_talks(const std::string& name) { return golden_talks(hearing_path(name)); }

class HearingModels : public testing::TestWithParam<const char*> {};

// One after the other, and all at once; whole, and in steps of few tokens; with drafts.
TEST_P(HearingModels, GiveTheReferencesTokensAndProbabilities) {
  const HeardJson talks = heard_talks(GetParam());
  for (const int most_tokens : {0, 17}) {
    const Hearing model(hearing_path(GetParam()), most_tokens, most_tokens == 0 ? "" : "ngram");
    ASSERT_NE(model.session->eyes(), nullptr) << model.session->blind_reason();
    expect_replies(model, talks, true);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, HearingModels,
                         testing::Values("qwen2_audio", "voxtral", "qwen3_asr", "ultravox",
                                         "ultravox_post", "qwen2_5_omni", "qwen3_omni",
                                         "granite_speech", "gemma4", "gemma3n"),
                         [](const auto& info) { return std::string(info.param); });

// Towers with the names of llama.cpp (tools/make_mmproj.py).
class HearingWithMmproj : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path file() const { return hearing_path(GetParam()) / "mmproj.gguf"; }
};

TEST_P(HearingWithMmproj, GivesTheSame) {
  const Hearing model(hearing_path(GetParam()), 0, "", file().string());
  ASSERT_NE(model.session->eyes(), nullptr) << model.session->blind_reason();
  EXPECT_TRUE(model.session->eyes()->hears());
  EXPECT_EQ(model.session->eyes()->sees(), std::string(GetParam()) == "qwen2_5_omni");
  for (const HeardJson& talk : heard_talks(GetParam())) {
    const auto task = model.read(talk["messages"]);
    ASSERT_TRUE(task) << task.error().message;
    EXPECT_EQ(task->prompt, talk["prompt"].get<std::vector<TokenId>>());
    expect_reply(model.run({model.request_of(*task)})[0]->result.sequences.at(0), talk);
  }
}

// What the file says of the feature extractor, without the directory's files.
TEST_P(HearingWithMmproj, SaysHowSoundsAreHeard) {
  const auto source = open_tower_file(file());
  ASSERT_TRUE(source) << source.error().message;
  const auto own = nlohmann::json::parse((*source)->side_file("preprocessor_config.json").value());
  auto wanted =
      nlohmann::json::parse(std::ifstream(hearing_path(GetParam()) / "preprocessor_config.json"));
  if (std::string(GetParam()) == "qwen2_5_omni") wanted["chunk_length"] = 300;  // as published
  for (const char* const key : {"feature_extractor_type", "feature_size", "sampling_rate", "n_fft",
                                "hop_length", "chunk_length"})
    EXPECT_EQ(own.at(key), wanted.at(key)) << key;
}

INSTANTIATE_TEST_SUITE_P(Tiny, HearingWithMmproj,
                         testing::Values("qwen2_audio", "voxtral", "ultravox", "qwen2_5_omni"),
                         [](const auto& info) { return std::string(info.param); });

// The same sound as a data URL, and a mark that somebody types.
TEST(HearingModel, OtherWaysToWriteIt) {
  const Hearing model(hearing_path("qwen2_audio"));
  const HeardJson talk = heard_talks("qwen2_audio")[0];
  const std::string base64 = talk["messages"][0]["content"][0]["input_audio"]["data"];
  HeardJson messages = talk["messages"];
  messages[0]["content"][0] = {{"type", "audio_url"},
                               {"audio_url", {{"url", "data:audio/wav;base64," + base64}}}};
  const ChatTask task = model.read(messages).value();
  EXPECT_EQ(task.prompt, talk["prompt"].get<std::vector<TokenId>>());
  const auto soft = model.session->tokenizer().find("<|AUDIO|>");
  messages[0]["content"].push_back({{"type", "text"}, {"text", "<|AUDIO|>"}});
  const ChatTask typed = model.read(messages).value();
  ASSERT_EQ(typed.pictures.runs.size(), 1u);
  EXPECT_EQ(std::ranges::count(typed.prompt, *soft), typed.pictures.runs[0].count);
}

TEST(HearingModel, RefusesWhatIsNoSound) {
  const Hearing model(hearing_path("qwen2_audio"));
  const std::string at = "messages[0].content[1]: ";
  EXPECT_THAT(model.why_refused(R"({"type": "input_audio"})"),
              HasSubstr(at + "expected input_audio with data, a sound file in base64"));
  EXPECT_THAT(model.why_refused(R"({"type": "input_audio", "input_audio": {"data": 3}})"),
              HasSubstr(at + "expected input_audio with data"));
  EXPECT_THAT(model.why_refused(R"({"type": "input_audio", "input_audio": {"data": "**"}})"),
              HasSubstr(at + "character 0 is no base64"));
  EXPECT_THAT(model.why_refused(R"({"type": "input_audio", "input_audio": {"data": "AAAAAAAA"}})"),
              HasSubstr(at + "sound: expected a WAV, FLAC, Ogg or MP3 file, got something else"));
  EXPECT_THAT(
      model.why_refused(R"({"type": "audio_url", "audio_url": {"url": "https://a/b.wav"}})"),
      HasSubstr(at + "expected a data URL of a sound"));
  EXPECT_THAT(
      model.why_refused(R"({"type": "image_url", "image_url": "data:image/png;base64,AAAA"})"),
      HasSubstr(at + "this model has no eyes, it reads text and hears sounds"));
}

TEST(HearingModel, ErrorsSpeakOfSounds) {
  const Hearing model(hearing_path("qwen2_audio"));
  const HeardJson talk = heard_talks("qwen2_audio")[0];
  HeardJson messages = talk["messages"];
  const HeardJson sound = messages[0]["content"][0];
  while (messages[0]["content"].size() < 40) messages[0]["content"].push_back(sound);
  const auto task = model.read(messages);
  ASSERT_FALSE(task);
  EXPECT_THAT(task.error().message,
              testing::ContainsRegex("tokens with sound [0-9]+ of the request"));
  const auto placeless = model.read(talk["messages"], "{{ messages[0].role }}");
  ASSERT_FALSE(placeless);
  EXPECT_THAT(placeless.error().message, HasSubstr("has places for 0 of the 1 sounds"));
}

TEST(HearingModel, ModelsWithoutEarsSaySo) {
  const char* const sound = R"({"type": "input_audio", "input_audio": {"data": "AAAA"}})";
  EXPECT_THAT(Hearing(tests_dir() / "golden" / "seeing" / "qwen2_vl").why_refused(sound),
              HasSubstr("this model has no ears, it reads text and sees pictures"));
  EXPECT_THAT(Hearing(models_dir() / "penstock-stories-15m-q8_0.gguf")
                  .why_refused(sound, "{{ messages[0].content }}"),
              HasSubstr("this model has no ears, it reads text only"));
}

// A model that sees and hears: marks of both kinds that somebody types stay text.
TEST(HearingModel, SeesToo) {
  const Hearing model(hearing_path("qwen2_5_omni"));
  ASSERT_NE(model.session->eyes(), nullptr);
  EXPECT_TRUE(model.session->eyes()->sees() && model.session->eyes()->hears());
  const HeardJson talk = heard_talks("qwen2_5_omni")[1];
  HeardJson messages = talk["messages"];
  messages[0]["content"].push_back({{"type", "text"}, {"text", "<|IMAGE|><|AUDIO|>"}});
  const ChatTask task = model.read(messages).value();
  const auto count = [&](const char* token, bool sounds) {
    int64_t n = std::ranges::count(task.prompt, *model.session->tokenizer().find(token));
    for (const PictureRun& run : task.pictures.runs) n -= (run.kind == 1) == sounds ? run.count : 0;
    return n;
  };
  EXPECT_EQ(count("<|IMAGE|>", false), 0);
  EXPECT_EQ(count("<|AUDIO|>", true), 0);
  ASSERT_EQ(task.pictures.runs.size(), 3u);
  EXPECT_EQ(task.pictures.runs[0].kind, 1);
  EXPECT_EQ(task.pictures.runs[1].kind, 0);
}

// Ultravox as it is published: the tower in one directory, which names the text model in another one.
class UltravoxApart : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const folder : {"text", "tower"}) {
      std::filesystem::create_directories(dir_ / folder);
      for (const auto& entry : std::filesystem::directory_iterator(hearing_path("ultravox")))
        std::filesystem::copy_file(entry.path(), dir_ / folder / entry.path().filename());
    }
    auto config = HeardJson::parse(std::ifstream(hearing_path("ultravox") / "config.json"));
    std::ofstream(dir_ / "text" / "config.json") << config["text_config"].dump();
    std::filesystem::remove(dir_ / "text" / "preprocessor_config.json");
    config.erase("text_config");
    config["text_model_id"] = "somebody/llama";
    std::ofstream(dir_ / "tower" / "config.json") << config.dump();
  }

  const TempDir dir_;
};

TEST_F(UltravoxApart, GivesTheReferencesReplies) {
  const Hearing model(dir_ / "text", 0, "", (dir_ / "tower").string());
  ASSERT_NE(model.session->eyes(), nullptr) << model.session->blind_reason();
  for (const HeardJson& talk : heard_talks("ultravox")) {
    const ChatTask task = model.read(talk["messages"]).value();
    EXPECT_EQ(task.prompt, talk["prompt"].get<std::vector<TokenId>>());
    expect_reply(model.run({model.request_of(task)})[0]->result.sequences.at(0), talk);
  }
}

TEST_F(UltravoxApart, TheTowerAloneSaysWhereItsTextModelIs) {
  EngineConfig config;
  config.model = (dir_ / "tower").string();
  const auto session = Session::open(config);
  ASSERT_FALSE(session);
  EXPECT_THAT(session.error().message,
              HasSubstr("text_model_id: the weights of the text model are not in this directory, "
                        "but in 'somebody/llama'"));
}

// A sense whose tower is not known leaves the other one as it is.
TEST(HearingModel, SaysWhyItDoesNotHear) {
  const TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(hearing_path("qwen2_5_omni")))
    std::filesystem::copy_file(entry.path(), dir / entry.path().filename());
  auto config = HeardJson::parse(std::ifstream(dir / "config.json"));
  config["thinker_config"]["audio_config"]["shiny"] = 3;
  std::ofstream(dir / "config.json") << config.dump();
  const Hearing model(dir / ".");
  EXPECT_THAT(model.why_refused(R"({"type": "input_audio", "input_audio": {"data": "AAAA"}})"),
              testing::AllOf(HasSubstr("this model has no ears, it reads text and sees pictures: "),
                             HasSubstr("shiny: this field is not known")));
  const HeardJson talk = heard_talks("qwen2_5_omni")[3];
  const ChatTask task = model.read(talk["messages"]).value();
  expect_reply(model.run({model.request_of(task)})[0]->result.sequences.at(0), talk);
}

// A WAV file of one channel of 16-bit noise at 8,000 samples a second.
std::string noise(int seconds) {
  constexpr int kRate = 8000;
  std::string file = "RIFF";
  const auto add = [&](auto value) {
    for (size_t i = 0; i < sizeof value; ++i) file += static_cast<char>(value >> (8 * i));
  };
  const auto n_bytes = static_cast<uint32_t>(2 * kRate * seconds);
  add(n_bytes + 36);
  file += "WAVEfmt ";
  add(uint32_t{16}), add(uint16_t{1}), add(uint16_t{1}), add(uint32_t{kRate});
  add(uint32_t{2 * kRate}), add(uint16_t{2}), add(uint16_t{16});
  file += "data";
  add(n_bytes);
  uint32_t state = static_cast<uint32_t>(seconds);
  for (uint32_t i = 0; i < n_bytes / 2; ++i) {
    state = state * 1664525 + 1013904223;
    add(static_cast<uint16_t>(state >> 18));
  }
  return file;
}

std::vector<PlannedPicture> planned_noise(const Eyes& eyes, int seconds) {
  Picture sound{"sound", std::make_shared<const std::string>(noise(seconds)), true};
  auto planned = eyes.plan({std::move(sound)});
  EXPECT_TRUE(planned) << planned.error().message;
  return *std::move(planned);
}

// Encodes a short sound, during which a long one and short ones of somebody else come; returns whose rows were
// ready in which order, and those of the long sound.
std::pair<std::vector<std::string>, EmbeddingRows> heard_in_turns(Eyes& eyes, int n_short) {
  std::promise<void> waiting;
  const auto over =
      std::make_shared<std::promise<void>>();  // its last setter may outlive this function
  std::vector<std::string> order;
  EmbeddingRows rows_of_long;
  const auto add = [&](int seconds, const std::string& tenant) {
    const auto done = [&, tenant, over](const Result<PictureRows>& rows) {
      EXPECT_TRUE(rows) << rows.error().message;
      if (tenant == "gate") waiting.get_future().wait();  // until all others wait
      if (rows && tenant == "long") rows_of_long = *(*rows)[0];
      order.push_back(tenant);
      if (static_cast<int>(order.size()) == n_short + 2) over->set_value();
    };
    EXPECT_TRUE(eyes.submit({.pictures = planned_noise(eyes, seconds), .tenant = tenant}, done));
  };
  add(1, "gate");
  add(70, "long");
  for (int i = 0; i < n_short; ++i) add(2 + i, "short");
  waiting.set_value();
  over->get_future().wait();
  return {order, rows_of_long};
}

class HearingInTurns : public testing::TestWithParam<const char*> {};

// A long sound leaves the encoder to others between its pieces, and its rows are those of a tower that computes one
// view after the other.
TEST_P(HearingInTurns, OthersTakeTurnsWithASound) {
  const Hearing model(hearing_path(GetParam()));
  Eyes& eyes = *model.session->eyes();
  const auto [order, rows] = heard_in_turns(eyes, 5);
  EXPECT_EQ(order[0], "gate");
  EXPECT_EQ(order[1], "short");
  EXPECT_GE(std::ranges::find(order, "long") - order.begin(), 3) << "two turns for others";
  const std::string file = noise(70);
  const auto listening = eyes.ear().listen(std::as_bytes(std::span(file))).value();
  while (!listening->done()) ASSERT_TRUE(listening->advance());
  const std::vector<SoundView> heard = listening->take();
  std::vector<PicturePixels> views;
  for (const SoundView& view : heard) views.push_back({view.values, 1, view.n_positions, 0, 0});
  const auto source = open_weights(hearing_path(GetParam())).value();
  const auto encoder = PictureEncoder::open(*source, model.session->engine().config(),
                                            PictureEncoder::Sense::kHearing)
                           .value();
  const EmbeddingRows whole = encoder->encode(views, [] { return Status(); }).value();
  EXPECT_EQ(rows.n_rows, whole.n_rows);
  EXPECT_EQ(rows.values, whole.values);
}

// Voxtral reads blocks of a second here, Granite Speech all at once.
INSTANTIATE_TEST_SUITE_P(Tiny, HearingInTurns, testing::Values("voxtral", "granite_speech"),
                         [](const auto& info) { return std::string(info.param); });

// Spectra are bounded: beyond it a sound that was begun ends first.
TEST(HearingModel, SoundsWaitForThoseThatWereBegun) {
  const Hearing model(hearing_path("voxtral"));
  const auto source = open_weights(hearing_path("voxtral")).value();
  auto encoder = PictureEncoder::open(*source, model.session->engine().config(),
                                      PictureEncoder::Sense::kHearing)
                     .value();
  const auto eyes = Eyes::open({.hearing = std::move(encoder)}, *source, *source,
                               model.session->engine_info(), {.spectra_bytes = 0})
                        .value();
  EXPECT_EQ(heard_in_turns(*eyes, 1).first, (std::vector<std::string>{"gate", "long", "short"}));
}

}  // namespace
}  // namespace penstock
