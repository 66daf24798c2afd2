#include "text/load/mistral_template.h"

#include <string_view>

namespace penstock {
namespace {

// Macro for the texts of a message, and the starts of the first and the last user turn. A turn is a
// run of consecutive user messages.
constexpr std::string_view kBegin = R"({%- macro text(content) %}
    {%- if content is string %}{{- content }}
    {%- elif content %}
        {%- for part in content %}{{- part if part is string else part.text }}{%- if not loop.last %}{{- JOINED }}{%- endif %}{%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set at = namespace(first=-1, last=-1, system='') %}
{%- for message in messages %}
    {%- if message.role == 'user' and (loop.index0 == 0 or messages[loop.index0 - 1].role != 'user') %}
        {%- if at.first < 0 %}{%- set at.first = loop.index0 %}{%- endif %}
        {%- set at.last = loop.index0 %}
    {%- elif message.role == 'system' %}
        {%- set at.system = at.system + ('\n\n' if at.system else '') + text(message.content) %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in messages %}
    {%- set index = loop.index0 %}
    {%- if message.role == 'user' %}
        {%- if index > 0 and messages[index - 1].role == 'user' %}
            {{- '\n\n' }}
        {%- else %}
)";

constexpr std::string_view kTools = R"(
                {{- '[AVAILABLE_TOOLS][' }}
                {%- for tool in tools %}
                    {{- '{"type": "function", "function": {"name": ' + tool.function.name | tojson }}
                    {{- ', "description": ' + (tool.function.description or '') | tojson }}
                    {{- ', "parameters": ' + (tool.function.parameters or {}) | tojson + '}}' }}
                    {%- if not loop.last %}{{- ', ' }}{%- endif %}
                {%- endfor %}
                {{- '][/AVAILABLE_TOOLS]' }}
            {%- endif %}
)";

constexpr std::string_view kSettings = R"(
            {%- if index == at.first and reasoning_effort is defined and reasoning_effort %}
                {{- '[MODEL_SETTINGS]{"reasoning_effort": ' + reasoning_effort | tojson + '}[/MODEL_SETTINGS]' }}
            {%- endif %}
)";

constexpr std::string_view kUser = R"(
        {%- endif %}
        {{- text(message.content) }}
        {%- if index + 1 == messages | length or messages[index + 1].role != 'user' %}{{- '[/INST]' }}{%- endif %}
)";

constexpr std::string_view kAssistant = R"(
    {%- elif message.role == 'assistant' %}
)";

constexpr std::string_view kThoughts = R"(
        {%- if message.reasoning_content %}{{- '[THINK]' + message.reasoning_content + '[/THINK]' }}{%- endif %}
)";

constexpr std::string_view kJsonCalls = R"(
        {%- if message.tool_calls %}
            {{- '[TOOL_CALLS][' }}
            {%- for call in message.tool_calls %}
                {%- set arguments = call.function.arguments %}
                {{- '{"name": ' + call.function.name | tojson + ', "arguments": ' }}
                {{- arguments if arguments is string else arguments | tojson }}
                {%- if call.id and call.id != 'null' %}{{- ', "id": ' + call.id | tojson }}{%- endif %}
                {{- '}' if loop.last else '}, ' }}
            {%- endfor %}
            {{- ']' }}
        {%- endif %}
)";

constexpr std::string_view kCalls = R"(
        {%- for call in message.tool_calls or [] %}
            {%- set arguments = call.function.arguments %}
            {{- '[TOOL_CALLS]' + call.function.name }}
            {{- CALL_ID }}
            {{- '[ARGS]' + (arguments if arguments is string else arguments | tojson) }}
        {%- endfor %}
)";
constexpr std::string_view kCallId =
    R"('[CALL_ID]' + call.id if call.id and call.id != 'null' else '')";

// Inserts JSON as it is, and other text as a JSON string.
constexpr std::string_view kJsonResult = R"(
        {%- set content = text(message.content) %}
        {%- set json = content[:1] in ['{', '[', '"'] or content in ['true', 'false', 'null']
                       or content | int | string == content %}
        {{- '[TOOL_RESULTS]{"content": ' + (content if json else content | tojson) }}
        {{- ', "call_id": ' + message.tool_call_id | tojson + '}[/TOOL_RESULTS]' }}
)";

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out(text);
  out.replace(out.find(what), what.size(), by);
  return out;
}

}  // namespace

std::string mistral_chat_template(const MistralFormat& format) {
  const bool system_apart = format.version >= 7, calls_by_name = format.version >= 11,
             with_ids = format.version < 13;
  std::string out;
  if (format.settings && !format.reasoning_effort.empty())
    out = "{%- set reasoning_effort = reasoning_effort or '" + format.reasoning_effort + "' %}\n";
  out += replaced(kBegin, "JOINED", format.version < 15 ? R"('\n\n')" : "''");
  out += "            {%- if tools and index == at." + std::string(with_ids ? "last" : "first") +
         " %}";
  out += kTools;
  if (format.settings) out += kSettings;
  out += "            {{- '[INST]' }}\n";
  if (!system_apart)
    out +=
        "            {%- if index == at.last and at.system %}{{- at.system + '\\n\\n' }}{%- endif "
        "%}\n";
  out += kUser;
  if (system_apart) {
    out += "    {%- elif message.role == 'system' %}\n";
    out += "        {{- '[SYSTEM_PROMPT]' + text(message.content) + '[/SYSTEM_PROMPT]' }}\n";
  }
  out += kAssistant;
  if (format.thinks) out += kThoughts;
  out += "        {{- text(message.content).rstrip(' ') }}\n";
  out += calls_by_name ? replaced(kCalls, "CALL_ID", with_ids ? kCallId : "''")
                       : std::string(kJsonCalls);
  out += "        {{- eos_token }}\n    {%- elif message.role == 'tool' %}\n";
  if (!system_apart) {
    out += kJsonResult;
  } else {
    out += "        {{- '[TOOL_RESULTS]'";
    if (with_ids) out += " + message.tool_call_id + '[TOOL_CONTENT]'";
    out += " + text(message.content) + '[/TOOL_RESULTS]' }}\n";
  }
  return out + "    {%- endif %}\n{%- endfor %}\n";
}

}  // namespace penstock
