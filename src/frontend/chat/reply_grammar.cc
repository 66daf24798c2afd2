#include "frontend/chat/reply_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json_text.h"
#include "base/text_hash.h"
#include "frontend/chat/call_grammar.h"
#include "frontend/chat/harmony.h"
#include "frontend/chat/marked_parser.h"
#include "frontend/chat/tag_formats.h"
#include "frontend/json_fields.h"

namespace penstock {
namespace {

using namespace tag_formats;
using Choice = ToolChoice::Kind;
using Arguments = CallableTool::Arguments;

bool must_call(const ToolChoice& choice) {
  return choice.kind == Choice::kRequired || choice.kind == Choice::kNamed;
}

bool is_strict(const Json& tool) {
  const Json& function = get_field(tool, "function");
  return get_bool(function, "strict") || get_bool(tool, "strict") ||
         get_field(function, "grammar").is_object();
}

// Returns the tools of the choice. Errors: kInvalidArgument (an unknown name).
Result<std::vector<CallableTool>> callable_tools(const ReplyRules& rules) {
  std::vector<CallableTool> callable;
  std::vector<std::string> names;
  const ViewSet wanted(rules.choice.names.begin(), rules.choice.names.end());
  for (size_t i = 0; rules.tools != nullptr && i < rules.tools->size(); ++i) {
    const Json& tool = (*rules.tools)[i];
    const Json& function = get_field(tool, "function");
    if (!function.is_object()) continue;
    names.push_back(get_string(function, "name"));
    if (!wanted.empty() && !wanted.contains(names.back())) continue;
    const Arguments arguments = is_strict(tool)           ? Arguments::kStrict
                                : must_call(rules.choice) ? Arguments::kBestEffort
                                                          : Arguments::kFree;
    callable.push_back({&function, arguments, fmt::format("tools[{}]", i)});
  }
  const ViewSet known(names.begin(), names.end());
  for (const std::string& name : rules.choice.names) {
    if (!known.contains(name))
      return errorf(ErrorCode::kInvalidArgument,
                    "tool_choice: there is no tool '{}'; the tools are: {}", name,
                    fmt::join(names, ", "));
  }
  if (must_call(rules.choice) && callable.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "tool_choice: a call is required, but there are no tools");
  return callable;
}

// Whether the rules restrict calls beyond what the model writes freely.
bool restricts_calls(const ReplyRules& rules, const std::vector<CallableTool>& callable) {
  return must_call(rules.choice) || callable.size() < rules.tools->size() ||
         std::ranges::any_of(
             callable, [](const CallableTool& t) { return t.arguments == Arguments::kStrict; });
}

// Returns the format of a constrained answer.
Result<Json> answer_format(const StructuredOutputs& wanted) {
  const int n_given = !wanted.json.empty() + !wanted.regex.empty() + !wanted.choice.empty() +
                      !wanted.grammar.empty() + wanted.json_object + !wanted.structural_tag.empty();
  if (n_given != 1)
    return errorf(ErrorCode::kInvalidArgument,
                  "structured_outputs: expected one form of the output, got {}", n_given);
  const auto parsed = [](const std::string& given, const char* field) -> Result<Json> {
    Json value = bounded_json<Json>(given);
    if (value.is_discarded())
      return errorf(ErrorCode::kInvalidArgument, "structured_outputs.{}: expected JSON", field);
    return value;
  };
  if (!wanted.json.empty()) {
    ASSIGN_OR_RETURN(Json document, parsed(wanted.json, "json"));
    return at_place(schema(std::move(document)), "#");
  }
  if (!wanted.regex.empty()) return at_place(regex(wanted.regex.c_str()), "#");
  if (!wanted.choice.empty()) {
    Json::array_t texts;
    for (const std::string& one : wanted.choice) texts.push_back(text(one));
    return either(std::move(texts));
  }
  if (!wanted.grammar.empty())
    return at_place({{"type", "grammar"}, {"grammar", wanted.grammar}}, "#");
  if (wanted.json_object) return schema({{"type", "object"}});
  ASSIGN_OR_RETURN(Json tag, parsed(wanted.structural_tag, "structural_tag"));
  if (tag.is_object() && tag.contains("structures")) {
    return Json{
        {"type", "triggered_tags"}, {"triggers", tag["triggers"]}, {"tags", tag["structures"]}};
  }
  return tag.is_object() && tag.contains("format") ? Json(tag["format"]) : tag;
}

Json one_of(const std::vector<std::string>& marks) {
  Json::array_t ways;
  for (const std::string& mark : marks) ways.push_back(text(mark));
  return either(std::move(ways));
}

// opened: the mark that the prompt ends with and the text's mark begins with; empty: none.
Json between_text_marks(const CallFormat& format, std::string_view opened, Json inner) {
  if (format.text_begins.empty()) return inner;
  if (!opened.empty())
    return sequence_of(text(format.text_begins.front().substr(opened.size())), std::move(inner));
  Json::array_t parts = list_of(optional(one_of(format.text_begins)), std::move(inner));
  if (!format.text_ends.empty()) parts.push_back(optional(one_of(format.text_ends)));
  return sequence(std::move(parts));
}

// Returns the format of text that no parser reads as a call.
Json free_text(const CallFormat& format, std::string_view opened) {
  Json any = any_text(format.open);
  // The text must not begin like a call without a mark.
  if (format.bare != 0) {
    std::vector<std::string> excludes = format.open;
    if (format.bare_lines) excludes.push_back(fmt::format("\n{}\"name\"", format.bare));
    any = {{"type", "regex"},
           {"pattern", fmt::format(R"(\s*([^\s\{}][\s\S]*)?)", format.bare)},
           {"excludes", std::move(excludes)}};
  }
  return between_text_marks(format, opened, std::move(any));
}

const char* kSpace = "[ \\t\\r\\n]{0,16}";

// Free reasoning in front of what follows, as far as it is not over. after: what follows reasoning,
// where that is something else than what stands without.
Json behind_reasoning(const ReplyContext& context, Json rest,
                      std::optional<Json> after = std::nullopt) {
  if (context.reasoning == nullptr) return rest;
  std::string_view prompt = context.prompt;
  while (!prompt.empty() && is_space_only(prompt.substr(prompt.size() - 1)))
    prompt.remove_suffix(1);
  const ReasoningRow& marks = *context.reasoning;
  if (prompt.ends_with(marks.close)) return rest;
  Json::array_t span{any_text({marks.close}), text(marks.close), regex(kSpace)};
  if (prompt.ends_with(marks.open)) {
    span.push_back(std::move(rest));
    return sequence(std::move(span));
  }
  span.insert(span.begin(), {regex(kSpace), text(marks.open)});
  Json thoughts = sequence(std::move(span));
  if (marks.close_alone)
    thoughts = either(list_of(std::move(thoughts), sequence_of(regex(kSpace), text(marks.close))));
  if (after)
    return either(list_of(std::move(rest), sequence_of(std::move(thoughts), *std::move(after))));
  return sequence_of(optional(std::move(thoughts)), std::move(rest));
}

// Makes the grammar of a reply's calls and of the text around them.
class ReplyGrammar {
 public:
  ReplyGrammar(const ReplyRules& rules, const ReplyContext& context,
               std::vector<CallableTool> callable)
      : rules_(rules), context_(context), callable_(std::move(callable)) {
    one_ = rules.one_call || rules.choice.kind == Choice::kNamed ||
           (context.calls != nullptr && context.calls->format.one_call);
    if (context.calls != nullptr)
      opened_ = prompt_opens_call(context.prompt, context.calls->format);
  }

