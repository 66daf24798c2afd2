#include "server/api/structured.h"

#include <vector>

#include "server/api/schema_parts.h"

namespace penstock {
namespace {

using Body = nlohmann::ordered_json;
using Json = nlohmann::json;

// A member that is there; null means absent.
const Body* member(const Body& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// JSON that may come as its text.
std::string text_of(const Body& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Body::error_handler_t::replace);
}

std::string text_at(const Body& object, const char* key) {
  const Body* value = member(object, key);
  return value == nullptr ? std::string() : text_of(*value);
}

bool flag_at(const Body& object, const char* key) {
  const Body* value = member(object, key);
  return value != nullptr && value->get<bool>();
}

std::vector<std::string> texts_at(const Body& object, const char* key) {
  const Body* value = member(object, key);
  return value == nullptr ? std::vector<std::string>() : value->get<std::vector<std::string>>();
}

std::optional<std::string> pattern_at(const Body& object, const char* key) {
  const Body* value = member(object, key);
  return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

StructuredOutputs of_vllm(const Body& value) {
  return {.json = text_at(value, "json"),
          .regex = text_at(value, "regex"),
          .choice = texts_at(value, "choice"),
          .grammar = text_at(value, "grammar"),
          .json_object = flag_at(value, "json_object"),
          .structural_tag = text_at(value, "structural_tag"),
          .disable_any_whitespace = flag_at(value, "disable_any_whitespace"),
          .disable_additional_properties = flag_at(value, "disable_additional_properties"),
          .whitespace_pattern = pattern_at(value, "whitespace_pattern")};
}

// nullopt: {"type": "text"}.
std::optional<StructuredOutputs> of_openai(const Body& value) {
  const std::string type = value["type"];
  if (type == "text") return std::nullopt;
  StructuredOutputs outputs;
  if (type == "json_object") {
    outputs.json_object = true;
  } else if (type == "json_schema") {
    outputs.json = text_at(value["json_schema"], "schema");
  } else {
    outputs.structural_tag = text_of(value);
  }
  return outputs;
}

}  // namespace

Json response_format_field() {
  using namespace schema;
  const auto type = [](const char* name) { return Json{{"enum", {name}}, {"title", Json(name).dump()}}; };
  const Json named = open({{"name", text("what it is called; no effect")},
                           {"description", text("no effect")},
                           {"schema", {{"type", {"object", "boolean"}}, {"description", "a JSON Schema"}}},
                           {"strict", boolean("no effect: schemas are always enforced")}},
                          {"schema"});
  return any_of(
      {closed({{"type", type("text")}}, {"type"}), closed({{"type", type("json_object")}}, {"type"}),
       closed({{"type", type("json_schema")}, {"json_schema", named}}, {"type", "json_schema"}),
       open({{"type", type("structural_tag")}}, {"type"})},
      "the form of the reply: {\"type\": \"text\"}, \"json_object\", \"json_schema\" or \"structural_tag\"");
}

Json structured_fields() {
  using namespace schema;
  const Json json_value = {{"type", {"object", "boolean", "string", "null"}},
                           {"description", "a JSON Schema, or its text"}};
  const Json choice = list(plain("string"), "the text is one of these");
  Json fields = {
      {"structured_outputs",
       {{"anyOf",
         {closed(
              {{"json", json_value},
               {"regex", text("the whole text matches it")},
               {"choice", choice},
               {"grammar", text("GBNF or EBNF with a rule root")},
               {"json_object", boolean("any JSON object")},
               {"structural_tag", {{"type", {"object", "string", "null"}}}},
               {"disable_any_whitespace", boolean("no white space between the tokens of JSON")},
               {"disable_additional_properties", boolean("objects have the properties that are named only")},
               {"whitespace_pattern", text("what may stand between the tokens of JSON")}}),
          {{"type", "null"}}}},
        {"description",
         "what the text must look like: one of json, regex, choice, grammar, json_object, structural_tag"}}},
      {"guided_json", json_value},
      {"guided_regex", text("older name of structured_outputs.regex")},
      {"guided_choice", choice},
      {"guided_grammar", text("older name of structured_outputs.grammar")},
      {"guided_whitespace_pattern", text("older name of structured_outputs.whitespace_pattern")},
      {"grammar", text("llama.cpp's name of structured_outputs.grammar")},
      {"json_schema", json_value}};
  return fields;
}

Result<std::optional<StructuredOutputs>> read_structured_outputs(const Body& body) {
  std::vector<std::string> given;
  std::optional<StructuredOutputs> outputs;
  const auto take = [&](const char* field, std::optional<StructuredOutputs> one) {
    if (!one) return;
    given.emplace_back(field);
    outputs = std::move(one);
  };
  if (const Body* value = member(body, "structured_outputs")) take("structured_outputs", of_vllm(*value));
  if (const Body* value = member(body, "response_format")) take("response_format", of_openai(*value));
  for (const char* field : {"guided_json", "json_schema"}) {
    if (const Body* value = member(body, field)) take(field, StructuredOutputs{.json = text_of(*value)});
  }
  for (const char* field : {"guided_grammar", "grammar"}) {
    if (const Body* value = member(body, field)) take(field, StructuredOutputs{.grammar = text_of(*value)});
  }
  if (const Body* value = member(body, "guided_regex"))
    take("guided_regex", StructuredOutputs{.regex = text_of(*value)});
  if (member(body, "guided_choice") != nullptr)
    take("guided_choice", StructuredOutputs{.choice = texts_at(body, "guided_choice")});
  if (given.size() > 1)
    return errorf(ErrorCode::kInvalidArgument, "{}: cannot stand beside {}", given[1], given[0]);
  if (outputs && member(body, "guided_whitespace_pattern") != nullptr) {
    outputs->whitespace_pattern = pattern_at(body, "guided_whitespace_pattern");
  }
  return outputs;
}

}  // namespace penstock
