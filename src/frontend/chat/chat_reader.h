// Splits a reply of a chat into reasoning, text and tool calls while it arrives. The whole reply
// and its stream come from the same object, so they agree.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/chat/chat_setup.h"
#include "frontend/chat/reply_parser.h"

namespace penstock {

struct ReplySegment {
  enum class Kind { kReasoning, kText, kCall };
  Kind kind;
  std::string text;  // kReasoning, kText: the text
  // kCall: name and id with the first piece, and what the piece adds to the arguments
  ToolCall call = {};
  // kCall: number of the reply's calls before it
  int n_call = 0;
  // kCall: whether this is the first piece of the call, and the last one
  bool begins = true, ends = true;
};

class ChatReader {
 public:
  // call_prefix: prefix of the ids of tool calls. REQUIRES: the task's parser names are valid.
  ChatReader(const ChatTask& task, std::string call_prefix);

  // Returns the segments that a piece of the reply adds; none after complete(). n_tokens: number of
  // tokens in the piece, 0 included. finish: the reason of the end for the last piece, kNone for
  // the others.
  std::vector<ReplySegment> add(std::string_view text, int n_tokens, FinishReason finish);
  // Whether the only call that the reply may have is complete, so that generation can stop.
  bool complete() const { return complete_; }

  // All segments so far. Neighbours of the same kind are joined, and so are the pieces of a call.
  const std::vector<ReplySegment>& segments() const { return segments_; }
  std::string text_of(ReplySegment::Kind kind) const;
  // Returns all segments as one message of the assistant.
  ChatMessage message() const;
  // Number of calls that have begun.
  int n_calls() const { return n_calls_; }
  // Returns call n with the arguments that have come so far. REQUIRES: 0 <= n < n_calls().
  const ToolCall& call(int n) const;
  int n_reasoning_tokens() const { return n_reasoning_tokens_; }
  FinishReason finish() const { return finish_; }

 private:
  std::vector<ReplySegment> read(std::string_view text);
  ReplySegment call_segment(ToolCall call, bool begins, bool ends);
  void append(const ReplySegment& segment);

  std::unique_ptr<ReplyParser> parser_;
  std::string call_prefix_;
  bool short_ids_, one_call_, complete_ = false, answered_ = false;
  std::vector<ReplySegment> segments_;
  int n_calls_ = 0, n_reasoning_tokens_ = 0, n_tokens_ = 0;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace penstock
