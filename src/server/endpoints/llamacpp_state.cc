// GET /props and /slots: what llama.cpp's clients ask about a server. POST /slots/{id}.
#include <algorithm>
#include <charconv>

#include "penstock/version.h"
#include "server/api/api_request.h"
#include "server/api/llamacpp.h"
#include "server/api/schema_parts.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"
#include "text/fill_in_middle.h"

namespace penstock {

EndpointSchema props_reply, slots_reply, slot_action_reply;

namespace {

Status check_gives_text(const ServedModel& model) {
  if (model.runner() != Runner::kPooling) return {};
  return errorf(ErrorCode::kInvalidArgument, "model: {} gives vectors and no text", model.name());
}

json slot_json(const ServedModel& model, int id) {
  const EngineConfig& engine = model.settings().engine;
  return {{"id", id},
          {"id_task", -1},
          {"n_ctx", model.max_model_len()},
          {"speculative",
           !engine.draft_model.empty() || (!engine.spec.empty() && engine.spec != "off")},
          {"is_processing", false}};
}

json next_token(int n_decoded, int max_tokens, bool goes_on) {
  return {{"has_next_token", goes_on},
          {"has_new_line", false},
          {"n_remain", std::max(max_tokens - n_decoded, 0)},
          {"n_decoded", n_decoded}};
}

// Omits lists of arbitrary length, which every choice would repeat.
json settings_of_slot(SamplingParams params) {
  params.logit_bias.clear();
  params.stop.clear();
  params.dry_sequence_breakers.clear();
  params.structured_outputs.reset();
  return llamacpp_settings(params, params.max_tokens, false);
}

// All slots of an unloaded model are free.
json slots_json(ServedModel& model, const HttpRequest& request) {
  json slots = json::array();
  const int n = model.max_num_seqs();
  for (const auto& call : model.running().all()) {
    std::optional<json> settings;  // the same for every choice
    for (size_t i = 0; i < call->n_decoded.size() && std::ssize(slots) < n; ++i) {
      if (call->finished[i].load(std::memory_order_relaxed)) continue;
      json slot = slot_json(model, static_cast<int>(slots.size()));
      slot["is_processing"] = true;
      // Prompt and settings are shown only to the tenant of the call.
      if (record_of(request).key.empty() || record_of(request).tenant == call->tenant) {
        const int n_decoded = call->n_decoded[i].load(std::memory_order_relaxed);
        slot["n_prompt_tokens"] = call->n_prompt_tokens;
        if (!settings) settings = settings_of_slot(call->params);
        slot["params"] = *settings;
        slot["next_token"] = next_token(n_decoded, call->params.max_tokens, true);
      }
      slots.push_back(std::move(slot));
    }
  }
  while (std::ssize(slots) < n) slots.push_back(slot_json(model, static_cast<int>(slots.size())));
  return slots;
}

// key: of the request. File paths are shown only to administrators.
json props_json(const ServedModel& model, const std::string& key) {
  const Tokenizer& tokenizer = model.tokenizer();
  json defaults = slot_json(model, 0);
  SamplingParams params = model.default_sampling_params();
  params.max_tokens = -1;
  defaults["params"] = llamacpp_settings(params, -1, false);
  defaults["prompt"] = "";
  defaults["next_token"] = {
      {"has_next_token", true}, {"has_new_line", false}, {"n_remain", -1}, {"n_decoded", 0}};
  return {{"default_generation_settings", std::move(defaults)},
          {"total_slots", model.max_num_seqs()},
          {"model_alias", model.name()},
          {"model_path", key.empty() ? model.settings().engine.model : model.name()},
          {"modalities", {{"vision", model.sees()}, {"audio", model.hears()}}},
          {"chat_template", model.chat().chat_template()},
          {"bos_token", std::string(tokenizer.piece(tokenizer.bos()))},
          {"eos_token", std::string(tokenizer.piece(tokenizer.eos()))},
          {"fill_in_middle", fill_in_middle_of(tokenizer).known()},
          {"build_info", std::string("penstock-") + kVersion},
          {"is_sleeping", false}};
}

// Parses the slot index of "/slots/3". Errors: kInvalidArgument.
Result<int> slot_of(const HttpRequest& request, const ServedModel& model) {
  const std::string_view text = std::string_view(request.path).substr(request.path.rfind('/') + 1);
  int id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && id >= 0 && id < model.max_num_seqs()) return id;
  return errorf(ErrorCode::kInvalidArgument, "id_slot: expected 0 to {}, got {:.80}",
                model.max_num_seqs() - 1, text);
}

// Slots have no cache of their own: erasing has no effect, and saving is refused.
HttpReply act_on_slot(const HttpRequest& request, const ServedModel& model) {
  if (const Status text = check_gives_text(model); !text) return error_reply(text.error());
  const auto id = slot_of(request, model);
  if (!id) return error_reply(id.error());
  const auto given = request.query.find("action");
  const std::string action = given == request.query.end() ? "" : given->second;
  if (action == "erase") return json_reply({{"id_slot", *id}, {"n_erased", 0}});
  if (action == "save" || action == "restore") {
    return error_reply(request, 501,
                       "action: places of sequences are not saved or restored; all sequences "
                       "share one cache of prefixes, which --kv-store PATH keeps over restarts");
  }
  return error_reply(
      400, fmt::format("action: expected save, restore or erase, got {:.80}", action), "action");
}

}  // namespace

