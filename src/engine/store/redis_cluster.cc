#include "engine/store/redis_cluster.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

namespace penstock {
namespace {

constexpr int kSlots = 16384;
constexpr size_t kMostNodes = 256;
constexpr int kMostRedirections = 5;  // of a call

// CRC-16 with the polynomial 0x1021 from 0, as XMODEM has it.
constexpr std::array<uint16_t, 256> crc_table() {
  std::array<uint16_t, 256> table{};
  for (unsigned i = 0; i < 256; ++i) {
    unsigned crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
    table[i] = static_cast<uint16_t>(crc);
  }
  return table;
}

}  // namespace

int redis_slot(std::string_view key) {
  static constexpr std::array<uint16_t, 256> kTable = crc_table();
  // A part in braces stands for the whole key.
  if (const size_t open = key.find('{'); open != std::string_view::npos) {
    const size_t close = key.find('}', open);
    if (close != std::string_view::npos && close > open + 1)
      key = key.substr(open + 1, close - open - 1);
  }
  unsigned crc = 0;
  for (const char c : key)
    crc = ((crc << 8) & 0xffff) ^ kTable[(crc >> 8) ^ static_cast<unsigned char>(c)];
  return static_cast<int>(crc % kSlots);
}

RedisCluster::RedisCluster(const RedisAddress& address, RedisTimes times)
    : address_(address), times_(times) {
  nodes_.push_back(std::make_unique<RedisConnection>(address_.at(address_.at()), times_));
  for (const RedisHost& other : address_.others)
    nodes_.push_back(std::make_unique<RedisConnection>(address_.at(other), times_));
}

// Parses "MOVED SLOT HOST:PORT" or "ASK SLOT HOST:PORT"; without a host it is the one that says so.
Result<RedisCluster::Elsewhere> RedisCluster::parse(std::string_view text, const RedisHost& from) {
  constexpr size_t kLongestHost = 255;
  Elsewhere to{.slot = -1, .host = {}, .once = text.starts_with("ASK ")};
  text.remove_prefix(text.find(' ') + 1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to.slot);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  const size_t colon = text.rfind(':');
  if (error != std::errc() || to.slot < 0 || to.slot >= kSlots || !text.starts_with(' ') ||
      colon == std::string_view::npos || colon > kLongestHost)
    return make_error(ErrorCode::kIo, "a redirection to nowhere");
  const std::string_view host = text.substr(1, colon - 1);
  // an IPv6 address has no brackets here
  const bool bare = host.find(':') != std::string_view::npos && !host.starts_with('[');
  const std::string at = host.empty() ? from.host : std::string(host);
  const bool brackets = bare || (host.empty() && at.find(':') != std::string::npos);
  const auto parsed =
      parse_redis_host((brackets ? "[" + at + "]" : at) + std::string(text.substr(colon)));
  if (!parsed) return make_error(ErrorCode::kIo, "a redirection to nowhere");
  to.host = *parsed;
  return to;
}

// Returns whom to ask for a slot: its owner, or the one of the nearest slot before it, or behind it;
// another when that one rests.
size_t RedisCluster::node_for(int slot) const {
  size_t node = 0;
  if (!owners_.empty()) {
    const auto behind = owners_.upper_bound(slot);
    node = (behind == owners_.begin() ? behind : std::prev(behind))->second;
  }
  if (!nodes_[node]->rests()) return node;
  const auto awake = std::ranges::find_if(nodes_, [](const auto& one) { return !one->rests(); });
  return awake == nodes_.end() ? node : static_cast<size_t>(awake - nodes_.begin());
}

size_t RedisCluster::unused() const {
  for (size_t i = 1 + address_.others.size(); i < nodes_.size(); ++i) {
    const bool owns =
        std::ranges::any_of(owners_, [&](const auto& one) { return one.second == i; });
    if (!owns && nodes_[i]->rests()) return i;
  }
  return nodes_.size();
}

Result<size_t> RedisCluster::node_at(const RedisHost& host) {
  const auto found =
      std::ranges::find_if(nodes_, [&](const auto& one) { return one->address().at() == host; });
  if (found != nodes_.end()) return static_cast<size_t>(found - nodes_.begin());
  const size_t place = nodes_.size() < kMostNodes ? nodes_.size() : unused();
  if (place >= kMostNodes)
    return errorf(ErrorCode::kIo, "a cluster of more than {} nodes", kMostNodes);
  auto made = std::make_unique<RedisConnection>(address_.at(host), times_);
  if (place == nodes_.size()) {
    nodes_.push_back(std::move(made));
  } else {
    nodes_[place] = std::move(made);
  }
  return place;
}

void RedisCluster::forget(size_t node) {
  std::erase_if(owners_, [&](const auto& one) { return one.second == node; });
}

Result<RedisReply> RedisCluster::call(std::span<const std::string_view> command, int64_t most) {
  constexpr std::string_view kAsking[] = {"ASKING"};
  constexpr int64_t kShort = 4096;
  const int slot = redis_slot(command.size() > 1 ? command[1] : "");
  size_t node = node_for(slot);
  bool once = false;
  for (int i = 0; i <= kMostRedirections; ++i) {
    RedisConnection& connection = *nodes_[node];
    if (once) RETURN_IF_ERROR(connection.call(kAsking, kShort));
    const bool rested = connection.rests();
    Result<RedisReply> reply = connection.call(command, most);
    if (!reply && !rested && connection.rests()) forget(node);
    if (!reply || reply->kind != RedisReply::Kind::kElsewhere) return reply;
    ASSIGN_OR_RETURN(const Elsewhere to, parse(reply->text, connection.address().at()));
    ASSIGN_OR_RETURN(node, node_at(to.host));
    once = to.once;
    if (!once) owners_[to.slot] = node;
  }
  return errorf(ErrorCode::kIo, "{}: more than {} redirections", name(), kMostRedirections);
}

}  // namespace penstock
