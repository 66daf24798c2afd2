#include "frontend/chat/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text_hash.h"
#include "frontend/chat/call_stream.h"
#include "frontend/chat/marked_parser.h"
#include "frontend/chat/parameter_schemas.h"
#include "frontend/chat/tag_formats.h"
#include "frontend/json_fields.h"

namespace penstock {
namespace {

using namespace tag_formats;
using Arguments = CallableTool::Arguments;

// Returns the grammar of a writing's text with its fields.
Json fixed(std::string_view written) {
  Json::array_t parts;
  while (!written.empty()) {
    const std::string_view piece = next_piece(written);
    if (piece == "{n}") {
      parts.push_back(regex("0|[1-9][0-9]{0,2}"));
    } else if (piece == "{id}") {
      parts.push_back(regex("[a-zA-Z0-9]{9}"));
    } else if (piece == "{type}") {
      parts.push_back(regex("number|boolean|null|object|array"));
    } else {
      parts.push_back(text(std::string(piece)));
    }
  }
  return parts.empty() ? text("") : sequence(std::move(parts));
}

bool says_nothing(std::string_view key) {
  constexpr std::string_view kKeys[] = {
      "type",        "properties", "required",    "additionalProperties",
      "$schema",     "$defs",      "definitions", "title",
      "description", "default",    "examples",    "$comment",
      "$id",         "strict"};
  return std::ranges::find(kKeys, key) != std::ranges::end(kKeys);
}

// Whether a schema of a list or an object has only keywords that gemma_nested() and elements_in()
// enforce.
bool has_plain_rules(const Json& schema) {
  for (const auto& [key, value] : schema.items()) {
    if (!says_nothing(key) && key != "items" && key != "maxItems") return false;
  }
  return true;
}

// The names in a list, which may have other values.
TextSet names_in(const Json& list) {
  TextSet names;
  if (!list.is_array()) return names;
  for (const Json& one : list) {
    if (one.is_string()) names.insert(one.get<std::string>());
  }
  return names;
}

// Parameters, and members of those, that all tools may have where they are written one by one.
constexpr int kMostMembers = 20'000;
// Stands for the function's name in CallWriting::name_end.
constexpr std::string_view kNameField = "{name}";
// Lists and objects inside each other that are written with the rules of each: a schema may be part
// of itself.
constexpr int kMostNested = 16;
// Elements in values that all tools may have; where there are more a value is JSON.
constexpr int kMostElementsInside = 5000;

// Names of required members and alternatives that are walked for the parameters of all tools.
constexpr size_t kMostWalked = 200'000;

// The alternatives of a schema that says nothing else; null: it has no such.
const Json* only_alternatives(const Json& schema) {
  const Json* found = nullptr;
  for (const auto& [key, value] : schema.items()) {
    if (says_nothing(key)) continue;
    if (found != nullptr || (key != "anyOf" && key != "oneOf") || !value.is_array()) return nullptr;
    found = &value;
  }
  return found;
}

// Makes the grammar of one tool's arguments.
class ArgumentsGrammar {
 public:
  ArgumentsGrammar(const CallWriting& writing, const CallableTool& tool, SchemaBudget& budget)
      : writing_(writing),
        tool_(tool),
        budget_(budget),
        root_(get_field(*tool.function, "parameters")),
        document_(root_, budget) {}

  Result<Json> make() {
    const bool json = writing_.arguments == ArgumentForm::kJson;
    if (const Json& grammar = get_field(*tool_.function, "grammar"); !grammar.is_null())
      return one_text(grammar);
    if (!root_.is_object() && !root_.is_null() && tool_.arguments == Arguments::kStrict)
      return refused(ErrorCode::kInvalidArgument, "expected a JSON Schema of an object");
    if (tool_.arguments == Arguments::kFree || !root_.is_object())
      return json ? schema({{"type", "object"}}) : any();
    auto made = json ? json_object() : one_by_one();
    if (!made && tool_.arguments == Arguments::kBestEffort)
      return json ? schema({{"type", "object"}}) : any();
    return made;
  }

 private:
  tl::unexpected<Error> refused(ErrorCode code, std::string_view why) const {
    return errorf(code, "{}.function.parameters: {}", tool_.where, why);
  }

