#include "server/handlers/constrain.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "frontend/json_fields.h"
#include "server/api/structured.h"
#include "server/http/unattended_exchange.h"
#include "server/services/compile_queue.h"
#include "server/services/config.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr size_t kMostHeader = 4096;  // bytes

// Returns as many notes as fit into a header, as ASCII.
std::string notes_header(const std::vector<grammar::Note>& notes) {
  std::string text;
  for (const grammar::Note& note : notes) {
    const nlohmann::ordered_json one = {{"where", note.where}, {"message", note.message}};
    const std::string next =
        one.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
    if (text.size() + next.size() > kMostHeader) break;
    text += (text.empty() ? "" : ",") + next;
  }
  return "[" + text + "]";
}

// Finds the part of a combined grammar that was refused (the answer's form, or a strict tool's
// schema) by compiling the parts separately.
class Culprit {
 public:
  Culprit(const GenerationCall& call, const StructuredDefaults& defaults, GrammarCache& grammars,
          CompileEffort& effort)
      : call_(call), defaults_(defaults), grammars_(grammars), effort_(effort) {}

  Error find(const HttpRequest& request, Error whole) {
    // Parsed again, since only refusals need it.
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
  void try_one(StructuredOutputs outputs, const std::string& field) {
    add_defaults(defaults_, outputs);
    const auto made = grammars_.compile(outputs, field, effort_);
    if (!made && !found_ && made.error().code != ErrorCode::kCancelled) found_ = made.error();
  }

  const GenerationCall& call_;
  const StructuredDefaults& defaults_;
  GrammarCache& grammars_;
  CompileEffort& effort_;  // for the whole grammar and its parts together
  std::optional<Error> found_;
};

// Returns the identity for turns; background work has its own turns.
std::string asker_of(const HttpRequest& request) {
  return request.asker() + (record_of(request).background ? " (background)" : "");
}

}  // namespace

net::awaitable<Status> run_compilation(Services& services, Exchange& exchange,
                                       CompileQueue::Attempt attempt) {
  // the client may have left while its body was read
  std::atomic<bool> gone = exchange.gone();
  struct Watch {
    ~Watch() { exchange.on_disconnect = nullptr; }
    Exchange& exchange;
  } watch{exchange};
  exchange.on_disconnect = [&gone] { gone = true; };
  co_return co_await services.compilations.run(asker_of(exchange.request()), gone,
                                               std::move(attempt));
}

net::awaitable<Status> constrain(Services& services, Exchange& exchange, GenerationCall& call) {
  auto& wanted = call.params.structured_outputs;
  if (!wanted || call.kept != nullptr) co_return Status();
  // for calls only, no field of the request specifies a form
  add_defaults(services.config.structured, *wanted);
  GrammarCache& grammars = call.model->session().grammars();
  Result<Constraint> made;
  // bytes; computing the cache key takes a fraction of a millisecond
  constexpr size_t kAtOnce = 64 * 1024;
  auto known = text_bytes(*wanted) <= kAtOnce ? grammars.find(*wanted) : std::nullopt;
  if (known) {
    made = *std::move(known);
  } else {
    const Status ran = co_await run_compilation(services, exchange, [&](CompileEffort& effort) {
      made = grammars.compile(*wanted, call.structured_field, effort);
      const bool refused = !made && made.error().code != ErrorCode::kCancelled;
      if (refused && call.tool_schemas != nullptr)
        made = tl::unexpected(Culprit(call, services.config.structured, grammars, effort)
                                  .find(exchange.request(), made.error()));
    });
    if (!ran) co_return ran;
  }
  if (!made) co_return tl::unexpected(made.error());
  call.matcher = std::move(made->matcher);
  if (!made->notes.empty())
    exchange.reply_headers.emplace_back("x-structured-outputs-notes", notes_header(made->notes));
  co_return Status();
}

}  // namespace penstock
