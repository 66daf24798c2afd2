// Decoding and resampling compared with librosa's way of loading (tools/make_sound_vectors.py), and
// files that are damaged or too long.
#include "sounds/sound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <random>

#include "golden_sound.h"
#include "sounds/resampler.h"

namespace penstock {
namespace {

using testing::HasSubstr;

const std::string kTag("ID3\x03\0\0\0\0\0\0", 10);  // of no bytes

TEST(SoundTest, DecodesAsLibrosa) {
  const auto cases = golden_sound_json("decode.json");
  EXPECT_GT(cases.size(), 10u);
  for (const auto& [name, expected] : cases.items()) {
    SCOPED_TRACE(name);
    const std::string file = golden_sound("files/" + name);
    const auto info = read_sound_info(sound_bytes(file));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->rate, expected["rate"]);
    EXPECT_EQ(info->channels, expected["channels"]);
    EXPECT_EQ(info->n_frames, expected["frames"]);
    EXPECT_EQ(n_samples_at(*info, 16000), expected["samples"]);
    const auto samples = decode_sound(sound_bytes(file), 16000);
    ASSERT_TRUE(samples) << samples.error().message;
    ASSERT_EQ(samples->size(), expected["samples"].get<size_t>());
    const auto wanted = golden_numbers<float>("decode/" + name + ".f32");
    ASSERT_EQ(wanted.size(), (samples->size() + 2) / 3);
    float worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i)
      worst = std::max(worst, std::abs((*samples)[3 * i] - wanted[i]));
    EXPECT_LT(worst, 1e-5f);
  }
}

TEST(SoundTest, PiecesChangeNoSample) {
  for (const char* const name : {"mp3_44k_stereo.mp3", "float_48k_stereo.wav", "flac24_96k.flac"}) {
    const std::string file = golden_sound(std::string("files/") + name);
    SoundDecoder decoder = SoundDecoder::open(sound_bytes(file), 16000).value();
    int n_pieces = 0;
    for (; !decoder.done(); ++n_pieces) ASSERT_TRUE(decoder.advance(1));
    EXPECT_GT(n_pieces, 1) << name;
    EXPECT_EQ(decoder.take(), decode_sound(sound_bytes(file), 16000).value()) << name;
  }
}

// Every golden file, cut at many lengths: an error, or as many samples as its header says then.
TEST(SoundTest, CutFiles) {
  const auto cases = golden_sound_json("decode.json");
  for (const auto& [name, expected] : cases.items()) {
    const std::string file = golden_sound("files/" + name);
    for (size_t n = 0; n < file.size(); n += 1 + file.size() / 24) {
      const auto cut = sound_bytes(file).first(n);
      const auto info = read_sound_info(cut);
      const auto samples = decode_sound(cut, 16000);
      if (samples) {
        ASSERT_TRUE(info);
        EXPECT_EQ(static_cast<int64_t>(samples->size()), n_samples_at(*info, 16000));
        EXPECT_LE(info->n_frames, expected["frames"]) << name << " at " << n;
      } else {
        EXPECT_EQ(samples.error().code, ErrorCode::kInvalidArgument)
            << name << " at " << n << ": " << samples.error().message;
      }
    }
  }
}

// Changed bytes give a sound or an error, and no more samples than the limits allow.
TEST(SoundTest, DamagedFiles) {
  std::mt19937 random(7);
  const SoundLimits limits{.max_seconds = 2};
  const auto cases = golden_sound_json("decode.json");
  for (const auto& [name, expected] : cases.items()) {
    const std::string file = golden_sound("files/" + name);
    for (int round = 0; round < 24; ++round) {
      std::string damaged = file;
      const size_t reach = round % 2 == 0 ? std::min<size_t>(file.size(), 128) : file.size();
      for (int i = 0; i < 1 + round % 5; ++i)
        damaged[random() % reach] = static_cast<char>(random());
      const auto samples = decode_sound(sound_bytes(damaged), 16000, limits);
      if (samples) {
        EXPECT_LE(samples->size(), 2u * 16000 + 1) << name;
      }
    }
  }
}

// libsndfile does not free the headers of Vorbis that it refuses, so such files do not reach it.
TEST(SoundTest, DamagedOggFilesTakeNoMemory) {
  const std::string file = golden_sound("files/vorbis_24k.ogg");
  std::string junk = file;
  junk[22] = static_cast<char>(junk[22] + 1);  // the checksum of its first page
  std::vector<std::string> damaged = {junk + file.substr(0, 3400), kTag + file.substr(0, 3400)};
  for (size_t n = 1; n < 3400; n += 17) damaged.push_back(file.substr(0, n));
  const auto open_all = [&] {
    for (const std::string& one : damaged) EXPECT_FALSE(read_sound_info(sound_bytes(one)));
  };
  open_all();
  const size_t before = mallinfo2().uordblks;
  for (int round = 0; round < 5; ++round) open_all();
  EXPECT_LT(mallinfo2().uordblks, before + (64 << 10));
}