  // Returns the grammar of the argument `input`, whose text obeys `grammar`.
  Result<Json> one_text(const Json& grammar) const {
    const Json &syntax = get_field(grammar, "syntax"), &text = get_field(grammar, "definition");
    if ((syntax != "lark" && syntax != "regex") || !text.is_string()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}.function.grammar: expected {{\"syntax\": \"lark\" or \"regex\", "
                    "\"definition\": …}}",
                    tool_.where);
    }
    if (syntax == "lark") return lark_text(text);
    const Json input = {{"type", "string"}, {"pattern", "^(?:" + text.get<std::string>() + ")$"}};
    const Json function = {{"parameters",
                            {{"type", "object"},
                             {"properties", {{"input", input}}},
                             {"required", {"input"}},
                             {"additionalProperties", false}}}};
    return ArgumentsGrammar(writing_, {&function, Arguments::kStrict, tool_.where}, budget_).make();
  }

  Json lark_text(const Json& definition) const {
    const ParameterMarks& marks = writing_.parameters;
    const bool quoted =
        writing_.arguments == ArgumentForm::kJson || writing_.arguments == ArgumentForm::kPython;
    Json content = at_place({{"type", "grammar"}, {"grammar", definition}, {"in_string", quoted}},
                            tool_.where + ".function.grammar");
    switch (writing_.arguments) {
      case ArgumentForm::kJson:
        return sequence_of(regex(R"(\{"input": ?")"), std::move(content), text("\"}"));
      case ArgumentForm::kPython:
        return sequence_of(text("input" + marks.name_end + "\""), std::move(content), text("\""));
      case ArgumentForm::kGemma:
        return sequence_of(text("input" + marks.name_end), text(marks.open), std::move(content),
                           text(marks.open));
      case ArgumentForm::kElements: return element("input", std::move(content));
      case ArgumentForm::kParameters: break;
    }
    return sequence_of(text(marks.open + "input"), text(marks.name_end), std::move(content),
                       text(marks.close));
  }

  // Sets the format's place for refusals, and whether a refusal is an error.
  Json enforced(Json format, const std::string& member = {}) const {
    format["where"] =
        tool_.where + ".function.parameters" + (member.empty() ? "" : ".properties." + member);
    if (tool_.arguments == Arguments::kBestEffort) format["best_effort"] = true;
    return format;
  }

  Result<Json> json_object() const {
    Json parameters = root_;
    const Json& type = get_field(root_, "type");
    const bool may_be = type.is_null() || type == "object" ||
                        (type.is_array() && std::ranges::find(type, Json("object")) != type.end());
    if (!may_be) return refused(ErrorCode::kInvalidArgument, "type: expected \"object\"");
    parameters["type"] = "object";
    return enforced(schema(std::move(parameters)));
  }

  // Returns members in the order of their properties. Only properties of the schema are allowed,
  // unless it has none.
  Result<Json> one_by_one() {
    const Json* object = document_.resolved(root_);
    if (object == nullptr || !object->is_object())
      return refused(ErrorCode::kUnsupported, "$ref: not in the document");
    for (const auto& [key, value] : object->items()) {
      if (!says_nothing(key))
        return refused(ErrorCode::kUnsupported,
                       key + ": cannot be enforced where a model writes parameters one by one");
    }
    ASSIGN_OR_RETURN(std::vector<Member> members, members_of(*object));
    const Json& others = get_field(*object, "additionalProperties");
    if (members.empty() && others != false) return any();
    return put_together(std::move(members));
  }

  bool may_walk(size_t n) { return (budget_.walked += n) <= kMostWalked; }

  struct Member {
    Json format;
    bool required;
  };

  Result<std::vector<Member>> members_of(const Json& object) {
    std::vector<Member> members;
    const Json& properties = get_field(object, "properties");
    const Json& needed = get_field(object, "required");
    if (!may_walk(needed.size()))
      return refused(ErrorCode::kUnsupported, "required: too many names in all tools together");
    const TextSet wanted = names_in(needed);
    TextSet done;
    if (properties.is_object()) {
      for (const auto& [name, value] : properties.items()) {
        done.insert(name);
        auto one = member(name, value);
        if (!one) return tl::unexpected(one.error());
        if (one->is_null() && wanted.contains(name))
          return refused(ErrorCode::kInvalidArgument,
                         "properties." + name + ": required, but no value is allowed");
        if (!one->is_null()) members.push_back({*std::move(one), wanted.contains(name)});
      }
    }
    if (needed.is_array()) {
      for (const Json& name : needed) {
        if (!name.is_string() || !done.insert(name.get<std::string>()).second) continue;
        ASSIGN_OR_RETURN(Json one, member(name, true));
        members.push_back({std::move(one), true});
      }
    }
    return members;
  }

