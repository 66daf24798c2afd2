// POST /api/generate and /api/chat: Ollama's API, whose streams are lines of JSON.
#include "server/api/ollama.h"
#include "frontend/chat/exact_json.h"
#include "server/services/client_warnings.h"
#include "server/services/services.h"

#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/infill.h"
#include "server/api/openai_json.h"
#include "server/api/schema_parts.h"
#include "server/api/schemas.h"
#include "server/handlers/answer.h"
#include "server/http/apart_threads.h"

namespace penstock {
namespace {

struct OllamaCall {
  GenerationCall generation;
  ChatTask task;
  std::string name;
  Clock::time_point start = Clock::now();
  bool chat = false, stream = true, logprobs = false;
  // return `context`, with which the client may continue
  bool gives_context = false;
  // done reason of a request that generates nothing; null: generate
  const char* only = nullptr;
};

json ollama_head(const std::string& name) {
  return {{"model", name}, {"created_at", rfc3339(std::chrono::system_clock::now())}};
}

json ollama_text(bool chat, const std::string& text) {
  return chat ? json{{"message", {{"role", "assistant"}, {"content", text}}}}
              : json{{"response", text}};
}

// A request without a prompt loads the model (or unloads it with keep_alive 0).
const char* load_reason(const json& body) {
  const json& keep = get_field(body, "keep_alive");
  return keep == 0 || keep == "0" || keep == "0s" ? "unload" : "load";
}

Status read_ollama_common(Services& services, const HttpRequest& request, const ApiBody& asked,
                          OllamaCall& call) {
  const ServedModel& model = *asked.model;
  const json& body = asked.fields;
  call.name = ollama_name(body, model);
  call.stream = get_bool(body, "stream", true);
  call.logprobs = get_bool(body, "logprobs");
  RETURN_IF_ERROR(read_keep_alive(services, request, body, *asked.model));
  ASSIGN_OR_RETURN(const json params, params_of_ollama(body, model));
  ASSIGN_OR_RETURN(call.generation, read_generation(services, asked, params, -1));
  if (call.generation.params.structured_outputs) call.generation.structured_field = "format";
  call.generation.tool_schemas = "function/parameters";
  return {};
}

// Completes a call after its prompt was made.
void finish_ollama_call(OllamaCall& call) {
  call.generation.prompts.push_back(std::move(call.task.prompt));
  call.generation.keep_markers = call.task.parses();
  call.generation.fill_context();
}

Result<OllamaCall> read_ollama_chat(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, ollama_chat_request()));
  OllamaCall call;
  call.chat = true;
  RETURN_IF_ERROR(read_ollama_common(services, request, asked, call));
  if (!get_field(asked.fields, "messages").is_array() || asked.fields["messages"].empty()) {
    call.only = load_reason(asked.fields);
    return call;
  }
  ASSIGN_OR_RETURN(Conversation conversation, conversation_of_ollama(asked.fields));
  RETURN_IF_ERROR(read_think(asked.fields, *asked.model, conversation));
  ASSIGN_OR_RETURN(call.task, read_task(std::move(conversation), call.generation));
  warn_client(request, call.task.warning);
  finish_ollama_call(call);
  return call;
}

