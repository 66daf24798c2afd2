// What the way of a chat's body to its prompt costs: it is parsed once, and its texts are moved
// from the parser to the template.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>

#include "frontend/chat/chat_prompt.h"
#include "frontend/session.h"
#include "server/api/conversations.h"
#include "server/api/json_reader.h"
#include "support/test_data.h"

namespace penstock {
namespace {

constexpr size_t kLarge = 1 << 20;  // bytes of an allocation that is counted
std::atomic<int64_t> n_large{0}, large_bytes{0}, most_large_bytes{0};

void count(size_t usable, int sign) {
  if (usable < kLarge) return;
  const int64_t now = large_bytes += sign * static_cast<int64_t>(usable);
  if (sign < 0) return;
  ++n_large;
  most_large_bytes = std::max(most_large_bytes.load(), now);
}

}  // namespace
}  // namespace penstock

void* operator new(size_t size) {
  void* p = std::malloc(size);
  if (p == nullptr) throw std::bad_alloc();
  penstock::count(malloc_usable_size(p), 1);
  return p;
}
// All three, or a sanitizer's own would go with the others' opposites.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept {
  if (p != nullptr) penstock::count(malloc_usable_size(p), -1);
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

const Session& small_session() {
  static const std::unique_ptr<Session> session = [] {
    EngineConfig config;
    config.model = (models_dir() / "penstock-stories-1m-q8_0.gguf").string();
    config.threads = 1;
    config.kv_cache_memory = 8 << 20;
    return Session::open(config).value();
  }();
  return *session;
}

struct Cost {
  int64_t n_copies;  // allocations that are as large as the text
  double peak;       // bytes of them at once, as a multiple of the body
};

// From the body of a request to the text of the prompt.
Cost cost_of(const Json& body, Result<Conversation> (*read)(Json&)) {
  const auto prompter =
      ChatPrompter::open(small_session().tokenizer(),
                         "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}");
  const std::string text = body.dump();
  const int64_t n_before = n_large;
  most_large_bytes = large_bytes.load();
  const int64_t before = most_large_bytes;
  Json value = read_json(text, 1 << 20).value();
  Conversation conversation = read(value).value();
  const std::string prompt =
      prompter->render(std::move(conversation.messages), conversation.tools, conversation.variables)
          .value();
  EXPECT_GE(prompt.size(), 4u << 20);
  EXPECT_NE(prompt.find("user: "), std::string::npos);
  return {n_large - n_before,
          static_cast<double>(most_large_bytes - before) / static_cast<double>(text.size())};
}

const std::string kText(4 << 20, 'a');

// One is what the parser makes, the other the prompt, which ends with the text: it need not grow.
void expect_moved(const Cost& cost) {
  EXPECT_LE(cost.n_copies, 2);
  EXPECT_LT(cost.peak, 2.1);
}

// A body whose other fields come behind the conversation, as many as make objects grow.
Json with_others(const char* field, Json value) {
  Json body = {{field, std::move(value)}};
  for (int i = 0; i < 40; ++i) body["other_" + std::to_string(i)] = i;
  body["chat_template_kwargs"] = {{"a", 1}, {"b", 2}};
  return body;
}

Json said_by_user(Json content) {
  return Json::array({{{"role", "user"}, {"content", std::move(content)}}});
}

TEST(ChatBody, TextsOfChatCompletionsAreMoved) {
  const auto read = [](Json& body) { return Result<Conversation>(conversation_of_chat(body)); };
  expect_moved(cost_of(with_others("messages", said_by_user(kText)), read));
  expect_moved(cost_of(
      with_others("messages", said_by_user(Json::array({{{"type", "text"}, {"text", kText}}}))),
      read));
  Json messages = said_by_user("go on");
  messages.push_back({{"role", "assistant"},
                      {"content", kText},
                      {"reasoning", "short"},
                      {"tool_calls", Json::array()}});
  expect_moved(cost_of(with_others("messages", messages), read));
}

TEST(ChatBody, TextsOfResponsesAreMoved) {
  const auto read = [](Json& body) { return Result<Conversation>(conversation_of_response(body)); };
  expect_moved(cost_of(with_others("input", kText), read));
  Json items = said_by_user("go on");
  items.push_back({{"role", "assistant"},
                   {"content", Json::array({{{"type", "output_text"}, {"text", kText}}})}});
  items.push_back(
      {{"type", "function_call"}, {"call_id", "1"}, {"name", "f"}, {"arguments", "{}"}});
  expect_moved(cost_of(with_others("input", items), read));
}

TEST(ChatBody, TextsOfMessagesAreMoved) {
  const auto read = [](Json& body) { return Result<Conversation>(conversation_of_messages(body)); };
  expect_moved(cost_of(with_others("messages", said_by_user(kText)), read));
  Json messages = said_by_user("go on");
  messages.push_back(
      {{"role", "assistant"},
       {"content",
        {{{"type", "text"}, {"text", kText}},
         {{"type", "thinking"}, {"thinking", "short"}},
         {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", Json::object()}}}}});
  expect_moved(cost_of(with_others("messages", messages), read));
}

}  // namespace
}  // namespace penstock
