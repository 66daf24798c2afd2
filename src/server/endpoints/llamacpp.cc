// POST /completion and /infill: llama.cpp's own API.
#include <algorithm>

#include "server/api/api_request.h"
#include "server/api/infill.h"
#include "server/api/llamacpp.h"
#include "server/api/openai_json.h"
#include "server/api/prompt_news.h"
#include "server/api/schema_parts.h"
#include "server/api/schemas.h"
#include "server/handlers/answer.h"
#include "server/http/apart_threads.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/config.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema llamacpp_completion_request, llamacpp_completion_reply, infill_request;

namespace {

struct LlamaCall {
  GenerationCall generation;
  std::vector<std::string> prompt_texts;
  std::vector<std::string> fields;  // fields to return; empty: all
  json settings;
  int64_t n_predict = -1;
  int n_indent = 0;
  std::chrono::milliseconds most_time{0};
  bool stream = false, several = false, tokens = false, timings = false, progress = false;
};

// Passes text through up to the line break before the first line that is indented by less than
// required.
class IndentedText {
 public:
  explicit IndentedText(int n_indent) : n_indent_(n_indent) {}

  std::string add(std::string_view text) {
    if (n_indent_ == 0) return std::string(text);
    std::string out;
    for (const char c : text) {
      if (ended_) break;
      if (c == '\n') {
        out += std::exchange(held_, "\n");
      } else if (held_.empty()) {
        out += c;
      } else if (c == ' ' || c == '\t') {
        held_ += c;
      } else if (static_cast<int>(held_.size()) - 1 < n_indent_) {
        ended_ = true;
      } else {
        out += std::exchange(held_, {}) + c;
      }
    }
    return out;
  }
  std::string rest() { return ended_ ? std::string() : std::exchange(held_, {}); }
  bool ended() const { return ended_; }

 private:
  int n_indent_;
  std::string held_;  // a pending line break and indentation
  bool ended_ = false;
};

// Checks the number of choices before prompts are tokenized.
Status check_llama_choices(const Services& services, const json& prompt, const LlamaCall& call) {
  const int64_t n = call.generation.params.n, most = services.config.max_choices;
  const bool one = !prompt.is_array() ||
                   std::ranges::any_of(prompt, [](const json& p) { return p.is_number(); });
  const int64_t n_prompts = one ? 1 : static_cast<int64_t>(prompt.size());
  if (n_prompts * n <= most) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "prompt: expected at most {} choices (prompts times n), got {}", most,
                n_prompts * n);
}

// Reads the fields of both routes other than the prompts.
Status read_llama_call(Services& services, const ApiBody& asked, LlamaCall& call) {
  const json& body = asked.fields;
  ASSIGN_OR_RETURN(const json params, params_of_llamacpp(body, *asked.model));
  if (const int64_t n = get_int(body, "n_probs", 0); n > 0)
    RETURN_IF_ERROR(check_logprobs(services, *asked.model, n, "n_probs"));
  ASSIGN_OR_RETURN(call.generation, read_generation(services, asked, params, -1));
  call.generation.params.processed_logprobs = get_bool(body, "post_sampling_probs");
  call.n_predict = most_llamacpp_tokens(body);
  call.n_indent = static_cast<int>(get_int(body, "n_indent", 0));
  call.most_time = std::chrono::milliseconds(get_int(body, "t_max_predict_ms", 0));
  call.stream = get_bool(body, "stream");
  call.tokens = get_bool(body, "return_tokens");
  call.timings = get_bool(body, "timings_per_token");
  call.progress = call.stream && get_bool(body, "return_progress");
  call.generation.watches_prompts = call.progress;
  if (const json& fields = get_field(body, "response_fields"); fields.is_array())
    call.fields = fields.get<std::vector<std::string>>();
  return {};
}

// Completes a call after its prompts were added.
void finish_llama_call(LlamaCall& call) {
  GenerationCall& generation = call.generation;
  SamplingParams& params = generation.params;
  for (const auto& prompt : generation.prompts)
    call.prompt_texts.push_back(generation.model->tokenizer().decode(prompt, false));
  generation.fill_context();
  call.several = call.several || params.n > 1;
  call.settings = llamacpp_settings(params, call.n_predict, call.stream);
  generation.repeated_bytes = dump(call.settings).size() * call.prompt_texts.size();
  for (const std::string& text : call.prompt_texts) generation.repeated_bytes += text.size();
  if (call.n_indent > 0 || call.most_time.count() > 0)
    generation.ends_by = fmt::format("indent {} ms {}", call.n_indent, call.most_time.count());
}

Result<LlamaCall> read_completion(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ApiBody asked,
                   read_body(services, request, llamacpp_completion_request()));
  LlamaCall call;
  RETURN_IF_ERROR(read_llama_call(services, asked, call));
  const json& prompt = asked.fields["prompt"];
  RETURN_IF_ERROR(check_llama_choices(services, prompt, call));
  ASSIGN_OR_RETURN(call.generation.prompts, prompts_of_llamacpp(prompt, *asked.model, call.several,
                                                                call.generation.pictures));
  finish_llama_call(call);
  return call;
}