  Result<Json> make() const {
    std::optional<Json> answer;
    if (rules_.answer) {
      ASSIGN_OR_RETURN(answer, answer_format(*rules_.answer));
    }
    if (context_.calls != nullptr && is_harmony(*context_.calls)) return harmony(std::move(answer));
    std::optional<Json> after;
    if (!opened_.empty() && context_.reasoning != nullptr) {
      ASSIGN_OR_RETURN(after, text_or_calls(answer, {}));
    }
    ASSIGN_OR_RETURN(Json rest, text_or_calls(std::move(answer), opened_));
    return behind_reasoning(context_, std::move(rest), std::move(after));
  }

 private:
  // Grammar of the reply behind reasoning, or behind a mark at the end of the prompt.
  Result<Json> text_or_calls(std::optional<Json> answer, std::string_view opened) const {
    if (callable_.empty()) return in_text_marks(*std::move(answer), opened);
    const CallFormat& format = context_.calls->format;
    ASSIGN_OR_RETURN(Json calls, calls_grammar(format.writing_for(context_.chat_template),
                                               callable_, one_, opened));
    if (!format.keeps_space && opened.empty()) calls = sequence_of(regex(kSpace), std::move(calls));
    if (must_call(rules_.choice)) return calls;
    if (answer) return either(list_of(in_text_marks(*std::move(answer), opened), std::move(calls)));
    Json said = free_text(format, opened);
    // After a mark of the prompt comes either text or the first call.
    if (format.start_only || !opened.empty())
      return either(list_of(std::move(said), std::move(calls)));
    return sequence_of(std::move(said), optional(std::move(calls)));
  }

