#include "server/replies/cache/reply_record.h"

#include <cstring>
#include <vector>

namespace penstock {
namespace {

// Format of an event: bit mask of its parts (below), prompt, index, token, then the parts; numbers
// are LEB128.
constexpr uint64_t kToken = 1, kLogprobs = 2, kFinish = 4, kStopToken = 8, kAllParts = 15;

void append(std::string& out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  out += static_cast<char>(number);
}

void append(std::string& out, const TokenLogprob& value) {
  append(out, static_cast<uint64_t>(value.token));
  append(out, static_cast<uint64_t>(value.rank));
  char bytes[sizeof(float)];
  std::memcpy(bytes, &value.logprob, sizeof(float));
  out.append(bytes, sizeof(float));
}

}  // namespace

void ReplyRecorder::add(int prompt, const OwnedEvent& event) {
  const bool failed = event.end != nullptr && event.end->error.has_value();
  const bool ended_early =
      event.finish == FinishReason::kError || event.finish == FinishReason::kAbort;
  if (event.first_position >= 0 || failed || ended_early || bytes_.size() > most_) good_ = false;
  if (!good_) return;
  const bool logprobs = logprobs_ && event.token != kNoToken;
  const uint64_t parts = (event.token != kNoToken ? kToken : 0) | (logprobs ? kLogprobs : 0) |
                         (event.finish != FinishReason::kNone ? kFinish : 0) |
                         (event.stop_token != kNoToken ? kStopToken : 0);
  append(bytes_, parts);
  append(bytes_, static_cast<uint64_t>(prompt));
  append(bytes_, static_cast<uint64_t>(event.index));
  if (event.token != kNoToken) append(bytes_, static_cast<uint64_t>(event.token));
  if (logprobs) {
    append(bytes_, event.alternatives.size());
    append(bytes_, event.logprob);
    for (const TokenLogprob& one : event.alternatives) append(bytes_, one);
  }
  if (event.finish != FinishReason::kNone) append(bytes_, static_cast<uint64_t>(event.finish));
  if (event.stop_token != kNoToken) append(bytes_, static_cast<uint64_t>(event.stop_token));
}

bool ReplyReader::read(uint64_t& number) {
  number = 0;
  for (int shift = 0; shift < 35 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return number <= INT32_MAX;
  }
  return false;
}

bool ReplyReader::read(TokenLogprob& logprob) {
  uint64_t token = 0, rank = 0;
  if (!read(token) || !read(rank) || rest_.size() < sizeof(float)) return false;
  logprob.token = static_cast<TokenId>(token);
  logprob.rank = static_cast<int>(rank);
  std::memcpy(&logprob.logprob, rest_.data(), sizeof(float));
  rest_.remove_prefix(sizeof(float));
  return true;
}

bool ReplyReader::next(int& prompt, OwnedEvent& event) {
  if (rest_.empty() || damaged_) return false;
  damaged_ = true;
  event = {};
  uint64_t parts = 0, number = 0, index = 0;
  if (!read(parts) || parts > kAllParts || !read(number) || !read(index)) return false;
  prompt = static_cast<int>(number);
  event.index = static_cast<int>(index);
  if ((parts & kToken) != 0) {
    if (!read(number)) return false;
    event.token = static_cast<TokenId>(number);
    event.logprob.token = event.token;
  }
  if ((parts & kLogprobs) != 0) {
    if (!read(number) || number > rest_.size() || !read(event.logprob)) return false;
    event.alternatives.resize(number);
    for (TokenLogprob& one : event.alternatives) {
      if (!read(one)) return false;
    }
  }
  if ((parts & kFinish) != 0) {
    if (!read(number) || number == 0 || number > static_cast<uint64_t>(FinishReason::kLength))
      return false;
    event.finish = static_cast<FinishReason>(number);
    event.end = std::make_unique<OwnedEvent::End>();
  }
  if ((parts & kStopToken) != 0) {
    if (!read(number)) return false;
    event.stop_token = static_cast<TokenId>(number);
  }
  damaged_ = false;
  return true;
}

bool is_whole_record(std::string_view bytes, size_t n_prompts, int n) {
  std::vector<char> ended(n_prompts * static_cast<size_t>(n), 0);
  size_t n_open = ended.size();
  ReplyReader reader(bytes);
  OwnedEvent event;
  for (int prompt = 0; reader.next(prompt, event);) {
    if (static_cast<size_t>(prompt) >= n_prompts || event.index >= n) return false;
    char& end = ended[static_cast<size_t>(prompt) * static_cast<size_t>(n) +
                      static_cast<size_t>(event.index)];
    if (end != 0) return false;
    if (event.finish == FinishReason::kNone) continue;
    end = 1;
    --n_open;
  }
  return !reader.damaged() && n_open == 0;
}

}  // namespace penstock