  Json put_together(std::vector<Member> members) const {
    if (writing_.arguments == ArgumentForm::kPython || writing_.arguments == ArgumentForm::kGemma)
      return python_list(std::move(members));
    Json::array_t parts;
    for (Member& one : members)
      parts.push_back(one.required ? std::move(one.format) : optional(std::move(one.format)));
    return parts.empty() ? text("") : sequence(std::move(parts));
  }

  // Required arguments come first, then others in any order.
  Json python_list(std::vector<Member> members) const {
    Json::array_t parts, others;
    for (Member& one : members) {
      if (!one.required) {
        others.push_back(std::move(one.format));
        continue;
      }
      if (!parts.empty()) parts.push_back(text(writing_.parameters.close));
      parts.push_back(std::move(one.format));
    }
    if (!others.empty()) {
      const size_t most = others.size();
      Json any = either(std::move(others));
      if (parts.empty()) {
        Json list = separated(std::move(any), writing_.parameters.close);
        list["max"] = most;
        parts.push_back(optional(std::move(list)));
      } else {
        Json more = {{"type", "repeat"},
                     {"content", sequence_of(text(writing_.parameters.close), std::move(any))},
                     {"max", most}};
        parts.push_back(std::move(more));
      }
    }
    return parts.empty() ? text("") : sequence(std::move(parts));
  }

  // null: the schema allows no value.
  Result<Json> member(const std::string& name, const Json& of) {
    const JsonTypes types = document_.types_of(of);
    if (types == 0) return Json();
    const bool inside = depth_ > 0 && writing_.arguments == ArgumentForm::kElements;
    if (inside ? ++budget_.elements > kMostElementsInside : ++budget_.members > kMostMembers)
      return refused(ErrorCode::kUnsupported, "properties." + name + ": too many parameters");
    const bool python = writing_.arguments == ArgumentForm::kPython,
               gemma = writing_.arguments == ArgumentForm::kGemma,
               elements = writing_.arguments == ArgumentForm::kElements;
    if (!is_function_name(name) ||
        (elements && writing_.begin.starts_with(element_mark(writing_.parameters.open, name))) ||
        ((python || gemma) && name.find_first_of("-.:/") != std::string::npos))
      return refused(
          ErrorCode::kUnsupported,
          "properties." + name + ": calls of this model cannot have a parameter of this name");
    auto value = python     ? python_value(of, name)
                 : gemma    ? gemma_value(of, types, name)
                 : elements ? element_value(of, types, name)
                            : tagged_value(of, types, name);
    if (!value)
      return refused(value.error().code, "properties." + name + ": " + value.error().message);
    const ParameterMarks& marks = writing_.parameters;
    if (python || gemma) return sequence_of(text(name + marks.name_end), *std::move(value));
    if (elements) return element(name, *std::move(value));
    return sequence_of(text(marks.open + name), *std::move(value), text(marks.close));
  }

  // Strings between the writing's marks, numbers and words as in JSON, and lists and objects of
  // these.
  Result<Json> gemma_value(const Json& part, JsonTypes types, const std::string& name) {
    using namespace json_types;
    const std::string& quote = writing_.parameters.open;
    Json::array_t ways;
    if ((types & kString) != 0) {
      ASSIGN_OR_RETURN(const auto rules, document_.string_rules(part));
      for (const Json& rule : rules) {
        Json raw = {{"type", "raw_string"}, {"schema", rule}, {"excludes", Json::array({quote})}};
        ways.push_back(sequence_of(text(quote), enforced(std::move(raw), name), text(quote)));
      }
    }
    if ((types & (kArray | kObject)) != 0) {
      ASSIGN_OR_RETURN(Json nested, gemma_nested(part, types, name));
      ways.push_back(std::move(nested));
    } else if ((types & ~kString) != 0) {
      ASSIGN_OR_RETURN(Json document, document_.document_of(part, true));
      ways.push_back(enforced(schema(std::move(document)), name));
    }
    return either(std::move(ways));
  }