  Json in_text_marks(Json answer, std::string_view opened) const {
    if (context_.calls == nullptr) return answer;
    return between_text_marks(context_.calls->format, opened, std::move(answer));
  }

  Result<Json> harmony(std::optional<Json> answer) const {
    const CallWriting writing{.name_end = " <|constrain|>json<|message|>"};
    std::optional<Json> calls;
    if (!callable_.empty()) {
      ASSIGN_OR_RETURN(calls, named_calls_grammar(writing, callable_));
    }
    const bool must = must_call(rules_.choice);
    const bool any_text_too = !answer && !must;
    if (any_text_too) answer = any_message_text();
    return harmony_grammar({.calls = calls ? &*calls : nullptr,
                            .answer = must ? nullptr : &*answer,
                            .with_preamble = any_text_too});
  }

  const ReplyRules& rules_;
  const ReplyContext& context_;
  std::vector<CallableTool> callable_;
  bool one_ = false;
  std::string_view opened_;  // the mark that the prompt ends with
};

}  // namespace

Result<std::optional<StructuredOutputs>> reply_constraint(ReplyRules rules,
                                                          const ReplyContext& context) {
  if (rules.choice.kind == Choice::kNamed && rules.choice.names.size() != 1)
    return errorf(ErrorCode::kInvalidArgument, "tool_choice: expected the name of one tool");
  ASSIGN_OR_RETURN(std::vector<CallableTool> callable, callable_tools(rules));
  std::optional<StructuredOutputs> options;
  if (rules.answer && !rules.answer->has_form() && !callable.empty())
    options = std::exchange(rules.answer, std::nullopt);
  const bool restricts = !callable.empty() && restricts_calls(rules, callable);
  if (context.calls == nullptr) {
    if (must_call(rules.choice))
      return errorf(
          ErrorCode::kUnsupported,
          "tool_choice: how the model writes calls is not known (tool_call_parser names it)");
    callable.clear();  // no calls are parsed
  } else if (!restricts && !rules.answer) {
    return std::nullopt;
  }
  if (callable.empty() && !rules.answer) return std::nullopt;
  const bool plain = callable.empty() && context.reasoning == nullptr && context.calls == nullptr;
  if (plain) return std::move(rules.answer);
  ASSIGN_OR_RETURN(Json format, ReplyGrammar(rules, context, std::move(callable)).make());
  StructuredOutputs constraint;
  if (rules.answer) options = std::move(rules.answer);
  if (options) constraint.set_options(*options);
  constraint.structural_tag = with(of_type("structural_tag"), "format", std::move(format))
                                  .dump(-1, ' ', false, Json::error_handler_t::replace);
  return constraint;
}

}  // namespace penstock
