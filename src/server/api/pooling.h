// Shared parts of the routes for embeddings, classification and scores.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "server/api/api_request.h"
#include "server/http/http_body.h"

namespace penstock {

// Returns a call without inputs, with the adapter that the body names.
PoolingCall pooling_call(const ApiBody& body);
// Tokenizes "input", honouring truncate_prompt_tokens and prompt_name. Errors: kInvalidArgument,
// kContextOverflow.
Status read_inputs(const json& body, const ServedModel& model, PoolingCall& call);
// Adds texts for an embedding model. Errors: as read_inputs().
Status add_texts(std::span<const std::string> texts, const json& body, const ServedModel& model,
                 PoolingCall& call);
// Adds pairs of texts for a cross-encoder. Errors: as read_inputs().
Status add_pairs(std::span<const std::string> first, std::span<const std::string> second,
                 const json& body, const ServedModel& model, PoolingCall& call);

// Computes the call and waits for the vectors; cancelled if the client leaves. Errors: the queue's.
net::awaitable<Result<PoolingQueue::Vectors>> compute(Services& services, Exchange& exchange,
                                                      const ServedModel& model, PoolingCall call);

// Returns the normalized embedding of a text by a served model, for the server's own use: not
// charged to the client, and without the model's prompts. truncate: cut texts that are too long.
// Errors: kNotFound, kCancelled and those of loading, kUnsupported (not an embedding model),
// kContextOverflow, the queue's.
net::awaitable<Result<std::vector<float>>> embed_for_server(Services& services, Exchange& exchange,
                                                            const std::string& model,
                                                            const std::string& text, bool truncate);

int64_t n_tokens(const PoolingCall& call);
// Reserves the approximate size of the reply from the server's limits for one reply and for all
// replies together, of which one client gets three quarters, until `budget` is destroyed. Errors:
// kInvalidArgument, kResourceExhausted.
Status take_reply(Services& services, const Exchange& exchange, const ServedModel& model,
                  const PoolingCall& call, bool as_base64, BodyBudget& budget);
inline constexpr size_t kBytesOfNumber = 12;  // approximate bytes of one number as text
// Returns {"id", "object", "created", "model", "usage"}. prefix: of the id. name: the model's or
// adapter's.
json pooling_reply(const std::string& prefix, const std::string& name, int64_t n_tokens);
// Appends "[0.25,-1.5]", each number in its shortest round-trip form; null: not finite.
void append_numbers(std::span<const float> numbers, std::string& out);
std::string base64(std::span<const float> numbers);  // little-endian

// Returns the schema of the fields that these routes share.
nlohmann::json pooling_fields();
nlohmann::json input_field();

}  // namespace penstock
