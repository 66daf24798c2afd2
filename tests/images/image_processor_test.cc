// Views, pixels and prompts compared with transformers (tools/make_image_vectors.py), and settings that are
// refused.
#include "images/image_processor.h"

#include <gtest/gtest.h>

#include "drawn_image.h"

namespace penstock {
namespace {

ImageProcessorFiles files_of(const nlohmann::json& golden) {
  return {golden["config"], golden["image_processor"], golden["processor"], {}};
}

// The prompt with a count for each run of soft tokens.
std::string prompt_text(const ImagePlan& plan) {
  std::string text;
  for (const PromptPiece& piece : plan.prompt)
    text += piece.is_number     ? "0"
            : piece.n_soft == 0 ? piece.text
                                : fmt::format("{}{{{}}}", piece.text, piece.n_soft);
  return text;
}

// The views as the golden file has them: a list of [height, width], or [[height, width], n] for n equal ones.
nlohmann::json view_sizes(const ImagePlan& plan) {
  auto sizes = nlohmann::json::array();
  for (const ImageView& view : plan.views) sizes.push_back({view.height, view.width});
  for (const auto& size : sizes)
    if (size != sizes[0]) return sizes;
  return {sizes[0], sizes.size()};
}

void compare(const ImageProcessor& processor, const nlohmann::json& expected,
             const std::string& where) {
  const int width = expected["size"][0], height = expected["size"][1];
  const auto plan = processor.plan(width, height);
  ASSERT_EQ(plan.has_value(), !expected.contains("error"))
      << where << (plan ? "" : plan.error().message);
  if (!plan) return;
  EXPECT_EQ(view_sizes(*plan), expected["views"]) << where;
  EXPECT_EQ(prompt_text(*plan), expected["prompt"]) << where;
  int n_soft = 0;
  for (const PromptPiece& piece : plan->prompt) n_soft += piece.n_soft;
  EXPECT_EQ(n_soft, plan->n_soft) << where;
  if (!expected.contains("pixels")) return;
  const auto processed = processor.process(drawn_image(width, height, expected["seed"]));
  ASSERT_TRUE(processed) << where << processed.error().message;
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(processed->pixels[i], expected["first"][i].get<float>()) << where;
  EXPECT_EQ(crc32_of(processed->pixels.data(), processed->pixels.size() * sizeof(float)),
            expected["pixels"])
      << where;
}

TEST(ImageProcessorTest, EqualsTransformers) {
  const auto golden = golden_json("processors.json");
  EXPECT_GT(golden.size(), 25u);
  for (const auto& [name, family] : golden.items()) {
    const auto processor = make_image_processor(files_of(family), family["kwargs"]);
    ASSERT_TRUE(processor) << name << ": " << processor.error().message;
    for (const auto& expected : family["pictures"])
      compare(**processor, expected, fmt::format("{} {} ", name, expected["size"].dump()));
  }
}

// Files as they are published: the number of soft tokens of a picture of 640 x 480.
TEST(ImageProcessorTest, ReadsPublishedFiles) {
  const auto golden = golden_json("published.json");
  for (const auto& [name, files] : golden.items()) {
    const auto processor = make_image_processor({files[0], files[1], files[2], {}});
    ASSERT_TRUE(processor) << name << ": " << processor.error().message;
    const auto plan = (*processor)->plan(640, 480);
    ASSERT_TRUE(plan) << name << ": " << plan.error().message;
    EXPECT_EQ(plan->n_soft, files[3]) << name;
  }
}

nlohmann::json settings_of(const std::string& name) { return golden_json("processors.json")[name]; }

TEST(ImageProcessorTest, SettingsAreHonouredOrRefusedByName) {
  auto golden = settings_of("qwen3_vl");
  const auto message = [&](const nlohmann::json& kwargs) {
    const auto made = make_image_processor(files_of(golden), kwargs);
    return made ? "" : made.error().message;
  };
  EXPECT_EQ(message({{"colour", true}}),
            "image processor: the setting \"colour\" is not known for this type");
  EXPECT_EQ(message({{"patch_size", 0}}),
            "image processor: patch_size: expected an integer from 1 to 256, got 0");
  EXPECT_EQ(message({{"size", {{"shortest_edge", -1}}}}),
            "image processor: size.shortest_edge: expected an integer from 1 to 268435456, got -1");
  EXPECT_EQ(message({{"do_resize", false}}),
            "image processor: do_resize: expected true, got false");
  EXPECT_EQ(message({{"image_std", {0, 1, 1}}}),
            "image processor: image_std: expected numbers other than 0, got 0");
  EXPECT_EQ(message({{"resample", 5}}),
            "image processor: resample: expected 1 (Lanczos), 2 (bilinear) or 3 (bicubic), got "
            "another filter");
  EXPECT_EQ(message("fast"), "image processor: expected settings as an object, got string");
  EXPECT_EQ(message({{"min_pixels", 4096}, {"max_pixels", 65536}}), "");
  golden["image_processor"]["image_processor_type"] = "Qwen9ImageProcessor";
  EXPECT_EQ(message({}),
            "image processor: expected a known image_processor_type, got \"Qwen9ImageProcessor\" "
            "(model type \"qwen3_vl\")");
}

// Every value of every family's files, replaced by values of other types: a processor or an error.
TEST(ImageProcessorTest, ImpossibleValuesAreErrors) {
  const auto golden = golden_json("processors.json");
  const nlohmann::json others[] = {
      nullptr,         true,         -1, 0, 1.5, 1e300, "text", nlohmann::json::array(),
      {{"height", 0}}, {{1, 2}, {3}}};
  for (const auto& [name, family] : golden.items())
    for (const char* const file : {"image_processor", "processor"})
      for (const auto& [setting, value] : family[file].items())
        for (const auto& other : others) {
          ImageProcessorFiles files = files_of(family);
          (std::string_view(file) == "processor" ? files.processor
                                                 : files.image_processor)[setting] = other;
          const auto processor = make_image_processor(files, family["kwargs"]);
          if (processor)
            (void)(*processor)->plan(97, 61);
          else
            EXPECT_FALSE(processor.error().message.empty());
        }
}

TEST(ImageProcessorTest, PlansAreBounded) {
  const auto golden = settings_of("qwen3_vl");
  const auto processor = make_image_processor(
      files_of(golden), {{"size", {{"shortest_edge", 1 << 28}, {"longest_edge", 1 << 28}}}});
  ASSERT_TRUE(processor);
  EXPECT_EQ((*processor)->plan(640, 480).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ((*processor)->plan(0, 480).error().code, ErrorCode::kInvalidArgument);
}

// A picture of a few kilobytes as a file may be 200,000 pixels wide and one high.
TEST(ImageProcessorTest, SquaresAreBounded) {
  const auto golden = settings_of("llava_padded");
  const auto padded = make_image_processor(files_of(golden), golden["kwargs"]);
  ASSERT_TRUE(padded) << padded.error().message;
  const auto tiles = make_image_processor(files_of(settings_of("llava_onevision")));
  ASSERT_TRUE(tiles) << tiles.error().message;
  const auto whole = (*tiles)->for_several();
  ASSERT_NE(whole, nullptr);
  for (const ImageProcessor* const processor : {padded->get(), whole.get()}) {
    EXPECT_EQ(processor->plan(200'000, 1).error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(processor->plan(1, 11'586).error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(processor->plan(11'585, 1));
  }
}

TEST(ImageProcessorTest, SettingsMayStandInTheProcessorsFile) {
  const auto golden = settings_of("gemma3");
  ImageProcessorFiles files = files_of(golden);
  files.processor["image_processor"] = files.image_processor;
  files.image_processor = nullptr;
  const auto processor = make_image_processor(files);
  ASSERT_TRUE(processor) << processor.error().message;
  EXPECT_EQ((*processor)->plan(10, 10)->n_soft, 256);
  EXPECT_EQ((*processor)->placeholder(), "<start_of_image>");
  EXPECT_EQ((*processor)->soft_token(), "<image_soft_token>");
}

}  // namespace
}  // namespace penstock
