#include "server/api/structured.h"

#include <vector>

#include "frontend/params_json.h"
#include "server/api/schema_parts.h"
#include "server/services/config.h"

namespace penstock {
namespace {

using Body = nlohmann::ordered_json;
using Json = nlohmann::json;

// Returns a member; null: absent or JSON null.
const Body* member(const Body& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// Returns JSON that may be given as a string.
std::string text_of(const Body& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Body::error_handler_t::replace);
}

std::string text_at(const Body& object, const char* key) {
  const Body* value = member(object, key);
  return value == nullptr ? std::string() : text_of(*value);
}

std::vector<std::string> texts_at(const Body& object, const char* key) {
  const Body* value = member(object, key);
  return value == nullptr ? std::vector<std::string>() : value->get<std::vector<std::string>>();
}

std::optional<std::string> pattern_at(const Body& object, const char* key) {
  const Body* value = member(object, key);
  return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

// Reads a format {"type": …} at `path`; nullopt: {"type": "text"}.
std::optional<AskedOutputs> of_format(const Body& value, const std::string& path) {
  const std::string type = value["type"];
  if (type == "text") return std::nullopt;
  if (type == "structural_tag") return AskedOutputs{{.structural_tag = text_of(value)}, path};
  if (const Body* named = member(value, "json_schema"))
    return AskedOutputs{{.json = text_at(*named, "schema")}, path + ".json_schema.schema"};
  if (member(value, "schema") != nullptr)
    return AskedOutputs{{.json = text_at(value, "schema")}, path + ".schema"};
  return AskedOutputs{{.json_object = true}, path};
}

// The fields that may specify a form; a body may use at most one.
class Sources {
 public:
  explicit Sources(const Body& body) : body_(body) {}

  void take(const std::string& field, std::optional<AskedOutputs> one) {
    if (!one) return;
    given.push_back(field);
    asked = std::move(one);
  }
  // Reads a format, inside `outer` if given.
  void take_format(const char* outer, const char* name) {
    const Body* holder = *outer == '\0' ? &body_ : member(body_, outer);
    const Body* format = holder == nullptr ? nullptr : member(*holder, name);
    const std::string path = *outer == '\0' ? name : std::string(outer) + "." + name;
    if (format != nullptr) take(path, of_format(*format, path));
  }
  void take_text(const char* field, std::string StructuredOutputs::* part) {
    const Body* value = member(body_, field);
    if (value == nullptr) return;
    AskedOutputs one{{}, field};
    one.outputs.*part = text_of(*value);
    take(field, std::move(one));
  }
  Status take_all();

  std::vector<std::string> given;
  std::optional<AskedOutputs> asked;
  std::optional<StructuredOutputs> options;  // of structured_outputs without a form

 private:
  const Body& body_;
};

Status Sources::take_all() {
  if (const Body* value = member(body_, "structured_outputs")) {
    ASSIGN_OR_RETURN(StructuredOutputs outputs, structured_outputs_from_json(*value));
    if (outputs.has_form()) {
      take("structured_outputs", AskedOutputs{std::move(outputs), ""});
    } else {
      options = std::move(outputs);
    }
  }
  take_format("", "response_format");
  take_format("text", "format");
  take_format("output_config", "format");
  take_format("", "output_format");
  take_text("guided_json", &StructuredOutputs::json);
  take_text("json_schema", &StructuredOutputs::json);
  take_text("guided_grammar", &StructuredOutputs::grammar);
  take_text("grammar", &StructuredOutputs::grammar);
  take_text("guided_regex", &StructuredOutputs::regex);
  if (member(body_, "guided_choice") != nullptr)
    take("guided_choice",
         AskedOutputs{{.choice = texts_at(body_, "guided_choice")}, "guided_choice"});
  return {};
}

Json type_is(const char* name) { return {{"enum", {name}}, {"title", Json(name).dump()}}; }

Json schema_value() { return {{"type", {"object", "boolean"}}, {"description", "a JSON Schema"}}; }

// Fields beside the schema in OpenAI's formats.
Json naming_fields() {
  using namespace schema;
  return {{"name", text("what it is called; no effect")},
          {"description", text("no effect")},
          {"schema", schema_value()},
          {"strict", boolean("no effect: schemas are always enforced")}};
}

}  // namespace

Json response_format_field() {
  using namespace schema;
  return any_of(
      {closed({{"type", type_is("text")}}, {"type"}),
       closed({{"type", type_is("json_object")}, {"schema", schema_value()}}, {"type"}),
       closed(
           {{"type", type_is("json_schema")}, {"json_schema", open(naming_fields(), {"schema"})}},
           {"type", "json_schema"}),
       closed({{"type", type_is("json_schema")}, {"schema", schema_value()}}, {"type", "schema"}),
       open({{"type", type_is("structural_tag")}}, {"type"})},
      "the form of the reply: {\"type\": \"text\"}, \"json_object\", \"json_schema\" or "
      "\"structural_tag\"");
}

Json text_format_field() {
  using namespace schema;
  Json named = naming_fields();
  named["type"] = type_is("json_schema");
  return any_of({closed({{"type", type_is("text")}}, {"type"}),
                 closed({{"type", type_is("json_object")}}, {"type"}),
                 closed(std::move(named), {"type", "schema"}),
                 open({{"type", type_is("structural_tag")}}, {"type"})},
                "the form of the text: {\"type\": \"text\"}, \"json_object\", \"json_schema\" or "
                "\"structural_tag\"");
}

Json output_format_field() {
  using namespace schema;
  return any_of(
      {closed({{"type", type_is("json_schema")}, {"schema", schema_value()}}, {"type", "schema"})},
      "the form of the text: {\"type\": \"json_schema\", \"schema\": …}");
}

namespace {

Json vllm_fields() {
  using namespace schema;
  Json fields = Json::object();
  const StructuredOutputs defaults;
  StructuredOutputs::visit(defaults, [&](const char* name, const auto& value, const char* help,
                                         StructuredOutputs::As as) {
    using Field = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Field, bool>) {
      fields[name] = boolean(help);
    } else if constexpr (std::is_same_v<Field, std::vector<std::string>>) {
      fields[name] = list(plain("string"), help);
    } else {
      fields[name] = as == StructuredOutputs::As::kJson
                         ? field({"object", "boolean", "string"}, help)
                         : text(help);
    }
  });
  return fields;
}

}  // namespace

Json structured_fields() {
  using namespace schema;
  const Json json_value = {{"type", {"object", "boolean", "string", "null"}},
                           {"description", "a JSON Schema, or its text"}};
  const Json choice = list(plain("string"), "the text is one of these");
  Json fields = {
      {"structured_outputs",
       {{"anyOf", {closed(vllm_fields()), {{"type", "null"}}}},
        {"description",
         "what the text must look like: one of json, regex, choice, grammar, json_object, "
         "structural_tag"}}},
      {"guided_json", json_value},
      {"guided_regex", text("older name of structured_outputs.regex")},
      {"guided_choice", choice},
      {"guided_grammar", text("older name of structured_outputs.grammar")},
      {"guided_whitespace_pattern", text("older name of structured_outputs.whitespace_pattern")},
      {"grammar", text("llama.cpp's name of structured_outputs.grammar")},
      {"json_schema", json_value}};
  return fields;
}

void add_defaults(const StructuredDefaults& defaults, StructuredOutputs& outputs) {
  outputs.disable_any_whitespace |= defaults.disable_any_whitespace;
  outputs.disable_additional_properties |= defaults.disable_additional_properties;
  outputs.additional_properties |=
      defaults.additional_properties && !outputs.disable_additional_properties;
}

size_t text_bytes(const StructuredOutputs& outputs) {
  size_t bytes = outputs.json.size() + outputs.regex.size() + outputs.grammar.size() +
                 outputs.structural_tag.size() + outputs.whitespace_pattern.value_or("").size();
  for (const std::string& one : outputs.choice) bytes += one.size();
  return bytes;
}

Result<std::optional<AskedOutputs>> read_structured_outputs(const Body& body) {
  Sources sources(body);
  RETURN_IF_ERROR(sources.take_all());
  if (sources.given.size() > 1) {
    return errorf(ErrorCode::kInvalidArgument, "{}: cannot stand beside {}", sources.given[1],
                  sources.given[0]);
  }
  if (sources.options && sources.asked) {
    sources.asked->outputs.set_options(*sources.options);
  } else if (sources.options) {
    sources.asked = AskedOutputs{*std::move(sources.options), ""};
  }
  const bool spaced = member(body, "guided_whitespace_pattern") != nullptr;
  if (spaced && !sources.asked) {
    return errorf(ErrorCode::kInvalidArgument,
                  "guided_whitespace_pattern: belongs to guided_json, which is not there");
  }
  if (spaced)
    sources.asked->outputs.whitespace_pattern = pattern_at(body, "guided_whitespace_pattern");
  return std::move(sources.asked);
}

}  // namespace penstock
