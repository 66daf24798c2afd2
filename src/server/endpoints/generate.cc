// POST /v1/generate, a plain API: {prompt, max_tokens = 100, temperature = 1.0, stream = false, …}
// -> {text, tokens_generated, latency_ms, tokens_per_second}.
#include "server/api/api_request.h"
#include "server/api/openai_json.h"
#include "server/api/schemas.h"
#include "server/handlers/answer.h"
#include "server/http/apart_threads.h"
#include "server/routing/errors.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr int kPlainMaxTokens = 100;

struct PlainCall {
  GenerationCall generation;
  std::string id;  // empty: not given
  bool stream = false, timings = false;
};

Result<PlainCall> read_plain_call(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ApiBody asked, read_body(services, request, generate_request()));
  const json& body = asked.fields;
  const Session& session = asked.model->session();
  PlainCall call;
  ASSIGN_OR_RETURN(call.generation, read_generation(services, asked, body, kPlainMaxTokens));
  const std::string& prompt = body["prompt"].get_ref<const std::string&>();
  RETURN_IF_ERROR(session.check_length(prompt));
  call.generation.prompts.push_back(session.encode(prompt, {}));
  call.id = get_string(body, "request_id");
  call.stream = get_bool(body, "stream");
  call.timings = get_bool(body, "timings");
  return call;
}

class PlainShape final : public ReplyShape {
 public:
  explicit PlainShape(const PlainCall& call) : call_(call) {}
  std::string add(const ChoiceDelta& delta, Generation&) override {
    return !call_.stream || delta.text.empty() ? std::string() : sse({{"text", delta.text}});
  }
  std::string end(const Generation& generation) override {
    json last = summary(generation);
    last["done"] = true;
    return sse(last);
  }
  json whole(const Generation& generation) override {
    json body = summary(generation);
    body["text"] = generation.outputs()[0].outputs[0].text;
    return body;
  }

 private:
  json summary(const Generation& generation) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const int n = generation.n_completion_tokens();
    json body = {
        {"tokens_generated", n},
        {"latency_ms", seconds * 1000},
        {"tokens_per_second", seconds > 0 ? n / seconds : 0.0},
        {"prompt_tokens", generation.n_prompt_tokens()},
        {"finish_reason", finish_reason_name(generation.outputs()[0].outputs[0].finish_reason)}};
    if (!call_.id.empty()) body["id"] = call_.id;
    if (call_.timings) body["timings"] = timings_json(generation);
    return body;
  }

  const PlainCall& call_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

net::awaitable<void> post_generate(Services& services, Exchange& exchange) {
  return answer_call<PlainShape>(services, exchange, read_plain_call);
}

}  // namespace penstock
