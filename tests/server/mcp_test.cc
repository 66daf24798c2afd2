// MCP servers over both transports, with tests/support/fake_mcp.py on the other side. Through the
// server: tests/e2e/mcp_e2e.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "base/json_text.h"
#include "server/api/mcp_approvals.h"
#include "server/api/mcp_items.h"
#include "server/mcp/child_process.h"
#include "server/mcp/http_transfer.h"
#include "server/mcp/mcp_server.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using Steady = std::chrono::steady_clock;

const char* const kFake = "support/fake_mcp.py";

int n_open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

class McpTest : public testing::Test {
 protected:
  McpTest() {
    config_.name = "fake";
    config_.command = (tests_dir() / kFake).string();
    config_.timeout = std::chrono::seconds(20);
    notes_ = testing::TempDir() + "mcp_notes_" + std::to_string(getpid());
    std::filesystem::remove(notes_);
    config_.env = {{"FAKE_MCP_NOTES", notes_}};
  }
  ~McpTest() override { std::filesystem::remove(notes_); }

  McpServer& server() {
    if (server_ == nullptr) {
      server_ = std::make_unique<McpServer>(config_, [this](std::string_view line) {
        const std::lock_guard lock(mutex_);
        log_ += std::string(line) + "\n";
      });
    }
    return *server_;
  }
  static McpWait wait(std::chrono::milliseconds time = std::chrono::seconds(30),
                      const std::stop_token& stop = {}) {
    return {Steady::now() + time, stop};
  }
  // The text of a result, or "error: " and its message.
  std::string call(const std::string& tool, const McpJson& arguments = McpJson::object(),
                   const McpWait& until = wait()) {
    const auto result = server().call(tool, arguments, until);
    if (!result) return "error: " + result.error().message;
    return (result->failed ? "failed: " : "") + result->text;
  }
  std::vector<std::string> names() {
    const auto tools = server().tools(wait());
    if (!tools) return {"error: " + tools.error().message};
    std::vector<std::string> names;
    for (const McpTool& tool : **tools) names.push_back(tool.name);
    return names;
  }
  std::string notes() const {
    std::ifstream file(notes_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int n_starts() const {
    const std::string text = notes();
    int n = 0;
    for (size_t at = 0; (at = text.find("start\n", at)) != std::string::npos; ++at) ++n;
    return n;
  }
  // Waits until a note is there.
  bool noted(const std::string& what) const {
    for (int i = 0; i < 500 && notes().find(what) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return notes().find(what) != std::string::npos;
  }
  // Waits until a line is there.
  bool logged(const std::string& what) {
    for (int i = 0; i < 500 && log().find(what) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return log().find(what) != std::string::npos;
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  McpServerConfig config_;
  std::string notes_;
  std::mutex mutex_;
  std::string log_;
  std::unique_ptr<McpServer> server_;
};

TEST_F(McpTest, ListsAndCalls) {
  config_.env.emplace_back("FAKE_MCP_PAGE", "3");
  EXPECT_EQ(server().known_tools(), nullptr);
  EXPECT_EQ(names().size(), 19u);
  EXPECT_EQ(names().front(), "get_weather");
  EXPECT_THAT(notes(), HasSubstr("initialize 2025-06-18\nnotifications/initialized\ntools/list"));
  const McpTools known = server().known_tools();
  ASSERT_NE(known, nullptr);
  EXPECT_TRUE(known->front().read_only);
  EXPECT_EQ((*known)[1].listed["input_schema"]["type"], "object");
  EXPECT_EQ(call("get_weather", {{"city", "Rome"}}), "sun in Rome");
  EXPECT_EQ(call("echo", {{"text", "a\nb ü"}}), "{\"text\": \"a\\nb ü\"}");
  EXPECT_EQ(call("fail"), "failed: it went wrong");
  EXPECT_THAT(call("none"), HasSubstr("unknown: 'none' (code -32602)"));
  EXPECT_EQ(call("picture"), "here:\n[image: image/png, 3 bytes]\ninside");
}

TEST_F(McpTest, OnlyAllowedTools) {
  config_.allowed_tools = {"echo", "absent"};
  EXPECT_EQ(names(), std::vector<std::string>{"echo"});
}

TEST_F(McpTest, TheServersOwnRequestsAreAnswered) {
  EXPECT_THAT(call("asks"), HasSubstr(R"({"jsonrpc": "2.0", "id": "p1", "result": {}})"));
  EXPECT_THAT(call("asks"), HasSubstr("-32601"));
}

TEST_F(McpTest, NoiseIsLoggedWithinBounds) {
  EXPECT_EQ(call("noise"), "quiet");
  EXPECT_EQ(call("get_time"), "noon");
  EXPECT_THAT(log(), HasSubstr("mcp fake: hello, I am no message"));
  EXPECT_LE(std::ranges::count(log(), '\n'), 50);
}

// What cannot be read ends the request that it was for, at once; others go on.
TEST_F(McpTest, AnswersThatCannotBeRead) {
  names();
  std::jthread other([&] { EXPECT_EQ(call("wait", {{"seconds", 2}}), "waited"); });
  noted("call wait");
  const auto start = Steady::now();
  for (const char* how : {"cut", "python", "deep", "many"})
    EXPECT_THAT(call("garble", {{"how", how}}), HasSubstr("no JSON that can be read")) << how;
  other.join();
  for (const char* how : {"no id", "cut before its id"})  // there is no other request
    EXPECT_THAT(call("garble", {{"how", how}}), HasSubstr("no JSON that can be read")) << how;
  EXPECT_THAT(call("garble", {{"how", "null"}}), HasSubstr("Parse error (code -32700)"));
  EXPECT_EQ(call("garble", {{"how", "text id"}}), "an id of text");
  EXPECT_EQ(call("garble", {{"how", "batch"}}), "in a batch");
  EXPECT_THAT(call("garble", {{"how", "empty"}}), HasSubstr("expected a response with a result"));
  EXPECT_LT(Steady::now() - start, std::chrono::seconds(12));
  EXPECT_EQ(call("get_time"), "noon");
  EXPECT_EQ(n_starts(), 1);
}

// Each belongs to one of those that wait, and ends the one that is left when the others have theirs.
TEST_F(McpTest, AnswersThatCannotBeReadOfSeveralRequests) {
  config_.timeout = std::chrono::minutes(5);
  names();
  const auto start = Steady::now();
  const auto waits = [&](double seconds) {
    EXPECT_EQ(call("wait", {{"seconds", seconds}}, wait(std::chrono::minutes(5))), "waited");
  };
  const auto loses = [&](const char* how) {
    EXPECT_THAT(call("garble", {{"how", how}}, wait(std::chrono::minutes(5))),
                testing::AnyOf(HasSubstr("no JSON that can be read"), HasSubstr("(code -32700)")));
  };
  {
    std::jthread one([&] { waits(0.5); }), two([&] { waits(1); });
    ASSERT_TRUE(noted("\"seconds\": 0.5") && noted("\"seconds\": 1.0"));
    std::jthread three([&] { loses("no id"); }), four([&] { loses("cut before its id"); }),
        five([&] { loses("null"); });
  }
  EXPECT_LT(Steady::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(call("get_time"), "noon");
  EXPECT_EQ(n_starts(), 1);
}

// The broken answer may have been that of the request that gave up.
TEST_F(McpTest, AnswersThatCannotBeReadOfARequestThatGivesUp) {
  names();
  std::jthread other([&] { EXPECT_EQ(call("wait", {{"seconds", 1.5}}), "waited"); });
  ASSERT_TRUE(noted("\"seconds\": 1.5"));
  const auto brief = wait(std::chrono::milliseconds(700));
  EXPECT_THAT(call("garble", {{"how", "no id"}}, brief), HasSubstr("no answer in time"));
  other.join();
  // Nothing of it is kept for those that ask later.
  EXPECT_THAT(call("garble", {{"how", "no id"}}), HasSubstr("no JSON that can be read"));
  EXPECT_EQ(call("get_time"), "noon");
}

TEST_F(McpTest, ListsAgainWhenToolsHaveChanged) {
  EXPECT_EQ(names().size(), 19u);
  EXPECT_EQ(call("grow"), "grown");
  EXPECT_EQ(names().back(), "grown19");
}

TEST_F(McpTest, ResultsAreBounded) {
  config_.max_result_bytes = 1001;
  EXPECT_EQ(call("large", {{"bytes", 1000}}).size(), 1000u);
  const std::string cut = call("large", {{"bytes", 5000}});
  EXPECT_THAT(cut, HasSubstr("é\n[cut: 1000 of 5000 bytes]"));
  EXPECT_THAT(call("endless"), HasSubstr("a line of more than 4194304 bytes"));
}

TEST_F(McpTest, WaitsNoLongerThanAllowed) {
  names();
  const auto start = Steady::now();
  EXPECT_THAT(call("wait", {{"seconds", 60}}, wait(std::chrono::milliseconds(1500))),
              HasSubstr("no answer in time"));
  EXPECT_LT(Steady::now() - start, std::chrono::seconds(15));
  EXPECT_TRUE(noted("cancelled"));
  EXPECT_EQ(call("get_time"), "noon");  // the same program
  EXPECT_EQ(notes().find("start", 5), std::string::npos);
}

TEST_F(McpTest, SendsNothingWhenTheTimeIsUp) {
  names();
  EXPECT_EQ(call("get_time", McpJson::object(), wait(std::chrono::milliseconds(-1))),
            "error: tools/call: the time was up before it was sent");
  EXPECT_EQ(notes().find("call"), std::string::npos);
}

// Half a message would be the end of the program, which serves others too.
TEST_F(McpTest, AMessageThatHasBegunIsWritten) {
  const McpJson large = {{"text", std::string(1 << 20, 'x')}};
  for (const bool leaves : {false, true}) {
    EXPECT_EQ(call("deaf", {{"seconds", 2}}), "deaf for 2 s");
    std::stop_source stop;
    std::jthread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (leaves) stop.request_stop();
    });
    const auto time = std::chrono::milliseconds(leaves ? 20000 : 500);
    EXPECT_EQ(call("echo", large, wait(time, stop.get_token())),
              leaves ? "error: tools/call: cancelled" : "error: tools/call: no answer in time");
    EXPECT_EQ(call("get_time"), "noon");
  }
  EXPECT_EQ(n_starts(), 1);
}

TEST_F(McpTest, AStartGoesOnWhenItsClientLeaves) {
  config_.env.emplace_back("FAKE_MCP_START", "1");
  std::stop_source stop;
  std::jthread first([&] {
    const auto tools = server().tools(wait(std::chrono::seconds(30), stop.get_token()));
    EXPECT_FALSE(tools);
  });
  ASSERT_TRUE(noted("start"));
  stop.request_stop();
  first.join();
  EXPECT_EQ(names().size(), 19u);
  EXPECT_EQ(n_starts(), 1);
}

TEST_F(McpTest, WhoWaitsForAStartMayLeave) {
  config_.env.emplace_back("FAKE_MCP_START", "4");
  server();
  std::jthread first([&] { EXPECT_EQ(names().size(), 19u); });
  ASSERT_TRUE(noted("start"));
  const auto begin = Steady::now();
  EXPECT_EQ(call("get_time", McpJson::object(), wait(std::chrono::seconds(1))),
            "error: start: the time was up before it was sent");
  EXPECT_LT(Steady::now() - begin, std::chrono::seconds(3));
}

TEST_F(McpTest, ToolsThatChangeWhileTheyAreListed) {
  config_.env.emplace_back("FAKE_MCP_CHANGES", "1");
  EXPECT_EQ(names().size(), 19u);
  EXPECT_EQ(server().known_tools(), nullptr);
}

TEST_F(McpTest, ALongErrorWithoutALinesEndIsRead) {
  EXPECT_EQ(call("mutter"), "quiet");
  EXPECT_EQ(call("mutter"), "quiet");
  EXPECT_THAT(log(), HasSubstr("xxx"));
  EXPECT_LE(std::ranges::count(log(), '\n'), 50);
}

TEST_F(McpTest, AFloodHoldsUpNoEnd) {
  names();
  EXPECT_THAT(call("flood", McpJson::object(), wait(std::chrono::seconds(2))),
              HasSubstr("no answer in time"));
  const auto start = Steady::now();
  server_.reset();
  EXPECT_LT(Steady::now() - start, std::chrono::seconds(5));
}

TEST_F(McpTest, PingsAreAnswered) { EXPECT_EQ(call("pester"), "40 answers"); }

TEST_F(McpTest, StopsWhenNobodyWaits) {
  names();
  std::stop_source stop;
  std::jthread later([&] {
    noted("call wait");
    stop.request_stop();
  });
  EXPECT_EQ(call("wait", {{"seconds", 60}}, wait(std::chrono::seconds(50), stop.get_token())),
            "error: tools/call: cancelled");
  EXPECT_TRUE(noted("cancelled"));
}

TEST_F(McpTest, CallsRunBesideOneAnother) {
  names();
  std::jthread slow([&] { EXPECT_EQ(call("wait", {{"seconds", 2}}), "waited"); });
  noted("call wait");
  EXPECT_EQ(call("get_time"), "noon");
}

TEST_F(McpTest, StartsAgainWhatHasDied) {
  EXPECT_EQ(call("get_time"), "noon");
  EXPECT_THAT(call("die"), HasSubstr("has closed its output"));
  EXPECT_EQ(call("get_time"), "noon");
  EXPECT_THAT(call("die"), HasSubstr("has closed its output"));
  const std::string again = call("get_time");
  EXPECT_TRUE(again == "noon" || again.starts_with("error: it is tried again in")) << again;
}

TEST_F(McpTest, WaitsBeforeItStartsAgainWhatDoesNotStart) {
  config_.env.emplace_back("FAKE_MCP_DIES", "1");
  EXPECT_THAT(names()[0], HasSubstr("initialize: the program has closed its output"));
  for (int i = 0; i < 20; ++i) names();
  EXPECT_LE(n_starts(), 3);
  EXPECT_THAT(names()[0], HasSubstr("it is tried again in"));
  EXPECT_TRUE(logged("ended with code 7")) << log();
}

TEST_F(McpTest, SaysWhatCannotBeStarted) {
  config_.command = "no-such-program-anywhere";
  EXPECT_THAT(names()[0], HasSubstr("no-such-program-anywhere cannot be started"));
}

TEST_F(McpTest, RefusesAnUnknownVersion) {
  config_.env.emplace_back("FAKE_MCP_VERSION", "1999-01-01");
  EXPECT_THAT(names()[0], HasSubstr("expected protocol version 2025-06-18, got \"1999-01-01\""));
}

TEST_F(McpTest, TheProgramGetsNothingOfThisProcess) {
  setenv("PENSTOCK_TEST_SECRET", "x", 1);
  const auto seen = bounded_json(call("look"));
  EXPECT_EQ(seen["files"], nlohmann::json::array({0, 1, 2}));
  EXPECT_EQ(seen["group"], true);
  const std::string names = seen["environment"].dump();
  EXPECT_THAT(names, HasSubstr("FAKE_MCP_NOTES"));
  EXPECT_THAT(names, HasSubstr("PATH"));
  EXPECT_EQ(names.find("PENSTOCK_TEST_SECRET"), std::string::npos);
}

TEST_F(McpTest, LeavesNothingBehind) {
  const int before = n_open_files();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(call("get_time"), "noon");
    server_.reset();
  }
  EXPECT_EQ(n_open_files(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

// The same server by HTTP.
class McpHttpTest : public McpTest {
 protected:
  ~McpHttpTest() override { server_.reset(); }
  // environment: of the server.
  void serve(const McpServerConfig::Pairs& environment) {
    McpServerConfig service = config_;
    service.args = {"--http"};
    service.env.insert(service.env.end(), environment.begin(), environment.end());
    auto started = ChildProcess::start(service);
    ASSERT_TRUE(started) << started.error().message;
    service_.emplace(*std::move(started));
    pollfd ready{service_->output.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 30000), 1);
    std::array<char, 32> port{};
    ASSERT_GT(::read(ready.fd, port.data(), port.size() - 1), 0);
    config_.command.clear();
    config_.env.clear();
    config_.url = fmt::format("http://127.0.0.1:{}/mcp", std::atoi(port.data()));  // NOLINT
  }

  std::optional<ChildProcess> service_;
};

TEST_F(McpHttpTest, AnExceptionWithinAStreamLeavesNoConnectionBehind) {
  serve({{"FAKE_MCP_EVENTS", "1"}});
  const std::string hello =
      rpc_request(1, "initialize", {{"protocolVersion", kMcpVersion}, {"clientInfo", nullptr}});
  const int before = n_open_files();
  for (int i = 0; i < 3; ++i) {
    HttpTransfer transfer(config_, "", "");
    const McpWait wait{Steady::now() + std::chrono::seconds(20), {}};
    EXPECT_THROW((void)transfer.post(hello, wait, [](auto) -> bool { throw std::bad_alloc(); }),
                 std::bad_alloc);
  }
  EXPECT_EQ(n_open_files(), before);
}

TEST_F(McpHttpTest, AnswersAsJson) {
  serve({});
  EXPECT_EQ(names().size(), 19u);
  EXPECT_EQ(call("get_weather", {{"city", "Rome"}}), "sun in Rome");
  EXPECT_EQ(call("fail"), "failed: it went wrong");
  EXPECT_THAT(call("none"), HasSubstr("code -32602"));
  server_.reset();
  EXPECT_TRUE(noted("delete"));
}

TEST_F(McpHttpTest, AnswersAsEvents) {
  serve({{"FAKE_MCP_EVENTS", "1"}});
  EXPECT_EQ(names().size(), 19u);
  EXPECT_THAT(call("asks"), HasSubstr("-32601"));
  EXPECT_EQ(call("pester"), "16 answers");  // no more of one stream
  EXPECT_EQ(call("grow"), "grown");
  EXPECT_EQ(names().size(), 20u);
}

TEST_F(McpHttpTest, AnswersThatCannotBeRead) {
  for (const bool streams : {false, true}) {
    serve(streams ? McpServerConfig::Pairs{{"FAKE_MCP_EVENTS", "1"}} : McpServerConfig::Pairs());
    const auto start = Steady::now();
    for (const char* how : {"cut", "python", "deep", "many", "no id"})
      EXPECT_THAT(call("garble", {{"how", how}}), HasSubstr("no JSON that can be read")) << how;
    EXPECT_THAT(call("garble", {{"how", "null"}}), HasSubstr("Parse error (code -32700)"));
    EXPECT_EQ(call("garble", {{"how", "text id"}}), "an id of text");
    EXPECT_EQ(call("garble", {{"how", "batch"}}), "in a batch");
    EXPECT_LT(Steady::now() - start, std::chrono::seconds(12));
    server_.reset();
    service_.reset();
    config_.command = (tests_dir() / kFake).string();
  }
}

TEST_F(McpHttpTest, BeginsAnewWhereTheSessionIsOver) {
  serve({});
  EXPECT_EQ(call("forget"), "forgotten");
  EXPECT_EQ(call("get_time"), "noon");
}

TEST_F(McpHttpTest, WaitsNoLongerThanAllowed) {
  serve({});
  names();
  const auto start = Steady::now();
  EXPECT_THAT(call("wait", {{"seconds", 60}}, wait(std::chrono::milliseconds(1000))),
              HasSubstr("no answer in time"));
  EXPECT_TRUE(noted("cancelled"));
  std::stop_source stop;
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop.request_stop();
  });
  EXPECT_THAT(call("wait", {{"seconds", 60}}, wait(std::chrono::seconds(50), stop.get_token())),
              HasSubstr("cancelled"));
  EXPECT_LT(Steady::now() - start, std::chrono::seconds(20));
}

TEST_F(McpHttpTest, SaysWhyThereIsNoAnswer) {
  serve({});
  config_.headers = {{"Authorization", "Bearer wrong"}};
  EXPECT_THAT(names()[0], HasSubstr("initialize: status 401"));
  server_.reset();
  config_.url = "http://127.0.0.1:1/mcp";
  EXPECT_THAT(names()[0], HasSubstr("initialize: "));
  config_.url = "file:///etc/passwd";
  server_.reset();
  EXPECT_THAT(names()[0], HasSubstr("initialize: "));
}

TEST(McpMessages, AreReadInBoundedWork) {
  std::string keys = "{";
  for (size_t i = 0; i + 2 < kMostMcpValues; ++i) keys += fmt::format("\"{}\":0,", i);
  const auto start = Steady::now();
  EXPECT_EQ(read_rpc(keys + "\"last\":0}").size(), kMostMcpValues - 1);
  EXPECT_LT(Steady::now() - start, std::chrono::seconds(10));
  EXPECT_TRUE(read_rpc(keys + "\"last\":[0,0,0]}").is_discarded());
  EXPECT_TRUE(read_rpc("{").is_discarded());
  const auto deep = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_FALSE(read_rpc(deep(kMostMcpNesting)).is_discarded());
  EXPECT_TRUE(read_rpc(deep(kMostMcpNesting + 1)).is_discarded());
}

// Chat templates take nothing that is not UTF-8.
TEST(McpMessages, ALongErrorIsCutBetweenCharacters) {
  for (const std::string begin : {"", "x"}) {
    std::string text = begin;
    for (int i = 0; i < 3000; ++i) text += "é";
    const auto outcome = rpc_outcome(McpJson{{"error", {{"code", 1}, {"message", text}}}});
    ASSERT_FALSE(outcome.has_value());
    EXPECT_LT(outcome.error().message.size(), 2100u);
    EXPECT_NO_THROW((void)McpJson(outcome.error().message).dump());
  }
}

TEST(McpEventData, WhereverItIsCut) {
  const std::string text = ": note\r\ndata: one\r\ndata:two\r\n\r\ndata: three\n\nid: 4\n\rdata: x";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EventData events;
    std::vector<std::string> all;
    const auto take = [&](std::string_view data) { all.emplace_back(data); };
    events.add(std::string_view(text).substr(0, cut), take);
    events.add(std::string_view(text).substr(cut), take);
    EXPECT_THAT(all, testing::ElementsAre("one\ntwo", "three")) << cut;
  }
}

// What reads an answer may run out of memory: that does not pass through curl.
TEST(McpHttpTransfer, ThrowsWhatItsReaderThrows) {
  const std::string answer =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
      "Connection: close\r\n\r\ndata: {}\n\ndata: {}\n\n";
  namespace asio = boost::asio;
  asio::io_context context;
  asio::ip::tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"), 0});
  std::thread server([&] {
    asio::ip::tcp::socket socket = acceptor.accept();
    std::array<char, 4096> piece;
    for (std::string request; !request.ends_with("\r\n\r\n{}");)
      request.append(piece.data(), socket.read_some(asio::buffer(piece)));
    asio::write(socket, asio::buffer(answer));
  });
  McpServerConfig config;
  config.url = fmt::format("http://127.0.0.1:{}/", acceptor.local_endpoint().port());
  HttpTransfer transfer(config, "", "");
  int n = 0;
  const McpWait wait{std::chrono::steady_clock::now() + std::chrono::seconds(20), {}};
  EXPECT_THROW((void)transfer.post("{}", wait,
                                   [&](std::string_view) -> bool {
                                     ++n;
                                     throw std::bad_alloc();
                                   }),
               std::bad_alloc);
  EXPECT_EQ(n, 1);
  server.join();
}

// What items become in a conversation.
TEST(McpItems, CallsAndQuestions) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  bool open = false;
  ToolResults results;
  const auto add = [&](const char* text) {
    add_mcp_item(bounded_json<nlohmann::ordered_json>(text), messages, open, results);
  };
  add(R"({"type": "mcp_list_tools", "server_label": "a", "tools": []})");
  EXPECT_TRUE(messages.empty());
  add(R"({"type": "mcp_call", "id": "mcp_1", "name": "f", "arguments": "{}", "output": "x"})");
  add(R"({"type": "mcp_call", "id": "mcp_2", "name": "f", "arguments": "{}", "error": "y"})");
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["tool_calls"][0]["id"], "mcp_1");
  EXPECT_EQ(messages[1]["content"], "x");
  EXPECT_EQ(messages[3]["content"], "Error: y");
  add(R"({"type": "mcp_approval_request", "id": "mcpr_1", "name": "g", "arguments": "{}"})");
  EXPECT_THAT(messages[5]["content"].get<std::string>(), HasSubstr("did not allow"));
  add(R"({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true})");
  add(R"({"type": "mcp_call", "id": "mcp_3", "approval_request_id": "mcpr_1", "output": "z"})");
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[5]["content"], "z");
  add(R"({"type": "mcp_approval_request", "id": "mcpr_2", "name": "g", "arguments": "{}"})");
  add(R"({"type": "mcp_approval_response", "approval_request_id": "mcpr_2", "approve": false,
          "reason": "no"})");
  EXPECT_THAT(messages[7]["content"].get<std::string>(), HasSubstr("Reason: no"));
}

