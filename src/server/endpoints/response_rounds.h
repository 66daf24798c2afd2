// Responses whose model may call MCP tools: generates, runs the calls, and continues with their
// results.
#pragma once
#include "server/endpoints/response_shape.h"

namespace penstock {

// Answers as answer() does (handlers/answer.h). REQUIRES: call.mcp.
//
// Lists the tools, runs the approved calls, then generates in rounds until the model calls no MCP
// tool, the client must act (a function call or an approval), or a limit is reached: rounds and
// time of the configuration, max_tool_calls and max_output_tokens of the request. Errors before the
// first byte are HTTP errors; later ones make the response a failed one.
net::awaitable<void> answer_in_rounds(Services& services, Exchange& exchange, ResponseCall& call,
                                      ResponseShape& shape);

}  // namespace penstock
