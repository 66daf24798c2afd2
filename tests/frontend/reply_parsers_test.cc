#include "frontend/chat/reply_parser.h"
#include "frontend/parse_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <ctime>

namespace penstock {
namespace {

struct Case {
  const char* tools;
  const char* reasoning;
  std::string text;
  ReplyPart expected;  // reasoning, content, calls
  bool starts_in_reasoning = false;
};

const std::string kZurich = R"({"city":"Zürich","days":2})";

std::vector<Case> cases() {
  const ToolCall weather{"get_weather", kZurich}, now{"now", "{}"};
  const std::string json = R"({"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}})";
  return {
      {"hermes", "", "Hello.", {"", "Hello.", {}}},
      {"hermes", "", "<tool_call>\n" + json + "\n</tool_call>", {"", "", {weather}}},
      {"hermes",
       "",
       "Let me see.\n\n<tool_call>\n" + json +
           "\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
       {"", "Let me see.", {weather, now}}},
      {"hermes", "", "<tool_call>" + json + "</tool_call>\n\nDone. ", {"", "Done. ", {weather}}},
      {"hermes",
       "",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"</tool_call> "
       "}\\\"{\"}}\n</tool_call>",
       {"", "", {{"f", R"({"x":"</tool_call> }\"{"})"}}}},
      {"hermes",
       "",
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}",
       {"", "", {{"f", R"({"a":1})"}}}},
      {"hermes",
       "",
       "<tool_call>{\"name\": 5}</tool_call>",
       {"", "<tool_call>{\"name\": 5}</tool_call>", {}}},
      {"hermes", "", "a <tool_call> is a tag", {"", "a <tool_call> is a tag", {}}},
      {"hermes", "", "cut <tool_call>{\"name\": \"f\", \"argum", {"", "cut", {}}},
      {"hermes", "", "2 < 3 <tool", {"", "2 < 3 <tool", {}}},
      {"hermes", "", " \n", {"", " \n", {}}},
      {"hermes", "", "<tool_call>no<tool_call>" + json, {"", "<tool_call>no", {weather}}},
      {"llama3_json",
       "",
       R"({"name": "get_weather", "parameters": {"city": "Zürich", "days": 2}})",
       {"", "", {weather}}},
      {"llama3_json",
       "",
       "<|python_tag|>" + json + "; " + json + "<|eom_id|>",
       {"", "", {weather, weather}}},
      {"llama3_json",
       "",
       R"({"type": "function", "function": {"name": "now", "parameters": {}}})",
       {"", "", {now}}},
      {"llama3_json", "", R"({"answer": 42} is JSON)", {"", R"({"answer": 42} is JSON)", {}}},
      {"llama3_json", "", "The call is " + json, {"", "The call is " + json, {}}},
      {"mistral",
       "",
       "[TOOL_CALLS] [" + json + ", {\"name\": \"now\", \"arguments\": {}}]",
       {"", "", {weather, now}}},
      {"mistral",
       "",
       "[TOOL_CALLS]get_weather" + kZurich + "[TOOL_CALLS]now{}",
       {"", "", {weather, now}}},
      {"mistral", "", "[TOOL_CALLS]get_weather[CALL_ID]a1b2[ARGS]" + kZurich, {"", "", {weather}}},
      {"mistral", "", "Text [TOOL_CALLS]get weather", {"", "Text [TOOL_CALLS]get weather", {}}},
      {"pythonic", "", "[get_weather(city=\"Zürich\", days=2), now()]", {"", "", {weather, now}}},
      {"pythonic",
       "",
       "<|python_start|>[f(a='it\\'s', b=[1, 2.5, None], c={'k': True}, d=-3, e=(1,), "
       "g='\\u00e9\\n')]<|python_end|>",
       {"",
        "",
        {{"f", R"({"a":"it's","b":[1,2.5,null],"c":{"k":true},"d":-3,"e":[1],"g":"é\n"})"}}}},
      {"pythonic", "", "[1, 2, 3] is a list", {"", "[1, 2, 3] is a list", {}}},
      {"pythonic", "", "[see (the) note]", {"", "[see (the) note]", {}}},
      {"pythonic", "", "Call [now()]", {"", "Call [now()]", {}}},
      {"pythonic", "", "[f(x=1", {"", "[f(x=1", {}}},
      {"lfm2", "", "Hm.<|tool_call_start|>[now()]<|tool_call_end|>Ok", {"", "Hm.Ok", {now}}},
      {"minicpm3",
       "minicpm3",
       "<|thought_start|>\nHm.\n<|thought_end|>\n<|tool_call_start|>\n```python\n"
       "get_weather(city=\"Zürich\",days=2)\nnow()\n```\n<|tool_call_end|>\nOk",
       {"Hm.", "Ok", {weather, now}}},
      {"minicpm3",
       "",
       "<|tool_call_start|>\nf(a=[true, null], b=\"``` <|tool_call_end|>\")\n<|tool_call_end|>",
       {"", "", {{"f", R"({"a":[true,null],"b":"``` <|tool_call_end|>"})"}}}},
      {"jamba", "", "Ok <tool_calls>[\n    " + json + "\n]</tool_calls>", {"", "Ok", {weather}}},
      {"gigachat3",
       "",
       "Ok<|message_sep|>\n\nfunction call<|role_sep|>\n" + json + "<|message_sep|>\n\n",
       {"", "Ok", {weather}}},
      {"gigachat3", "", "function call<|role_sep|>\n" + json, {"", "", {weather}}},
      {"llama3_json", "", "<|python_start|>" + json + "<|python_end|>", {"", "", {weather}}},
      {"llama3_json",
       "",
       "<|python_start|><|python_end|>" + json + json,
       {"", "", {weather, weather}}},
      {"llama3_json", "", "<|python_start|>", {"", "", {}}},
      {"cohere",
       "cohere",
       "<|START_THINKING|>Hm.<|END_THINKING|><|START_TEXT|>Ok<|END_TEXT|>",
       {"Hm.", "Ok", {}}},
      {"", "exaone", "<thought>\nHm.\n</thought>\n\nOk", {"Hm.", "Ok", {}}},
      {"deepseek",
       "",
       "Hi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" +
           kZurich +
           "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}"
           "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "Hi", {weather, now}}},
      {"deepseek",
       "",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + kZurich +
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "", {weather}}},
      {"deepseek", "", "<｜tool▁calls▁begin｜>oops", {"", "<｜tool▁calls▁begin｜>oops", {}}},
      {"kimi_k2",
       "",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_"
       "begin|>" +
           kZurich +
           "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|"
           "tool_call_end|><|tool_calls_section_end|>",
       {"", "", {weather, now}}},
      {"granite4",
       "",
       "I look: <tool_call> " + json +
           " </tool_call>\n<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
           "1}\"}</tool_call>",
       {"", "I look: \n", {weather, {"f", R"({"a":1})"}}}},
      {"granite4", "", " \n<tool_call>" + json + "</tool_call>\n", {"", " \n\n", {weather}}},
      {"granite4", "", "a <tool_call> is a tag ", {"", "a <tool_call> is a tag ", {}}},
      {"granite", "", "<|tool_call|>[" + json + "]", {"", "", {weather}}},
      {"granite", "", "<function_call> " + json, {"", "", {weather}}},
      {"functionary",
       "",
       "<function=get_weather>" + kZurich + "</function><function=now>{}</function><|eom_id|>",
       {"", "", {weather, now}}},
      {"functionary", "", "<function=a b>{}", {"", "<function=a b>{}", {}}},
      {"qwen3_coder",
       "",
       "Ok.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</"
       "parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
       {"", "Ok.", {weather}}},
      {"qwen3_coder",
       "",
       "<tool_call>\n<function=now>\n</function>\n</tool_call>",
       {"", "", {now}}},
      {"qwen3_coder",
       "",
       "<tool_call>\n<function=f>\n<parameter=code>\nif a:\n  "
       "b()\n\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"f", R"({"code":"if a:\n  b()\n"})"}}}},
      {"seed_oss",
       "",
       "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
       {"", "", {now}}},
      {"seed_oss",
       "",
       "<seed:tool_call>\n<function=f>\n<parameter=a>\nx </function> "
       "y</parameter>\n</function>\n</seed:tool_call>",
       {"", "", {{"f", R"({"a":"\nx </function> y"})"}}}},
      {"zaya_xml",
       "",
       "Ok.\n<zyphra_tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n"
       "<parameter=days>\n2\n</parameter>\n</function>\n</zyphra_tool_call>",
       {"", "Ok.", {weather}}},
      {"glm4_moe",
       "",
       "Hm.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</"
       "arg_value>\n<arg_key>days</"
       "arg_key>\n"
       "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
       {"", "Hm.", {weather, now}}},
      {"glm4_moe", "", "a <tool_call> is a tag", {"", "a <tool_call> is a tag", {}}},
      {"minimax_m2",
       "",
       "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"city\">Zürich</parameter>\n<parameter "
       "name=\"days\">2</parameter>\n</invoke>\n<invoke "
       "name=\"now\">\n</invoke>\n</minimax:tool_call>",
       {"", "", {weather, now}}},
      {"minimax_m3",
       "minimax_m3",
       "<mm:think>Hm.</mm:think>]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"get_weather\">]<]minimax[>[<city>Zürich]<]minimax[>[</city>]<]minimax[>[<days>2"
       "]<]minimax[>[</days>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke "
       "name=\"now\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
       {"Hm.", "", {weather, now}}},
      {"muse_glimmer",
       "muse_glimmer",
       " to=self<|message|>Hm.<|eom|><|start|>assistant to=get_weather<|message|>"
       "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter "
       "name=\"city\">Zürich</atem:parameter>\n<atem:parameter name=\"days\">2"
       "</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>",
       {"Hm.", "", {weather}}},
      {"minimax_m3", "minimax_m3", "</mm:think>Hello.", {"", "Hello.", {}}},
      {"minimax_m3", "minimax_m3", "Hello </mm:think>.", {"", "Hello </mm:think>.", {}}},
      {"minimax_m3", "", "a ]<]minimax[>[ b", {"", "a ]<]minimax[>[ b", {}}},
      {"cohere",
       "cohere",
       "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
       "\"tool_name\": \"get_weather\", \"parameters\": " +
           kZurich + "}\n]<|END_ACTION|>",
       {"Hm.", "", {weather}}},
      {"cohere", "", "<|START_RESPONSE|>Clear.<|END_RESPONSE|>", {"", "Clear.", {}}},
      {"solar_open",
       "",
       "<|tool_calls|><|tool_call:begin|>call00001<|tool_call:name|>get_weather<|tool_call:args|>" +
           kZurich +
           "<|tool_call:end|><|tool_call:begin|>call00002<|tool_call:name|>now<|tool_call:args|>{}<"
           "|tool_call:end|>",
       {"", "", {weather, now}}},
      {"gigachat3", "", "<|function_call|>" + json, {"", "", {weather}}},
      {"nemotron", "", "<TOOLCALL>[" + json + "]</TOOLCALL>", {"", "", {weather}}},
      {"hunyuan_a13b",
       "",
       "<tool_calls>[" + json + ", {\"name\": \"now\"}]</tool_calls>",
       {"", "", {weather, now}}},
      {"minimax",
       "",
       "<tool_calls>\n" + json + "\n{\"name\": \"now\"}\n</tool_calls>",
       {"", "", {weather, now}}},
      {"minimax",
       "",
       "<tool_calls>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_calls>\"}}</tool_calls> ok",
       {"", "ok", {{"f", R"({"a":"</tool_calls>"})"}}}},
      {"phi4_mini_json", "", "functools[" + json + "]", {"", "", {weather}}},
      {"granite-20b-fc",
       "",
       "<function_call> " + json + "\n<function_call> " + json,
       {"", "", {weather, weather}}},
      {"xlam", "", "[" + json + "]", {"", "", {weather}}},
      {"harmony", "", "to=functions.now<|message|>x{}", {"", "to=functions.now<|message|>x{}", {}}},
      {"xlam", "", "[TOOL_CALLS]" + json, {"", "", {weather}}},
      {"xlam", "", "[1] is a list", {"", "[1] is a list", {}}},
      {"harmony",
       "",
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.get_weather <|constrain|>json<|message|>" +
           kZurich + "<|call|>",
       {"Hm.", "", {weather}}},
      {"harmony", "", " to=functions.now<|channel|>commentary json<|message|>{}", {"", "", {now}}},
      {"harmony",
       "",
       "<|channel|>commentary<|message|>Let me "
       "see.<|end|><|start|>assistant<|channel|>final<|message|>Clear.<|return|>",
       {"", "Let me see.Clear.", {}}},
      {"harmony", "", "<|channel|>final<|message|>2 < 3 <|", {"", "2 < 3 <|", {}}},
      {"harmony", "", "No channel.", {"", "No channel.", {}}},
      {"", "think", "<think>\n7 * 8\n\n= 56\n</think>\n\n56.", {"7 * 8\n\n= 56", "56.", {}}},
      {"", "think", "no thoughts </think> x", {"", "no thoughts </think> x", {}}},
      {"", "think", "hm\n</think>\n\nYes", {"hm", "Yes", {}}, true},
      {"", "think", "<think>\nhm\n</think>Yes", {"hm", "Yes", {}}, true},
      {"", "think", "<think>\n\n</think>\n\nHi", {"", "Hi", {}}},
      {"", "think", "<think>cut off </thi", {"cut off </thi", "", {}}},
      {"", "think", "  <thin", {"", "  <thin", {}}},
      {"", "granite", "Here is my thought process: a b. Here is my response: c", {"a b.", "c", {}}},
      {"", "mistral", "[THINK]a[/THINK]b", {"a", "b", {}}},
      {"hermes",
       "think",
       "<think>Use a <tool_call>{\"name\": \"now\"}</tool_call>?</think>\n<tool_call>{\"name\": "
       "\"now\"}</tool_call>",
       {"Use a", "?</think>", {now, now}}},
      {"dsml",
       "think",
       "Hm.</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke "
       "name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
       "string=\"true\">Zürich</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
       "string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
       "name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       {"Hm.", "", {weather, now}},
       true},
      {"dsml",
       "",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
       "string=\"true\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       {"", "", {{"f", R"({"a":"2"})"}}}},
      {"gemma4",
       "gemma4",
       "<|channel>thought\nHm.<channel|><|tool_call>call:get_weather{city:<|\"|>Zürich<|\"|>,days:"
       "2}<tool_call|><|tool_call>call:now{}<tool_call|>",
       {"Hm.", "", {weather, now}}},
      {"functiongemma",
       "",
       "<start_function_call>call:get_weather{city:<escape>Zürich<escape>,days:2}<end_function_"
       "call>",
       {"", "", {weather}}},
      {"apertus",
       "apertus",
       "<|inner_prefix|>Hm.<|tools_prefix|>[{\"get_weather\": " + kZurich +
           "}, {\"now\": {}}]<|tools_suffix|>",
       {"Hm.", "", {weather, now}}},
      {"internlm",
       "",
       "Sure.<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": " + kZurich +
           "}<|action_end|>",
       {"", "Sure.", {weather}}},
      {"glm4", "", "get_weather\n" + kZurich, {"", "", {weather}}},
      {"glm4", "", "Hello\nthere", {"", "Hello\nthere", {}}},
      {"hy_v3",
       "hy_v3",
       "<think:opensource>Hm.</"
       "think:opensource>Sure.<tool_calls:opensource>\n<tool_call:opensource>"
       "get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n"
       "<arg_value:opensource>Zürich</arg_value:opensource>\n<arg_key:opensource>days"
       "</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n"
       "</tool_call:opensource>\n</tool_calls:opensource>",
       {"Hm.", "Sure.", {weather}}},
      {"hy_v3",
       "",
       "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Zürich"
       "</arg_value>\n<arg_key>days</arg_key><arg_value>2</arg_value>\n</tool_call>\n"
       "<tool_call>now<tool_sep></tool_call></tool_calls>",
       {"", "", {weather, now}}},
      {"hy_v4",
       "",
       "<tool_calls:opensource><tool_call:opensource>get_weather<arg_key:opensource>city"
       "</arg_key:opensource><arg_value:opensource>Zürich</"
       "arg_value:opensource><arg_key:opensource>"
       "days</arg_key:opensource><arg_value:opensource>2</arg_value:opensource>"
       "</tool_call:opensource><tool_call:opensource>now</tool_call:opensource>"
       "</tool_calls:opensource>",
       {"", "", {weather, now}}},
      {"kimi_k3",
       "kimi_k3",
       "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>"
       "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument "
       "key=\"city\" type=\"string\"<|sep|>Zürich<|close|>argument<|sep|><|open|>argument "
       "key=\"days\" "
       "type=\"number\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|open|>call "
       "tool=\"now\" index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
       {"Hm.", "", {weather, now}}},
      {"inkling",
       "inkling",
       "<|content_thinking|>Hm.<|end_message|><|message_model|><|content_invoke_tool_json|>{"
       "\"name\":"
       "\"get_weather\",\"args\":" +
           kZurich + "}<|end_message|>",
       {"Hm.", "", {weather}}},
      {"inkling", "", "<|content_text|>Hello.<|end_message|>", {"", "Hello.", {}}},
      {"step3",
       "",
       "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke "
       "name=\"get_weather\">\n<steptml:parameter name=\"city\">Zürich</steptml:parameter>\n"
       "<steptml:parameter "
       "name=\"days\">2</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n"
       "<｜tool_calls_end｜>",
       {"", "", {weather}}},
      {"dots",
       "",
       "Sure.<dots_function_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Zürich"
       "</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n</dots_function_call>",
       {"", "Sure.", {weather}}},
      {"longcat",
       "longcat",
       "<longcat_think>Hm.</longcat_think><longcat_tool_call>\n{\"name\": \"get_weather\", "
       "\"arguments\": " +
           kZurich + "}\n</longcat_tool_call>\n<longcat_tool_call>now\n</longcat_tool_call>",
       {"Hm.", "", {weather, now}}},
      {"longcat",
       "",
       "<longcat_tool_call>get_weather\n<longcat_arg_key>city</"
       "longcat_arg_key>\n<longcat_arg_value>"
       "Zürich</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n<longcat_arg_value>2"
       "</longcat_arg_value>\n</longcat_tool_call>",
       {"", "", {weather}}},
      {"solar_open2",
       "",
       "Sure.<|tool_call:start|>get_weather\n<|tool_arg:start|>city<|tool_arg:value|>Zürich"
       "<|tool_arg:end|>\n<|tool_arg:start|>days<|tool_arg:value|>2<|tool_arg:end|>\n"
       "<|tool_call:end|>",
       {"", "Sure.", {weather}}},
      {"minicpm5",
       "",
       "<function name=\"get_weather\"><param name=\"city\">Zürich</param><param "
       "name=\"days\">2</param></function>",
       {"", "", {weather}}},
      {"functionary_v3", "", ">>>get_weather\n" + kZurich + "<|eot_id|>", {"", "", {weather}}},
      {"functionary_v3", "", ">>>python\nprint(1)", {"", ">>>python\nprint(1)", {}}},
      {"functionary_v2",
       "",
       "<|recipient|>get_weather\n<|content|>" + kZurich + "<|stop|>",
       {"", "", {weather}}},
      {"functionary_v2_llama3",
       "",
       "Sure.<|reserved_special_token_249|>get_weather\n" + kZurich + "<|eot_id|>",
       {"", "Sure.", {weather}}},
      {"nemotron_mini",
       "",
       "<toolcall> {\"name\": \"get_weather\", \"arguments\": " + kZurich + "} </toolcall>",
       {"", "", {weather}}},
      {"olmo3",
       "",
       "<function_calls>get_weather(city=\"Zürich\", days=2)\nnow()</function_calls>",
       {"", "", {weather, now}}},
      {"", "", "<think>all text</think>", {"", "<think>all text</think>", {}}},
  };
}

std::unique_ptr<ReplyParser> parser_of(const Case& c) {
  auto parser = make_reply_parser({c.tools, c.reasoning, c.starts_in_reasoning});
  EXPECT_TRUE(parser) << c.tools << " " << c.reasoning;
  return std::move(*parser);
}

std::string show(const ReplyPart& reply) {
  std::string out = "reasoning: " + reply.reasoning + "\ncontent: " + reply.content;
  for (const ToolCall& call : reply.calls) out += "\ncall: " + call.name + " " + call.arguments;
  return out;
}

TEST(ReplyParsers, KnownReplies) {
  for (const Case& c : cases()) {
    const ReplyPart whole = parse_reply(*parser_of(c), c.text);
    EXPECT_EQ(show(whole), show(c.expected)) << c.tools << ": " << c.text;
    const auto parser = parser_of(c);  // byte by byte
    ReplyPart pieces;
    for (const char byte : c.text) pieces.append(parser->push(std::string_view(&byte, 1)));
    pieces.append(parser->finish());
    EXPECT_EQ(show(pieces), show(c.expected)) << c.tools << ", byte by byte: " << c.text;
  }
}

// vLLM's names, but for those of formats that are not read (docs/reference/call-formats.md).
TEST(ReplyParsers, VllmsNamesAreKnown) {
  for (const char* name : {"apertus",
                           "cohere_command3",
                           "cohere_command4",
                           "deepseek_v3",
                           "deepseek_v31",
                           "deepseek_v32",
                           "deepseek_v4",
                           "dots",
                           "ernie45",
                           "functiongemma",
                           "gemma4",
                           "gigachat3",
                           "glm45",
                           "glm47",
                           "granite",
                           "granite-20b-fc",
                           "granite4",
                           "hermes",
                           "hunyuan_a13b",
                           "hy_v3",
                           "hy_v4",
                           "inkling",
                           "internlm",
                           "jamba",
                           "kimi_k2",
                           "kimi_k3",
                           "lfm2",
                           "ling3",
                           "llama3_json",
                           "llama4_json",
                           "llama4_pythonic",
                           "longcat",
                           "mimo",
                           "minicpm5",
                           "minimax",
                           "minimax_m2",
                           "minimax_m3",
                           "mistral",
                           "muse_glimmer",
                           "olmo3",
                           "openai",
                           "phi4_mini_json",
                           "poolside_v1",
                           "pythonic",
                           "qwen3_coder",
                           "qwen3_xml",
                           "seed_oss",
                           "solar_open2",
                           "step3",
                           "step3p5",
                           "xlam"}) {
    EXPECT_NE(find_tool_parser(name), nullptr) << name;
  }
}

TEST(ReplyParsers, EveryParserIsCovered) {
  for (const auto& row : tool_parsers()) {
    const auto all = cases();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Case& c) {
      return row.name == std::string(c.tools) && !c.expected.calls.empty();
    })) << row.name;
  }
  for (const auto& row : reasoning_formats()) {
    auto parser = make_reply_parser({"", row.name, false});
    ASSERT_TRUE(parser);
    EXPECT_EQ(show(parse_reply(**parser, std::string(row.open) + " a " + row.close + " b")),
              show({"a", "b", {}}))
        << row.name;
  }
}

TEST(ReplyParsers, TextComesAtOnce) {
  auto parser = make_reply_parser({"hermes", "think", false}).value();
  EXPECT_EQ(parser->push("Hel").content, "Hel");
  EXPECT_EQ(parser->push("lo <").content, "lo");
  EXPECT_EQ(parser->push("b> ").content, " <b>");
  EXPECT_EQ(parser->push("<tool_call>{\"name\": \"now\"").content, "");
  EXPECT_EQ(parser->push("}").calls.size(), 1u);  // before the closing mark
}

TEST(ReplyParsers, ArgumentsComeAsTheyAreWritten) {
  auto parser = make_reply_parser({"hermes", "", false}).value();
  ReplyPart part = parser->push("Hi <tool_call>{\"name\": \"f\", \"arguments\": { ");
  EXPECT_TRUE(part.calls.empty());
  part = parser->push("\"x\" : \"a");
  ASSERT_EQ(part.calls.size(), 1u);
  EXPECT_EQ(part.calls[0], (ToolCall{"f", "{\"x\":\"a"}));
  EXPECT_TRUE(part.open && !part.continues);
  part = parser->push(" b\", \"y\": 1 ");
  ASSERT_EQ(part.calls.size(), 1u);
  EXPECT_EQ(part.calls[0], (ToolCall{"", " b\",\"y\":1"}));
  EXPECT_TRUE(part.open && part.continues);
  part = parser->push("}} </tool_call> <tool_call>{\"name\": \"g\"}");
  ASSERT_EQ(part.calls.size(), 2u);
  EXPECT_EQ(part.calls[0], (ToolCall{"", "}"}));
  EXPECT_EQ(part.calls[1], (ToolCall{"g", "{}"}));
  EXPECT_TRUE(part.continues && !part.open);
}

TEST(ReplyParsers, UnknownNamesAreRefused) {
  const auto tools = make_reply_parser({"nope", "", false});
  ASSERT_FALSE(tools);
  EXPECT_THAT(tools.error().message, ::testing::HasSubstr("expected one of harmony, dsml"));
  EXPECT_FALSE(make_reply_parser({"", "nope", false}));
}

TEST(ReplyParsers, FoundFromTheTemplate) {
  EXPECT_EQ(detect_tool_parser("… <tool_call>\n{\"name\": <function-name> …"), "hermes");
  EXPECT_EQ(detect_tool_parser("<|start_of_role|>… <tool_call></tool_call>"), "granite4");
  EXPECT_EQ(detect_tool_parser("<|start_of_role|>… <|tool_call|> <tool_call>"), "granite");
  EXPECT_EQ(detect_tool_parser("<tool_call>\n<function=x>\n<parameter=y>"), "qwen3_coder");
  EXPECT_EQ(detect_tool_parser("{{ '[TOOL_CALLS] [' }}"), "mistral");
  // LFM2.5's templates differ in what they show of calls, Phi-4-mini's own one shows none.
  EXPECT_EQ(detect_tool_parser("{%- set text = text + \"List of tools: [\" -%}"), "lfm2");
  EXPECT_EQ(detect_tool_parser("{{ '<|tool|>' + message['tools'] + '<|/tool|>' }}"),
            "phi4_mini_json");
  const CallFormat& phi = find_tool_parser("phi4_mini_json")->format;
  EXPECT_EQ(phi.writing_for("{{ message['tools'] + '<|/tool|>' }}").begin, "<|tool_call|>[");
  EXPECT_EQ(phi.writing_for("<|/tool|> formatted as functools[{...}]").begin, "functools[");
  EXPECT_EQ(detect_tool_parser("formatted as functools[{\"name\": [function name]"),
            "phi4_mini_json");
  EXPECT_EQ(detect_tool_parser("<|tool_call_start|>\\n```python\\nfunc1(params)"), "minicpm3");
  EXPECT_EQ(detect_tool_parser("{% set bom = \"<|bom|>\" %}{% set prefix = \"<tool_calls>\" %}"),
            "jamba");
  EXPECT_EQ(detect_tool_parser("[\n    {\"name\": \"func_name1\", \"arguments\": {"), "xlam");
  EXPECT_EQ(detect_tool_parser("{{ render({'role': 'function call', 'content': call}) }}"),
            "gigachat3");
  EXPECT_EQ(detect_tool_parser("'<tool_call' ~ S ~ '>' ~ name ~ '<tool_sep' ~ S ~ '><arg_key'"),
            "hy_v3");
  EXPECT_EQ(detect_tool_parser("<tool_calls:opensource><tool_call:opensource><arg_key:opensource>"),
            "hy_v4");
  const char* m3 =
      "{%- set ns_token = ']<]minimax[>[' -%}{{ ns_token ~ '<tool_call>' }}"
      "{{- ns_token + '<invoke name=\"' + tool_call.name + '\">' }}{%- set end = '</mm:think>' -%}";
  EXPECT_EQ(detect_tool_parser("<zyphra_tool_call>\n<function=x>\n<parameter=y>"), "zaya_xml");
  EXPECT_EQ(detect_tool_parser(m3), "minimax_m3");
  EXPECT_EQ(detect_reasoning(m3), "minimax_m3");
  EXPECT_EQ(detect_tool_parser("'<|open|>' + tag + '<|sep|>' … '<|close|>'"), "kimi_k3");
  EXPECT_EQ(
      detect_tool_parser("'<|start_header_id|>assistant<|end_header_id|>\n\n>>>' … '>>>all\n'"),
      "functionary_v3");
  EXPECT_EQ(detect_tool_parser("'<|from|>assistant\n<|recipient|>all\n<|content|>'"),
            "functionary_v2");
  EXPECT_EQ(detect_tool_parser("'<|reserved_special_token_249|>' + call.name"),
            "functionary_v2_llama3");
  EXPECT_EQ(detect_tool_parser("<extra_id_1>Assistant\n<toolcall> "), "nemotron_mini");
  const CallFormat& mistral = find_tool_parser("mistral")->format;
  EXPECT_EQ(mistral.writing_for("{{ '[TOOL_CALLS][' }}").begin, "[TOOL_CALLS][");
  EXPECT_EQ(mistral.writing_for("{{ '[TOOL_CALLS] [' }}").begin, "[TOOL_CALLS] [");
  const CallFormat& hermes = find_tool_parser("hermes")->format;
  EXPECT_EQ(hermes.writing_for("'<tool_call>{\\\"name\\\": function_1_name'").name_begin,
            "<tool_call>{\"name\": \"");
  EXPECT_EQ(hermes.writing_for("<tool_call>\\n{\"name\": <name>").name_begin,
            "<tool_call>\n{\"name\": \"");
  EXPECT_EQ(detect_tool_parser("plain"), "");
  EXPECT_EQ(detect_reasoning("{{ content.split('</think>')[-1] }}"), "think");
  EXPECT_EQ(detect_reasoning("{{ content.split('</thought>')[-1] }}"), "exaone");
  EXPECT_EQ(detect_reasoning("<|thought_start|>\n{explain}\n<|thought_end|>"), "minicpm3");
  EXPECT_TRUE(prompt_opens_reasoning("<|assistant|><think>\n", "think"));
  EXPECT_FALSE(prompt_opens_reasoning("<think>\n\n</think>\n\n", "think"));
  EXPECT_FALSE(prompt_opens_reasoning("<think>", ""));
}

TEST(ReplyParsers, LongArgumentsInSmallPieces) {
  std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"" +
                     std::string(300'000, 'y') + "\"}}</tool_call>";
  auto parser = make_reply_parser({"hermes", "", false}).value();
  ReplyPart all;
  for (size_t i = 0; i < text.size(); i += 3)
    all.append(parser->push(std::string_view(text).substr(i, 3)));
  all.append(parser->finish());
  ASSERT_EQ(all.calls.size(), 1u);
  EXPECT_EQ(all.calls[0].arguments.size(), 300'000 + 8u);
}

// What stands between an opening and the name is read again with every piece, so that it has a
// bound.
TEST(ReplyParsers, ACallBeginsWithinABound) {
  for (const char* tools : {"glm4_moe", "deepseek"}) {
    const std::string mark =
        std::string(tools) == "glm4_moe" ? "<tool_call>" : "<｜tool▁call▁begin｜>";
    for (const size_t n : {1'000, 300'000}) {
      auto parser = make_reply_parser({tools, "", false}).value();
      ReplyPart all = parser->push(mark);
      for (size_t i = 0; i < n; i += 4) all.append(parser->push("    "));
      EXPECT_EQ(all.content.empty(), n == 1'000) << tools;
      all.append(parser->finish());
      EXPECT_TRUE(all.calls.empty()) << tools;
    }
  }
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Wherever a reply goes on with one character for long, none is read again with every piece.
TEST(ReplyParsers, LongRunsTakeLinearTime) {
  constexpr int kPieces = 3'000;
  for (const Case& c : cases()) {
    for (const char run : {' ', '1'}) {
      const std::string piece(64, run);
      for (size_t at = 0; at <= c.text.size(); at += 7) {
        const auto parser = parser_of(c);
        ReplyPart all = parser->push(std::string_view(c.text).substr(0, at));
        const double begin = cpu_seconds();
        for (int i = 0; i < kPieces; ++i) all.append(parser->push(piece));
        ASSERT_LT(cpu_seconds() - begin, 0.1)
            << c.tools << ' ' << c.reasoning << ": '" << run << "' behind " << c.text.substr(0, at);
      }
    }
  }
}

// What is read again ends where there is much of it, however the text was cut.
TEST(ReplyParsers, LongWhiteSpaceIsReadTheSameInPieces) {
  for (const Case& c : cases()) {
    for (const size_t n : {4'090, 4'096, 4'097, 5'000}) {
      for (size_t at = 0; at <= c.text.size(); at += 7) {
        const std::string text = c.text.substr(0, at) + std::string(n, ' ') + c.text.substr(at);
        const ReplyPart whole = parse_reply(*parser_of(c), text);
        const auto parser = parser_of(c);
        ReplyPart pieces;
        for (size_t i = 0; i < text.size(); i += 61)
          pieces.append(parser->push(std::string_view(text).substr(i, 61)));
        pieces.append(parser->finish());
        ASSERT_EQ(show(pieces), show(whole))
            << c.tools << ' ' << n << " behind " << c.text.substr(0, at);
      }
    }
  }
}

// Marks, halves of marks and JSON in any order: never a crash, and the same reply for every
// chunking.
TEST(ReplyParsers, SameReplyForEveryChunking) {
  std::vector<std::string> words = {"a",
                                    " ",
                                    "\n",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    "\"",
                                    "'",
                                    "\\",
                                    "(",
                                    ")",
                                    ",",
                                    ":",
                                    "=",
                                    ">",
                                    "f",
                                    "é",
                                    "1",
                                    "{\"name\": \"f\", \"arguments\": {}}",
                                    "[f(x=1)]",
                                    "<think>",
                                    "</think>",
                                    "```json\n",
                                    "\n```",
                                    ";",
                                    "<parameter=x>",
                                    "</parameter>",
                                    "</function>",
                                    "[ARGS]",
                                    "[CALL_ID]",
                                    "<｜tool▁sep｜>",
                                    "function",
                                    "<｜tool▁call▁end｜>",
                                    "<|tool_call_end|>",
                                    "<|tool_call_argument_begin|>",
                                    "functions.f:0"};
  for (const char* mark : {"<tool_call>",
                           "</tool_call>",
                           "<|python_tag|>",
                           "<|channel|>",
                           "<|message|>",
                           "<|end|>",
                           "<arg_key>",
                           "</arg_key><arg_value>",
                           "</arg_value>",
                           "<minimax:tool_call>",
                           "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<x>",
                           "]<]minimax[>[<item>",
                           "]<]minimax[>[</item>",
                           "]<]minimax[>[</x>",
                           "]<]minimax[>[</invoke>",
                           "<mm:think>",
                           "</mm:think>",
                           "<invoke name=\"",
                           "</invoke>",
                           "<|START_RESPONSE|>",
                           "<|END_RESPONSE|>",
                           "to=functions.f",
                           "[TOOL_CALLS]",
                           "<|python_start|>",
                           "<|tool_call_start|>",
                           "<｜tool▁calls▁begin｜>",
                           "<｜tool▁call▁begin｜>",
                           "<｜tool▁calls▁end｜>",
                           "<|tool_calls_section_begin|>",
                           "<|tool_call_begin|>",
                           "<|tool_call|>",
                           "<function=",
                           "<|tool_call>",
                           "call:f{",
                           "<|\"|>",
                           "<escape>",
                           "<start_function_call>",
                           "<function_calls>",
                           "</function_calls>",
                           "f(x=1)\n",
                           "<|tools_prefix|>",
                           "[{\"f\": {}}]",
                           "<|action_start|><|plugin|>",
                           "<｜DSML｜tool_calls>",
                           "<｜DSML｜invoke name=\"",
                           "f\">\n<｜DSML｜parameter name=\"x\" string=\"",
                           "true\">",
                           "</｜DSML｜parameter>",
                           "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
                           "f\n{}",
                           "<answer>",
                           "</answer>",
                           "[END FINAL RESPONSE]",
                           "<|channel>thought",
                           "<channel|>",
                           "</function>\n</tool_call>",
                           "\n<parameter=",
                           "{\"name\": \"f\", \"arguments\": {\"x\": \"",
                           "<tool_call>\n<function=f>\n<parameter=x>\n",
                           "<tool_call>f<arg_key>x</arg_key><arg_value>",
                           "<function_call>"}) {
    words.emplace_back(mark);
    words.push_back(words.back().substr(0, words.back().size() / 2));
  }
  std::vector<std::string> tools = {""}, reasonings = {""};
  for (const auto& row : tool_parsers()) tools.emplace_back(row.name);
  for (const auto& row : reasoning_formats()) reasonings.emplace_back(row.name);
  EXPECT_TRUE(rc::check("pieces add up to the whole", [&] {
    std::string text;
    for (const auto i :
         *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, words.size())))
      text += words[i];
    ReplyParserOptions options{*rc::gen::elementOf(tools), *rc::gen::elementOf(reasonings),
                               *rc::gen::arbitrary<bool>()};
    const JsonTypes types =
        *rc::gen::element(json_types::kAny, json_types::kString, json_types::kArray);
    if (*rc::gen::arbitrary<bool>())
      options.parameters =
          std::make_shared<const ParameterTypes>(ParameterTypes{{"f", {{"x", types}}}});
    const ReplyPart whole = parse_reply(**make_reply_parser(options), text);
    auto parser = std::move(*make_reply_parser(options));
    ReplyPart pieces;
    for (size_t i = 0; i < text.size();) {
      const size_t n = *rc::gen::inRange<size_t>(1, 12);
      pieces.append(parser->push(std::string_view(text).substr(i, n)));
      i += n;
    }
    pieces.append(parser->finish());
    RC_ASSERT(show(pieces) == show(whole));
  }));
}

}  // namespace
}  // namespace penstock