Result<LlamaCall> read_infill(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ApiBody asked, read_body(services, request, infill_request()));
  const json& body = asked.fields;
  LlamaCall call;
  RETURN_IF_ERROR(read_llama_call(services, asked, call));
  InfillParts parts{.prefix = get_string(body, "input_prefix"),
                    .suffix = get_string(body, "input_suffix"),
                    .begun = get_string(body, "prompt"),
                    .files = {},
                    .n_reserved = static_cast<int>(call.n_predict)};
  if (call.n_predict < 0) parts.n_reserved = asked.model->max_model_len() / 4;
  if (const json& files = get_field(body, "input_extra"); files.is_array()) {
    for (const json& file : files)
      parts.files.push_back({get_string(file, "filename", "tmp"), get_string(file, "text")});
  }
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, infill_prompt(*asked.model, parts));
  call.generation.prompts.push_back(std::move(ids));
  SamplingParams& params = call.generation.params;
  const std::vector<TokenId> ends = infill_ends(*asked.model);
  params.stop_token_ids.insert(params.stop_token_ids.end(), ends.begin(), ends.end());
  finish_llama_call(call);
  return call;
}

class LlamaShape final : public ReplyShape {
 public:
  explicit LlamaShape(const LlamaCall& call)
      : call_(call),
        names_(call.generation.model->tokenizer(), false),
        choices_(call.generation.prompts.size() * static_cast<size_t>(call.generation.params.n),
                 Choice(call.n_indent)) {
    for (const auto& prompt : call.generation.prompts) prompt_sizes_.push_back(prompt.size());
  }

  std::string begin(const Generation& generation) override { return look(generation); }
  std::string add(const ChoiceDelta& delta, Generation& generation) override;
  std::chrono::milliseconds look_every() const override {
    return call_.progress ? PromptNews::kEvery : std::chrono::milliseconds(0);
  }
  std::string look(const Generation& generation) override;
  std::string end(const Generation& generation) override {
    std::string events;
    for (size_t i = 0; i < choices_.size(); ++i) events += sse(last(i, generation));
    return events;
  }
  json whole(const Generation& generation) override {
    if (!call_.several) return last(0, generation);
    json replies = json::array();
    for (size_t i = 0; i < choices_.size(); ++i) replies.push_back(last(i, generation));
    return replies;
  }
  std::string error_event(const Error& error) override {
    return "data: " + error_reply(error).body + "\n\n";
  }

 private:
  struct Choice {
    explicit Choice(int n_indent) : text(n_indent) {}
    IndentedText text;
    std::string content;                 // of a whole reply
    json probabilities = json::array();  // not sent yet
    int n_tokens = 0;
    Clock::time_point first;  // arrival of the first token
    bool has_line_break = false, cut = false;
  };
  json probability(const std::vector<TokenLogprob>& row) const;
  json last(size_t index, const Generation& generation);
  void end_early(Choice& choice, int index, Generation& generation);
  json end_of(const Choice& choice, const CompletionOutput& one, size_t n_prompt) const;

  const LlamaCall& call_;
  TokenNames names_;
  std::vector<Choice> choices_;
  std::vector<size_t> prompt_sizes_;
  PromptNews prompt_news_;
};

// Reports prompts whose prefill has advanced.
std::string LlamaShape::look(const Generation& generation) {
  std::string events;
  for (size_t prompt = 0; call_.progress && prompt < prompt_sizes_.size(); ++prompt) {
    json news = prompt_news_.next(generation, static_cast<int>(prompt));
    if (news.is_null()) continue;
    events += sse({{"index", prompt * static_cast<size_t>(call_.generation.params.n)},
                   {"content", ""},
                   {"tokens", json::array()},
                   {"stop", false},
                   {"id_slot", -1},
                   {"tokens_predicted", 0},
                   {"tokens_evaluated", prompt_sizes_[prompt]},
                   {"prompt_progress", std::move(news)}});
  }
  return events;
}

json LlamaShape::probability(const std::vector<TokenLogprob>& row) const {
  json result = chat_logprob_json(names_, row);
  result["id"] = row[0].token;
  for (size_t i = 1; i < row.size(); ++i) result["top_logprobs"][i - 1]["id"] = row[i].token;
  if (call_.generation.params.processed_logprobs) name_as_probabilities(result);
  return result;
}

// Ends a choice because of its indentation or the time limit.
void LlamaShape::end_early(Choice& choice, int index, Generation& generation) {
  const bool late = call_.most_time.count() > 0 && choice.has_line_break &&
                    Clock::now() - choice.first > call_.most_time;
  if (choice.cut || (!late && !choice.text.ended())) return;
  choice.cut = true;
  generation.stop(index);
}

