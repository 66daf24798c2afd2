// References to the parts of a running server, for endpoints.
#pragma once
#include <atomic>
#include <functional>

#include "server/http/exchange.h"
#include "server/http/http_body.h"

namespace penstock {

class Accounts;
class AdapterFolders;
class ApartThreads;
class BackgroundRuns;
class BatchRunner;
class CompileQueue;
class DataFolder;
class ImageUrls;
class KeptReplies;
class McpServers;
class ModelLoads;
class OtlpExporter;
class Readiness;
class RequestLog;
class Router;
class ServedModels;
class Traffic;
class TurnThreads;
struct HttpCounters;
struct ServerConfig;

// Counters over all requests in progress.
struct UnderWay {
  std::atomic<int> n_generating{0};            // requests on generating routes
  std::atomic<int64_t> vector_bytes{0};        // replies with vectors
  BodyShares vector_shares;                    // vector_bytes by client
  std::atomic<int64_t> sound_bytes{0};         // decoded sounds that are transcribed
  BodyShares sound_shares;                     // sound_bytes by client
  std::atomic<int64_t> conversation_bytes{0};  // stored conversations that requests continue
  BodyShares conversation_shares;              // conversation_bytes by client
};

// Created by Server (server.h), which owns the parts; they outlive every exchange. An endpoint
// includes the headers of the parts it uses.
struct Services {
  const ServerConfig& config;
  RequestLog& log;
  ServedModels& models;
  ModelLoads& loads;
  const AdapterFolders& adapter_folders;
  const DataFolder& data;
  Accounts& accounts;
  const Readiness& readiness;
  Traffic& traffic;
  ApartThreads& apart;
  CompileQueue& compilations;
  // threads for short work that may block on the disk: files and stores
  TurnThreads& chores;
  BackgroundRuns& background;
  UnderWay& under_way;

  // The members below are set while the server opens, before any exchange.
  KeptReplies* replies = nullptr;
  Router* router = nullptr;
  const OtlpExporter* exporter = nullptr;  // null: no export
  BatchRunner* batches = nullptr;          // null without data.get()
  McpServers* mcp = nullptr;               // null: none are configured
  ImageUrls* image_urls = nullptr;         // null: URLs of pictures are refused
  const HttpCounters* http = nullptr;      // null without a socket
  // accept chat templates in requests, which can be expensive to render
  bool trusts_templates = false;

  // Runs work of about `n_bytes` for a client: inline if small, else on the apart threads. Throws
  // WorkEnded (base/work.h) when the client leaves or the server stops; answer() catches it.
  net::awaitable<void> run_apart(Exchange& exchange, size_t n_bytes, std::function<void()> work);
  // As above, with the size of the request's body.
  net::awaitable<void> run_apart(Exchange& exchange, std::function<void()> work);
  // Runs a chore (see `chores`) in turns with other clients. Throws WorkEnded when the client
  // leaves; a chore that has not started is then skipped.
  net::awaitable<void> run_chore(Exchange& exchange, std::function<void()> work);
};

}  // namespace penstock
