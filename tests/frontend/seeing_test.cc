// Models that see against transformers: tokens of prompts with pictures, log-probabilities and greedy
// replies of tiny random checkpoints (tools/make_tiny_seeing.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/open/tower_file.h"
#include "formats/temp_dir.h"
#include "frontend/pictures/message_pictures.h"
#include "penstock/llm.h"
#include "sensing_model.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using Json = SensedJson;
using testing::HasSubstr;

std::filesystem::path golden(const std::string& name) {
  return tests_dir() / "golden" / "seeing" / name;
}

struct Seeing : SensingModel {
  explicit Seeing(const std::string& name, int most_tokens = 0, const std::string& spec = "",
                  const std::string& mmproj = "")
      : SensingModel(golden(name), most_tokens, spec, mmproj) {}
};

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(golden("")))
    result.push_back(entry.path().filename().string());
  std::ranges::sort(result);
  return result;
}

std::vector<std::string> names_with_mmproj() {
  std::vector<std::string> result = names();
  std::erase_if(result, [](const std::string& name) {
    return !std::filesystem::exists(golden(name) / "mmproj.gguf");
  });
  return result;
}

Json talks_of(const std::string& name) { return golden_talks(golden(name)); }

class SeeingModels : public testing::TestWithParam<std::string> {};