// Prepends the "context" of an earlier reply to the prompt.
Status add_context(const json& body, const Tokenizer& tokenizer, std::vector<TokenId>& prompt) {
  const json& context = get_field(body, "context");
  if (!context.is_array() || context.empty()) return {};
  std::vector<TokenId> ids;
  for (const json& item : context) {
    const auto id = item.get<int64_t>();
    if (id >= tokenizer.vocab_size()) {
      return errorf(ErrorCode::kInvalidArgument, "context: expected token ids from 0 to {}, got {}",
                    tokenizer.vocab_size() - 1, id);
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  const bool has_bos = !prompt.empty() && prompt.front() == tokenizer.bos();
  ids.insert(ids.end(), prompt.begin() + (has_bos ? 1 : 0), prompt.end());
  prompt = std::move(ids);
  return {};
}

Result<OllamaCall> read_ollama_generate(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, ollama_generate_request()));
  json& body = asked.fields;
  ServedModel& model = *asked.model;
  OllamaCall call;
  json images = take_field(body, "images");
  if (images.is_null()) images = json::array();
  RETURN_IF_ERROR(read_ollama_common(services, request, asked, call));
  const std::string prompt = get_string(body, "prompt"), system = get_string(body, "system");
  if (prompt.empty() && images.empty()) {
    call.only = load_reason(body);
    return call;
  }
  const bool raw = get_bool(body, "raw");
  if (!images.empty() &&
      (raw || !get_field(body, "suffix").is_null() || !get_field(body, "context").is_null())) {
    return errorf(ErrorCode::kInvalidArgument,
                  "images: cannot stand beside raw, suffix and context");
  }
  if (const std::string suffix = get_string(body, "suffix"); !suffix.empty()) {
    for (const char* name : {"system", "context", "think"}) {
      if (!get_field(body, name).is_null())
        return errorf(ErrorCode::kInvalidArgument, "{}: cannot stand beside suffix", name);
    }
    ASSIGN_OR_RETURN(
        call.task.prompt,
        infill_prompt(model, {.prefix = prompt, .suffix = suffix, .begun = {}, .files = {}}));
    call.generation.params.stop_token_ids = infill_ends(model);
    finish_ollama_call(call);
    return call;
  }
  if (raw && !system.empty())
    return errorf(ErrorCode::kInvalidArgument, "system: cannot stand beside raw: true");
  if (raw || (model.chat().chat_template().empty() && system.empty())) {
    if (get_field(body, "think") != json(nullptr) && get_field(body, "think") != json(false))
      return errorf(ErrorCode::kInvalidArgument,
                    "think: needs a chat template, which this call does not use");
    RETURN_IF_ERROR(model.session().check_length(prompt));
    call.task.prompt = model.session().encode(prompt, {});
  } else {
    json chat = {{"messages", json::array()}};
    if (!system.empty()) chat["messages"].push_back({{"role", "system"}, {"content", system}});
    json content = images.empty() ? json(prompt) : with_images(std::move(images), prompt, "images");
    chat["messages"].push_back({{"role", "user"}, {"content", std::move(content)}});
    ASSIGN_OR_RETURN(Conversation conversation, conversation_of_chat(chat));
    RETURN_IF_ERROR(read_think(body, model, conversation));
    ASSIGN_OR_RETURN(call.task, read_task(std::move(conversation), call.generation));
  }
  RETURN_IF_ERROR(add_context(body, model.tokenizer(), call.task.prompt));
  call.gives_context = !raw;
  finish_ollama_call(call);
  return call;
}

class OllamaShape final : public ReplyShape {
 public:
  explicit OllamaShape(const OllamaCall& call)
      : call_(call),
        names_(call.generation.model->tokenizer(), false),
        reader_(call.task, "call_") {}

  const char* content_type() const override { return "application/x-ndjson"; }
  const char* keep_alive() const override { return ""; }  // any line would be parsed as a reply
  std::string add(const ChoiceDelta& delta, Generation& generation) override;
  std::string end(const Generation& generation) override {
    json last = ollama_head(call_.name);
    last.update(ollama_text(call_.chat, ""));
    if (!logprobs_.empty()) last["logprobs"] = std::exchange(logprobs_, json::array());
    last.update(totals(generation));
    return dump(last) + "\n";
  }
  json whole(const Generation& generation) override;
  std::string whole_text(const Generation& generation) override {
    return dump_exact(whole(generation));
  }
  HttpReply error(const Error& error) override { return ollama_error(error); }
  std::string error_event(const Error& error) override { return ollama_error(error).body + "\n"; }

 private:
  using Kind = ReplySegment::Kind;
  json piece(const ReplySegment& segment);
  json call_of(const ToolCall& call);
  json totals(const Generation& generation) const;

  const OllamaCall& call_;
  TokenNames names_;
  ChatReader reader_;
  json logprobs_ = json::array();  // not sent yet
  int n_calls_ = 0;
};

json OllamaShape::call_of(const ToolCall& call) {
  return {{"id", call.id},
          {"function",
           {{"index", n_calls_++},
            {"name", call.name},
            {"arguments", arguments_object(call.arguments)}}}};
}

json OllamaShape::piece(const ReplySegment& segment) {
  json result = ollama_text(call_.chat, segment.kind == Kind::kText ? segment.text : "");
  json& place = call_.chat ? result["message"] : result;
  if (segment.kind == Kind::kReasoning) place["thinking"] = segment.text;
  if (segment.kind == Kind::kCall)
    place["tool_calls"].push_back(call_of(reader_.call(segment.n_call)));
  return result;
}

std::string OllamaShape::add(const ChoiceDelta& delta, Generation& generation) {
  const std::vector<ReplySegment> news = read_delta(reader_, delta, generation);
  if (call_.logprobs && !delta.logprobs.empty())
    logprobs_.push_back(chat_logprob_json(names_, delta.logprobs));
  if (!call_.stream) return {};
  std::string lines;
  for (const ReplySegment& segment : news) {
    // this API sends calls only when complete
    if (segment.kind == Kind::kCall && !segment.ends) continue;
    json line = ollama_head(call_.name);
    line.update(piece(segment));
    line["done"] = false;
    if (!logprobs_.empty()) line["logprobs"] = std::exchange(logprobs_, json::array());
    lines += dump_exact(line) + "\n";
  }
  return lines;
}

