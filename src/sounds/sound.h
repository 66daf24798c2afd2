// Sounds of the usual file formats (WAV, FLAC, Ogg with Vorbis or Opus, MP3) as samples of one
// channel at a wanted rate, as librosa loads them: channels are averaged, then resampled by soxr.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

enum class SoundFormat { kWav, kFlac, kOgg, kMp3 };
// Returns "WAV", "FLAC", ...
std::string_view name_of(SoundFormat format);

// What the header of a file says of its sound.
struct SoundInfo {
  SoundFormat format = SoundFormat::kWav;
  int rate = 0;          // samples a second of each channel, 4,000 to 192,000
  int channels = 0;      // at least 1
  int64_t n_frames = 0;  // samples of each channel, at least 1
};

struct SoundLimits {
  size_t max_bytes = size_t{64} << 20;  // of the file
  int max_seconds = 1800;
  int max_channels = 8;
};

// Reads the header; no samples are decoded, but of MP3 and Ogg the frames are walked through to know
// their number. Error: kInvalidArgument (no format of the list, a damaged header, an encoding that is
// not decoded, an empty sound, over a limit).
Result<SoundInfo> read_sound_info(std::span<const std::byte> file, const SoundLimits& limits = {});

// Number of samples that decode_sound() returns: n_frames * rate / info.rate, rounded up.
int64_t n_samples_at(const SoundInfo& info, int rate);

// Decodes a file piece by piece to samples from -1 to 1 of one channel. The samples do not depend on the pieces.
class SoundDecoder {
 public:
  // rate: samples a second, 8,000 to 192,000. REQUIRES: the file outlives the decoder. Errors: those of
  // read_sound_info().
  static Result<SoundDecoder> open(std::span<const std::byte> file, int rate,
                                   const SoundLimits& limits = {});
  SoundDecoder(SoundDecoder&& other) noexcept;
  ~SoundDecoder();

  bool done() const;
  int64_t n_samples() const;  // that there will be
  // Decodes about so many frames more. REQUIRES: not done. Error: kInvalidArgument (fewer frames than
  // the header says, samples that are no numbers), kResourceExhausted.
  Status advance(int64_t n_frames);
  // Returns the samples. REQUIRES: done.
  std::vector<float> take();

 private:
  struct State;
  explicit SoundDecoder(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// Decodes a whole file. Errors: those of SoundDecoder. `goes_on` is asked every 262,144 frames; an error of
// it ends the decoding and is returned.
Result<std::vector<float>> decode_sound(std::span<const std::byte> file, int rate,
                                        const SoundLimits& limits = {},
                                        const std::function<Status()>& goes_on = nullptr);

}  // namespace penstock
