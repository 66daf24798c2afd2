// POST /v1/completions: OpenAI's legacy completions with vLLM's extra sampling fields.
#include <fmt/format.h>

#include <algorithm>

#include "server/api/api_request.h"
#include "server/api/infill.h"
#include "server/api/openai_json.h"
#include "server/api/schemas.h"
#include "server/handlers/answer.h"
#include "server/http/apart_threads.h"
#include "server/routing/errors.h"
#include "server/services/config.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr int kCompletionMaxTokens = 16;
constexpr const char* kCompletionObject = "text_completion";

struct CompletionCall : OpenAiCall {
  bool echo = false, prompt_logprobs = false;
  // choices per prompt in the reply: the most likely of those generated
  int n_wanted = 1;
  std::optional<int> logprobs;  // as requested; with echo also for the prompt
  std::vector<std::string> prompt_texts;
};

Result<std::vector<TokenId>> read_ids(const json& list, int vocab_size) {
  std::vector<TokenId> ids;
  for (const json& item : list) {
    const int64_t id =
        item.is_number_float() ? static_cast<int64_t>(item.get<double>()) : item.get<int64_t>();
    if (id >= vocab_size) {
      return errorf(ErrorCode::kInvalidArgument, "prompt: expected token ids from 0 to {}, got {}",
                    vocab_size - 1, id);
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

// Reads a string, a list of strings, a list of ids, or a list of lists of ids.
Status read_prompts(const json& body, CompletionCall& call) {
  const ServedModel& model = *call.generation.model;
  const Session& session = model.session();
  const json& prompt = body["prompt"];
  const bool one = prompt.is_string() || prompt.front().is_number();
  const bool add_bos = get_bool(body, "add_special_tokens", true);
  const bool infills = get_field(body, "suffix").is_string();
  for (size_t i = 0; i < (one ? 1 : prompt.size()); ++i) {
    const json& item = one ? prompt : prompt[i];
    std::vector<TokenId> ids;
    if (infills) {
      if (!item.is_string())
        return errorf(ErrorCode::kInvalidArgument, "suffix: needs a prompt of text, got token ids");
      ASSIGN_OR_RETURN(ids, infill_prompt(model, {.prefix = item.get<std::string>(),
                                                  .suffix = get_string(body, "suffix"),
                                                  .begun = {},
                                                  .files = {}}));
    } else if (item.is_string()) {
      if (!truncates(body))
        RETURN_IF_ERROR(session.check_length(item.get_ref<const std::string&>()));
      ids = session.encode(item.get_ref<const std::string&>(), {add_bos, true});
    } else {
      ASSIGN_OR_RETURN(ids, read_ids(item, session.tokenizer().vocab_size()));
    }
    const size_t n_read = ids.size();
    truncate_prompt(model, body, ids);
    const bool as_given = item.is_string() && ids.size() == n_read;
    call.prompt_texts.push_back(as_given ? item.get<std::string>()
                                         : session.tokenizer().decode(ids, false));
    call.generation.prompts.push_back(std::move(ids));
    RETURN_IF_ERROR(read_thinking_budget(
        body, model.chat().opens_reasoning(call.prompt_texts.back()), call.generation));
  }
  return {};
}

// best_of: generates more choices than it returns and selects by log-probability.
Status read_best_of(const json& body, CompletionCall& call) {
  SamplingParams& params = call.generation.params;
  call.n_wanted = params.n;
  const auto best_of = static_cast<int>(get_int(body, "best_of", params.n));
  if (best_of < params.n) {
    return errorf(ErrorCode::kInvalidArgument, "best_of: expected at least n ({}), got {}",
                  params.n, best_of);
  }
  if (best_of == params.n) return {};
  if (call.stream)
    return errorf(ErrorCode::kInvalidArgument, "best_of: a stream cannot choose, expected n ({})",
                  params.n);
  params.n = best_of;
  if (!params.logprobs) params.logprobs = 0;
  return {};
}

// Checks the number of choices before prompts are tokenized.
Status check_choices(const Services& services, const json& prompt, const CompletionCall& call) {
  const int64_t n = call.generation.params.n, most = services.config.max_choices;
  const bool one = prompt.is_string() || prompt.front().is_number();
  const int64_t n_prompts = one ? 1 : static_cast<int64_t>(prompt.size());
  if (n > most) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {}, got {}",
                  call.n_wanted < n ? "best_of" : "n", most, n);
  }
  if (n_prompts * n <= most) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "prompt: expected at most {} choices (prompts times n or best_of), got {}", most,
                n_prompts * n);
}

