// A reply as bytes: the events that an engine told of it, which make the same reply when they are told again.
//
// Everything above the engine (text, stop strings, reasoning and calls, the form of an API) is made anew from them, so one
// record serves streams and whole replies of every route.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "frontend/session.h"

namespace penstock {

// Gathers a record. One thread.
class ReplyRecorder {
 public:
  // logprobs: with the log-probabilities of tokens. most: bytes that a record may have.
  ReplyRecorder(bool logprobs, size_t most) : logprobs_(logprobs), most_(most) {}
  // prompt: its index in the call. Events that are none of a sequence (log-probabilities of prompts) make it useless.
  void add(int prompt, const OwnedEvent& event);
  // Whether the record is of use: every event could be kept, and none was an error.
  bool good() const { return good_; }
  std::string take() { return std::move(bytes_); }

 private:
  bool logprobs_;
  size_t most_;
  std::string bytes_;
  bool good_ = true;
};

// Reads one.
class ReplyReader {
 public:
  explicit ReplyReader(std::string_view bytes) : rest_(bytes) {}
  // False at the end, and where the bytes are none of a record: then damaged() says so.
  bool next(int& prompt, OwnedEvent& event);
  bool damaged() const { return damaged_; }

 private:
  bool read(uint64_t& number);
  bool read(TokenLogprob& logprob);

  std::string_view rest_;
  bool damaged_ = false;
};

// Whether the bytes are a record of so many prompts with n sequences each, and every sequence has its end.
bool is_whole_record(std::string_view bytes, size_t n_prompts, int n);

}  // namespace penstock
