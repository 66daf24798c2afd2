// Whisper against transformers' generate(): tokens and times of short and long sounds, with languages
// given and detected, translated, told what came before (tools/make_tiny_whisper.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "engine/collector.h"
#include "formats/temp_dir.h"
#include "formats/weight_source.h"
#include "frontend/session.h"
#include "frontend/transcripts/formats.h"
#include "frontend/transcripts/transcriber.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using TranscriptJson = nlohmann::json;
using testing::HasSubstr;

std::filesystem::path whisper_path(const std::string& name) {
  return tests_dir() / "golden" / "whisper" / name;
}

struct WhisperUnderTest {
  // memory: bytes of the cache; 0: what the engine chooses.
  explicit WhisperUnderTest(const std::string& name, int64_t memory = 0) {
    EngineConfig config;
    config.model = whisper_path(name).string();
    config.threads = 2;
    config.max_num_seqs = 4;
    config.kv_cache_dtype = "f32";
    config.batch_invariant = true;
    config.kv_cache_memory = memory;
    session = Session::open(config).value();
    golden = TranscriptJson::parse(std::ifstream(whisper_path(name) / "golden.json"));
  }

  Ear::Spectrum spectrum(size_t sound) const {
    const std::string file =
        decode_base64(golden["sounds"][sound].get<std::string>(), Base64::kPlain).value();
    auto made = session->eyes()->ear().spectrum(std::as_bytes(std::span(file)));
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : Ear::Spectrum();
  }

  Request request_of(const Ear::Spectrum& spectrum, int64_t first,
                     const Transcriber::Wanted& wanted) const {
    SamplingParams params;
    params.temperature = wanted.temperature, params.max_tokens = wanted.max_tokens;
    Request request = session->make_request(wanted.prompt, params, {});
    Eyes& eyes = *session->eyes();
    const auto rows =
        eyes.encode({.pictures = {eyes.plan_window(eyes.ear().window(spectrum, first), "file")}});
    EXPECT_TRUE(rows) << rows.error().message;
    if (rows) request.encoder_rows = rows->front();
    request.logits_processor = wanted.rules;
    return request;
  }

  std::unique_ptr<Session> session;
  TranscriptJson golden;
};

TranscriptAsked asked_of(const TranscriptJson& asked) {
  TranscriptAsked result;
  result.language = asked.value("language", "");
  result.translate = asked.value("task", "") == "translate";
  result.timestamps = asked.value("return_timestamps", false);
  result.follows_text = asked.value("condition_on_prev_tokens", false);
  const auto threshold = [&](const char* name, std::optional<double>& value) {
    if (asked.contains(name)) value = asked[name].get<double>();
  };
  threshold("logprob_threshold", result.least_logprob);
  threshold("compression_ratio_threshold", result.most_compression);
  threshold("no_speech_threshold", result.most_silence);
  return result;
}

struct Transcription {
  const TranscriptJson* expected = nullptr;
  Ear::Spectrum spectrum;
  std::unique_ptr<Transcriber> way;
  std::vector<TranscriptSegment> segments;
};

void expect_segments(const Transcription& one) {
  const TranscriptJson& expected = (*one.expected)["segments"];
  const std::string where = (*one.expected)["asked"].dump() + ", sound " +
                            std::to_string((*one.expected)["sound"].get<int>());
  ASSERT_EQ(one.segments.size(), expected.size()) << where;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(one.segments[i].tokens, expected[i]["tokens"].get<std::vector<TokenId>>())
        << where << ", segment " << i;
    EXPECT_NEAR(one.segments[i].start, expected[i]["start"].get<double>(), 1e-3) << where;
    EXPECT_NEAR(one.segments[i].end, expected[i]["end"].get<double>(), 1e-3) << where;
  }
}

class Transcripts : public testing::TestWithParam<const char*> {
 protected:
  static std::vector<Transcription> begin(const WhisperUnderTest& model) {
    std::vector<Transcription> all;
    const Ear& ear = model.session->eyes()->ear();
    for (const TranscriptJson& one : model.golden["cases"]) {
      Transcription& added = all.emplace_back();
      added.expected = &one;
      added.spectrum = model.spectrum(one["sound"].get<size_t>());
      added.way = std::make_unique<Transcriber>(
          *model.session->whisper(), asked_of(one["asked"]),
          HeardSound{added.spectrum.n_frames, ear.window_frames(), ear.seconds_per_frame()});
    }
    return all;
  }

