// A whole reply taken apart at once.
#pragma once
#include <string_view>

#include "frontend/chat/reply_parser.h"

namespace penstock {

inline ReplyPart parse_reply(ReplyParser& parser, std::string_view text) {
  ReplyPart out = parser.push(text);
  out.append(parser.finish());
  return out;
}

}  // namespace penstock
