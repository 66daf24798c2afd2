#include "sounds/sound.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "sounds/memory_file.h"
#include "sounds/mp3_file.h"
#include "sounds/ogg_headers.h"
#include "sounds/resampler.h"

namespace penstock {
namespace {

using Bytes = std::span<const std::byte>;

MemoryFile& file_of(void* user) { return *static_cast<MemoryFile*>(user); }

sf_count_t size_of(void* user) { return file_of(user).size(); }
sf_count_t seek_in(sf_count_t offset, int whence, void* user) {
  return file_of(user).seek(offset, whence);
}
sf_count_t read_from(void* to, sf_count_t n, void* user) { return file_of(user).read(to, n); }
sf_count_t write_nothing(const void*, sf_count_t, void*) { return 0; }
sf_count_t tell_in(void* user) { return file_of(user).at; }

struct CloseSound {
  void operator()(SNDFILE* handle) const { sf_close(handle); }
};

bool has(Bytes file, size_t at, std::string_view text) {
  return file.size() >= at + text.size() &&
         std::memcmp(file.data() + at, text.data(), text.size()) == 0;
}

// Whether an MPEG frame of layer III begins here, by its sync word.
bool has_frame(Bytes file, size_t at) {
  const auto byte = [&](size_t i) { return std::to_integer<unsigned>(file[i]); };
  return file.size() >= at + 4 && byte(at) == 0xFF && (byte(at + 1) & 0xE6) == 0xE2;
}

// Returns where an ID3 tag at the front of a file ends; 0: there is none.
size_t end_of_tag(Bytes file) {
  constexpr size_t kHead = 10;
  if (!has(file, 0, "ID3") || file.size() < kHead) return 0;
  size_t size = 0;  // 7 bits of each byte
  for (const std::byte byte : file.subspan(6, 4))
    size = size << 7 | std::to_integer<size_t>(byte & std::byte{0x7F});
  return kHead + size;
}

// libsndfile knows twenty further formats; its readers of these are not reached, also not behind an
// ID3 tag.
std::optional<SoundFormat> format_of(Bytes file) {
  if (has(file, 0, "RIFF") && has(file, 8, "WAVE")) return SoundFormat::kWav;
  if (has(file, 0, "fLaC")) return SoundFormat::kFlac;
  if (has(file, 0, "OggS")) return SoundFormat::kOgg;
  if (has_frame(file, end_of_tag(file))) return SoundFormat::kMp3;
  return {};
}

// Returns what a file is of the formats that people send and that are not decoded, or "".
std::string_view known_stranger(Bytes file) {
  if (has(file, 4, "ftyp")) return "MP4 (m4a)";
  if (has(file, 0, "\x1A\x45\xDF\xA3")) return "Matroska (webm)";
  if (has(file, 0, "FORM")) return "AIFF";
  if (has(file, 0, "caff")) return "CAF";
  if (has(file, 0, "\xFF\xF1") || has(file, 0, "\xFF\xF9")) return "AAC";
  return "";
}

bool is_major(SoundFormat format, int sf_format) {
  const int major = sf_format & SF_FORMAT_TYPEMASK;
  switch (format) {
    case SoundFormat::kWav: return major == SF_FORMAT_WAV || major == SF_FORMAT_WAVEX;
    case SoundFormat::kFlac: return major == SF_FORMAT_FLAC;
    case SoundFormat::kOgg: return major == SF_FORMAT_OGG;
    case SoundFormat::kMp3: break;
  }
  return false;
}

// An open file; it stays where it is, libsndfile has its address.
struct OpenSound {
  MemoryFile file;
  std::unique_ptr<SNDFILE, CloseSound> handle;
  std::unique_ptr<Mp3File> mp3;  // in place of handle
  SoundInfo info;

  // Returns the number of frames read, at most n; 0: the end, or damage.
  int64_t read(float* out, int64_t n) {
    return mp3 != nullptr ? mp3->read(out, n) : sf_readf_float(handle.get(), out, n);
  }
};

constexpr int64_t kUnknownLength = SF_COUNT_MAX;

Status check_info(const SoundInfo& info, const SoundLimits& limits) {
  constexpr int kLeastRate = 4000, kMostRate = 192'000;
  if (info.n_frames < 1 || info.channels < 1)
    return make_error(ErrorCode::kInvalidArgument, "sound: it has no samples");
  if (info.n_frames == kUnknownLength) {
    return make_error(ErrorCode::kInvalidArgument,
                      "sound: its header does not say how long it is, or its end is missing");
  }
  if (info.rate < kLeastRate || info.rate > kMostRate) {
    return errorf(ErrorCode::kInvalidArgument,
                  "sound: expected from {} to {} samples a second, got {}", kLeastRate, kMostRate,
                  info.rate);
  }
  if (info.channels > limits.max_channels) {
    return errorf(ErrorCode::kInvalidArgument, "sound: expected at most {} channels, got {}",
                  limits.max_channels, info.channels);
  }
  if (info.n_frames > int64_t{limits.max_seconds} * info.rate) {
    return errorf(ErrorCode::kInvalidArgument,
                  "sound: expected at most {} seconds, got {} samples at {} a second",
                  limits.max_seconds, info.n_frames, info.rate);
  }
  return {};
}

Result<std::unique_ptr<OpenSound>> open_sound(Bytes bytes, const SoundLimits& limits) {
  if (bytes.size() > limits.max_bytes) {
    return errorf(ErrorCode::kInvalidArgument, "sound: expected a file of at most {} bytes, got {}",
                  limits.max_bytes, bytes.size());
  }
  const auto format = format_of(bytes);
  if (!format) {
    const std::string_view stranger = known_stranger(bytes);
    return errorf(ErrorCode::kInvalidArgument,
                  "sound: expected a WAV, FLAC, Ogg or MP3 file, got {}",
                  !stranger.empty() ? stranger
                  : bytes.empty()   ? "nothing"
                                    : "something else");
  }
  auto sound = std::make_unique<OpenSound>();
  const auto damaged = [&] {
    return errorf(ErrorCode::kInvalidArgument,
                  "sound: a damaged {} file, or one of an encoding that is not decoded",
                  name_of(*format));
  };
  if (format == SoundFormat::kMp3) {
    sound->mp3 = Mp3File::open(bytes);
    if (sound->mp3 == nullptr) return damaged();
    sound->info = {*format, sound->mp3->rate(), sound->mp3->channels(),
                   sound->mp3->n_frames().value_or(kUnknownLength)};
    RETURN_IF_ERROR(check_info(sound->info, limits));
    return sound;
  }
  sound->file.bytes = bytes;
  SF_VIRTUAL_IO io{size_of, seek_in, read_from, write_nothing, tell_in};
  SF_INFO info{};
  if (format != SoundFormat::kOgg || has_ogg_headers(bytes))
    sound->handle.reset(sf_open_virtual(&io, SFM_READ, &info, &sound->file));
  // libsndfile's reason is in a variable of all threads
  if (sound->handle == nullptr) return damaged();
  if (!is_major(*format, info.format)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "sound: a file that begins as {} and goes on as another", name_of(*format));
  }
  sound->info = {*format, info.samplerate, info.channels, info.frames};
  RETURN_IF_ERROR(check_info(sound->info, limits));
  return sound;
}

}  // namespace

