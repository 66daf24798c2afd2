// JSON with objects of any size: what the library reads, in linear work.
#include "base/ordered_json.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <ctime>

#include "base/json_text.h"
#include "frontend/chat/exact_json.h"
#include "frontend/chat/message_forms.h"
#include "frontend/chat/reply_parser.h"
#include "frontend/parse_reply.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

double cpu_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST(OrderedJson, IsWhatTheLibraryReads) {
  for (const char* text :
       {"{}", "[]", "1", "-1", "1.5e300", "1e400", "\"a\\u00e9\"", "null", "true", "", "{", "[1,]",
        "{\"a\":1,\"b\":{\"c\":[{},[],null]},\"a\":[2,{\"x\":3}]}",
        "{\"a\":1,\"a\":2,\"a\":3,\"b\":4}", "[[[{\"k\":[1,2,{\"k\":{\"k\":0}}]}]]]", "1 2",
        "{\"a\" 1}", "\"\xff\"", "{\"\":0,\"\":{}}"}) {
    const Json expected = Json::parse(text, nullptr, false), got = bounded_json<Json>(text);
    ASSERT_EQ(got.is_discarded(), expected.is_discarded()) << text;
    if (!got.is_discarded()) {
      EXPECT_EQ(got.dump(), expected.dump()) << text;
    }
  }
  EXPECT_TRUE(bounded_json<Json>(std::string(100'000, '[')).is_discarded());
}

RC_GTEST_PROP(OrderedJson, IsWhatTheLibraryReadsOfAnyText, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "1", "\"a\":", "\"b\":", "null", " "));
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const Json expected = Json::parse(text, nullptr, false), got = bounded_json<Json>(text);
  RC_ASSERT(got.is_discarded() == expected.is_discarded());
  if (!got.is_discarded()) RC_ASSERT(got.dump() == expected.dump());
}

std::string members(int n, const char* form) {
  std::string text;
  for (int i = 0; i < n; ++i) text += fmt::format(fmt::runtime(form), i);
  text.pop_back();
  return text;
}

TEST(OrderedJson, ManyMembersTakeLinearWork) {
  constexpr int kMany = 200'000;
  const std::string text = "{" + members(kMany, "\"k{}\":1,") + "}";
  const double begin = cpu_now();
  EXPECT_EQ(bounded_json<Json>(text).size(), kMany);
  EXPECT_EQ(parse_exact(text)->size(), kMany);
  EXPECT_EQ(arguments_object(text).size(), kMany);
  EXPECT_LT(cpu_now() - begin, 10);
}

TEST(OrderedJson, ManyArgumentsOfAReplyTakeLinearWork) {
  constexpr int kMany = 100'000;
  for (const auto& [tools, begin, form, end] :
       {std::tuple{"pythonic", "[f(", "k{}=1,", ")]"},
        {"pythonic", "[f(x={", "'k{}':1,", "})]"},
        {"gemma4", "<|tool_call>call:f{", "k{}:1,", "}<tool_call|>"},
        {"olmo3", "<function_calls>f(", "k{}=1,", ")</function_calls>"}}) {
    auto parser = make_reply_parser({tools, "", false}).value();
    const double start = cpu_now();
    const ReplyPart reply = parse_reply(*parser, begin + members(kMany, form) + end);
    EXPECT_LT(cpu_now() - start, 5) << tools;
    ASSERT_EQ(reply.calls.size(), 1u) << tools;
    EXPECT_GT(reply.calls[0].arguments.size(), 8u * kMany);
  }
}

Json conversation(const std::string& arguments, int n_calls = 1) {
  Json calls = Json::array();
  for (int i = 0; i < n_calls; ++i)
    calls.push_back({{"id", "x"}, {"function", {{"name", "f"}, {"arguments", arguments}}}});
  return {{{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}}};
}

TEST(OrderedJson, ArgumentsOfAConversationAreBounded) {
  const std::string text = "{" + members(200'000, "\"k{}\":1,") + "}";
  const double begin = cpu_now();
  const auto read = in_forms({}, conversation(text));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ((*read)[0]["tool_calls"][0]["function"]["arguments"].size(), 200'000u);
  EXPECT_LT(cpu_now() - begin, 10);
  for (const auto& refused : {in_forms({}, conversation(text, 3)),
                              in_forms({}, conversation("[" + members(600'000, "[],{}") + "]"))}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("at most 500000 values"), std::string::npos);
  }
  // What is no JSON stays none, however large it is.
  EXPECT_TRUE(in_forms({}, conversation("\"" + std::string(1'000'000, ',') + "\"")));
}

}  // namespace
}  // namespace penstock
