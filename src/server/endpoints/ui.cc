// GET /, /dashboard and /ui/{id}: the web page, embedded in the program; GET /docs, /docs/{id} and
// /docs/{folder}/{id}: the documentation of its version.
//
// The files are public and need no key, since a browser cannot send one before the page asks for
// it. The page then uses the API like any client.
#include <algorithm>

#include "server/endpoints/ui_files.h"
#include "server/routing/errors.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// Allows only this server's files and API: no inline scripts or styles, other origins or framing.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const EmbeddedFile* find_file(std::span<const EmbeddedFile> files, std::string_view name) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const EmbeddedFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

std::string content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  if (name.ends_with(".md")) return "text/markdown; charset=utf-8";
  return "application/octet-stream";
}

HttpReply file_reply(const HttpRequest& request, std::span<const EmbeddedFile> files,
                     std::string_view name) {
  const EmbeddedFile* file = find_file(files, name);
  if (file == nullptr) return error_reply(404, fmt::format("no such file: {}", name));
  const std::string tag = fmt::format("\"{}\"", file->tag);
  HttpReply reply;
  reply.content_type = content_type(name);
  reply.headers = {{"ETag", tag},
                   // revalidated on each use, so that upgrades take effect immediately
                   {"Cache-Control", "no-cache"},
                   {"Content-Security-Policy", kContentSecurityPolicy},
                   {"X-Content-Type-Options", "nosniff"},
                   {"X-Frame-Options", "DENY"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cross-Origin-Opener-Policy", "same-origin"},
                   {"Cross-Origin-Resource-Policy", "same-origin"},
                   {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"}};
  if (request.header("if-none-match").find(tag) != std::string_view::npos) {
    reply.status = 304;
  } else {
    reply.body = std::string(file->bytes);
  }
  return reply;
}

}  // namespace

net::awaitable<void> get_page(Services&, Exchange& exchange) {
  co_await exchange.reply(file_reply(exchange.request(), ui_files(), "index.html"));
}

net::awaitable<void> get_page_file(Services&, Exchange& exchange) {
  const std::string name = exchange.request().path.substr(std::string_view("/ui/").size());
  co_await exchange.reply(file_reply(exchange.request(), ui_files(), name));
}

net::awaitable<void> get_docs(Services&, Exchange& exchange) {
  co_await exchange.reply(file_reply(exchange.request(), ui_files(), "docs.html"));
}

net::awaitable<void> get_docs_file(Services&, Exchange& exchange) {
  const std::string name = exchange.request().path.substr(std::string_view("/docs/").size());
  co_await exchange.reply(file_reply(exchange.request(), docs_files(), name));
}

}  // namespace penstock