std::string_view name_of(SoundFormat format) {
  switch (format) {
    case SoundFormat::kWav: return "WAV";
    case SoundFormat::kFlac: return "FLAC";
    case SoundFormat::kOgg: return "Ogg";
    case SoundFormat::kMp3: return "MP3";
  }
  return "";
}

Result<SoundInfo> read_sound_info(Bytes file, const SoundLimits& limits) {
  ASSIGN_OR_RETURN(const auto sound, open_sound(file, limits));
  return sound->info;
}

int64_t n_samples_at(const SoundInfo& info, int rate) {
  return (info.n_frames * rate + info.rate - 1) / info.rate;
}

struct SoundDecoder::State {
  std::unique_ptr<OpenSound> sound;
  Resampler resampler;
  int rate = 0;
  int64_t n_done = 0;  // frames
  std::vector<float> frames, mono, samples;

  // Reads the next frames, at most as many as `mono` has room for.
  Status read() {
    const SoundInfo& info = sound->info;
    const auto most = static_cast<int64_t>(mono.size()), left = info.n_frames - n_done;
    const int64_t n = sound->read(frames.data(), std::min(most, left));
    if (n <= 0) {
      return errorf(ErrorCode::kInvalidArgument,
                    "sound: damaged {} file: expected {} samples as its header says, got {}",
                    name_of(info.format), info.n_frames, n_done);
    }
    const auto channels = static_cast<size_t>(info.channels);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      float sum = 0;
      for (size_t c = 0; c < channels; ++c) sum += frames[i * channels + c];
      mono[i] = sum / static_cast<float>(channels);
      if (!std::isfinite(mono[i]))
        return errorf(ErrorCode::kInvalidArgument, "sound: sample {} is no number",
                      n_done + static_cast<int64_t>(i));
    }
    RETURN_IF_ERROR(resampler.add(std::span(mono).first(static_cast<size_t>(n)), samples));
    n_done += n;
    if (n_done < info.n_frames) return {};
    RETURN_IF_ERROR(resampler.finish(samples));
    samples.resize(static_cast<size_t>(n_samples_at(info, rate)));
    return {};
  }
};

SoundDecoder::SoundDecoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
SoundDecoder::SoundDecoder(SoundDecoder&& other) noexcept = default;
SoundDecoder::~SoundDecoder() = default;

Result<SoundDecoder> SoundDecoder::open(Bytes file, int rate, const SoundLimits& limits) {
  constexpr size_t kPiece = 4096;
  ASSIGN_OR_RETURN(auto sound, open_sound(file, limits));
  const SoundInfo& info = sound->info;
  ASSIGN_OR_RETURN(Resampler resampler, Resampler::open(info.rate, rate));
  std::vector<float> frames(kPiece * static_cast<size_t>(info.channels)), samples;
  samples.reserve(static_cast<size_t>(n_samples_at(info, rate)) + kPiece);
  std::unique_ptr<State> state(new State{std::move(sound), std::move(resampler), rate, 0,
                                         std::move(frames), std::vector<float>(kPiece),
                                         std::move(samples)});
  return SoundDecoder(std::move(state));
}

bool SoundDecoder::done() const { return state_->n_done == state_->sound->info.n_frames; }

int64_t SoundDecoder::n_samples() const { return n_samples_at(state_->sound->info, state_->rate); }

Status SoundDecoder::advance(int64_t n_frames) {
  for (const int64_t end = state_->n_done + n_frames; !done() && state_->n_done < end;)
    RETURN_IF_ERROR(state_->read());
  return {};
}

std::vector<float> SoundDecoder::take() { return std::move(state_->samples); }

Result<std::vector<float>> decode_sound(Bytes file, int rate, const SoundLimits& limits,
                                        const std::function<Status()>& goes_on) {
  constexpr int64_t kAsked = 262'144;
  ASSIGN_OR_RETURN(SoundDecoder decoder, SoundDecoder::open(file, rate, limits));
  while (!decoder.done()) {
    RETURN_IF_ERROR(decoder.advance(kAsked));
    if (goes_on != nullptr && !decoder.done()) RETURN_IF_ERROR(goes_on());
  }
  return decoder.take();
}

}  // namespace penstock
