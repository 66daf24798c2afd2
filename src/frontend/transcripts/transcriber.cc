#include "frontend/transcripts/transcriber.h"

#include <algorithm>
#include <boost/beast/zlib/deflate_stream.hpp>
#include <cmath>

namespace penstock {
namespace {

constexpr int kFramesOfTime = 2;  // frames of a timestamp, and of a row of the encoder

}  // namespace

Transcriber::Transcriber(const WhisperTokens& tokens, TranscriptAsked asked,
                         const HeardSound& sound)
    : tokens_(tokens), asked_(std::move(asked)), sound_(sound), told_(asked_.follows_text) {
  if (asked_.temperatures.empty()) asked_.temperatures = {0.0f};
  before_ = asked_.prompt;
}

int64_t Transcriber::n_frames() const {
  return std::min<int64_t>(sound_.n_frames - seek_, sound_.window);
}

// The language is that which follows <|startoftranscript|> alone.
bool Transcriber::detects_alone() const {
  return tokens_.multilingual() && asked_.language.empty() && !text_before().empty();
}

std::vector<TokenId> Transcriber::text_before() const {
  const std::vector<TokenId>& text = told_ ? before_ : asked_.prompt;
  if (text.empty()) return {};
  const auto most = static_cast<size_t>(std::max(tokens_.max_tokens / 2 - 1, 0));
  std::vector<TokenId> result;
  if (tokens_.previous != kNoToken) result.push_back(tokens_.previous);
  result.insert(result.end(), text.end() - static_cast<ptrdiff_t>(std::min(text.size(), most)),
                text.end());
  return result;
}

Transcriber::Wanted Transcriber::next() {
  Wanted wanted;
  detecting_ = detects_alone();
  std::vector<TokenId> forced;
  if (detecting_) {
    forced = {WhisperRules::kAnyLanguage};
  } else {
    wanted.prompt = text_before();
    if (tokens_.multilingual()) {
      const auto known = tokens_.languages.find(asked_.language);
      forced.push_back(known != tokens_.languages.end() ? known->second
                                                        : WhisperRules::kAnyLanguage);
      forced.push_back(asked_.translate ? tokens_.translate : tokens_.transcribe);
    }
    if (!asked_.timestamps) forced.push_back(tokens_.no_timestamps);
    wanted.temperature = asked_.temperatures[attempt_];
  }
  wanted.prompt.push_back(tokens_.start);
  wanted.max_tokens =
      detecting_ ? 1 : std::max(tokens_.max_tokens - static_cast<int>(wanted.prompt.size()), 1);
  rules_ = wanted.rules =
      std::make_shared<WhisperRules>(tokens_, std::move(forced), asked_.timestamps);
  n_prompt_ = wanted.prompt.size();
  watch_ = nullptr;
  if (asked_.words && !detecting_)
    watch_ = std::make_shared<AttentionWatch>(tokens_.alignment_heads, tokens_.max_tokens,
                                              static_cast<int>(n_frames() / kFramesOfTime));
  wanted.watch = watch_;
  return wanted;
}

std::vector<TranscriptSegment> Transcriber::add(std::span<const TokenId> generated) {
  if (tokens_.multilingual() && asked_.language.empty() && !generated.empty()) {
    for (const auto& [code, id] : tokens_.languages)
      if (id == generated[0]) asked_.language = code;
  }
  if (detecting_) {
    detecting_ = false;
    if (asked_.language.empty()) seek_ = sound_.n_frames;  // nothing was generated
    return {};
  }
  auto text = generated.subspan(std::min(rules_->n_forced(), generated.size()));
  const float temperature = asked_.temperatures[attempt_];
  const double ratio = compression_ratio(text, tokens_.vocab_size);
  const double logprob =
      text.empty() ? 0 : rules_->sum_logprob(text.back()) / static_cast<double>(text.size());
  const bool unlikely = asked_.least_logprob && logprob < *asked_.least_logprob;
  const bool silent = asked_.most_silence && unlikely && rules_->no_speech() > *asked_.most_silence;
  const bool repeats = asked_.most_compression && ratio > *asked_.most_compression;
  if ((unlikely || repeats) && !silent && attempt_ + 1 < asked_.temperatures.size()) {
    ++attempt_;
    return {};
  }
  attempt_ = 0;
  const size_t n_text = text.size();
  told_ = asked_.follows_text && temperature < 0.5f;
  if (!text.empty() && text.back() == tokens_.end) text = text.first(text.size() - 1);
  int64_t advance = n_frames();
  std::vector<TranscriptSegment> segments;
  if (!silent) segments = cut(text, advance);
  if (watch_ != nullptr) add_times(n_text, segments);
  for (TranscriptSegment& segment : segments) {
    segment.seek = seek_, segment.temperature = temperature;
    segment.average_logprob = logprob, segment.compression_ratio = ratio;
    segment.no_speech = rules_->no_speech();
    // The second of two timestamps at a segment's end is the first token of the next segment.
    const auto n = segment.tokens.size();
    const bool twice = n > 2 && segment.tokens[n - 2] >= tokens_.first_timestamp();
    before_.insert(before_.end(), segment.tokens.begin(), segment.tokens.end() - (twice ? 1 : 0));
  }
  // Short pieces could go on for some ten thousand windows.
  if (advance < sound_.window / 2 && ++n_short_ > 32 + 4 * (sound_.n_frames / sound_.window))
    advance = n_frames();
  seek_ += advance > 0 ? advance : n_frames();
  return segments;
}

// Cuts a window's text behind timestamps that stand in pairs. What follows the last pair is heard
// again, with the next window.
std::vector<TranscriptSegment> Transcriber::cut(std::span<const TokenId> text,
                                                int64_t& advance) const {
  constexpr int kFrames = kFramesOfTime;
  const TokenId first = tokens_.first_timestamp();
  const double offset = static_cast<double>(seek_) * sound_.seconds_per_frame,
               step = kFrames * sound_.seconds_per_frame;
  const size_t n = text.size();
  const auto is_time = [&](size_t i) { return text[i] >= first; };
  const auto time = [&](TokenId token) { return offset + step * (token - first); };
  const bool single = n >= 2 && !is_time(n - 2) && is_time(n - 1);
  std::vector<size_t> ends;
  for (size_t i = 0; i + 1 < n; ++i)
    if (is_time(i) && is_time(i + 1)) ends.push_back(i + 1);
  std::vector<TranscriptSegment> segments;
  if (ends.empty()) {
    const auto last =
        std::find_if(text.rbegin(), text.rend(), [&](TokenId token) { return token >= first; });
    const double whole = offset + step * static_cast<double>(n_frames() / kFrames);
    segments.push_back({.start = offset,
                        .end = last != text.rend() && *last != first ? time(*last) : whole,
                        .tokens = {text.begin(), text.end()}});
    return segments;
  }
  if (single) {
    ends.push_back(n);
  } else {
    ++ends.back();  // the last segment has both
  }
  size_t from = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto tokens = text.subspan(from, ends[i] - from);
    const bool both = i + 1 == ends.size() && !single;
    segments.push_back({.start = time(tokens.front()),
                        .end = time(tokens[tokens.size() - (both ? 2 : 1)]),
                        .tokens = {tokens.begin(), tokens.end()}});
    from = ends[i];
  }
  if (!single) advance = int64_t{kFrames} * (text[from - 2] - first);
  return segments;
}

