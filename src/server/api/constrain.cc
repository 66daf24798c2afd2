#include "server/api/constrain.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

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
  if (!wanted) co_return Status();
  GrammarCache& grammars = call.model->session().grammars();
  Result<Constraint> made;
  if (auto known = grammars.find(*wanted)) {
    made = *std::move(known);
  } else {
    std::atomic<bool> gone = exchange.gone();  // it may have left while its body was read
    exchange.on_disconnect = [&gone] { gone = true; };
    co_await run_compilation(server, [&] {
      if (!gone) made = grammars.compile(*wanted, call.structured_field);
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