// A client that sends such files would fill the server's log.
TEST(SoundTest, DamagedFilesWriteNoNotes) {
  std::mt19937 random(3);
  ::testing::internal::CaptureStderr();
  int n_bad = 0;
  const auto cases = golden_sound_json("decode.json");
  for (const auto& [name, expected] : cases.items()) {
    const std::string file = golden_sound("files/" + name);
    for (int round = 0; round < 30; ++round) {
      std::string damaged = file;
      for (int i = 0; i < 20; ++i)
        damaged[200 + random() % (damaged.size() - 200)] = static_cast<char>(random());
      n_bad += !decode_sound(sound_bytes(damaged), 16000);
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_GT(n_bad, 20);
}

TEST(SoundTest, Mp3FilesMayHaveATag) {
  std::string tagged = kTag;
  tagged[8] = 1, tagged[9] = 5;  // of 133 bytes
  tagged += std::string(133, '\0');
  const auto info = read_sound_info(sound_bytes(tagged + golden_sound("files/mp3_16k.mp3")));
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->format, SoundFormat::kMp3);
}

TEST(SoundTest, OtherFormatsBehindATagAreRefused) {
  for (const char* name : {"vorbis_24k.ogg", "small.flac", "ulaw_8k.wav"}) {
    const std::string file = kTag + golden_sound(fmt::format("files/{}", name));
    const auto info = read_sound_info(sound_bytes(file));
    ASSERT_FALSE(info) << name;
    EXPECT_THAT(info.error().message, HasSubstr("expected a WAV, FLAC, Ogg or MP3 file"));
  }
}

void put_le32(std::string& file, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) file[at + i] = static_cast<char>(value >> (8 * i));
}

TEST(SoundTest, LimitsAreThoseOfTheHeader) {
  const std::string flac = golden_sound("files/flac16_22k_stereo.flac");
  std::string long_one = flac;  // 2^36 - 1 samples in STREAMINFO
  long_one[21] = static_cast<char>(long_one[21] | 0x0F);
  for (size_t i = 22; i < 26; ++i) long_one[i] = '\xFF';
  const auto error = [](const std::string& file, const SoundLimits& limits) {
    const auto samples = decode_sound(sound_bytes(file), 16000, limits);
    return samples ? Error{ErrorCode::kInternal, "it was decoded"} : samples.error();
  };
  EXPECT_EQ(error(long_one, {}).code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error(long_one, {}).message, HasSubstr("expected at most 1800 seconds"));
  EXPECT_EQ(error(flac, {.max_bytes = 100}).code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error(flac, {.max_channels = 1}).message, HasSubstr("at most 1 channels, got 2"));
  std::string slow = golden_sound("files/pcm16_16k.wav");
  put_le32(slow, 24, 1);
  EXPECT_THAT(error(slow, {}).message, HasSubstr("from 4000 to 192000 samples a second, got 1"));
  std::string claims = flac;  // more than there are
  claims[25] = '\xFF';
  EXPECT_THAT(error(claims, {}).message, HasSubstr("as its header says"));
}

TEST(SoundTest, OtherFilesAreRefusedByName) {
  const auto message = [](std::string file) {
    file.resize(64);
    const auto info = read_sound_info(sound_bytes(file));
    return info ? std::string("it was read") : info.error().message;
  };
  EXPECT_THAT(message(std::string("\0\0\0\x20", 4) + "ftypM4A "), HasSubstr("got MP4 (m4a)"));
  EXPECT_THAT(message("\x1A\x45\xDF\xA3"), HasSubstr("got Matroska (webm)"));
  EXPECT_THAT(message("FORM"), HasSubstr("got AIFF"));
  EXPECT_THAT(message("\xFF\xF1"), HasSubstr("got AAC"));
  EXPECT_THAT(message("hello"), HasSubstr("expected a WAV, FLAC, Ogg or MP3 file"));
  EXPECT_THAT(read_sound_info({}).error().message, HasSubstr("got nothing"));
}

TEST(SoundTest, NumbersThatAreNone) {
  std::string file = golden_sound("files/float_48k_stereo.wav");
  const size_t data = file.find("data") + 8;
  put_le32(file, data + 80, 0x7FC00000);
  const auto samples = decode_sound(sound_bytes(file), 16000);
  ASSERT_FALSE(samples);
  EXPECT_THAT(samples.error().message, HasSubstr("sample 10 is no number"));
}

// A sound in pieces is resampled as a whole one, and a tone stays where it is.
TEST(ResamplerTest, KeepsTones) {
  std::vector<float> tone(44100);
  for (size_t i = 0; i < tone.size(); ++i)
    tone[i] = static_cast<float>(std::sin(2 * M_PI * 440 * static_cast<double>(i) / 44100));
  auto resampler = Resampler::open(44100, 16000).value(),
       other = Resampler::open(44100, 16000).value();
  std::vector<float> whole, pieces;
  ASSERT_TRUE(resampler.add(tone, whole));
  ASSERT_TRUE(resampler.finish(whole));
  for (size_t at = 0; at < tone.size(); at += 997)
    ASSERT_TRUE(
        other.add(std::span(tone).subspan(at, std::min<size_t>(997, tone.size() - at)), pieces));
  ASSERT_TRUE(other.finish(pieces));
  EXPECT_EQ(whole, pieces);
  ASSERT_EQ(whole.size(), 16000u);
  for (size_t i = 200; i < 15800; ++i)
    ASSERT_NEAR(whole[i], std::sin(2 * M_PI * 440 * static_cast<double>(i) / 16000), 1e-4) << i;
}

}  // namespace
}  // namespace penstock