// Looking through all messages for each would take minutes.
TEST(McpItems, ManyAnswersToNothing) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  bool open = false;
  ToolResults results;
  constexpr int kItems = 50000;
  const auto start = Steady::now();
  for (int i = 0; i < kItems; ++i) {
    const std::string id = std::to_string(i);
    add_mcp_item({{"type", "mcp_call"}, {"id", "mcp_" + id}, {"approval_request_id", id}}, messages,
                 open, results);
  }
  EXPECT_EQ(messages.size(), 2u * kItems);
  EXPECT_LT(Steady::now() - start, std::chrono::seconds(20));
}

class McpApprovalsTest : public testing::Test {
 protected:
  Status ask(const std::string& id, const std::string& arguments = "{}", bool earlier = false) {
    return add({{"type", "mcp_approval_request"},
                {"id", id},
                {"server_label", "s"},
                {"name", "f"},
                {"arguments", arguments}},
               earlier);
  }
  Status answer(const std::string& id, bool yes) {
    return add({{"type", "mcp_approval_response"}, {"approval_request_id", id}, {"approve", yes}},
               false);
  }
  Status made(const std::string& id) {
    return add({{"type", "mcp_call"}, {"id", "mcp_" + id}, {"approval_request_id", id}}, false);
  }
  Status add(const nlohmann::ordered_json& item, bool earlier) {
    return approvals_.add(item, fmt::format("input[{}]", n_++), earlier);
  }
  // ID=ARGUMENTS of each call, or "error: " and its message.
  std::vector<std::string> approved() const {
    const auto calls = approvals_.approved();
    if (!calls) return {"error: " + calls.error().message};
    std::vector<std::string> all;
    for (const ApprovedCall& one : *calls) all.push_back(one.request_id + "=" + one.arguments);
    return all;
  }