const nlohmann::json& slot_action_reply() {
  using schema::plain;
  static const nlohmann::json value = schema::open(
      {{"id_slot", plain("integer")}, {"n_erased", plain("integer")}}, {"id_slot", "n_erased"});
  return value;
}

const nlohmann::json& props_reply() {
  using schema::plain;
  static const nlohmann::json value =
      schema::open({{"default_generation_settings", plain("object")},
                    {"total_slots", plain("integer")},
                    {"model_path", plain("string")},
                    {"chat_template", plain("string")}},
                   {"default_generation_settings", "total_slots"});
  return value;
}

const nlohmann::json& slots_reply() {
  using schema::plain;
  static const nlohmann::json value = {
      {"type", "array"},
      {"items", schema::open({{"id", plain("integer")}, {"is_processing", plain("boolean")}},
                             {"id", "is_processing"})}};
  return value;
}

net::awaitable<void> get_props(Services& services, Exchange& exchange) {
  const auto model = co_await model_of_query(services, exchange.request());
  if (!model) co_return co_await exchange.reply(error_reply(model.error()));
  if (const Status text = check_gives_text(**model); !text)
    co_return co_await exchange.reply(error_reply(text.error()));
  co_await exchange.reply(json_reply(props_json(**model, record_of(exchange).key)));
}

net::awaitable<void> post_slot(Services& services, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const auto model = services.models.find(model_in_query(request), record_of(request).key);
  HttpReply reply = model ? act_on_slot(request, **model) : error_reply(model.error());
  co_await exchange.reply(std::move(reply));
}

net::awaitable<void> get_slots(Services& services, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const auto model = services.models.find(model_in_query(request), record_of(request).key);
  if (!model) co_return co_await exchange.reply(error_reply(model.error()));
  if (const Status loaded = (*model)->load_failure(); !loaded)
    co_return co_await exchange.reply(error_reply(loaded.error()));
  if (const Status text = check_gives_text(**model); !text)
    co_return co_await exchange.reply(error_reply(text.error()));
  const json slots = slots_json(**model, request);
  const auto fails = request.query.find("fail_on_no_slot");
  // An unloaded model has no slots and none is busy: a request loads it.
  const bool none_free = !slots.empty() && std::ranges::all_of(slots, [](const json& one) {
    return one["is_processing"] == true;
  });
  if (none_free && fails != request.query.end() && fails->second == "1")
    co_return co_await exchange.reply(error_reply(request, 503, "no slot is free"));
  co_await exchange.reply(json_reply(slots));
}

}  // namespace penstock
