// OpenAI's files: POST and GET /v1/files, GET and DELETE /v1/files/{id}, GET
// /v1/files/{id}/content.
#include <algorithm>
#include <charconv>

#include "server/api/api_request.h"
#include "server/api/schema_parts.h"
#include "server/api/store_call.h"
#include "server/http/multipart.h"
#include "server/routing/errors.h"
#include "server/services/data_folder.h"
#include "server/services/request_log.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr int64_t kLongestPage = 10000;     // files of one list, OpenAI's
constexpr int64_t kContentPiece = 1 << 18;  // bytes of content read at once
constexpr size_t kLongestName = 512;

json file_json(const StoredFile& file) {
  return {{"id", file.id},
          {"object", "file"},
          {"bytes", file.bytes},
          {"created_at", file.created},
          {"expires_at", nullptr},
          {"filename", file.name},
          {"purpose", file.purpose},
          {"status", "processed"},
          {"status_details", nullptr}};
}

struct Upload {
  std::string name;
  std::string_view content;
};

Result<Upload> read_upload(const HttpRequest& request) {
  ASSIGN_OR_RETURN(const auto parts, read_form(request.header("content-type"), request.body));
  Upload upload;
  std::string_view purpose;
  bool has_file = false, has_purpose = false;
  for (const FormPart& part : parts) {
    bool& seen = part.name == "file" ? has_file : has_purpose;
    if (part.name != "file" && part.name != "purpose") {
      return errorf(ErrorCode::kInvalidArgument, "{}: unknown field, expected file and purpose",
                    part.name);
    }
    if (std::exchange(seen, true))
      return errorf(ErrorCode::kInvalidArgument, "{}: given twice", part.name);
    if (part.name == "purpose") purpose = part.content;
    if (part.name == "file") upload = {part.filename, part.content};
    if (part.name == "file" && (part.filename.empty() || part.filename.size() > kLongestName)) {
      return errorf(ErrorCode::kInvalidArgument,
                    "file: expected a filename of 1 to {} bytes, got {}", kLongestName,
                    part.filename.size());
    }
  }
  if (!has_file)
    return errorf(ErrorCode::kInvalidArgument, "file: required, as a part with a filename");
  if (purpose != "batch") {
    return errorf(ErrorCode::kInvalidArgument, "purpose: expected batch, got {}",
                  has_purpose ? purpose.substr(0, 100) : "none");
  }
  if (upload.content.empty()) return errorf(ErrorCode::kInvalidArgument, "file: it is empty");
  return upload;
}

Result<FileQuery> read_file_query(const HttpRequest& request) {
  FileQuery query;
  for (const auto& [name, value] : request.query) {
    if (name == "purpose") {
      query.purpose = value;
    } else if (name == "after") {
      query.after = value;
    } else if (name == "order" && (value == "asc" || value == "desc")) {
      query.oldest_first = value == "asc";
    } else if (name == "order") {
      return errorf(ErrorCode::kInvalidArgument, "order: expected asc or desc, got {}", value);
    } else if (name == "limit") {
      const auto [end, error] =
          std::from_chars(value.data(), value.data() + value.size(), query.limit);
      if (error != std::errc() || end != value.data() + value.size() || query.limit < 1 ||
          query.limit > kLongestPage) {
        return errorf(ErrorCode::kInvalidArgument, "limit: expected 1 to {}, got {}", kLongestPage,
                      value);
      }
    } else {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: unknown parameter, expected purpose, limit, order, after", name);
    }
  }
  return query;
}

HttpReply content_head() {
  HttpReply head;
  head.content_type = "application/octet-stream";
  return head;
}

nlohmann::json file_fields() {
  using namespace schema;  // NOLINT: a schema
  return open({{"id", plain("string")},
               {"object", {{"enum", {"file"}}}},
               {"bytes", plain("integer")},
               {"created_at", plain("integer")},
               {"filename", plain("string")},
               {"purpose", plain("string")},
               {"status", plain("string")}},
              {"id", "object", "bytes", "created_at", "filename", "purpose", "status"});
}

}  // namespace