// n_text: tokens that were generated behind the forced ones, <|endoftext|> too. Segments are parts of them, in
// their order.
void Transcriber::add_times(size_t n_text, std::vector<TranscriptSegment>& segments) const {
  const int first = static_cast<int>(n_prompt_ + rules_->n_forced());
  const double offset = static_cast<double>(seek_) * sound_.seconds_per_frame;
  const std::vector<double> ends =
      token_ends(*watch_, first, static_cast<int>(n_text), tokens_.median_width,
                 kFramesOfTime * sound_.seconds_per_frame);
  size_t at = 0;
  for (TranscriptSegment& segment : segments) {
    for (size_t i = 0; i < segment.tokens.size() && at < ends.size(); ++i, ++at)
      segment.times.push_back({offset + (at == 0 ? 0 : ends[at - 1]), offset + ends[at]});
  }
}

double compression_ratio(std::span<const TokenId> tokens, int vocab_size) {
  const int width = static_cast<int>(std::log2(static_cast<double>(vocab_size)) / 8) + 1;
  std::string bytes;
  for (const TokenId token : tokens)
    for (int i = 0; i < width; ++i)
      bytes += static_cast<char>(static_cast<uint32_t>(token) >> (8 * i) & 0xFF);
  namespace zlib = boost::beast::zlib;
  zlib::deflate_stream stream;
  std::string out(stream.upper_bound(bytes.size()) + 16, '\0');
  zlib::z_params params;
  params.next_in = bytes.data(), params.avail_in = bytes.size();
  params.next_out = out.data(), params.avail_out = out.size();
  boost::beast::error_code error;
  stream.write(params, zlib::Flush::finish, error);
  constexpr size_t kFrame = 6;  // header and checksum of zlib's format
  return static_cast<double>(bytes.size()) / static_cast<double>(params.total_out + kFrame);
}

}  // namespace penstock
