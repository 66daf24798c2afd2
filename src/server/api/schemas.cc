#include "server/api/schemas.h"

#include <cstring>

#include "penstock/sampling_params.h"
#include "server/api/llamacpp_chat.h"
#include "server/api/schema_parts.h"
#include "server/api/structured.h"

namespace penstock {
namespace {

using namespace schema;  // NOLINT: this file is nothing but schemas

Json strings(const char* help) {
  const Json some = {{"type", "string"}, {"minLength", 1}};
  return any_of(
      {some,
       {{"type", "array"}, {"items", some}, {"maxItems", 1024}, {"title", "a list of strings"}}},
      help);
}

template <class T>
Json field_of(const T&, const char* help) {
  if constexpr (std::is_same_v<T, bool>) return boolean(help);
  if constexpr (std::is_same_v<T, std::optional<uint64_t>>) return field({"integer"}, help);
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, std::optional<int>>)
    return field({"integer"}, help);
  if constexpr (std::is_floating_point_v<T>) return field({"number"}, help);
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return strings(help);
  if constexpr (std::is_same_v<T, std::vector<TokenId>>) return list(token_id(), help);
  Json result = object(help);
  result["additionalProperties"] = plain("number");
  return result;
}

// The engine checks the ranges again for calls that do not use HTTP.
void limit(Json& field, const SamplingParams::Range& range) {
  const auto bound = [&](double value) {
    return field["type"][0] == "integer" ? Json(static_cast<int64_t>(value)) : Json(value);
  };
  field[range.above_min ? "exclusiveMinimum" : "minimum"] = bound(range.min);
  field["maximum"] = bound(range.max);
}

Json sampling_fields() {
  Json fields = Json::object();
  const SamplingParams defaults;
  SamplingParams::visit(defaults, [&](const char* name, const auto& value, const char* help,
                                      const SamplingParams::Range& range) {
    Json one = field_of(value, help);
    if (range.limited()) limit(one, range);
    fields[name] = std::move(one);
  });
  const char* belongs = "belongs to beam search, which is not supported";
  fields["use_beam_search"] = only(false, "not supported by this server");
  fields["beam_width"] = one_of({1, defaults.beam_width}, belongs);
  fields["early_stopping"] = only(false, belongs);
  fields["length_penalty"] = only(1.0, belongs);
  return fields;
}

// Fields of all generating endpoints besides sampling parameters.
Json engine_fields() {
  return {{"stream", boolean("reply with server-sent events")},
          {"priority", field({"integer"}, "below 0: before others, above 0: after others")},
          {"cache_salt", text("only requests with the same salt share cached prompts")},
          {"timings", boolean("add where the time went")},
          {"request_id", short_text(256, "used in the id of the reply")}};
}

Json openai_fields() {
  Json fields = sampling_fields();
  merge(fields, engine_fields());
  merge(fields,
        {{"model", text("the served model's name")},
         {"stream_options",
          any_of({closed({{"include_usage", boolean("a last chunk with the usage")},
                          {"continuous_usage_stats", boolean("the usage so far in every chunk")},
                          {"include_obfuscation", boolean("no effect: chunks are never padded")}})},
                 "what a stream tells besides the text")},
         {"user", text("no effect")},
         {"session_id", text("no effect: there is one engine, and sessions share its cache")},
         {"truncate_prompt_tokens",
          integer(-1, INT32_MAX, "keep this many tokens of the prompt; -1: what fits")},
         {"truncation_side",
          one_of({"left", "right"}, "the end that truncate_prompt_tokens cuts; left when absent")},
         {"add_special_tokens", boolean("put the model's special tokens around the prompt")},
         {"return_token_ids", boolean("add the token ids of prompt and reply")},
         {"return_prompt_text", boolean("add the prompt's text as the model sees it")},
         {"thinking_token_budget",
          integer(-1, INT32_MAX, "most tokens of reasoning, which is then ended; -1: no limit")},
         {"stream_interval", only(1, "text is sent as soon as it is there")},
         {"return_tokens_as_token_ids",
          boolean("write tokens in log-probabilities as \"token_id:N\"")},
         {"spaces_between_special_tokens", only(true, "only the default is supported")}});
  merge(fields, structured_fields());
  for (const char* name : {"logits_processors", "kv_transfer_params", "vllm_xargs",
                           "mm_processor_kwargs", "repetition_detection", "logprob_token_ids"}) {
    fields[name] = refused("not supported by this server");
  }
  return fields;
}

// take_tools() checks what each type requires.
Json chat_tool() {
  const Json format = any_of({open({{"type", plain("string")}}, {"type"})}, "of the text");
  return open(
      {{"type",
        {{"type", "string"},
         {"minLength", 1},
         {"description", "function or custom; what else there is is left out with a warning"}}},
       {"custom", any_of({open({{"name", plain("string")},
                                {"description", field({"string"}, "what it does")},
                                {"format", format}},
                               {"name"})},
                         "a tool whose call is a text")},
       {"function",
        open({{"name", {{"type", "string"}, {"minLength", 1}}},
              {"description", field({"string"}, "what it does")},
              {"parameters", field({"object"}, "JSON schema of its arguments")},
              {"strict",
               boolean("true: the arguments of calls are held to the parameters' schema")}},
             {"name"})}},
      {"type"});
}

Json messages_field() {
  const Json part = open({{"type", plain("string")}}, {"type"});
  const Json content = {{"anyOf",
                         {plain("string"),
                          {{"type", "array"}, {"items", part}, {"title", "a list of parts"}},
                          plain("null")}},
                        {"description", "text, or parts of type text"}};
  const Json call = open(
      {{"id", field({"string"}, "")},
       {"function",
        open({{"name", plain("string")}, {"arguments", {{"type", {"string", "object", "null"}}}}},
             {"name"})},
       {"custom", any_of({open({{"name", plain("string")}, {"input", plain("string")}}, {"name"})},
                         "of a custom tool")}});
  return {{"type", "array"},
          {"minItems", 1},
          {"items", open({{"role", {{"type", "string"}, {"minLength", 1}}},
                          {"content", content},
                          {"name", field({"string"}, "of the speaker")},
                          {"tool_calls", list(call, "calls the assistant made")},
                          {"tool_call_id", field({"string"}, "the call a tool message answers")},
                          {"audio", refused("only text is supported")}},
                         {"role"})}};
}

Json template_fields() {
  return {{"tools", list(chat_tool(), "functions and custom tools the model may call")},
          {"chat_template", text("a template instead of the model's")},
          {"chat_template_kwargs", object("further variables for the template")},
          {"documents", list(plain("object"), "documents for the template")},
          {"reasoning_effort", text("a variable of the template")},
          {"add_generation_prompt", boolean("let the template begin the reply")},
          {"continue_final_message", boolean("go on inside the last message")}};
}

Json of_type(const char* name) { return {{"enum", {name}}, {"title", Json(name).dump()}}; }
Json tool_name() { return {{"type", "string"}, {"minLength", 1}}; }

// OpenAI's forms of tool_choice. tools: forms that name a tool. nested: allowed_tools has its
// fields in an object of that name.
Json tool_choice_field(const Json::array_t& tools, bool nested) {
  const Json modes = {{"enum", {"auto", "required"}}};
  Json allowed = {{"mode", modes},
                  {"tools", {{"type", "array"}, {"items", {{"anyOf", tools}}}, {"minItems", 1}}}};
  const Json fields =
      nested ? Json{{"allowed_tools", closed(allowed, {"mode", "tools"})}} : allowed;
  Json allowing = fields;
  allowing["type"] = of_type("allowed_tools");
  Json needed = Json::array({"type"});
  for (auto field = fields.begin(); field != fields.end(); ++field) needed.push_back(field.key());
  Json choice = any_of(
      {{{"enum", {"auto", "none", "required"}}, {"title", "\"auto\", \"none\", \"required\""}},
       closed(std::move(allowing), std::move(needed))},
      "whether tools may or must be called, or the tool to call, or those that may be");
  for (const Json& tool : tools) choice["anyOf"].push_back(tool);
  return choice;
}

Json chat_tool_choice() {
  const auto named = [](const char* type) {
    return closed({{"type", of_type(type)}, {type, closed({{"name", tool_name()}}, {"name"})}},
                  {"type", type});
  };
  return tool_choice_field({named("function"), named("custom")}, true);
}

Json response_tool_choice() {
  const auto named = [](const char* type) {
    return closed({{"type", of_type(type)}, {"name", tool_name()}}, {"type", "name"});
  };
  // Tools that OpenAI runs itself: choosing one is refused; otherwise they are left out.
  const Json hosted = {"web_search",         "web_search_2025_08_26",
                       "web_search_preview", "file_search",
                       "code_interpreter",   "web_search_preview_2025_03_11",
                       "image_generation",   "computer",
                       "computer_use",       "computer_use_preview",
                       "local_shell",        "shell",
                       "apply_patch",        "tool_search"};
  Json result =
      tool_choice_field({named("function"), named("custom"),
                         open({{"type", {{"enum", hosted}, {"title", "another tool"}}}}, {"type"})},
                        false);
  result["anyOf"].push_back(closed({{"type", of_type("mcp")},
                                    {"server_label", tool_name()},
                                    {"name", text("one of its tools; without it any of them")}},
                                   {"type", "server_label"}));
  return result;
}

Json response_item() {
  const char* const types =
      "message, function_call, function_call_output, mcp_call, mcp_approval_response, ...: "
      "docs/guide/agents.md";
  return open({{"type", field({"string"}, types)}, {"role", field({"string"}, "of a message")}});
}

// Fields that only the operator may set are refused with a reason.
Json mcp_tool() {
  Json names = list({{"type", "string"}}, "names of tools");
  names["maxItems"] = 512;
  const Json filter = closed(
      {{"tool_names", names}, {"read_only", boolean("those that say that they change nothing")}});
  const Json modes = {{"enum", {"always", "never"}}, {"title", "\"always\" or \"never\""}};
  return closed({{"type", of_type("mcp")},
                 {"server_label", tool_name()},
                 {"server_description", text("no effect")},
                 {"allowed_tools", any_of({names, filter}, "without it all")},
                 {"require_approval",
                  any_of({modes, closed({{"always", any_of({filter}, "tools")},
                                         {"never", any_of({filter}, "tools")}})},
                         "whether the client has to agree to calls; always unless the server's "
                         "configuration says otherwise")},
                 {"server_url", text("refused")},
                 {"connector_id", text("refused")},
                 {"tunnel_id", text("refused")},
                 {"authorization", text("refused")},
                 {"headers", object("refused")}},
                {"type", "server_label"});
}

Json service_tier() {
  return one_of({"auto", "default", "flex", "scale", "priority"}, "no effect: there is one tier");
}
Json verbosity() {
  return one_of({"low", "medium", "high"}, "no effect: the model is not told, with a warning");
}

// Refuses fields of other routes that would change the answer; unknown fields are only ignored.
void refuse_others(Json& fields) {
  Json names = sampling_fields();
  for (const char* name : {"max_completion_tokens",
                           "max_output_tokens",
                           "stop_sequences",
                           "instructions",
                           "system",
                           "messages",
                           "input",
                           "prompt",
                           "suffix",
                           "response_format",
                           "output_format",
                           "output_config",
                           "tools",
                           "tool_choice",
                           "functions",
                           "function_call",
                           "previous_response_id",
                           "conversation",
                           "documents",
                           "thread",
                           "compaction",
                           "chat_template"})
    names[name] = nullptr;
  for (const auto& [name, schema] : names.items()) {
    if (!fields.contains(name)) fields[name] = refused("this route has no such field");
  }
}

Json chat_fields() {
  Json fields = openai_fields();
  merge(fields, template_fields());
  merge(fields, llamacpp_chat_fields());
  fields["messages"] = messages_field();
  fields["logprobs"] = boolean("return the log-probabilities of the tokens");
  fields["top_logprobs"] = integer(-1, INT32_MAX, "and of this many most likely alternatives");
  fields["max_completion_tokens"] = integer(-1, INT32_MAX, "the newer name of max_tokens");
  fields["tool_choice"] = chat_tool_choice();
  fields["parallel_tool_calls"] = boolean("false: the reply ends after its first call");
  fields["response_format"] = response_format_field();
  fields["echo"] = boolean("put the last message's content before the reply");
  fields["include_reasoning"] = boolean("false: leave reasoning out of the reply");
  fields["modalities"] = list({{"enum", {"text"}}}, "text only");
  fields["store"] = boolean("no effect: chats are not kept");
  fields["service_tier"] = service_tier();
  fields["verbosity"] = verbosity();
  fields["thinking"] =
      any_of({closed({{"type", one_of({"adaptive", "enabled", "disabled"}, "whether to reason")}})},
             "whether the template asks for reasoning (GLM's, DeepSeek's)");
  fields["reasoning"] =
      any_of({closed({{"effort", text("a variable of the template")},
                      {"enabled", boolean("whether the template asks for reasoning")},
                      {"exclude", boolean("leave reasoning out of the reply")}})},
             "how to reason (OpenRouter's)");
  fields["web_search_options"] = object("no effect: left out with a warning");
  fields["best_of"] = only(1, "not supported by this server");
  for (const char* name : {"metadata", "prediction"}) fields[name] = object("no effect");
  for (const char* name : {"prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
    fields[name] = text("no effect");
  for (const char* name : {"audio", "functions", "function_call"})
    fields[name] = refused("not supported by this server");
  refuse_others(fields);
  return fields;
}

Json completion_fields() {
  Json fields = openai_fields();
  Json ids = token_ids();
  ids["minItems"] = 1;
  const Json prompts = {
      {"type", "array"},
      {"minItems", 1},
      {"maxItems", 1024},
      {"items", {{"anyOf", {plain("string"), ids}}, {"title", "a string or a list of token ids"}}},
      {"title", "a list of at most 1024 prompts"}};
  fields["prompt"] = {{"anyOf", {plain("string"), ids, prompts}},
                      {"title", "a string, a list of token ids, or a list of them"},
                      {"description", "one prompt or several"}};
  fields["echo"] = boolean("put the prompt before the text");
  fields["best_of"] = integer(1, 1024, "generate this many and return the n most likely per token");
  fields["suffix"] = text("what follows the text: for models that fill in the middle");
  fields["response_format"] = response_format_field();
  fields["prompt_embeds"] = refused("not supported by this server");
  refuse_others(fields);
  return fields;
}

Json generate_fields() {
  Json fields = sampling_fields();
  merge(fields, engine_fields());
  merge(fields, structured_fields());
  fields["prompt"] = plain("string");
  fields["model"] = text("the served model's name");
  fields["n"] = integer(1, 1, "one text per call");
  for (const char* name : {"logprobs", "prompt_logprobs"})
    fields[name] = refused("use /v1/completions");
  refuse_others(fields);
  return fields;
}

}  // namespace

const Json& generate_request() {
  static const Json value = closed(generate_fields(), {"prompt"});
  return value;
}

// Excludes fields about a single choice or reply, since this route handles several conversations.
const Json& chat_batch_request() {
  static const Json value = [] {
    Json fields = chat_fields();
    Json conversation = messages_field();
    conversation["title"] = "a conversation";
    fields["messages"] = {
        {"type", "array"}, {"minItems", 1}, {"maxItems", 1024}, {"items", std::move(conversation)}};
    fields["n"] = only(1, "each conversation has one reply");
    fields["stream"] = only(false, "only whole replies");
    for (const char* name : {"tools", "tool_choice", "echo", "prompt_logprobs", "return_token_ids",
                             "return_prompt_text", "stream_options", "return_progress"}) {
      fields[name] = refused("not of several conversations at once");
    }
    return closed(std::move(fields), {"messages"});
  }();
  return value;
}

const Json& completion_request() {
  static const Json value = closed(completion_fields(), {"prompt"});
  return value;
}

const Json& chat_request() {
  static const Json value = closed(chat_fields(), {"messages"});
  return value;
}

const Json& tokenize_request() {
  static const Json value = [] {
    Json fields = template_fields();
    fields["model"] = text("the served model's name");
    fields["prompt"] = field({"string"}, "the text; or give messages");
    fields["messages"] = messages_field();
    fields["messages"]["type"] = {"array", "null"};
    fields["add_special_tokens"] = boolean("put the model's special tokens around the text");
    fields["return_token_strs"] = boolean("add the tokens as text");
    fields["content"] = field({"string"}, "llama.cpp's name of the text, with the fields below");
    fields["add_special"] = boolean("with content: put the model's special tokens around it");
    fields["parse_special"] = boolean("with content, false: special tokens in it are text");
    fields["with_pieces"] =
        boolean("with content: tokens are {id, piece}, a piece that is no text a list of bytes");
    return closed(std::move(fields));
  }();
  return value;
}

const Json& apply_template_request() {
  static const Json value = [] {
    Json fields = template_fields();
    fields["model"] = text("the served model's name");
    fields["messages"] = messages_field();
    return closed(std::move(fields), {"messages"});
  }();
  return value;
}

const Json& detokenize_request() {
  static const Json value =
      closed({{"model", text("the served model's name")}, {"tokens", token_ids()}}, {"tokens"});
  return value;
}

const Json& grammar_check_request() {
  static const Json value = [] {
    Json fields = structured_fields();
    fields["model"] = text("the served model's name");
    fields["response_format"] = response_format_field();
    return closed(std::move(fields));
  }();
  return value;
}

const Json& responses_request() {
  static const Json value = [] {
    Json fields = sampling_fields();
    merge(fields, engine_fields());
    for (const char* name : {"n", "max_tokens", "logprobs", "prompt_logprobs"}) fields.erase(name);
    // take_tools() checks what each type requires.
    const Json tool =
        open({{"type",
               {{"type", "string"},
                {"minLength", 1},
                {"not", {{"enum", {"mcp"}}}},
                {"description",
                 "function, custom or namespace; what else there is is left out with a warning"}}},
              {"name", {{"type", "string"}, {"minLength", 1}}},
              {"description", field({"string"}, "what it does")},
              {"parameters", field({"object"}, "JSON schema of a function's arguments")},
              {"strict", boolean("false: a function's arguments need not fit the schema")}},
             {"type"});
    const Json format =
        any_of({closed({{"format", text_format_field()}, {"verbosity", verbosity()}})},
               "what the text looks like");
    merge(fields, structured_fields());
    merge(
        fields,
        {{"model", text("the served model's name")},
         {"input",
          {{"anyOf",
            {plain("string"), {{"type", "array"}, {"items", response_item()}, {"minItems", 1}}}},
           {"title", "a string or a list of items"}}},
         {"instructions", text("a system message before the input")},
         {"max_output_tokens", integer(1, INT32_MAX, "most tokens of the reply")},
         {"top_logprobs", integer(0, 20, "alternatives per token")},
         {"include",
          list({{"enum",
                 {"message.output_text.logprobs", "reasoning.encrypted_content",
                  "web_search_call.results", "web_search_call.action.sources",
                  "file_search_call.results", "code_interpreter_call.outputs",
                  "message.input_image.image_url", "computer_call_output.output.image_url"}}},
               "log-probabilities of the text; reasoning in base64; of what this server has not, "
               "no effect")},
         {"tools", list({{"anyOf", {tool, mcp_tool()}}},
                        "functions and custom tools the model may call, and MCP servers")},
         {"tool_choice", response_tool_choice()},
         {"parallel_tool_calls", boolean("false: the reply ends after its first call")},
         {"max_tool_calls", integer(0, INT32_MAX, "most calls of tools of MCP servers")},
         {"text", format},
         {"reasoning",
          any_of({closed({{"effort", text("a variable of the template")},
                          {"summary", one_of({"auto", "concise", "detailed", "none"},
                                             "no effect: there are no summaries, with a "
                                             "warning")}})},
                 "how to reason")},
         {"chat_template_kwargs", object("further variables for the template")},
         {"metadata", metadata("given back in the reply")},
         {"truncation", one_of({"disabled", "auto"},
                               "no effect: an input that is too long is an error, with a warning")},
         {"background", boolean("answer at once, generate later; needs store")},
         {"previous_response_id", text("a stored response, whose conversation goes on")},
         {"service_tier", service_tier()},
         {"client_metadata", object("no effect")},
         {"store", boolean("keep the response, which is the default where the server keeps "
                           "anything; the reply says it")},
         {"stream_options",
          any_of({closed({{"include_obfuscation", boolean("no effect")}})}, "no effect")},
         {"user", short_text(512, "given back in the reply")},
         {"prompt_cache_key", text("no effect")},
         {"prompt_cache_retention", text("no effect")},
         {"safety_identifier", text("no effect")}});
    fields["conversation"] =
        any_of({plain("string"), closed({{"id", plain("string")}}, {"id"})},
               "one of /v1/conversations, which goes on: input and output are added to it");
    fields["prompt"] = refused("not supported: there are no stored prompts");
    refuse_others(fields);
    return closed(std::move(fields), {"input"});
  }();
  return value;
}

namespace {

Json messages_fields() {
  const Json block = open({{"type", plain("string")}}, {"type"});
  const Json blocks = {{"type", "array"}, {"items", block}, {"title", "a list of blocks"}};
  const Json message = closed({{"role", {{"enum", {"user", "assistant", "system"}}}},
                               {"content", {{"anyOf", {plain("string"), blocks}}}}},
                              {"role", "content"});
  // take_tools() checks what each type requires.
  const Json tool =
      open({{"type", text("custom, which it is without one; what else there is is left out with a "
                          "warning")},
            {"name", {{"type", "string"}, {"minLength", 1}}},
            {"description", field({"string"}, "what it does")},
            {"input_schema", plain("object")},
            {"strict", boolean("true: the input of calls is held to the schema")}});
  const Json choice =
      closed({{"type", {{"enum", {"auto", "any", "tool", "none"}}}},
              {"name", text("with \"tool\": the tool to call")},
              {"disable_parallel_tool_use", boolean("the reply ends after its first call")}},
             {"type"});
  const Json thinking = closed(
      {{"type", {{"enum", {"adaptive", "enabled", "disabled"}}}},
       {"budget_tokens", integer(0, INT32_MAX, "most tokens of reasoning, which is then ended")},
       {"display", text("no effect")}},
      {"type"});
  return {{"model", text("the served model's name")},
          {"messages", {{"type", "array"}, {"items", message}, {"minItems", 1}}},
          {"system", any_of({plain("string"), blocks}, "a system message")},
          {"tools", list(tool, "functions the model may call")},
          {"tool_choice", any_of({choice}, "whether tools may be called")},
          {"thinking", any_of({thinking}, "whether the template asks for reasoning")},
          {"output_config",
           any_of({closed({{"effort", text("the template's variable reasoning_effort")},
                           {"format", output_format_field()}})},
                  "how to reason, and what the text looks like")},
          {"output_format", output_format_field()},
          {"cache_control", object("no effect: equal beginnings are always cached")},
          {"context_management", object("no effect: nothing is cleared, with a warning")},
          {"mcp_servers", list(plain("object"), "no effect: they are not asked, with a warning")},
          {"container", field({"string", "object"}, "no effect: no code is run, with a warning")},
          {"safeguards", field({"object", "array", "string", "boolean"}, "no effect")},
          {"speed", text("no effect")},
          {"metadata", object("no effect")},
          {"thread", refused(kNoThreads + std::strlen("thread: "))},
          {"compaction", refused("conversations are not made shorter here")},
          {"chat_template_kwargs", object("further variables for the template")}};
}

}  // namespace

const Json& messages_request() {
  static const Json value = [] {
    Json fields = sampling_fields();
    for (const char* name : {"n", "stop", "logprobs", "prompt_logprobs"}) fields.erase(name);
    merge(fields, engine_fields());
    merge(fields, structured_fields());
    merge(fields, messages_fields());
    fields["max_tokens"] = {{"type", "integer"},
                            {"minimum", 1},
                            {"maximum", INT32_MAX},
                            {"description", "most tokens of the reply"}};
    fields["stop_sequences"] =
        list({{"type", "string"}, {"minLength", 1}}, "strings that end the text");
    fields["stop_sequences"]["maxItems"] = 1024;
    fields["service_tier"] = one_of({"auto", "standard_only"}, "there is one tier");
    fields["inference_geo"] = refused("not supported by this server");
    refuse_others(fields);
    return closed(std::move(fields), {"messages", "max_tokens"});
  }();
  return value;
}

const Json& count_tokens_request() {
  static const Json value = closed(messages_fields(), {"messages"});
  return value;
}

}  // namespace penstock