const nlohmann::json& file_reply() {
  static const nlohmann::json value = file_fields();
  return value;
}

const nlohmann::json& files_reply() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value = open({{"object", {{"enum", {"list"}}}},
                                            {"data", {{"type", "array"}, {"items", file_fields()}}},
                                            {"has_more", plain("boolean")}},
                                           {"object", "data", "has_more"});
  return value;
}

const nlohmann::json& file_deleted_reply() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value = open(
      {{"id", plain("string")}, {"object", {{"enum", {"file"}}}}, {"deleted", plain("boolean")}},
      {"id", "object", "deleted"});
  return value;
}

net::awaitable<void> post_file(Services& services, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const StoreWork work = [&](const StoreCall& asked) -> Result<json> {
    ASSIGN_OR_RETURN(const Upload upload, read_upload(request));
    ASSIGN_OR_RETURN(const StoredFile file,
                     asked.stores->files->add(asked.owner, upload.name, "batch", upload.content));
    return file_json(file);
  };
  co_await answer_from_stores(services, exchange, "/v1/files", work);
}

net::awaitable<void> get_files(Services& services, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const StoreWork work = [&](const StoreCall& asked) -> Result<json> {
    ASSIGN_OR_RETURN(const FileQuery query, read_file_query(request));
    bool more = false;
    ASSIGN_OR_RETURN(const auto files, asked.stores->files->list(asked.owner, query, more));
    json reply = {{"object", "list"}, {"data", json::array()}};
    for (const StoredFile& file : files) reply["data"].push_back(file_json(file));
    reply["first_id"] = files.empty() ? json() : json(files.front().id);
    reply["last_id"] = files.empty() ? json() : json(files.back().id);
    reply["has_more"] = more;
    return reply;
  };
  co_await answer_from_stores(services, exchange, "/v1/files", work);
}

net::awaitable<void> get_file(Services& services, Exchange& exchange) {
  const StoreWork work = [](const StoreCall& asked) -> Result<json> {
    ASSIGN_OR_RETURN(const StoredFile file, asked.stores->files->find(asked.owner, asked.id));
    return file_json(file);
  };
  co_await answer_from_stores(services, exchange, "/v1/files/{id}", work);
}

net::awaitable<void> delete_file(Services& services, Exchange& exchange) {
  const StoreWork work = [](const StoreCall& asked) -> Result<json> {
    RETURN_IF_ERROR(asked.stores->files->remove(asked.owner, asked.id));
    return json{{"id", asked.id}, {"object", "file"}, {"deleted", true}};
  };
  co_await answer_from_stores(services, exchange, "/v1/files/{id}", work);
}

// Streams the content in pieces, so that memory does not depend on the file's size.
net::awaitable<void> get_file_content(Services& services, Exchange& exchange) {
  Result<StoredFile> file;
  Result<std::string> piece;
  int64_t done = 0;
  const auto read = [&] {
    piece = (*services.data.stores())->files->read(*file, done, kContentPiece);
  };
  co_await services.run_chore(exchange, [&] {
    const auto asked = read_store_call(services, exchange.request(), "/v1/files/{id}/content");
    file =
        asked ? asked->stores->files->find(asked->owner, asked->id) : tl::unexpected(asked.error());
    if (file) read();
  });
  if (!file) co_return co_await exchange.reply(error_reply(file.error()));
  if (!piece) co_return co_await exchange.reply(error_reply(piece.error()));
  if (exchange.request().method == "HEAD") co_return co_await exchange.reply(content_head());
  bool open = co_await exchange.begin_stream(content_head());
  while (open && piece && !piece->empty()) {
    done += static_cast<int64_t>(piece->size());
    open = co_await exchange.write(*piece);
    if (open) co_await services.run_chore(exchange, read);
  }
  if (!piece) {
    services.log.error(piece.error().message);
    co_return exchange.break_off();
  }
  if (open) co_await exchange.end_stream();
}

}  // namespace penstock