  static void generate_all(const WhisperUnderTest& model) {
    ASSERT_NE(model.session->whisper(), nullptr) << model.session->blind_reason();
    std::vector<Transcription> all = begin(model);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::pair<Transcription*, std::shared_ptr<Collector>>> running;
      for (Transcription& one : all) {
        if (one.way->done()) continue;
        const int64_t first = one.way->seek();
        const auto sink = std::make_shared<Collector>();
        const auto id = model.session->engine().submit(
            model.request_of(one.spectrum, first, one.way->next()), sink);
        ASSERT_TRUE(id) << id.error().message;
        running.emplace_back(&one, sink);
      }
      if (running.empty()) break;
      while (model.session->engine().step()) {
      }
      for (const auto& [one, sink] : running) {
        for (TranscriptSegment& segment : one->way->add(sink->result.sequences.at(0).tokens))
          one->segments.push_back(std::move(segment));
      }
    }
    for (const Transcription& one : all) expect_segments(one);
  }
};

// A window of each is generated at a time: all together, four of them in a batch, or as many as there
// is room for.
TEST_P(Transcripts, AreThoseOfTheReference) {
  for (const int64_t memory : {0, 300'000}) {
    SCOPED_TRACE(memory);
    const WhisperUnderTest model(GetParam(), memory);
    generate_all(model);
  }
}

// Times of tokens and words: what the reference's return_token_timestamps gives, whichever windows run together.
TEST_P(Transcripts, WordsHaveTheReferencesTimes) {
  const WhisperUnderTest model(GetParam());
  const Ear& ear = model.session->eyes()->ear();
  const auto cases = TranscriptJson::parse(std::ifstream(whisper_path(GetParam()) / "words.json"));
  size_t n_words = 0;
  for (const TranscriptJson& one : cases) {
    const std::string where = one["asked"].dump() + ", sound " + one["sound"].dump();
    const Ear::Spectrum spectrum = model.spectrum(one["sound"].get<size_t>());
    TranscriptAsked asked = asked_of(one["asked"]);
    asked.words = true;
    const auto own = static_cast<int64_t>(std::ceil(spectrum.seconds / ear.seconds_per_frame()));
    Transcriber way(
        *model.session->whisper(), asked,
        {std::min(own, spectrum.n_frames), ear.window_frames(), ear.seconds_per_frame()});
    std::vector<TranscriptSegment> segments;
    while (!way.done() && segments.size() < one["segments"].size()) {
      const int64_t first = way.seek();
      const Transcriber::Wanted wanted = way.next();
      Request request = model.request_of(spectrum, first, wanted);
      request.watch = wanted.watch;
      const auto sink = std::make_shared<Collector>();
      ASSERT_TRUE(model.session->engine().submit(std::move(request), sink));
      while (model.session->engine().step()) {
      }
      for (TranscriptSegment& segment : way.add(sink->result.sequences.at(0).tokens))
        segments.push_back(std::move(segment));
    }
    // The reference goes on in the silence behind a short sound.
    ASSERT_FALSE(segments.empty()) << where;
    ASSERT_LE(segments.size(), one["segments"].size()) << where;
    for (size_t i = 0; i < segments.size(); ++i) {
      const TranscriptJson& expected = one["segments"][i];
      ASSERT_EQ(segments[i].tokens, expected["tokens"].get<std::vector<TokenId>>()) << where;
      ASSERT_EQ(segments[i].times.size(), segments[i].tokens.size()) << where;
      std::vector<TokenId> text;
      std::vector<TokenTime> times;
      for (size_t t = 0; t < segments[i].tokens.size(); ++t) {
        EXPECT_NEAR(segments[i].times[t].end, expected["times"][t].get<double>(), 1e-3)
            << where << ", segment " << i << ", token " << t;
        if (segments[i].tokens[t] >= model.session->whisper()->end) continue;
        text.push_back(segments[i].tokens[t]), times.push_back(segments[i].times[t]);
      }
      const auto words = words_of(model.session->tokenizer(), text, times, way.language());
      ASSERT_EQ(words.size(), expected["words"].size()) << where << ", segment " << i;
      for (size_t w = 0; w < words.size(); ++w, ++n_words) {
        EXPECT_EQ(words[w].text, expected["words"][w][0].get<std::string>()) << where;
        EXPECT_NEAR(words[w].start, expected["words"][w][1].get<double>(), 1e-3) << where;
        EXPECT_NEAR(words[w].end, expected["words"][w][2].get<double>(), 1e-3) << where;
      }
    }
  }
  EXPECT_GT(n_words, 20u);
}

TEST_P(Transcripts, TextAloneAndOtherRowsAreRefused) {
  const WhisperUnderTest model(GetParam());
  Engine& engine = model.session->engine();
  const EngineInfo& info = engine.info();
  Request request;
  request.prompt = {model.session->whisper()->start};
  request.sampling.max_tokens = 2;
  EXPECT_THAT(engine.check(request).error().message, HasSubstr("it takes sounds"));
  auto rows = std::make_shared<EmbeddingRows>();
  rows->n_rows = info.encoder_rows - 1;
  rows->values.resize(static_cast<size_t>(rows->n_rows) * static_cast<size_t>(info.model_dim));
  request.encoder_rows = rows;
  EXPECT_THAT(engine.check(request).error().message, HasSubstr("encoder_rows: expected 50 x 24"));
  rows->n_rows = info.encoder_rows;
  rows->values.resize(static_cast<size_t>(rows->n_rows) * static_cast<size_t>(info.model_dim));
  EXPECT_TRUE(engine.check(request));
  rows->values[3] = NAN;
  EXPECT_THAT(engine.check(request).error().message, HasSubstr("finite"));
  rows->values[3] = 0;
  request.sampling.n = 2;
  EXPECT_THAT(engine.check(request).error().message, HasSubstr("expected one sequence"));
}

INSTANTIATE_TEST_SUITE_P(Models, Transcripts, testing::Values("multilingual", "english"),
                         [](const auto& info) { return std::string(info.param); });

// At a tie a way comes along its row, as in the reference.
TEST(WordTimes, WarpsThroughCheapCells) {
  EXPECT_EQ(warped(std::vector<double>{-9, 1, 1, 1, 1, 1, -9, -9, 1, 1, 1, 1, 1, -9, -9}, 3, 5),
            (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(warped(std::vector<double>{-9, 0, 0, 0, 0, 0, -9, -9, 0, 0, 0, 0, 0, -9, -9}, 3, 5),
            (std::vector<int>{0, 0, 2}));
  EXPECT_EQ(warped(std::vector<double>(4, 0.0), 4, 1), (std::vector<int>{0, 0, 0, 0}));
}

TEST(WordTimes, EqualWeightsAndNoTokensHaveTimes) {
  AttentionWatch watch({{0, 0}}, 4, 6);
  EXPECT_EQ(token_ends(watch, 0, 1, 7, 0.02), std::vector<double>{0});
  const auto ends = token_ends(watch, 0, 4, 7, 0.02);
  ASSERT_EQ(ends.size(), 4u);
  for (const double end : ends) EXPECT_TRUE(end >= 0 && end <= 0.12);
  EXPECT_TRUE(watch.row(4, 0).empty());
}

TEST(WordTimes, PunctuationGoesWithItsWord) {
  const WhisperUnderTest model("english");
  const Tokenizer& tokenizer = model.session->tokenizer();
  const auto texts = [&](const std::string& text, const char* language) {
    const auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = false});
    std::vector<std::string> result;
    for (const SpokenWord& word :
         words_of(tokenizer, ids, std::vector<TokenTime>(ids.size()), language))
      result.push_back(word.text);
    return result;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(" Well, (really) so.", "en"), (Texts{" Well,", " (really)", " so."}));
  EXPECT_EQ(texts("\u4f60\u597d\u3002\u5417", "zh"), (Texts{"\u4f60", "\u597d\u3002", "\u5417"}));
}

TEST(WhisperTokens, ImpossibleAlignmentHeadsAreRefused) {
  const TempDir dir;
  const std::filesystem::path copy = dir / "model";
  std::filesystem::copy(whisper_path("english"), copy);
  const auto read_with = [&](const TranscriptJson& heads) {
    TranscriptJson config =
        TranscriptJson::parse(std::ifstream(whisper_path("english") / "generation_config.json"));
    config["alignment_heads"] = heads;
    std::ofstream(copy / "generation_config.json") << config;
    const auto source = open_weights(copy).value();
    return WhisperTokens::read(*source, *Tokenizer::load(*source).value());
  };
  EXPECT_EQ(read_with({{1, 0}})->alignment_heads.size(), 1u);
  EXPECT_EQ(read_with(nullptr)->alignment_heads.size(), 0u);
  for (const TranscriptJson& heads :
       {TranscriptJson({{3, 0}}), TranscriptJson({{0, 3}}), TranscriptJson({{-1, 0}}),
        TranscriptJson("all"), TranscriptJson({{1}})}) {
    const auto refused = read_with(heads);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("alignment_heads: expected"));
  }
}