// One after the other, and all at once; whole, and in steps of few tokens.
TEST_P(SeeingModels, GiveTheReferencesTokensAndProbabilities) {
  const Json talks = talks_of(GetParam());
  // A picture of Gemma is one step's.
  const int few_tokens = GetParam() == "gemma3" ? 40 : GetParam() == "gemma4" ? 90 : 17;
  const bool has_states = GetParam() == "qwen3_5" || GetParam() == "lfm2_vl";
  for (const int most_tokens : {0, few_tokens}) {
    const Seeing model(GetParam(), most_tokens);
    // snapshots of states are 64 tokens apart
    expect_replies(model, talks, !has_states);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, SeeingModels, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

// Towers as llama.cpp's converter writes them (tools/make_mmproj.py), of those that it has.
class MmprojModels : public testing::TestWithParam<std::string> {};

TEST_P(MmprojModels, GiveTheSameWithAnMmprojFile) {
  const std::filesystem::path file = golden(GetParam()) / "mmproj.gguf";
  const Seeing model(GetParam(), 0, "", file.string());
  for (const Json& talk : talks_of(GetParam())) {
    const auto task = model.read(talk["messages"]);
    ASSERT_TRUE(task) << task.error().message;
    EXPECT_EQ(task->prompt, talk["prompt"].get<std::vector<TokenId>>());
    expect_reply(model.run({model.request_of(*task)})[0]->result.sequences.at(0), talk);
  }
}

// What an mmproj file says of the image processor, without the directory's files.
TEST_P(MmprojModels, MakeImageProcessors) {
  const std::filesystem::path file = golden(GetParam()) / "mmproj.gguf";
  const Seeing model(GetParam());
  const auto source = open_tower_file(file).value();
  auto encoder = PictureEncoder::open(*source, model.session->engine().config()).value();
  const auto eyes =
      Eyes::open({.sight = std::move(encoder)}, *source, *source, model.session->engine_info(), {});
  ASSERT_TRUE(eyes) << eyes.error().message;
  EXPECT_EQ((*eyes)->prompt().placeholder(false),
            model.session->eyes()->prompt().placeholder(false));
  // Areas and tiles of these families are not in the file: what was published is taken.
  const std::set<std::string> published = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl",
                                           "qwen3_5",  "glm4v",      "lfm2_vl"};
  for (const Json& talk : talks_of(GetParam())) {
    Json messages = talk["messages"];
    const auto pictures = take_pictures(messages, 64).value();
    const auto got = (*eyes)->plan(pictures), wanted = model.session->eyes()->plan(pictures);
    ASSERT_TRUE(got) << got.error().message;
    if (published.contains(GetParam())) continue;
    for (size_t i = 0; i < pictures.size(); ++i)
      EXPECT_EQ((*got)[i].plan.n_soft, (*wanted)[i].plan.n_soft);
    const auto rows = (*eyes)->encode({.pictures = *got}),
               same = model.session->eyes()->encode({.pictures = *wanted});
    ASSERT_TRUE(rows && same);
    for (size_t i = 0; i < rows->size(); ++i)
      EXPECT_THAT((*rows)[i]->values,
                  testing::Pointwise(testing::FloatNear(2e-3f), (*same)[i]->values));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, MmprojModels, testing::ValuesIn(names_with_mmproj()),
                         [](const auto& info) { return info.param; });

TEST(SeeingModel, BothSensesSayWhyTheyCannotBeUsed) {
  const auto source = open_weights(golden("gemma3")).value();
  const Seeing model("gemma3");
  const auto why = [&](const char* sight, const char* hearing) {
    const auto failed = [](const char* message) {
      return tl::unexpected(Error{ErrorCode::kUnsupported, message});
    };
    Eyes::Towers towers;
    if (sight != nullptr) towers.sight = failed(sight);
    if (hearing != nullptr) towers.hearing = failed(hearing);
    const auto eyes =
        Eyes::open(std::move(towers), *source, *source, model.session->engine_info(), {});
    return eyes ? "" : eyes.error().message;
  };
  EXPECT_EQ(why("no lens", "no drum"), "pictures: no lens; sounds: no drum");
  EXPECT_EQ(why("no lens", nullptr), "no lens");
  EXPECT_EQ(why(nullptr, "no drum"), "no drum");
  EXPECT_EQ(why("no files", "no files"), "no files");
  EXPECT_EQ(why(nullptr, nullptr), "");
}

// Cached prompts and kept replies are found by it.
TEST(SeeingModel, APicturesIdentityIsThatOfItsTowerToo) {
  const TempDir dir;
  const auto source = open_weights(golden("gemma3")).value();
  const Seeing model("gemma3");
  Json messages = talks_of("gemma3")[0]["messages"];
  const auto pictures = take_pictures(messages, 64).value();
  const auto identity_with = [&](const std::filesystem::path& file) {
    const auto tower = open_tower_file(file).value();
    auto encoder = PictureEncoder::open(*tower, model.session->engine().config()).value();
    const auto eyes = Eyes::open({.sight = std::move(encoder)}, *tower, *source,
                                 model.session->engine_info(), {});
    return eyes.value()->plan(pictures).value().at(0).identity;
  };
  const std::filesystem::path file = golden("gemma3") / "mmproj.gguf", copy = dir / "copy.gguf",
                              other = dir / "other.gguf";
  std::filesystem::copy_file(file, copy);
  std::filesystem::copy_file(file, other);
  {
    // The lowest bit of a number in the middle of the weights.
    const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(file)) / 8 * 4;
    std::fstream bytes(other, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(middle);
    const auto byte = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(middle);
    bytes.put(byte);
  }
  EXPECT_EQ(identity_with(file), identity_with(copy));
  EXPECT_NE(identity_with(file), identity_with(other));
}

TEST(SeeingModel, RefusesTheMmprojFileOfAnotherModel) {
  const auto error = [](const std::string& file) {
    EngineConfig config;
    config.model = golden("qwen3_vl").string(), config.max_model_len = 512, config.threads = 1;
    config.mmproj = file;
    const auto session = Session::open(config);
    return session ? std::string() : session.error().message;
  };
  EXPECT_THAT(
      error((golden("qwen2_vl") / "mmproj.gguf").string()),
      testing::AllOf(HasSubstr("mmproj: "), HasSubstr("the tower of another model: its rows "
                                                      "have 32 numbers in 1 levels")));
  EXPECT_THAT(error((golden("gemma3") / "mmproj.gguf").string()), HasSubstr("another model"));
  EXPECT_THAT(error((golden("qwen3_vl") / "config.json").string()), HasSubstr("mmproj: "));
  EXPECT_THAT(error("/nonexistent.gguf"), HasSubstr("No such file"));
  EXPECT_THAT(error((tests_dir().parent_path() / "models/penstock-stories-1m-q8_0.gguf").string()),
              HasSubstr("expected an mmproj file (general.architecture clip), got llama"));
  EXPECT_EQ(error("none"), "");
}

TEST(MmprojFile, IsFoundByItsName) {
  const auto found = [](std::string_view model, std::vector<std::string> names) {
    return std::string(mmproj_of(model, names).value_or("none"));
  };
  EXPECT_EQ(found("gemma-3-4b-it-Q4_K_M.gguf", {"mmproj-F32.gguf", "mmproj-F16.gguf"}),
            "mmproj-F16.gguf");
  EXPECT_EQ(found("gemma-3-4b-it-Q4_K_M.gguf", {"mmproj-F16.gguf", "mmproj-gemma-3-4b-it-Q8_0.gguf",
                                                "mmproj-qwen2-vl-f16.gguf"}),
            "mmproj-gemma-3-4b-it-Q8_0.gguf");
  EXPECT_EQ(found("SmolVLM-500M-Instruct-Q8_0.gguf", {"mmproj-SmolVLM-500M-Instruct-f16.gguf"}),
            "mmproj-SmolVLM-500M-Instruct-f16.gguf");
  EXPECT_EQ(found("Qwen3VL-4B-Instruct-Q4_K_M.gguf", {"mmproj-gemma-3-4b-it-f16.gguf"}), "none");
  EXPECT_EQ(found("a.gguf", {"mmproj-model-f16.gguf"}), "mmproj-model-f16.gguf");
  EXPECT_EQ(found("a.gguf", {"mmproj.txt", "b.gguf"}), "none");
}

TEST(SeeingModel, DraftsChangeNothing) {
  const Json talks = talks_of("qwen3_vl");
  const Seeing model("qwen3_vl", 0, "ngram");
  for (const Json& talk : talks) {
    const auto task = model.read(talk["messages"]).value();
    expect_reply(model.run({model.request_of(task)})[0]->result.sequences.at(0), talk);
  }
}

// Placeholders that somebody types are characters.
TEST(SeeingModel, TypedPlaceholdersStayText) {
  const Seeing model("qwen2_vl");
  const std::string typed = "<|vision_start|><|image_pad|><|vision_end|> and <|image_pad|>";
  Json messages = talks_of("qwen2_vl")[0]["messages"];
  messages[0]["content"].push_back({{"type", "text"}, {"text", typed}});
  const ChatTask task = model.read(messages).value();
  ASSERT_EQ(task.pictures.runs.size(), 1u);
  const auto soft = model.session->tokenizer().find("<|image_pad|>");
  EXPECT_EQ(std::ranges::count(task.prompt, *soft), task.pictures.runs[0].count);
  std::string text;
  Conversation conversation;
  conversation.messages = messages;
  ASSERT_TRUE(model.chat->read(std::move(conversation), text));
  EXPECT_THAT(text, HasSubstr(typed));
  // without a picture, too
  const ChatTask plain =
      model.read(Json::parse(R"([{"role": "user", "content": "<|image_pad|>"}])")).value();
  EXPECT_EQ(std::ranges::count(plain.prompt, *soft), 0);
}

// Many of them take time in proportion; what parts of a message make together is refused.
TEST(SeeingModel, ManyTypedPlaceholders) {
  const Seeing model("mistral3");
  std::string typed;
  for (int i = 0; i < 100'000; ++i) typed += "[IMG]";
  Conversation conversation;
  conversation.messages = Json::array({{{"role", "user"}, {"content", typed}}});
  conversation.any_length = true;
  const auto begin = Clock::now();
  const auto task = model.chat->read(std::move(conversation));
  ASSERT_TRUE(task) << task.error().message;
  EXPECT_GT(task->prompt.size(), 100'000u);
  EXPECT_LT(Clock::now() - begin,
            std::chrono::seconds(20));  // a second; minutes if it were squared
  const auto split = model.read(Json::parse(
      R"([{"role": "user", "content": [{"type": "text", "text": "[I"}, {"type": "text", "text": "MG]"}]}])"));
  ASSERT_FALSE(split);
  EXPECT_THAT(split.error().message,
              HasSubstr("[IMG] comes 1 times in the rendered prompt, 0 times"));
}

TEST(SeeingModel, RowsAreBounded) {
  const Seeing model("qwen2_vl");
  const auto source = open_weights(golden("qwen2_vl")).value();
  const EngineInfo& info = model.session->engine_info();
  const ChatTask task = model.read(talks_of("qwen2_vl")[0]["messages"]).value();
  const int64_t bytes = int64_t{task.pictures.pictures[0].plan.n_soft} * info.model_dim * 4;
  const auto eyes_of = [&](const Eyes::Limits& limits) {
    auto encoder = PictureEncoder::open(*source, model.session->engine().config()).value();
    return Eyes::open({.sight = std::move(encoder)}, *source, *source, info, limits).value();
  };
  const auto little = eyes_of({.row_bytes = bytes - 1}), enough = eyes_of({.row_bytes = bytes});
  const auto refused = little->encode({.pictures = task.pictures.pictures});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  auto rows = enough->encode({.pictures = task.pictures.pictures});
  ASSERT_TRUE(rows);
  EXPECT_TRUE((*rows)[0]->finite);
  // what is kept costs nothing, and what nobody holds any more neither
  EXPECT_EQ(enough->encode({.pictures = task.pictures.pictures}).value()[0], (*rows)[0]);
  const auto forgets = eyes_of({.cache_bytes = 0, .row_bytes = bytes});
  rows = forgets->encode({.pictures = task.pictures.pictures});
  EXPECT_FALSE(forgets->encode({.pictures = task.pictures.pictures}));
  rows->clear();
  EXPECT_TRUE(forgets->encode({.pictures = task.pictures.pictures}));
  forgets->stop();
  forgets->stop();
  EXPECT_EQ(forgets->encode({.pictures = task.pictures.pictures}).error().code,
            ErrorCode::kCancelled);
}

// SigLIP at 384 pixels has 27 patches of 14: six rows and columns of pixels are in none.
TEST(SeeingModel, PixelsBehindTheLastPatchAreLeftOut) {
  const Seeing model("llava_onevision");
  const auto source = open_weights(golden("llava_onevision")).value();
  auto encoder = PictureEncoder::open(*source, model.session->engine().config()).value();
  constexpr size_t kWhole = 16, kSide = 18;
  std::vector<float> large, small;
  for (size_t i = 0; i < 3 * kSide * kSide; ++i) {
    const size_t y = i / kSide % kSide, x = i % kSide;
    large.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
    if (y < kWhole && x < kWhole) small.push_back(large.back());
  }
  const auto rows_of = [&](const std::vector<float>& pixels, int side) {
    const PicturePixels view{pixels, 0, 0, side, side};
    EXPECT_TRUE(encoder->check(view));
    return encoder->encode({&view, 1}, [] { return Status(); }).value();
  };
  const EmbeddingRows whole = rows_of(small, 16), cut = rows_of(large, 18);
  EXPECT_EQ(cut.n_rows, whole.n_rows);
  EXPECT_EQ(cut.values, whole.values);
  const PicturePixels tiny{large, 0, 0, 3, 3};
  EXPECT_FALSE(encoder->check(tiny));
}

// The last part of the message that is continued is a picture, which has no text.
TEST(SeeingModel, AMessageThatEndsInAPictureIsNotContinued) {
  const Seeing model("qwen2_vl");
  Conversation conversation;
  conversation.messages = talks_of("qwen2_vl")[0]["messages"];
  Json& content = conversation.messages.back()["content"];
  content = Json::array({content[0]});
  ASSERT_NE(content[0]["type"], "text");
  conversation.options = {.add_generation_prompt = false, .continue_final_message = true};
  const auto task = model.chat->read(std::move(conversation));
  ASSERT_FALSE(task);
  EXPECT_EQ(task.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(task.error().message, HasSubstr("continue_final_message"));
}

// The files of the facade's messages.
TEST(SeeingModel, ReadsImagesOfTheFacade) {
  const Json talk = talks_of("qwen3_vl")[0];
  Json messages = talk["messages"];
  const auto pictures = take_pictures(messages, 1).value();
  EngineConfig config;
  config.model = golden("qwen3_vl").string();
  config.threads = 2, config.max_model_len = 512, config.kv_cache_dtype = "f32";
  const auto llm = LLM::open(config).value();
  SamplingParams params;
  params.temperature = 0, params.max_tokens = 6, params.ignore_eos = true;
  ChatMessage message{"user", talk["messages"][0]["content"][1]["text"].get<std::string>()};
  message.images = {{pictures[0].file, "a.png"}};
  const auto said = llm->chat(std::span(&message, 1), params);
  ASSERT_TRUE(said) << said.error().message;
  EXPECT_EQ(said->prompt_token_ids, talk["prompt"].get<std::vector<TokenId>>());
  EXPECT_EQ(said->outputs[0].token_ids, talk["reply"].get<std::vector<TokenId>>());
  message.images[0].file = std::make_shared<const std::string>("no picture");
  const auto refused = llm->chat(std::span(&message, 1), params);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::StartsWith("a.png: "));
  GenerateOptions stops;
  stops.should_stop = [] { return true; };
  message.images[0] = {pictures[0].file, ""};
  (void)llm->chat(std::span(&message, 1), params, stops);  // kept rows or a cancelled call: it ends
}

TEST(SeeingModel, RefusesWhatIsNoPicture) {
  const Seeing model("qwen2_vl");
  const auto error = [&](const char* part) {
    Json messages =
        Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "x"}]}])");
    messages[0]["content"].push_back(Json::parse(part));
    const auto task = model.read(std::move(messages));
    return task ? std::string() : task.error().message;
  };
  EXPECT_THAT(error(R"({"type": "image_url", "image_url": {"url": "https://127.0.0.1/a.png"}})"),
              HasSubstr("messages[0].content[1]: expected a data URL of an image "
                        "(data:image/png;base64,...), got a URL with scheme https"));
  EXPECT_THAT(error(R"({"type": "image_url", "image_url": "data:image/png,abc"})"),
              HasSubstr("without base64"));
  EXPECT_THAT(error(R"({"type": "image_url"})"), HasSubstr("got none"));
  EXPECT_THAT(error(R"({"type": "input_image", "image_url": "data:image/png;base64,****"})"),
              HasSubstr("character 0 is no base64"));
  EXPECT_THAT(error(R"({"type": "image", "image": "data:image/png;base64,AAAA"})"),
              HasSubstr("messages[0].content[1]: "));
  // a place that the template does not know
  Json talk = talks_of("qwen2_vl")[0]["messages"];
  EXPECT_TRUE(model.read(talk));
  const Seeing blind_template("qwen2_vl");
  Conversation conversation;
  conversation.messages = talk;
  conversation.chat_template = "{{ messages[0].role }}";
  const auto setup = ChatSetup::open(*model.session, {.trust_request_template = true}).value();
  const auto task = setup->read(std::move(conversation));
  ASSERT_FALSE(task);
  EXPECT_THAT(task.error().message, HasSubstr("places for 0 of the 1 pictures"));
}

}  // namespace
}  // namespace penstock