std::string LlamaShape::add(const ChoiceDelta& delta, Generation& generation) {
  Choice& choice = choices_[delta.choice];
  if (choice.cut || call_.n_predict == 0) return {};
  std::string text = choice.text.add(delta.text);
  const bool finished = delta.finish != FinishReason::kNone;
  if (finished) text += choice.text.rest();
  choice.has_line_break = choice.has_line_break || delta.text.find('\n') != std::string::npos;
  if (delta.token != kNoToken && choice.n_tokens == 0) choice.first = Clock::now();
  choice.n_tokens = delta.n_tokens;
  if (!delta.logprobs.empty()) choice.probabilities.push_back(probability(delta.logprobs));
  if (!finished) end_early(choice, delta.choice, generation);
  if (!call_.stream) {
    choice.content += text;
    return {};
  }
  if (text.empty() && delta.token == kNoToken) return {};
  json event = {{"index", delta.choice},
                {"content", text},
                {"tokens", json::array()},
                {"stop", false},
                {"id_slot", -1},
                {"tokens_predicted", choice.n_tokens},
                {"tokens_evaluated", prompt_sizes_[delta.choice / call_.generation.params.n]}};
  if (delta.token != kNoToken) event["tokens"].push_back(delta.token);
  if (!choice.probabilities.empty())
    event["completion_probabilities"] = std::exchange(choice.probabilities, json::array());
  if (call_.timings) {
    RequestStats so_far;
    so_far.decode_seconds = std::chrono::duration<double>(Clock::now() - choice.first).count();
    event["timings"] = llamacpp_timings(
        so_far, prompt_sizes_[delta.choice / call_.generation.params.n], choice.n_tokens);
  }
  return (choice.n_tokens == 1 ? look(generation) : "") + sse(event);
}

// Returns the reason of the end in llama.cpp's terms.
json LlamaShape::end_of(const Choice& choice, const CompletionOutput& one, size_t n_prompt) const {
  const bool limit =
      choice.cut || call_.n_predict == 0 || one.finish_reason == FinishReason::kLength;
  const std::string* word = std::get_if<std::string>(&one.stop_reason);
  const size_t n_total = n_prompt + one.token_ids.size();
  const bool full = one.finish_reason == FinishReason::kLength && call_.n_predict != 0 &&
                    n_total >= static_cast<size_t>(call_.generation.model->max_model_len());
  return {{"truncated", full},
          {"stop_type", limit             ? "limit"
                        : word != nullptr ? "word"
                                          : "eos"},
          {"stopping_word", !limit && word != nullptr ? *word : ""}};
}

json LlamaShape::last(size_t index, const Generation& generation) {
  Choice& choice = choices_[index];
  const auto n = static_cast<size_t>(call_.generation.params.n);
  const size_t prompt = index / n, n_prompt = prompt_sizes_[prompt];
  const CompletionOutput& one = generation.outputs()[prompt].outputs[index % n];
  const bool none = call_.n_predict == 0;
  json reply = {{"index", index},
                {"content", choice.content},
                {"tokens", json::array()},
                {"id_slot", -1},
                {"stop", true},
                {"model", call_.generation.name()},
                {"tokens_predicted", none ? 0 : choice.n_tokens},
                {"tokens_evaluated", n_prompt},
                {"generation_settings", call_.settings},
                {"prompt", call_.prompt_texts[prompt]},
                {"has_new_line", choice.has_line_break}};
  if (call_.tokens && !call_.stream && !none) reply["tokens"] = one.token_ids;
  reply.update(end_of(choice, one, n_prompt));
  reply["tokens_cached"] = one.stats.cached_tokens;
  reply["timings"] = llamacpp_timings(one.stats, n_prompt, none ? 0 : choice.n_tokens);
  if (!choice.probabilities.empty())
    reply["completion_probabilities"] = std::exchange(choice.probabilities, json::array());
  return call_.fields.empty() ? reply : picked_fields(reply, call_.fields);
}

}  // namespace

const nlohmann::json& llamacpp_completion_request() {
  static const nlohmann::json value = [] {
    nlohmann::json fields = llamacpp_fields();
    fields["prompt"] = llamacpp_prompt_field();
    return schema::closed(std::move(fields), {"prompt"});
  }();
  return value;
}

const nlohmann::json& infill_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json fields = llamacpp_fields();
    fields["prompt"] = text("what is there of the middle already");
    fields["input_prefix"] = plain("string");
    fields["input_suffix"] = plain("string");
    fields["input_extra"] =
        list(open({{"text", plain("string")}, {"filename", text("its name")}}, {"text"}),
             "other files, the most important last: what fits the context of their end");
    fields["input_extra"]["maxItems"] = 1024;
    return closed(std::move(fields), {"input_prefix", "input_suffix"});
  }();
  return value;
}

const nlohmann::json& llamacpp_completion_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    const Json one = open({{"content", plain("string")}, {"stop", plain("boolean")}});
    return Json{{"anyOf", {one, {{"type", "array"}, {"items", one}}}}};
  }();
  return value;
}

net::awaitable<void> post_llamacpp_completion(Services& services, Exchange& exchange) {
  return answer_call<LlamaShape>(services, exchange, read_completion);
}

net::awaitable<void> post_infill(Services& services, Exchange& exchange) {
  return answer_call<LlamaShape>(services, exchange, read_infill);
}

}  // namespace penstock