Result<CompletionCall> read_completion_call(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ApiBody asked, read_body(services, request, completion_request()));
  const json& body = asked.fields;
  CompletionCall call;
  ASSIGN_OR_RETURN(call.generation, read_generation(services, asked, body, kCompletionMaxTokens));
  RETURN_IF_ERROR(read_openai_call(services, body, "cmpl-", call));
  SamplingParams& params = call.generation.params;
  call.echo = get_bool(body, "echo");
  call.logprobs = params.logprobs;
  call.prompt_logprobs = params.prompt_logprobs.has_value();
  if (call.stream && call.prompt_logprobs) {
    return errorf(ErrorCode::kInvalidArgument, "prompt_logprobs: not available in a stream");
  }
  if (call.echo && !call.prompt_logprobs && (call.logprobs || params.max_tokens == 0)) {
    params.prompt_logprobs = call.logprobs.value_or(0);
  }
  call.generation.n_repeats = call.token_ids ? 2 : 0;
  RETURN_IF_ERROR(read_best_of(body, call));
  const bool echoes_rows = call.echo && call.logprobs;
  call.generation.n_row_repeats =
      std::max(params.n * ((echoes_rows ? 1 : 0) + (call.prompt_logprobs ? 1 : 0)), 1);
  RETURN_IF_ERROR(check_choices(services, body["prompt"], call));
  RETURN_IF_ERROR(read_prompts(body, call));
  const size_t n_texts = (call.echo ? 1 : 0) + (call.prompt_text ? 1 : 0);
  for (const std::string& text : call.prompt_texts)
    call.generation.repeated_bytes += n_texts * text.size();
  if (get_field(body, "suffix").is_string()) {
    const std::vector<TokenId> ends = infill_ends(*asked.model);
    params.stop_token_ids.insert(params.stop_token_ids.end(), ends.begin(), ends.end());
  }
  return call;
}

class CompletionShape final : public ReplyShape {
 public:
  explicit CompletionShape(const CompletionCall& call)
      : call_(call),
        names_(call.generation.model->tokenizer(), call.tokens_as_ids),
        events_(call, kCompletionObject),
        started_(call.generation.prompts.size() * call.generation.params.n, 0),
        logprobs_(started_.size(), new_logprobs()),
        ids_(started_.size()) {}

  std::string add(const ChoiceDelta& delta, Generation& generation) override;
  std::string end(const Generation& generation) override {
    return stream_tail(call_, generation, kCompletionObject);
  }
  json whole(const Generation& generation) override;

 private:
  json choice(const RequestOutput& output, const CompletionOutput& one, size_t prompt) const;
  LegacyLogprobs new_logprobs() const {
    return {names_, call_.logprobs.value_or(0), !call_.generation.params.skip_special_tokens};
  }

  const CompletionCall& call_;
  TokenNames names_;
  StreamEvents events_;
  std::vector<char> started_;  // by choice, like the next two
  std::vector<LegacyLogprobs> logprobs_;
  std::vector<std::vector<TokenId>> ids_;  // not sent yet
};

