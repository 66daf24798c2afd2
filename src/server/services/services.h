// The parts of a running server: what endpoints may use.
#pragma once
#include <atomic>
#include <functional>

#include "server/http/exchange.h"

namespace penstock {

class Accounts;
class AdapterFolders;
class ApartThreads;
class BackgroundRuns;
class BatchRunner;
class CompileQueue;
class DataFolder;
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

// What is under way, of all requests together.
struct UnderWay {
  std::atomic<int> n_generating{0};            // on routes that generate
  std::atomic<int64_t> reply_bytes{0};         // of replies with vectors
  std::atomic<int64_t> conversation_bytes{0};  // of stored ones that requests go on from
};

// Made by Server (server.h), which owns the parts: they outlive every exchange. An endpoint
// includes the headers of those it uses.
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
  // for what reads and writes files and stores: short work that may wait for a disk
  TurnThreads& chores;
  BackgroundRuns& background;
  UnderWay& under_way;

  // Set while the server opens, before any exchange.
  KeptReplies* replies = nullptr;
  Router* router = nullptr;
  const OtlpExporter* exporter = nullptr;  // null: spans go nowhere
  BatchRunner* batches = nullptr;          // null without data.get()
  McpServers* mcp = nullptr;               // null: none are configured
  const HttpCounters* http = nullptr;      // null without a socket
  // of requests: a body of any size may ask for much
  bool trusts_templates = false;

  // Does what reads or writes about `n_bytes` for a client: at once where that is little, else
  // apart from the connections. Throws WorkEnded (base/work.h) when the client leaves or the server
  // stops; answer() catches it.
  net::awaitable<void> run_apart(Exchange& exchange, size_t n_bytes, std::function<void()> work);
  // The same of a request's body.
  net::awaitable<void> run_apart(Exchange& exchange, std::function<void()> work);
  // Does a chore for a client, in turns with those of others. Throws WorkEnded when the client
  // leaves; where that was before its turn it is not done.
  net::awaitable<void> run_chore(Exchange& exchange, std::function<void()> work);
};

}  // namespace penstock
