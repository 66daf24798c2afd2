// The list of call formats, that is the ways in which models write tool calls. A new format is a
// row here.
#include <algorithm>
#include <iterator>

#include "base/ascii.h"
#include "frontend/chat/marked_parser.h"
#include "frontend/chat/recipient_formats.h"

namespace penstock {
namespace {

using Form = ArgumentForm;

// Writes calls as {"name": …, "arguments": …} between these texts.
CallWriting json_calls(std::string begin, std::string call_begin, std::string call_end,
                       std::string separator, std::string end, std::string hint = {}) {
  return {std::move(begin),      call_begin + "{\"name\": \"",
          "\", \"arguments\": ", "}" + call_end,
          std::move(separator),  std::move(end),
          Form::kJson,           {},
          std::move(hint)};
}

// Writes calls as a JSON list between these texts.
CallWriting json_list(const std::string& begin, const std::string& end, std::string hint = {}) {
  return json_calls(begin + "[", "", "", ", ", "]" + end, std::move(hint));
}

CallFormat hermes() {  // the first writing is that of EXAONE 4
  return {{"<tool_call>"},
          {"</tool_call>"},
          kJsonCalls,
          {json_calls("", "<tool_call>", "</tool_call>", "\n", "", "<tool_call>{\\\"name\\\""),
           json_calls("", "<tool_call>\n", "\n</tool_call>", "\n", "")}};
}

CallFormat granite4() {  // vLLM's parser leaves the text around the calls as it is
  CallFormat format = hermes();
  format.keeps_space = true;
  return format;
}

// <function=name> <parameter=key> value </parameter> … </function>
CallFormat function_tags(const std::string& outer, const std::string& line) {
  const std::string open = "<" + outer + ">", close = "</" + outer + ">";
  const ParameterMarks marks{"<parameter=", ">" + line, line + "</parameter>\n"};
  return {{open, "<function="},
          {close},
          kWrittenCalls,
          {{"", open + "\n<function=", ">\n", "</function>", "\n" + close + "\n", "\n" + close,
            Form::kParameters, marks}}};
}

CallFormat glm() {
  const auto written = [](const std::string& line, std::string hint) {
    const ParameterMarks marks{"<arg_key>", "</arg_key>" + line + "<arg_value>",
                               "</arg_value>" + line};
    return CallWriting{"", "<tool_call>",     line,  "</tool_call>", line,
                       "", Form::kParameters, marks, std::move(hint)};
  };
  return {{"<tool_call>"},
          {},
          kWrittenCalls,
          {written("\n", "</arg_key>\n<arg_value>"), written("", "")}};
}

// <invoke name="name"> <parameter name="key"> value </parameter> … </invoke> … in a block
CallFormat invokes(const std::string& block) {
  const std::string open = "<" + block + ">", close = "</" + block + ">",
                    invoke = "<invoke name=\"";
  const ParameterMarks marks{"<parameter name=\"", "\">", "</parameter>\n"};
  return {
      {open, invoke},
      {close},
      kWrittenCalls,
      {{open + "\n", invoke, "\">\n", "</invoke>", "\n", "\n" + close, Form::kParameters, marks}}};
}

CallFormat minimax_m3() {
  const std::string name_space = "]<]minimax[>[";
  const auto tag = [&](const std::string& name) { return name_space + "<" + name; };
  const ParameterMarks marks{tag(""), ">", tag("/")};
  const std::string open = tag("tool_call>"), close = tag("/tool_call>"),
                    invoke = tag("invoke name=\"");
  return {
      {open, invoke},
      {close},
      kWrittenCalls,
      {{open + "\n", invoke, "\">", tag("/invoke>"), "\n", "\n" + close, Form::kElements, marks}}};
}

// DeepSeek's markup. block: name of the element around all calls.
CallWriting dsml_writing(const std::string& block) {
  const std::string mark = "｜DSML｜";
  const ParameterMarks marks{"<" + mark + "parameter name=\"", "\" string=\"true\">",
                             "</" + mark + "parameter>\n", "\" string=\"false\">"};
  return {"<" + mark + block + ">\n",
          "<" + mark + "invoke name=\"",
          "\">\n",
          "</" + mark + "invoke>",
          "\n",
          "\n</" + mark + block + ">",
          Form::kParameters,
          marks,
          block};
}

CallFormat step3() {
  const std::string begin = "<｜tool_calls_begin｜>\n", end = "\n<｜tool_calls_end｜>";
  const ParameterMarks marks{"<steptml:parameter name=\"", "\">", "</steptml:parameter>\n"};
  const auto written = [&](const std::string& before) {
    return CallWriting{begin,
                       before + "<steptml:invoke name=\"",
                       "\">\n",
                       "</steptml:invoke><｜tool_call_end｜>",
                       "\n",
                       end,
                       Form::kParameters,
                       marks};
  };
  const std::string call = "<｜tool_call_begin｜>";
  return {{"<｜tool_calls_begin｜>", call},
          {"<｜tool_calls_end｜>"},
          kWrittenCalls,
          {written(call), written(call + "function<｜tool_sep｜>")}};
}

// mark: behind the name. The tokens of published weights have names with a suffix.
CallFormat hunyuan(const std::string& mark) {
  CallFormat format{.open = {}, .close = {}, .read = kWrittenCalls};
  for (const std::string suffix : {":opensource", ""}) {
    const auto tag = [&](const std::string& name) { return "<" + name + suffix + ">"; };
    const std::string name_end = mark.empty() ? "\n" : tag(mark) + "\n";
    const ParameterMarks marks{tag("arg_key"), tag("/arg_key") + "\n" + tag("arg_value"),
                               tag("/arg_value") + "\n"};
    format.open.push_back(tag("tool_calls"));
    format.open.push_back(tag("tool_call"));
    format.close.push_back(tag("/tool_calls"));
    format.written.push_back({tag("tool_calls") + "\n", tag("tool_call"), name_end,
                              tag("/tool_call"), "\n", "\n" + tag("/tool_calls"), Form::kParameters,
                              marks, suffix});
  }
  return format;
}

CallFormat solar_open2() {
  const ParameterMarks marks{"<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>\n"};
  return {
      {"<|tool_call:start|>"},
      {},
      kWrittenCalls,
      {{"", "<|tool_call:start|>", "\n", "<|tool_call:end|>", "\n", "", Form::kParameters, marks}}};
}

CallFormat minicpm5() {
  const ParameterMarks marks{"<param name=\"", "\">", "</param>", {}, "<![CDATA[", "]]>"};
  return {{"<function name=\""},
          {},
          kWrittenCalls,
          {{"", "<function name=\"", "\">", "</function>", "\n", "", Form::kParameters, marks}}};
}

CallFormat kimi_k3() {
  const auto open = [](const std::string& tag) { return "<|open|>" + tag; };
  const auto close = [](const std::string& tag) { return "<|close|>" + tag + "<|sep|>"; };
  const ParameterMarks marks{open("argument key=\""), "\" type=\"string\"<|sep|>",
                             close("argument"), "\" type=\"{type}\"<|sep|>"};
  return {.open = {open("tools<|sep|>"), open("call tool=\"")},
          .close = {close("tools"), close("message"), "<|end_of_msg|>"},
          .read = kWrittenCalls,
          .written = {{open("tools<|sep|>"), open("call tool=\""), "\" index=\"{n}\"<|sep|>",
                       close("call"), "", close("tools"), Form::kParameters, marks}},
          .text_begins = {open("response<|sep|>")},
          .text_ends = {close("response"), close("message"), "<|end_of_msg|>"}};
}

CallFormat inkling() {
  const std::string mark = "<|content_invoke_tool_json|>", end = "<|end_message|>",
                    turn = "<|message_model|>", stop = "<|content_model_end_sampling|>";
  return {.open = {mark},
          .close = {end, turn, stop},
          .read = kJsonCalls,
          .written = {{"", mark + "{\"name\": \"", "\", \"args\": ", "}" + end, turn, ""}},
          .text_begins = {turn, "<|content_text|>"},
          .text_ends = {end, stop}};
}

CallFormat dsml() {
  return {{"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<｜DSML｜invoke name=\""},
          {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
          kWrittenCalls,
          {dsml_writing("function_calls"), dsml_writing("tool_calls")}};
}

CallFormat llama3_json() {
  return {.open = {"<|python_tag|>", "<|python_start|><|python_end|>", "<|python_start|>"},
          .close = {";", ",", "<|eom_id|>", "<|eot_id|>", "<|python_end|>"},
          .read = kJsonCalls,
          .written = {{"", "{\"name\": \"", "\", \"parameters\": ", "}", "; ", ""}},
          .bare = '{',
          .start_only = true,
          .bare_lines = true};
}

CallFormat xlam() {
  return {.open = {"<tool_call>", "[TOOL_CALLS]"},
          .close = {"</tool_call>"},
          .read = kJsonCalls,
          .written = {json_list("", "")},
          .bare = '[',
          .start_only = true};
}

CallFormat mistral() {
  return {{"[TOOL_CALLS]"},
          {},
          kMistralCalls,
          {{"", "[TOOL_CALLS]", "[CALL_ID]{id}[ARGS]", "", "", "", Form::kJson, {}, "[CALL_ID]"},
           {"", "[TOOL_CALLS]", "[ARGS]", "", "", "", Form::kJson, {}, "[ARGS]"},
           json_list("[TOOL_CALLS]", "", "[TOOL_CALLS]["),
           json_list("[TOOL_CALLS] ", "")}};
}

CallWriting python(const std::string& begin, const std::string& end) {
  return {begin + "[", "", "(", ")", ", ", "]" + end, Form::kPython, {"", "=", ", "}};
}

CallFormat pythonic() {
  return {.open = {"<|python_start|>"},
          .close = {"<|python_end|>"},
          .read = kPythonCalls,
          .written = {python("", "")},
          .bare = '[',
          .start_only = true};
}

CallFormat lfm2() {
  return {{"<|tool_call_start|>"},
          {"<|tool_call_end|>"},
          kPythonCalls,
          {python("<|tool_call_start|>", "<|tool_call_end|>")}};
}

CallFormat minicpm3() {
  return {{"<|tool_call_start|>"},
          {"<|tool_call_end|>"},
          kFencedPython,
          {{"<|tool_call_start|>\n```python\n",
            "",
            "(",
            ")",
            "\n",
            "\n```\n<|tool_call_end|>",
            Form::kPython,
            {"", "=", ", "}}}};
}

CallFormat olmo3() {
  return {{"<function_calls>"},
          {"</function_calls>"},
          kPythonLines,
          {{"<function_calls>",
            "",
            "(",
            ")",
            "\n",
            "</function_calls>",
            Form::kPython,
            {"", "=", ", "}}}};
}

CallFormat gemma(CallReading read, const std::string& open, const std::string& close,
                 const std::string& quote) {
  return {{open},
          {close},
          read,
          {{"", open + "call:", "{", "}" + close, "", "", Form::kGemma, {quote, ":", ","}}}};
}

CallFormat apertus() {
  return {{"<|tools_prefix|>"},
          {"<|tools_suffix|>"},
          kKeyedCalls,
          {{"<|tools_prefix|>[", "{\"", "\": ", "}", ", ", "]<|tools_suffix|>"}}};
}

CallFormat internlm() {
  return {{"<|action_start|><|plugin|>"},
          {"<|action_end|>"},
          kJsonCalls,
          {{"", "<|action_start|><|plugin|>\n{\"name\": \"",
            "\", \"parameters\": ", "}<|action_end|>", "\n", ""}}};
}

CallFormat glm4() {
  CallFormat format{.close = {"<|observation|>"},
                    .read = kNamedCalls,
                    .written = {{"", "", "\n", "", "\n", ""}},
                    .start_only = true};
  format.bare_name = true;
  return format;
}

CallFormat deepseek() {
  const std::string begin = "<｜tool▁calls▁begin｜>", call = "<｜tool▁call▁begin｜>",
                    sep = "<｜tool▁sep｜>", call_end = "<｜tool▁call▁end｜>",
                    end = "<｜tool▁calls▁end｜>";
  return {{begin, call},
          {end},
          kWrittenCalls,
          {{begin,
            call + "function" + sep,
            "\n```json\n",
            "\n```" + call_end,
            "\n",
            end,
            Form::kJson,
            {},
            "```json"},
           {begin, call, sep, call_end, "", end}}};
}

CallFormat kimi() {
  const std::string begin = "<|tool_calls_section_begin|>", call = "<|tool_call_begin|>",
                    name_end = ":{n}<|tool_call_argument_begin|>", call_end = "<|tool_call_end|>",
                    end = "<|tool_calls_section_end|>";
  return {{begin, call},
          {end},
          kWrittenCalls,
          {{begin,
            call + "functions.",
            name_end,
            call_end,
            "",
            end,
            Form::kJson,
            {},
            {},
            "functions.{name}:{n}"},
           {begin, call, name_end, call_end, "", end, Form::kJson, {}, {}, "{name}:{n}"}}};
}

CallFormat granite() {
  return {{"<|tool_call|>", "<tool_call>", "<function_call>"},
          {"</tool_call>"},
          kJsonCalls,
          {json_list("<|tool_call|>", "")}};
}

CallFormat granite_20b() {
  return {{"<function_call>"}, {}, kJsonCalls, {json_calls("", "<function_call> ", "", "\n", "")}};
}

// JSON lists after one mark.
CallFormat list_between(const std::string& open, const std::string& close) {
  return {{open}, {close}, kJsonCalls, {json_list(open, close)}};
}

// The model's own template produces marks, vLLM's template "functools".
CallFormat phi4() {
  return {{"<|tool_call|>", "functools"},
          {"<|/tool_call|>"},
          kJsonCalls,
          {json_list("functools", "", "functools"), json_list("<|tool_call|>", "<|/tool_call|>")}};
}

CallFormat nemotron_mini() {
  return {{"<toolcall>"},
          {"</toolcall>"},
          kJsonCalls,
          {json_calls("", "<toolcall> ", " </toolcall>", "\n", "")}};
}

// JSON, or parameters between marks.
CallFormat longcat() {
  const ParameterMarks marks{"<longcat_arg_key>", "</longcat_arg_key>\n<longcat_arg_value>",
                             "</longcat_arg_value>\n"};
  const std::string open = "<longcat_tool_call>", close = "</longcat_tool_call>";
  CallWriting parameters{
      "", open, "\n", close, "\n", "", Form::kParameters, marks, "<longcat_arg_key>"};
  return {{open},
          {close},
          {kWrittenCalls.stream, kJsonCalls.whole},
          {std::move(parameters), json_calls("", open + "\n", "\n" + close, "\n", "")}};
}

CallFormat minimax_m1() {
  return {{"<tool_calls>"},
          {"</tool_calls>"},
          kJsonLines,
          {json_calls("<tool_calls>\n", "", "", "\n", "\n</tool_calls>")}};
}

CallFormat jamba() {
  return {{"<tool_calls>"},
          {"</tool_calls>"},
          kJsonCalls,
          {json_calls("<tool_calls>[\n    ", "", "", ",\n    ", "\n]</tool_calls>")}};
}

CallFormat cohere() {
  return {.open = {"<|START_ACTION|>"},
          .close = {"<|END_ACTION|>"},
          .read = kJsonCalls,
          .written = {{"<|START_ACTION|>[\n    ", "{\"tool_call_id\": \"{n}\", \"tool_name\": \"",
                       "\", \"parameters\": ", "}", ",\n    ", "\n]<|END_ACTION|>"}},
          .text_begins = {"<|START_RESPONSE|>", "<|START_TEXT|>"},
          .text_ends = {"<|END_RESPONSE|>", "<|END_TEXT|>"}};
}

CallFormat functionary() {
  return {{"<function="},
          {"</function>", "<|eom_id|>", "<|eot_id|>"},
          kWrittenCalls,
          {{"", "<function=", ">", "", "</function>", "</function>"}}};
}

CallFormat gigachat() {
  const std::string mark = "<|function_call|>", turn = "<|message_sep|>\n\n",
                    role = "function call<|role_sep|>\n";
  CallFormat format{
      {mark, turn + role, role},
      {"<|message_sep|>"},
      kJsonCalls,
      {json_calls("", mark, "", "", "", mark), json_calls("", turn + role, "", "", "")}};
  format.one_call = true;
  return format;
}

CallFormat solar_open() {
  return {{"<|tool_calls|>", "<|tool_call:begin|>"},
          {},
          kWrittenCalls,
          {{"<|tool_calls|>",
            "<|tool_call:begin|>{id}<|tool_call:name|>",
            "<|tool_call:args|>",
            "<|tool_call:end|>",
            "",
            "",
            Form::kJson,
            {},
            {},
            "{id}"}}};
}

// Formats with marks of their own.
std::vector<ToolParserRow> marked_rows() {
  return {
      {"harmony", "gpt-oss", {"<|channel|>"}, {}, {"openai", "gpt_oss"}},
      {"dsml", "DeepSeek V3.2, V4", {"｜DSML｜"}, dsml(), {"deepseek_v32", "deepseek_v4"}},
      {"hy_v3", "Hunyuan 3", {"<tool_sep"}, hunyuan("tool_sep")},
      {"hy_v4", "Hunyuan 4", {"<tool_calls", "<arg_key"}, hunyuan({})},
      {"kimi_k3", "Kimi K3", {"<|open|>", "<|close|>", "<|sep|>"}, kimi_k3()},
      {"inkling", "Inkling", {"<|content_invoke_tool_json|>"}, inkling()},
      {"muse_glimmer", "Muse Glimmer", {"<atem:function_calls>"}, muse_calls()},
      {"step3", "Step 3", {"<steptml:"}, step3()},
      {"dots", "dots", {"<dots_function_call>"}, invokes("dots_function_call")},
      {"longcat", "LongCat Flash", {"<longcat_tool_call>"}, longcat()},
      {"solar_open2", "Solar Open 2", {"<|tool_arg:start|>"}, solar_open2()},
      {"minicpm5", "MiniCPM 5", {"<function name=", "<param name="}, minicpm5()},
      {"gemma4",
       "Gemma 4",
       {"<|tool_call>"},
       gemma(kGemma4Calls, "<|tool_call>", "<tool_call|>", "<|\"|>")},
      {"functiongemma",
       "FunctionGemma",
       {"<start_function_call>"},
       gemma(kFunctionGemmaCalls, "<start_function_call>", "<end_function_call>", "<escape>")},
      {"apertus", "Apertus", {"<|tools_prefix|>"}, apertus()},
      {"internlm", "InternLM 2, 2.5", {"<|action_start|>"}, internlm(), {"internlm2"}},
      {"glm4",
       "GLM-4, GLM-4-0414",
       {"在调用上述函数时，请使用 Json 格式表示调用的参数。"},
       glm4(),
       {"glm4_0414"}},
      {"olmo3", "OLMo 3", {"<function_calls>"}, olmo3()},
      {"deepseek",
       "DeepSeek V3, V3.1, R1",
       {"<｜tool▁calls▁begin｜>"},
       deepseek(),
       {"deepseek_v3", "deepseek_v31"}},
      {"kimi_k2", "Kimi K2", {"<|tool_calls_section_begin|>"}, kimi()},
      {"minicpm3", "MiniCPM 3", {"<|tool_call_start|>", "```python"}, minicpm3()},
      {"lfm2",
       "LFM2, LFM2.5",
       {"<|tool_list_start|>"},
       lfm2(),
       {},
       {"<|tool_call_start|>", "\"List of tools: "}},
      {"mistral", "Mistral, Mixtral, Ministral", {"[TOOL_CALLS]"}, mistral()},
      {"glm4_moe",
       "GLM 4.5 and later, Ling 3, Laguna",
       {"<arg_key>"},
       glm(),
       {"glm45", "glm47", "ling3", "poolside_v1"}},
      {"minimax_m2", "MiniMax M2", {"<minimax:tool_call>"}, invokes("minimax:tool_call")},
      {"minimax_m3", "MiniMax M3", {"]<]minimax[>[", "<invoke name="}, minimax_m3()},
      {"cohere",
       "Command R7B, Command A",
       {"<|START_ACTION|>"},
       cohere(),
       {"command_r", "cohere_command3", "cohere_command4"}},
      {"solar_open", "Solar Open", {"<|tool_call:begin|>"}, solar_open()},
      {"gigachat3", "GigaChat 3", {"<|function_call|>"}, gigachat(), {}, {"'function call'"}},
  };
}

// Formats whose marks or whose JSON are those of several families, after those with more of them.
std::vector<ToolParserRow> common_rows() {
  return {
      {"qwen3_coder",
       "Qwen3-Coder, Nemotron 3",
       {"<tool_call>", "<function=", "<parameter="},
       function_tags("tool_call", "\n"),
       {"qwen3_xml", "nemotron_v3", "step3p5", "mimo"}},
      {"seed_oss", "Seed-OSS", {"<seed:tool_call>"}, function_tags("seed:tool_call", "")},
      {"zaya_xml", "ZAYA1", {"<zyphra_tool_call>"}, function_tags("zyphra_tool_call", "\n")},
      {"functionary", "Functionary 3.1", {"<function="}, functionary()},
      {"functionary_v3", "Functionary 3, 3.2", {">>>all"}, functionary_3_calls()},
      {"functionary_v2", "Functionary 2, 2.2", {"<|recipient|>"}, functionary_2_calls()},
      {"functionary_v2_llama3",
       "Functionary 2.4, 2.5 on Llama 3",
       {"<|reserved_special_token_249|>"},
       functionary_2_llama3_calls()},
      {"nemotron_mini", "Nemotron Mini", {"<toolcall>"}, nemotron_mini()},
      {"nemotron", "Nemotron Nano 2", {"<TOOLCALL>"}, list_between("<TOOLCALL>", "</TOOLCALL>")},
      {"hunyuan_a13b",
       "Hunyuan A13B, Apriel",
       {"<tool_calls>["},
       list_between("<tool_calls>", "</tool_calls>"),
       {"apriel"}},
      {"jamba", "Jamba 1.5, 1.6", {"\"<tool_calls>\"", "<|bom|>"}, jamba()},
      {"minimax", "MiniMax M1", {"<tool_calls>"}, minimax_m1(), {"minimax_m1"}},
      {"phi4_mini_json", "Phi-4 mini", {"<|/tool|>"}, phi4(), {"phi4"}, {"functools["}},
      {"granite", "Granite 3", {"<|tool_call|>"}, granite()},
      {"granite-20b-fc", "Granite 20B function calling", {"<function_call>"}, granite_20b()},
      {"granite4", "Granite 4", {"<|start_of_role|>", "<tool_call>"}, granite4()},
      {"hermes",
       "Hermes 2 Pro, Qwen 2.5, Qwen 3, QwQ",
       {"<tool_call>"},
       hermes(),
       {"qwen2_5", "qwen3", "ernie45"}},
      {"pythonic",
       "Llama 4, Llama 3.2 pythonic, ToolACE, Gemma 3",
       {"[func_name1("},
       pythonic(),
       {"llama4_pythonic"}},
      {"xlam", "xLAM", {"[{\"name\": \"tool_call_name\""}, xlam(), {}, {"\"func_name1\""}},
      {"llama3_json", "Llama 3.1, 3.2, 3.3", {"\"parameters\":"}, llama3_json(), {"llama4_json"}},
  };
}

}  // namespace

std::span<const ToolParserRow> tool_parsers() {
  static const std::vector<ToolParserRow> rows = [] {
    std::vector<ToolParserRow> all = marked_rows();
    std::ranges::move(common_rows(), std::back_inserter(all));
    return all;
  }();
  return rows;
}

bool is_short_call_id(std::string_view id) {
  constexpr size_t kLength = 9;
  return id.size() == kLength && std::ranges::all_of(id, is_ascii_alnum);
}

const CallWriting& CallFormat::writing_for(std::string_view chat_template) const {
  for (const CallWriting& one : written) {
    if (chat_template.find(one.hint) != std::string_view::npos) return one;
  }
  return written.back();
}

bool CallFormat::needs_inner_types() const {
  return std::ranges::any_of(
      written, [](const CallWriting& one) { return one.arguments == ArgumentForm::kElements; });
}

std::string_view next_piece(std::string_view& text) {
  size_t end = text.size();
  for (const std::string_view field : {"{n}", "{id}", "{type}", "{name}"}) {
    const size_t at = text.find(field);
    end = std::min(end, at == 0 ? field.size() : at);
  }
  const std::string_view piece = text.substr(0, end);
  text.remove_prefix(end);
  return piece;
}

}  // namespace penstock
