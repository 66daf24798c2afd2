#include "frontend/text_stream.h"
#include "support/test_data.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

std::string decode_whole(std::string_view bytes) {
  Utf8Decoder decoder;
  std::string text;
  decoder.push(bytes, text);
  decoder.finish(text);
  return text;
}

// Python's answers; tests/frontend/make_utf8_golden.py writes the file.
TEST(Utf8Decoder, ReplacesAsPython) {
  std::ifstream file(tests_dir().string() + "/golden/utf8_replace.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_GT(golden.size(), 300u);
  for (const auto& row : golden) {
    const std::string bytes = from_hex(row[0]);
    EXPECT_EQ(decode_whole(bytes), row[1].get<std::string>()) << row[0];
    Utf8Decoder decoder;  // byte by byte
    std::string text;
    for (const char c : bytes) decoder.push(std::string_view(&c, 1), text);
    decoder.finish(text);
    EXPECT_EQ(text, row[1].get<std::string>()) << row[0];
  }
}

struct Outcome {
  std::string text;
  std::optional<size_t> stop;
};

// The definition, on the whole text: the first end at which a stop string is complete, the longest
// one there. quiet: bytes of the text in which nothing may stop.
Outcome naive(const std::string& text, const TextStreamOptions& options, size_t quiet = 0) {
  for (size_t end = quiet + 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < options.stop.size(); ++i) {
      const std::string& stop = options.stop[i];
      if (stop.empty() || !std::string_view(text).substr(0, end).ends_with(stop)) continue;
      if (!best || stop.size() > options.stop[*best].size()) best = i;
    }
    if (best)
      return {text.substr(0, options.include_stop ? end : end - options.stop[*best].size()), best};
  }
  return {text, std::nullopt};
}

// How much of the end of the text may still become a stop string.
size_t naive_held(const std::string& text, const TextStreamOptions& options) {
  size_t held = 0;
  for (const std::string& stop : options.stop) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) held = std::max(held, n);
    }
  }
  return held;
}

TEST(TextStream, HoldsBackOnlyWhatMayBecomeAStop) {
  TextStream stream({{"</s>", "STOP"}, false});
  EXPECT_EQ(stream.push("a <"), "a ");
  EXPECT_EQ(stream.push("b>"), "<b>");
  EXPECT_EQ(stream.push("x</"), "x");
  EXPECT_EQ(stream.push("S"), "</");  // "</S" is dead, "S" is alive
  EXPECT_EQ(stream.push("TO"), "");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push("Pmore"), "");
  EXPECT_EQ(stream.stop_index(), std::optional<size_t>(1));
  EXPECT_EQ(stream.push("ignored"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, FlushesAtTheEnd) {
  TextStream stream({{"abc"}, false});
  EXPECT_EQ(stream.push("xab"), "x");
  EXPECT_EQ(stream.push("\xf0\x9f"), "");
  EXPECT_EQ(stream.finish(), "ab\xef\xbf\xbd");
  TextStream plain(TextStreamOptions{});
  EXPECT_EQ(plain.push("ab\xe2\x82"), "ab");
  EXPECT_EQ(plain.push("\xac"), "€");
}

TEST(TextStream, StopStringsOverlap) {
  TextStream first_complete({{"abcd", "bc"}, false});
  EXPECT_EQ(first_complete.push("xabcd"), "xa");
  EXPECT_EQ(first_complete.stop_index(), std::optional<size_t>(1));
  TextStream longest({{"c", "bc"}, false});
  EXPECT_EQ(longest.push("abc"), "a");
  EXPECT_EQ(longest.stop_index(), std::optional<size_t>(1));
  TextStream included({{"bc"}, true});
  EXPECT_EQ(included.push("ab"), "a");
  EXPECT_EQ(included.push("cd"), "bc");
  TextStream restarts({{"aab"}, false});
  EXPECT_EQ(restarts.push("aaa"), "a");
  EXPECT_EQ(restarts.push("b"), "");
  EXPECT_TRUE(restarts.stopped());
  TextStream none({{"", "x"}, false});
  EXPECT_EQ(none.push("ab"), "ab");
  EXPECT_FALSE(none.stopped());
}

// As many and as long as a request may have; copies look for the same.
TEST(TextStream, ManyStopStrings) {
  std::vector<std::string> stops;
  for (int i = 0; i < 1024; ++i) stops.push_back("stop " + std::to_string(100'000 + i));
  const TextStream first({stops, false});
  for (const int i : {0, 500, 1023}) {
    TextStream stream = first;
    EXPECT_EQ(stream.push("a stop 99 b stop 10"), "a stop 99 b ");
    EXPECT_EQ(stream.push(stops[static_cast<size_t>(i)].substr(7) + "!"), "");
    EXPECT_EQ(stream.stop_index(), static_cast<size_t>(i));
  }
  stops.clear();
  for (int c = 1; c < 256; ++c) stops.push_back("x" + std::string(1, static_cast<char>(c)));
  TextStream stream({stops, true});
  EXPECT_EQ(stream.push("yx"), "y");
  EXPECT_EQ(stream.push("~"), "x~");
}

TEST(TextStream, NothingStopsBeforeMinTokens) {
  TextStream stream({{"ab"}, false});
  EXPECT_EQ(stream.push("ab", false), "ab");
  EXPECT_EQ(stream.push("xa", false), "x");
  EXPECT_EQ(stream.push("b", true), "");
  EXPECT_TRUE(stream.stopped());
}

// Few letters, so that stop strings really meet; some of them several bytes, some broken.
rc::Gen<std::string> fragments(size_t most) {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
          "a", "b", "c", "é", "👋", "\xef\xbf\xbd", "\xf0\x9f", "\x91\x8b", "\xff", "\xe2")),
      [most](std::vector<std::string> parts) {
        if (parts.size() > most) parts.resize(most);
        std::string out;
        for (const auto& part : parts) out += part;
        return out;
      });
}