json OllamaShape::totals(const Generation& generation) const {
  const RequestOutput& output = generation.outputs()[0];
  const CompletionOutput& one = output.outputs[0];
  json last = {{"done", true},
               {"done_reason", finish_reason_name(reader_.finish())},
               {"total_duration", std::chrono::nanoseconds(Clock::now() - call_.start).count()},
               {"load_duration", 0},
               {"prompt_eval_count", generation.n_prompt_tokens()},
               {"prompt_eval_duration", nanoseconds(one.stats.prefill_seconds)},
               {"eval_count", generation.n_completion_tokens()},
               {"eval_duration", nanoseconds(one.stats.decode_seconds)}};
  if (call_.gives_context) {
    std::vector<TokenId> context = output.prompt_token_ids;
    context.insert(context.end(), one.token_ids.begin(), one.token_ids.end());
    last["context"] = context;
  }
  return last;
}

json OllamaShape::whole(const Generation& generation) {
  json reply = ollama_head(call_.name);
  reply.update(ollama_text(call_.chat, reader_.text_of(Kind::kText)));
  json& place = call_.chat ? reply["message"] : reply;
  if (std::string text = reader_.text_of(Kind::kReasoning); !text.empty())
    place["thinking"] = std::move(text);
  for (const ReplySegment& segment : reader_.segments()) {
    if (segment.kind == Kind::kCall) place["tool_calls"].push_back(call_of(segment.call));
  }
  if (call_.logprobs) reply["logprobs"] = std::exchange(logprobs_, json::array());
  reply.update(totals(generation));
  return reply;
}

net::awaitable<void> answer_ollama(Services& services, Exchange& exchange,
                                   Result<OllamaCall> (*read)(Services&, const HttpRequest&)) {
  Result<OllamaCall> call;
  co_await services.run_apart(exchange, [&] { call = read(services, exchange.request()); });
  if (!call) co_return co_await exchange.reply(ollama_error(call.error()));
  if (call->only != nullptr) {
    json reply = ollama_head(call->name);
    reply.update(ollama_text(call->chat, ""));
    reply["done"] = true;
    reply["done_reason"] = call->only;
    co_return co_await exchange.reply(json_reply(reply));
  }
  OllamaShape shape(*call);
  co_await answer(services, exchange, call->generation, call->stream, shape);
}

nlohmann::json ollama_message() {
  using namespace schema;  // NOLINT: a schema
  const Json call =
      open({{"function",
             open({{"name", plain("string")}, {"arguments", object("what it is called with")}},
                  {"name"})}},
           {"function"});
  return open({{"role", {{"enum", {"system", "user", "assistant", "tool"}}}},
               {"content", text("the text")},
               {"thinking", text("the reasoning before it")},
               {"images", list(plain("string"), "pictures in base64, before the text")},
               {"tool_calls", list(call, "calls the assistant made")},
               {"tool_name", text("of a tool's message: the function that was called")}},
              {"role"});
}

nlohmann::json ollama_reply(const char* name, const char* type) {
  using namespace schema;  // NOLINT: a schema
  return open({{"model", plain("string")},
               {"created_at", plain("string")},
               {name, plain(type)},
               {"done", plain("boolean")}},
              {"model", "created_at", name, "done"});
}

}  // namespace

const nlohmann::json& ollama_chat_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json fields = ollama_fields();
    const Json function = open({{"name", {{"type", "string"}, {"minLength", 1}}},
                                {"description", text("what it does")},
                                {"parameters", object("JSON schema of its arguments")}},
                               {"name"});
    fields["messages"] = list(ollama_message(), "the conversation; none: the model is there");
    fields["tools"] =
        list(open({{"type", {{"enum", {"function"}}}}, {"function", function}}, {"function"}),
             "functions the model may call");
    return closed(std::move(fields));
  }();
  return value;
}

const nlohmann::json& ollama_generate_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json fields = ollama_fields();
    fields["prompt"] = text("the text; none: the model is there");
    fields["system"] = text("a system message before it");
    fields["raw"] = boolean("true: the prompt as it is, without the chat template");
    fields["context"] = token_ids();
    fields["context"]["type"] = {"array", "null"};
    fields["images"] = list(plain("string"), "pictures in base64, before the text");
    fields["template"] = only("", "not supported: Go templates are not understood");
    fields["suffix"] = text("what follows the text: for models that fill in the middle");
    for (const char* name : {"width", "height", "steps"})
      fields[name] = refused("only text is supported");
    return closed(std::move(fields));
  }();
  return value;
}

const nlohmann::json& ollama_chat_reply() {
  static const nlohmann::json value = ollama_reply("message", "object");
  return value;
}

const nlohmann::json& ollama_generate_reply() {
  static const nlohmann::json value = ollama_reply("response", "string");
  return value;
}

net::awaitable<void> post_ollama_chat(Services& services, Exchange& exchange) {
  co_await answer_ollama(services, exchange, read_ollama_chat);
}

net::awaitable<void> post_ollama_generate(Services& services, Exchange& exchange) {
  co_await answer_ollama(services, exchange, read_ollama_generate);
}

}  // namespace penstock
