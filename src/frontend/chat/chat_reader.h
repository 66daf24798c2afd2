// One reply of a chat taken apart while it arrives: reasoning, text, tool calls. The whole reply and the stream of it
// come from the same object, so they agree.
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
  std::string text;    // of reasoning and text
  ToolCall call = {};  // of a call, with an id of its own
};

class ChatReader {
 public:
  // call_prefix: of the ids of tool calls. The task's parser names are known to be good.
  ChatReader(const ChatTask& task, std::string call_prefix);

  // What a piece of the reply adds; nothing after complete(). n_tokens: how many it was made of, which may be none or
  // several. finish: with the last piece.
  std::vector<ReplySegment> add(std::string_view text, int n_tokens, FinishReason finish);
  // The only call that the reply may have has come: generating can end.
  bool complete() const { return complete_; }

  // Everything so far; neighbours of one kind (but calls) are joined.
  const std::vector<ReplySegment>& segments() const { return segments_; }
  std::string text_of(ReplySegment::Kind kind) const;
  // The same as one message of the assistant.
  ChatMessage message() const;
  int n_calls() const { return n_calls_; }
  int n_reasoning_tokens() const { return n_reasoning_tokens_; }
  FinishReason finish() const { return finish_; }

 private:
  std::vector<ReplySegment> read(std::string_view text);
  void append(const ReplySegment& segment);

  std::unique_ptr<ReplyParser> parser_;
  std::string call_prefix_;
  bool short_ids_, one_call_, complete_ = false, answered_ = false;
  std::vector<ReplySegment> segments_;
  int n_calls_ = 0, n_reasoning_tokens_ = 0, n_tokens_ = 0;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace penstock
