#include "server/api/constrain.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "frontend/json_fields.h"
#include "server/api/structured.h"

namespace penstock {
namespace {

constexpr size_t kMostHeader = 4096;  // bytes

// As many of the notes as a header has room for; ASCII.
std::string notes_header(const std::vector<grammar::Note>& notes) {
  std::string text;
  for (const grammar::Note& note : notes) {
    const nlohmann::ordered_json one = {{"where", note.where}, {"message", note.message}};
    const std::string next = one.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
    if (text.size() + next.size() > kMostHeader) break;
    text += (text.empty() ? "" : ",") + next;
  }
  return "[" + text + "]";
}

// Which part of a request a grammar made of several is refused for: the answer's form, or a strict tool's schema. The
// parts are compiled one by one.
class Culprit {
 public:
  Culprit(const GenerationCall& call, GrammarCache& grammars) : call_(call), grammars_(grammars) {}

  Error find(const HttpRequest& request, Error whole) {
    // It has been read before, and is looked at once more only where something is refused.
    const auto body = bounded_json<nlohmann::ordered_json>(request.body);
    if (auto asked = read_structured_outputs(body); asked && *asked)
      try_one((*asked)->outputs, (*asked)->field);
    const auto& tools = get_field(body, "tools");
    for (size_t i = 0; i < tools.size() && !found_; ++i) try_tool(tools[i], i);
    return found_.value_or(std::move(whole));
  }

 private:
  void try_tool(const nlohmann::ordered_json& tool, size_t index) {
    const std::string place = call_.tool_schemas;
    const nlohmann::ordered_json::json_pointer schema("/" + place);
    const auto& holder = place.find('/') == std::string::npos ? tool : get_field(tool, "function");
    if (!get_bool(holder, "strict", call_.strict_tools) || !tool.contains(schema)) return;
    std::string path = fmt::format("tools[{}].{}", index, place);
    std::ranges::replace(path, '/', '.');
    try_one({.json = tool[schema].dump()}, path);
  }
  void try_one(const StructuredOutputs& outputs, const std::string& field) {
    if (auto made = grammars_.compile(outputs, field); !made && !found_) found_ = made.error();
  }

  const GenerationCall& call_;
  GrammarCache& grammars_;
  std::optional<Error> found_;
};

net::awaitable<void> call_it(std::function<void()> work) {
  work();
  co_return;
}

}  // namespace

net::awaitable<void> run_compilation(Server& server, std::function<void()> work) {
  co_await net::co_spawn(server.compilations(), call_it(std::move(work)), net::use_awaitable);
}

net::awaitable<Status> constrain(Server& server, Exchange& exchange, GenerationCall& call) {
  const auto& wanted = call.params.structured_outputs;
  if (!wanted || call.kept != nullptr) co_return Status();
  GrammarCache& grammars = call.model->session().grammars();
  Result<Constraint> made;
  if (auto known = grammars.find(*wanted)) {
    made = *std::move(known);
  } else {
    std::atomic<bool> gone = exchange.gone();  // it may have left while its body was read
    exchange.on_disconnect = [&gone] { gone = true; };
    co_await run_compilation(server, [&] {
      if (gone) return;
      made = grammars.compile(*wanted, call.structured_field, &gone);
      if (!made && !gone && call.tool_schemas != nullptr)
        made = tl::unexpected(Culprit(call, grammars).find(exchange.request(), made.error()));
    });
    exchange.on_disconnect = nullptr;
  }
  if (!made) co_return tl::unexpected(made.error());
  call.matcher = std::move(made->matcher);
  if (!made->notes.empty())
    exchange.reply_headers.emplace_back("x-structured-outputs-notes", notes_header(made->notes));
  co_return Status();
}

}  // namespace penstock
