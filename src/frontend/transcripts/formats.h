// Transcripts as people read them: text, subtitles.
#pragma once
#include <span>
#include <string>

#include "base/result.h"

namespace penstock {

struct SpokenText {
  double start = 0, end = 0;  // seconds
  std::string text;
};

// Returns all texts, without the spaces around the whole.
std::string plain_transcript(std::span<const SpokenText> segments);
std::string srt_of(std::span<const SpokenText> segments);     // SubRip
std::string webvtt_of(std::span<const SpokenText> segments);  // WebVTT

}  // namespace penstock