  // Enforces lists with one schema of items, and objects with named properties; other values are
  // unconstrained.
  Result<Json> gemma_nested(const Json& part, JsonTypes types, const std::string& name) {
    using namespace json_types;
    const Json* object = document_.resolved(part);
    const bool known = depth_ < kMostNested && object != nullptr && object->is_object() &&
                       has_plain_rules(*object);
    static const Json kNone;
    const Json& items = known ? get_field(*object, "items") : kNone;
    if (known && types == kArray && items.is_object()) {
      ++depth_;
      auto one = gemma_value(items, document_.types_of(items), name);
      --depth_;
      if (!one) return one;
      Json list = separated(*std::move(one), ",");
      const Json& most = get_field(*object, "maxItems");
      if (most == 0) return text("[]");
      if (most.is_number_unsigned()) list["max"] = most;
      return sequence_of(text("["), optional(std::move(list)), text("]"));
    }
    const Json& properties = known ? get_field(*object, "properties") : kNone;
    if (known && types == kObject && properties.is_object()) {
      ++depth_;
      auto members = members_of(*object);
      --depth_;
      if (!members) return tl::unexpected(members.error());
      return sequence_of(text("{"), python_list(*std::move(members)), text("}"));
    }
    if (tool_.arguments == Arguments::kStrict)
      return errorf(ErrorCode::kUnsupported,
                    "cannot be enforced where a model writes calls as Gemma does");
    return gemma_rule("value");
  }

  // Returns the grammar of any value or any arguments.
  Json gemma_rule(const char* start) const {
    const std::string& quote = writing_.parameters.open;
    std::string literal;
    for (const char c : quote) literal += c == '"' ? "\\\"" : std::string(1, c);
    const std::string grammar = fmt::format(
        "root ::= {}\n"
        "arguments ::= (pair (\",\" pair)*)?\n"
        "value ::= string | number | \"true\" | \"false\" | \"null\" | list | object\n"
        "string ::= \"{}\" ([^<] | \"<\" [^<{}])* \"{}\"\n"
        "number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)?\n"
        "list ::= \"[\" (value (\",\" value)*)? \"]\"\n"
        "object ::= \"{{\" arguments \"}}\"\n"
        "pair ::= [a-zA-Z_] [a-zA-Z0-9_.-]* \":\" value\n",
        start, literal, quote[1], literal);
    return {{"type", "grammar"}, {"grammar", grammar}};
  }

  // Returns the mark that opens or closes an element.
  std::string element_mark(const std::string& begin, std::string_view name) const {
    return begin + std::string(name) + writing_.parameters.name_end;
  }
  Json element(std::string_view name, Json value) const {
    const ParameterMarks& marks = writing_.parameters;
    return sequence_of(text(element_mark(marks.open, name)), std::move(value),
                       text(element_mark(marks.close, name)));
  }

  // Strings are written verbatim, lists and objects as elements where that enforces their rules and
  // no string may stand there, and everything else as JSON.
  Result<Json> element_value(const Json& part, JsonTypes types, const std::string& name) {
    using namespace json_types;
    const JsonTypes nested = types & (kArray | kObject);
    JsonTypes left = types & ~kString;
    Json::array_t ways;
    if ((types & kString) != 0) {
      ASSIGN_OR_RETURN(ways, string_ways(part, types, name));
    } else if (nested == kArray || nested == kObject) {
      const Json* plain = plain_part(part, nested);
      auto elements = plain != nullptr ? elements_in(*plain, nested, name) : Result<Json>();
      if (!elements && depth_ > 0) return elements;
      if (elements && !elements->is_null()) {
        ways.push_back(*std::move(elements));
        left &= ~nested;
      }
    }
    if (left != 0) {
      ASSIGN_OR_RETURN(Json document, document_.document_of(part, false));
      document["type"] = type_names(left);
      ways.push_back(enforced(schema(std::move(document)), name));
    }
    return either(std::move(ways));
  }

  // Returns the schema of the lists or objects among the values; null: it has rules that elements do
  // not enforce.
  const Json* plain_part(const Json& part, JsonTypes nested) {
    const Json* at = document_.resolved(part);
    for (int i = 0; i < kMostNested && at != nullptr && at->is_object(); ++i) {
      if (has_plain_rules(*at)) return at;
      const Json* ways = only_alternatives(*at);
      if (ways == nullptr || !may_walk(ways->size())) return nullptr;
      at = nullptr;
      for (const Json& way : *ways) {
        if ((document_.types_of(way) & nested) == 0) continue;
        if (at != nullptr) return nullptr;
        at = document_.resolved(way);
      }
    }
    return nullptr;
  }

