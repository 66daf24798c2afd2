// Responses whose model may call tools of MCP servers: it generates, its calls are run here, and it
// goes on with their results.
#pragma once
#include "server/endpoints/response_shape.h"

namespace penstock {

// Answers as answer() does (handlers/answer.h). REQUIRES: call.mcp.
//
// Tools are listed, calls that the client has agreed to are run, then rounds follow: until the
// model calls no tool that is run here, until the client has to act (a function, a question), or
// until a bound is reached: rounds and time of the configuration, max_tool_calls and
// max_output_tokens of the request. Errors before anything is sent are those of HTTP, later ones
// make the response a failed one.
net::awaitable<void> answer_in_rounds(Services& services, Exchange& exchange, ResponseCall& call,
                                      ResponseShape& shape);

}  // namespace penstock
