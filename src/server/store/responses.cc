#include "server/store/responses.h"

#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_text.h"

namespace penstock {
namespace {

using ResponseJson = nlohmann::ordered_json;

int64_t bytes_of(const StoredResponse& response) {
  return static_cast<int64_t>(response.input.size() + response.reply.size() +
                              response.events.size());
}

// Returns a failed reply with the reason, for a response whose process was killed.
std::string failed_reply(const std::string& reply) {
  auto object = bounded_json<ResponseJson>(reply);
  if (!object.is_object()) object = ResponseJson::object();
  object["status"] = "failed";
  object["error"] = {{"code", "server_error"},
                     {"message", "the server ended while it generated this response"}};
  return object.dump(-1, ' ', false, ResponseJson::error_handler_t::replace);
}

}  // namespace

Result<std::unique_ptr<StoredResponses>> StoredResponses::open(std::shared_ptr<Store> store,
                                                               ResponseLimits limits) {
  std::unique_ptr<StoredResponses> responses(new StoredResponses(std::move(store), limits));
  RETURN_IF_ERROR(responses->database().transact([&] { return responses->fail_unfinished(); }));
  return responses;
}

Status StoredResponses::fail_unfinished() {
  std::vector<StoredResponse> found;
  RETURN_IF_ERROR(database().run("SELECT id, reply FROM responses WHERE ended = 0", {},
                                 [&](const DatabaseRow& row) {
                                   StoredResponse& one = found.emplace_back();
                                   one.id = row.text(0), one.reply = row.text(1);
                                 }));
  for (const StoredResponse& one : found) {
    const std::string reply = failed_reply(one.reply);
    RETURN_IF_ERROR(database().run("UPDATE responses SET ended = 1, reply = ?2 WHERE id = ?1",
                                   {one.id, reply}));
  }
  return {};
}

Status StoredResponses::check_unfinished(const std::string& owner) {
  int64_t n = 0;
  RETURN_IF_ERROR(database().run("SELECT count(*) FROM responses WHERE ended = 0 AND owner = ?1",
                                 {owner}, [&](const DatabaseRow& row) { n = row.integer(0); }));
  if (n < kMostUnfinished) return {};
  return errorf(ErrorCode::kResourceExhausted,
                "{} background responses of this API key have not ended, the most there may be", n);
}

Status StoredResponses::make_room(const std::string& owner) {
  return database().run(
      "DELETE FROM responses WHERE ended = 1 AND number IN (SELECT number FROM ("
      "SELECT number, sum(bytes) OVER newest AS bytes, row_number() OVER newest AS place"
      " FROM responses WHERE owner = ?1 WINDOW newest AS (ORDER BY number DESC))"
      " WHERE bytes > ?2 OR place > ?3)",
      {owner, limits_.bytes, limits_.responses});
}

Result<bool> StoredResponses::add(StoredResponse response) {
  if (bytes_of(response) > limits_.bytes || limits_.responses == 0) return false;
  response.created = std::time(nullptr);
  response.expires = response.created + limits_.seconds;
  RETURN_IF_ERROR(database().transact([&]() -> Status {
    if (!response.ended) RETURN_IF_ERROR(check_unfinished(response.owner));
    RETURN_IF_ERROR(database().run("DELETE FROM responses WHERE ended = 1 AND expires <= ?1",
                                   {response.created}));
    RETURN_IF_ERROR(database().run(
        "INSERT INTO responses (id, owner, bytes, created, expires, ended, input, reply, events) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        {response.id, response.owner, bytes_of(response), response.created, response.expires,
         static_cast<int64_t>(response.ended), response.input, response.reply, response.events}));
    return make_room(response.owner);
  }));
  return true;
}

Status StoredResponses::end(const StoredResponse& response) {
  return database().transact([&]() -> Status {
    RETURN_IF_ERROR(database().run(
        "UPDATE responses SET ended = 1, reply = ?3, events = ?4, bytes = length(CAST(input AS "
        "BLOB)) + ?5 WHERE owner = ?1 AND id = ?2 AND ended = 0",
        {response.owner, response.id, response.reply, response.events,
         static_cast<int64_t>(response.reply.size() + response.events.size())}));
    return make_room(response.owner);
  });
}

Result<StoredResponse> StoredResponses::find(const std::string& owner, const std::string& id) {
  std::vector<StoredResponse> found;
  RETURN_IF_ERROR(
      database().run("SELECT input, reply, events, ended, created, expires FROM responses"
                     " WHERE owner = ?1 AND id = ?2 AND (expires > ?3 OR ended = 0)",
                     {owner, id, int64_t{std::time(nullptr)}}, [&](const DatabaseRow& row) {
                       found.push_back({id, owner, row.text(0), row.text(1), row.text(2),
                                        row.integer(3) != 0, row.integer(4), row.integer(5)});
                     }));
  if (found.empty()) return errorf(ErrorCode::kNotFound, "no such response: {}", id);
  return std::move(found.front());
}

Status StoredResponses::remove(const std::string& owner, const std::string& id) {
  return database().transact_removal([&]() -> Status {
    RETURN_IF_ERROR(find(owner, id));
    return database().run("DELETE FROM responses WHERE owner = ?1 AND id = ?2", {owner, id});
  });
}

}  // namespace penstock
