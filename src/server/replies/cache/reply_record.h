// Serialized replies: the engine's events of a reply, which produce the same reply when they are
// replayed.
//
// Everything above the engine (text, stop strings, reasoning, calls, the format of an API) is
// computed again from the events, so one record serves streams and whole replies of every route.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "frontend/session.h"

namespace penstock {

// Collects a record. Not thread-safe.
class ReplyRecorder {
 public:
  // logprobs: record the log-probabilities of tokens too. most: maximum bytes of the record.
  ReplyRecorder(bool logprobs, size_t most) : logprobs_(logprobs), most_(most) {}
  // prompt: index of the prompt in the call. Events that belong to no sequence (log-probabilities
  // of prompts) cannot be recorded: good() is false then.
  void add(int prompt, const OwnedEvent& event);
  // Whether the record can be replayed: every event was recorded, and none was an error.
  bool good() const { return good_; }
  std::string take() { return std::move(bytes_); }

 private:
  bool logprobs_;
  size_t most_;
  std::string bytes_;
  bool good_ = true;
};

// Reads the events of a record.
class ReplyReader {
 public:
  explicit ReplyReader(std::string_view bytes) : rest_(bytes) {}
  // Reads the next event. Returns false at the end and for malformed bytes, when damaged() is true.
  bool next(int& prompt, OwnedEvent& event);
  bool damaged() const { return damaged_; }

 private:
  bool read(uint64_t& number);
  bool read(TokenLogprob& logprob);

  std::string_view rest_;
  bool damaged_ = false;
};

// Whether the bytes are a record of n_prompts prompts with n sequences each that are all finished.
bool is_whole_record(std::string_view bytes, size_t n_prompts, int n);

}  // namespace penstock