TEST(TranscriptFormats, AreSubtitles) {
  const std::vector<SpokenText> texts = {{0, 1.5, " One --> two."},
                                         {3661.0004, 3662.9996, " Three"}};
  EXPECT_EQ(plain_transcript(texts), "One --> two. Three");
  EXPECT_EQ(srt_of(texts),
            "1\n00:00:00,000 --> 00:00:01,500\nOne -> two.\n\n"
            "2\n01:01:01,000 --> 01:01:03,000\nThree\n\n");
  EXPECT_EQ(webvtt_of(texts),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nOne -> two.\n\n"
            "01:01:01.000 --> 01:01:03.000\nThree\n\n");
}

// Their logits are not there.
TEST(WhisperTokens, TokensBeyondTheModelsVocabularyAreRefused) {
  const TempDir dir;
  const std::filesystem::path copy = dir / "model";
  std::filesystem::copy(whisper_path("multilingual"), copy);
  const auto read_with = [&](int vocab_size) {
    TranscriptJson config =
        TranscriptJson::parse(std::ifstream(whisper_path("multilingual") / "config.json"));
    config["vocab_size"] = vocab_size;
    std::ofstream(copy / "config.json") << config;
    const auto source = open_weights(copy).value();
    return WhisperTokens::read(*source, *Tokenizer::load(*source).value());
  };
  const WhisperTokens whole = read_with(352).value();
  EXPECT_GT(whole.languages.size(), 2u);
  const auto refused = read_with(whole.no_timestamps);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("no_timestamps_token_id"));
}

