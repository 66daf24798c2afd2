#include "frontend/transcripts/formats.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \n\r\t";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kSpaces) + 1 - first));
}

// hours:minutes:seconds and milliseconds
std::string time_of(double seconds, char point) {
  const int64_t ms = std::llround(std::max(seconds, 0.0) * 1000);
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60,
                     point, ms % 1000);
}

// An arrow would end the times of a cue, and an empty line the cue.
std::string cue_text(std::string_view text) {
  std::string result = trimmed(text);
  for (size_t at = 0; (at = result.find("-->", at)) != std::string::npos; at += 2)
    result.replace(at, 3, "->");
  for (size_t at = 0; (at = result.find("\n\n", at)) != std::string::npos;) result.erase(at, 1);
  return result;
}

}  // namespace

std::string plain_transcript(std::span<const SpokenText> segments) {
  std::string text;
  for (const SpokenText& segment : segments) text += segment.text;
  return trimmed(text);
}

std::string srt_of(std::span<const SpokenText> segments) {
  std::string out;
  int number = 0;
  for (const SpokenText& one : segments)
    out += fmt::format("{}\n{} --> {}\n{}\n\n", ++number, time_of(one.start, ','),
                       time_of(one.end, ','), cue_text(one.text));
  return out;
}

std::string webvtt_of(std::span<const SpokenText> segments) {
  std::string out = "WEBVTT\n\n";
  for (const SpokenText& one : segments)
    out += fmt::format("{} --> {}\n{}\n\n", time_of(one.start, '.'), time_of(one.end, '.'),
                       cue_text(one.text));
  return out;
}

}  // namespace penstock