std::string CompletionShape::add(const ChoiceDelta& delta, Generation& generation) {
  if (!call_.stream) return {};
  std::string text = delta.text;
  const int prompt = delta.choice / call_.generation.params.n;
  const bool first = !std::exchange(started_[delta.choice], 1);
  const bool tells_prompt = first && (call_.token_ids || call_.prompt_text);
  if (first && call_.echo) {
    text = call_.prompt_texts[prompt] + text;
    const RequestOutput& output = generation.prompt_output(prompt);
    if (call_.logprobs) {
      logprobs_[delta.choice].add_prompt(output.prompt_token_ids, output.prompt_logprobs,
                                         call_.prompt_texts[prompt]);
    }
  }
  if (call_.logprobs && !delta.logprobs.empty()) logprobs_[delta.choice].add(delta.logprobs);
  if (call_.token_ids && delta.token != kNoToken) ids_[delta.choice].push_back(delta.token);
  if (text.empty() && delta.finish == FinishReason::kNone && !tells_prompt) return {};
  if (delta.finish == FinishReason::kNone && !call_.logprobs && !call_.token_ids && !tells_prompt) {
    const std::string index = std::to_string(delta.choice), quoted = json_text(text);
    const std::string_view pieces[] = {R"({"finish_reason":null,"index":)", index,
                                       R"(,"logprobs":null,"text":)", quoted, "}"};
    return events_.event(pieces, generation, delta.n_tokens);
  }
  json choice = {
      {"index", delta.choice}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (call_.logprobs) choice["logprobs"] = logprobs_[delta.choice].take();
  if (call_.token_ids) {
    choice["token_ids"] = std::exchange(ids_[delta.choice], {});
    if (first) choice["prompt_token_ids"] = generation.prompt_output(prompt).prompt_token_ids;
  }
  if (call_.prompt_text && first) choice["prompt_text"] = call_.prompt_texts[prompt];
  if (delta.finish != FinishReason::kNone)
    choice["finish_reason"] = finish_reason_name(delta.finish);
  if (delta.finish != FinishReason::kNone)
    choice["stop_reason"] = stop_reason_json(delta.stop_reason);
  return events_.event(dump(choice), generation, delta.n_tokens);
}

json CompletionShape::choice(const RequestOutput& output, const CompletionOutput& one,
                             size_t prompt) const {
  json result = {{"text", (call_.echo ? call_.prompt_texts[prompt] : "") + one.text},
                 {"finish_reason", finish_reason_name(one.finish_reason)},
                 {"stop_reason", stop_reason_json(one.stop_reason)},
                 {"logprobs", nullptr},
                 {"token_ids", nullptr},
                 {"prompt_logprobs", nullptr},
                 {"prompt_token_ids", nullptr}};
  if (call_.logprobs) {
    LegacyLogprobs logprobs = new_logprobs();
    if (call_.echo) {
      logprobs.add_prompt(output.prompt_token_ids, output.prompt_logprobs,
                          call_.prompt_texts[prompt]);
    }
    for (const auto& row : one.logprobs) logprobs.add(row);
    result["logprobs"] = logprobs.take();
  }
  if (call_.prompt_logprobs)
    result["prompt_logprobs"] = prompt_logprobs_json(names_.tokenizer(), output);
  if (call_.token_ids) {
    result["token_ids"] = one.token_ids;
    result["prompt_token_ids"] = output.prompt_token_ids;
  }
  if (call_.prompt_text) result["prompt_text"] = call_.prompt_texts[prompt];
  return result;
}

json CompletionShape::whole(const Generation& generation) {
  json body = envelope(call_, kCompletionObject);
  body["choices"] = json::array();
  for (size_t p = 0; p < generation.outputs().size(); ++p) {
    const RequestOutput& output = generation.outputs()[p];
    std::vector<const CompletionOutput*> best;
    for (const CompletionOutput& one : output.outputs) best.push_back(&one);
    const auto per_token = [](const CompletionOutput* one) {
      return one->token_ids.empty()
                 ? 0.0
                 : one->cumulative_logprob / static_cast<double>(one->token_ids.size());
    };
    if (call_.n_wanted < static_cast<int>(best.size())) {
      std::ranges::stable_sort(best, std::ranges::greater(), per_token);
      best.resize(call_.n_wanted);
    }
    for (const CompletionOutput* one : best) {
      json next = {{"index", body["choices"].size()}};
      next.update(choice(output, *one, p));
      body["choices"].push_back(std::move(next));
    }
  }
  add_totals(call_, generation, body);
  return body;
}

}  // namespace

net::awaitable<void> post_completions(Services& services, Exchange& exchange) {
  return answer_call<CompletionShape>(services, exchange, read_completion_call);
}

}  // namespace penstock