// Of a sound of 60 windows in which 20 ms are written at a time.
TEST(Transcriber, ShortPiecesEnd) {
  WhisperTokens tokens;
  tokens.start = 101, tokens.end = 100, tokens.no_timestamps = 103, tokens.vocab_size = 2000;
  Transcriber transcriber(tokens, {.timestamps = true}, {.n_frames = 180000});
  const std::vector<TokenId> piece = {104, 7, 105, 105, 8};
  int n_windows = 0;
  for (; !transcriber.done() && n_windows < 1000; ++n_windows) {
    transcriber.next();
    transcriber.add(piece);
  }
  EXPECT_TRUE(transcriber.done());
  EXPECT_LT(n_windows, 400);
}

TEST(WhisperTokens, LanguagesHaveCodesAndNames) {
  EXPECT_EQ(language_code("German"), "de");
  EXPECT_EQ(language_code("yue"), "yue");
  EXPECT_EQ(language_code("klingon"), "");
  EXPECT_EQ(language_name("de"), "german");
}

// What zlib makes of ids of two bytes.
TEST(WhisperTokens, CompressionRatioIsThatOfZlib) {
  const std::vector<TokenId> same(100, 7), few = {1, 2, 3};
  EXPECT_NEAR(compression_ratio(same, 51865), 200.0 / 13.0, 0.01);
  EXPECT_NEAR(compression_ratio(few, 51865), 6.0 / 14.0, 0.01);
}

}  // namespace
}  // namespace penstock