  // Returns the elements of a list or an object; null or an error: they cannot be written so.
  Result<Json> elements_in(const Json& plain, JsonTypes nested, const std::string& name) {
    if (depth_ >= kMostNested) return Json();
    if (nested == json_types::kObject) {
      const Json& properties = get_field(plain, "properties");
      if (!properties.is_object() || properties.empty()) return Json();
      ++depth_;
      auto members = members_of(plain);
      --depth_;
      if (!members) return tl::unexpected(members.error());
      return put_together(*std::move(members));
    }
    const Json &items = get_field(plain, "items"), &most = get_field(plain, "maxItems");
    if (!items.is_object() || document_.types_of(items) == 0) return Json();
    if (most == 0) return text("");
    ++depth_;
    auto one = element_value(items, document_.types_of(items), name);
    --depth_;
    if (!one) return one;
    Json list = star(element(kItemElement, *std::move(one)));
    if (!most.is_number_unsigned()) return list;
    list["type"] = "repeat";
    list["max"] = most;
    return list;
  }

  Result<Json> python_value(const Json& part, const std::string& name) {
    ASSIGN_OR_RETURN(Json document, document_.document_of(part, false));
    Json format = enforced(schema(std::move(document)), name);
    format["style"] = "python";
    return format;
  }

  // Returns the grammar of a value after a parameter's name: strings verbatim, others as JSON.
  // Strings that would be read as another type are excluded, unless the writing distinguishes them.
  Result<Json> tagged_value(const Json& part, JsonTypes types, const std::string& name) {
    using namespace json_types;
    const ParameterMarks& marks = writing_.parameters;
    Json::array_t ways;
    if ((types & kString) != 0) {
      ASSIGN_OR_RETURN(Json::array_t strings, string_ways(part, types, name));
      for (Json& one : strings) ways.push_back(sequence_of(text(marks.name_end), std::move(one)));
    }
    if ((types & ~kString) != 0) {
      ASSIGN_OR_RETURN(Json document, document_.document_of(part, (types & kString) != 0));
      ways.push_back(
          sequence_of(fixed(marks.json_name_end.empty() ? marks.name_end : marks.json_name_end),
                      enforced(schema(std::move(document)), name)));
    }
    return either(std::move(ways));
  }

  // Returns the grammars of strings without quotes, one for each of their rules.
  Result<Json::array_t> string_ways(const Json& part, JsonTypes types, const std::string& name) {
    using namespace json_types;
    Json unlike = Json::array();
    if ((types & kNumber) != 0) unlike.push_back(R"(\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?\s*)");
    if ((types & kBoolean) != 0) unlike.push_back(R"(\s*(true|false)\s*)");
    if ((types & kNull) != 0) unlike.push_back(R"(\s*null\s*)");
    if ((types & kArray) != 0) unlike.push_back(R"(\s*\[[\s\S]*)");
    if ((types & kObject) != 0) unlike.push_back(R"(\s*\{[\s\S]*)");
    ASSIGN_OR_RETURN(const auto rules, document_.string_rules(part));
    Json::array_t ways;
    for (const Json& rule : rules) {
      Json raw = {
          {"type", "raw_string"}, {"schema", rule}, {"excludes", Json::array({closing_mark()})}};
      if (!unlike.empty() && writing_.parameters.json_name_end.empty()) raw["unlike"] = unlike;
      ways.push_back(enforced(std::move(raw), name));
    }
    return ways;
  }

  // Returns what ends a string without quotes.
  std::string closing_mark() const {
    if (writing_.arguments == ArgumentForm::kElements) return writing_.parameters.open;
    const std::string& close = writing_.parameters.close;
    const size_t first = skip_space(close);
    return close.substr(first, close.find_last_not_of(" \n") + 1 - first);
  }

