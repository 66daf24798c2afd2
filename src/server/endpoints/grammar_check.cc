// POST /v1/grammar/check: compiles a schema, regex, grammar or structural tag and reports the
// result, without generating.
#include "server/api/api_request.h"
#include "server/api/schemas.h"
#include "server/api/structured.h"
#include "server/handlers/constrain.h"
#include "server/routing/errors.h"
#include "server/services/client_warnings.h"
#include "server/services/request_record.h"

namespace penstock {
namespace {

struct CheckCall {
  ModelLease model;
  AskedOutputs asked;
};

Result<CheckCall> read_check(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ApiBody asked, read_body(services, request, grammar_check_request()));
  ASSIGN_OR_RETURN(auto outputs, read_structured_outputs(asked.fields));
  if (!outputs)
    return errorf(ErrorCode::kInvalidArgument,
                  "body: expected a specification, such as response_format");
  add_defaults(services.config.structured, outputs->outputs);
  return CheckCall{asked.model, *std::move(outputs)};
}

json report_json(const GrammarReport& report, const std::string& field) {
  json body = {{"ok", !report.refusal.has_value()}};
  if (report.refusal) {
    const grammar::Refusal& refusal = *report.refusal;
    const std::string param = field.empty() ? "structured_outputs." + report.field : field;
    body["error"] = {{"kind", grammar::name_of(refusal.kind)},
                     {"param", param},
                     {"where", refusal.where},
                     {"keyword", refusal.keyword.empty() ? json(nullptr) : json(refusal.keyword)},
                     {"message", refusal.message}};
    return body;
  }
  body["notes"] = json::array();
  for (const grammar::Note& note : report.notes)
    body["notes"].push_back({{"where", note.where}, {"message", note.message}});
  body["canonical"] = report.canonical;
  body["compile_us"] = std::round(report.compile_us * 10) / 10;
  return body;
}

}  // namespace

net::awaitable<void> post_grammar_check(Services& services, Exchange& exchange) {
  record_of(exchange);  // creates the record, for warnings
  std::optional<Result<CheckCall>> call;
  Result<GrammarReport> report;
  // The whole specification is processed off the connection threads.
  const Status ran = co_await run_compilation(services, exchange, [&](CompileEffort& effort) {
    if (!call) call = read_check(services, exchange.request());
    if (call && *call)
      report = (*call)->model->session().grammars().report((*call)->asked.outputs, effort);
  });
  if (exchange.gone()) co_return;
  tell_warnings(services, exchange);
  if (!ran) co_return co_await exchange.reply(error_reply(ran.error()));
  if (!*call) co_return co_await exchange.reply(error_reply(call->error()));
  if (!report) co_return co_await exchange.reply(error_reply(report.error()));
  co_await exchange.reply(json_reply(report_json(*report, (*call)->asked.field)));
}

}  // namespace penstock