std::vector<std::string> random_pieces(const std::string& bytes) {
  std::vector<std::string> pieces;
  for (size_t i = 0; i < bytes.size();) {
    if (*rc::gen::arbitrary<bool>()) pieces.emplace_back();
    const size_t n = *rc::gen::inRange<size_t>(1, 6);
    pieces.push_back(bytes.substr(i, n));
    i += n;
  }
  return pieces;
}

TextStreamOptions random_options() {
  TextStreamOptions options;
  const auto stops = *rc::gen::container<std::vector<std::string>>(fragments(4));
  for (size_t i = 0; i < stops.size() && i < 4; ++i) options.stop.push_back(decode_whole(stops[i]));
  options.include_stop = *rc::gen::arbitrary<bool>();
  return options;
}

TEST(TextStream, SameTextForEveryChunking) {
  EXPECT_TRUE(rc::check("equal to the definition on the whole text", [] {
    const std::string bytes = *fragments(40);
    const TextStreamOptions options = random_options();
    const Outcome expected = naive(decode_whole(bytes), options);
    TextStream stream(options);
    std::string text;
    for (const auto& piece : random_pieces(bytes)) text += stream.push(piece);
    text += stream.finish();
    RC_ASSERT(text == expected.text);
    RC_ASSERT(stream.stopped() == expected.stop.has_value());
    if (expected.stop)
      RC_ASSERT(options.stop[*stream.stop_index()] == options.stop[*expected.stop]);
  }));
}

TEST(TextStream, GivesOutAllItCan) {
  EXPECT_TRUE(rc::check("holds back the shortest possible end", [] {
    const std::string bytes = *fragments(40);
    const TextStreamOptions options = random_options();
    TextStream stream(options);
    Utf8Decoder decoder;
    std::string out, text;
    for (const auto& piece : random_pieces(bytes)) {
      out += stream.push(piece);
      decoder.push(piece, text);
      if (stream.stopped()) break;
      RC_ASSERT(out == text.substr(0, text.size() - naive_held(text, options)));
    }
  }));
}

TEST(TextStream, MinTokensForEveryChunking) {
  EXPECT_TRUE(rc::check("a quiet start", [] {
    const std::string quiet = decode_whole(*fragments(10)), loud = decode_whole(*fragments(20));
    const TextStreamOptions options = random_options();
    const Outcome expected = naive(quiet + loud, options, quiet.size());
    TextStream stream(options);
    std::string text;
    for (const auto& piece : random_pieces(quiet)) text += stream.push(piece, false);
    for (const auto& piece : random_pieces(loud)) text += stream.push(piece);
    text += stream.finish();
    RC_ASSERT(text == expected.text);
  }));
}

}  // namespace
}  // namespace penstock