  McpApprovals approvals_;
  int n_ = 0;
};

TEST_F(McpApprovalsTest, EachIsMadeOnceAndTheLastAnswerCounts) {
  for (const char* id : {"a", "b", "c", "d"}) ASSERT_TRUE(ask(id));
  EXPECT_THAT(approved(), testing::IsEmpty());
  for (const char* id : {"b", "a", "a", "c", "d"}) ASSERT_TRUE(answer(id, true));
  EXPECT_THAT(approved(), testing::ElementsAre("b={}", "a={}", "c={}", "d={}"));
  ASSERT_TRUE(answer("a", false));
  ASSERT_TRUE(made("b"));
  ASSERT_TRUE(answer("b", true));  // after its call
  ASSERT_TRUE(answer("c", false));
  ASSERT_TRUE(answer("c", true));
  EXPECT_THAT(approved(), testing::ElementsAre("d={}", "c={}"));
}

TEST_F(McpApprovalsTest, AQuestionKeepsWhatItAsks) {
  ASSERT_TRUE(ask("a", R"({"x": 1})", true));
  ASSERT_TRUE(ask("a", R"({"x": 1})"));
  const Status other = ask("a", R"({"x": 2})");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("input[2].id: there is another"));
  ASSERT_TRUE(answer("a", true));
  EXPECT_THAT(approved(), testing::ElementsAre(R"(a={"x": 1})"));
  EXPECT_THAT(answer("none", true).error().message, HasSubstr("got \"none\""));
}

TEST_F(McpApprovalsTest, Bounds) {
  ASSERT_TRUE(ask("large", std::string(kMostMcpArguments + 1, ' ')));
  EXPECT_THAT(approved(), testing::IsEmpty());
  ASSERT_TRUE(answer("large", true));
  EXPECT_THAT(
      approved(),
      testing::ElementsAre(HasSubstr("input[1]: agrees to a call with 65537 bytes of arguments")));
  ASSERT_TRUE(answer("large", false));
  for (size_t i = 0; i < kMostMcpCalls; ++i) {
    ASSERT_TRUE(ask(std::to_string(i)));
    ASSERT_TRUE(answer(std::to_string(i), true));
  }
  EXPECT_EQ(approved().size(), kMostMcpCalls);
  ASSERT_TRUE(ask("one more"));
  ASSERT_TRUE(answer("one more", true));
  EXPECT_THAT(approved(), testing::ElementsAre(HasSubstr("agree to at most 64 calls, got 65")));
}

}  // namespace
}  // namespace penstock