  // Returns the grammar of any arguments.
  Json any() const {
    const ParameterMarks& marks = writing_.parameters;
    if (writing_.arguments == ArgumentForm::kGemma) return gemma_rule("arguments");
    if (writing_.arguments == ArgumentForm::kPython) {
      Json value = schema(true);
      value["style"] = "python";
      return optional(separated(
          sequence_of(regex("[a-zA-Z_][a-zA-Z0-9_]{0,63}"), text(marks.name_end), std::move(value)),
          marks.close));
    }
    // A closing mark repeats its name, which a grammar of any names cannot say.
    if (writing_.arguments == ArgumentForm::kElements) {
      const std::string_view ends[] = {writing_.call_end, writing_.name_begin, writing_.begin,
                                       writing_.end};
      std::vector<std::string> excludes;
      for (const std::string_view end : ends) excludes.emplace_back(without_space(end));
      return any_text(std::move(excludes));
    }
    Json name_end = text(marks.name_end);
    if (!marks.json_name_end.empty())
      name_end = either(list_of(std::move(name_end), fixed(marks.json_name_end)));
    return star(sequence_of(text(marks.open), regex("[a-zA-Z0-9_.-]{1,64}"), std::move(name_end),
                            any_text({closing_mark()}), text(marks.close)));
  }

  const CallWriting& writing_;
  const CallableTool& tool_;
  SchemaBudget& budget_;
  const Json& root_;
  SchemaDocument document_;
  int depth_ = 0;  // of lists and objects that are open
};

// Returns a tool's name as calls write it. Errors: kUnsupported (the format cannot write it).
Result<std::string> written_name(const CallWriting& writing, const CallableTool& tool) {
  const std::string name = get_string(*tool.function, "name");
  if (writing.name_begin.ends_with('"') && writing.name_end.starts_with("\",")) {
    const std::string quoted = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
    return quoted.substr(1, quoted.size() - 2);
  }
  const bool python = writing.arguments == ArgumentForm::kPython;
  const bool digit = !name.empty() && name[0] >= '0' && name[0] <= '9';
  if (!is_function_name(name) ||
      (python && (digit || name.find_first_of(":/") != std::string::npos)))
    return errorf(ErrorCode::kUnsupported,
                  "{}.function.name: calls of this model cannot have the name '{}'", tool.where,
                  name);
  return name;
}

}  // namespace

Result<Json> named_calls_grammar(const CallWriting& writing,
                                 const std::vector<CallableTool>& tools) {
  Json::array_t ways, free_names;
  SchemaBudget budget;
  const auto behind = [&](const std::string& name, Json arguments) {
    std::string name_end = writing.name_end;
    if (const size_t at = name_end.find(kNameField); at != std::string::npos)
      name_end.replace(at, kNameField.size(), name);
    return sequence_of(fixed(name_end), std::move(arguments), fixed(writing.call_end));
  };
  const bool repeats_name = writing.name_end.find(kNameField) != std::string::npos;
  for (const CallableTool& tool : tools) {
    ASSIGN_OR_RETURN(std::string name, written_name(writing, tool));
    if (tool.arguments == Arguments::kFree && !repeats_name) {
      free_names.push_back(text(std::move(name)));
      continue;
    }
    ASSIGN_OR_RETURN(Json arguments, ArgumentsGrammar(writing, tool, budget).make());
    ways.push_back(sequence_of(text(name), behind(name, std::move(arguments))));
  }
  if (!free_names.empty()) {
    const CallableTool any{tools.front().function, Arguments::kFree, {}};
    ASSIGN_OR_RETURN(Json arguments, ArgumentsGrammar(writing, any, budget).make());
    ways.push_back(sequence_of(either(std::move(free_names)), behind({}, std::move(arguments))));
  }
  return either(std::move(ways));
}

Result<Json> calls_grammar(const CallWriting& writing, const std::vector<CallableTool>& tools,
                           bool one, std::string_view opened) {
  ASSIGN_OR_RETURN(Json named, named_calls_grammar(writing, tools));
  if (!opened.empty()) {
    const std::string first = (writing.begin + writing.name_begin).substr(opened.size());
    Json more = one ? text("")
                    : star(sequence_of(fixed(writing.separator + writing.name_begin), Json(named)));
    return sequence_of(fixed(first), std::move(named), std::move(more), fixed(writing.end));
  }
  Json call = sequence_of(fixed(writing.name_begin), std::move(named));
  if (!one) call = separated(std::move(call), writing.separator);
  return sequence_of(fixed(writing.begin), std::move(call), fixed(writing.end));
}

}  // namespace penstock
