// A cable between two network namespaces that takes its time: every packet is as long under way as
// the delay says, one behind the other at the rate, in each direction. For kernels without netem;
// bench/shaped_links.py plugs it in.
//
//   bench_cable NAMESPACE DEVICE NAMESPACE DEVICE DELAY_US GBPS      # as root; prints "ready", until it is killed
//
// Two TUN devices whose packets go through this process, which has to be served before those that
// it serves (SCHED_FIFO).
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostPackets = 20000;  // under way in one direction; more are lost, as in netem
constexpr size_t kMostBytes = 65536;

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

// From one end to the other.
struct Direction {
  int from, to;
  Clock::time_point free_at;  // when the last packet has left
  std::deque<Packet> packets;
};

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(1);
}

int open_tun(const std::string& name_space, const char* device) {
  const int host = open(("/var/run/netns/" + name_space).c_str(), O_RDONLY | O_CLOEXEC);
  if (host < 0 || setns(host, CLONE_NEWNET) != 0) give_up(name_space.c_str());
  close(host);
  const int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tun < 0) give_up("/dev/net/tun");
  ifreq request{};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(tun, TUNSETIFF, &request) != 0) give_up(device);
  return tun;
}

// What has come in sets out.
void take(Direction& way, Clock::duration delay, double seconds_per_byte) {
  std::array<char, kMostBytes> buffer;
  for (;;) {
    const ssize_t n = read(way.from, buffer.data(), buffer.size());
    if (n <= 0) return;
    const auto now = Clock::now();
    const std::chrono::duration<double> length(seconds_per_byte * static_cast<double>(n));
    way.free_at = std::max(now, way.free_at) + std::chrono::duration_cast<Clock::duration>(length);
    if (way.packets.size() < kMostPackets)
      way.packets.push_back({way.free_at + delay, {buffer.data(), buffer.data() + n}});
  }
}

void deliver(Direction& way) {
  while (!way.packets.empty() && way.packets.front().due <= Clock::now()) {
    const std::vector<char>& bytes = way.packets.front().bytes;
    (void)!write(way.to, bytes.data(), bytes.size());
    way.packets.pop_front();
  }
}

timespec until(Clock::time_point due) {
  const auto left = std::max<int64_t>(0, std::chrono::nanoseconds(due - Clock::now()).count());
  return {left / 1000000000, left % 1000000000};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: %s NAMESPACE DEVICE NAMESPACE DEVICE DELAY_US GBPS\n", argv[0]);
    return 2;
  }
  const int a = open_tun(argv[1], argv[2]), b = open_tun(argv[3], argv[4]);
  const auto delay = std::chrono::nanoseconds(static_cast<int64_t>(std::atof(argv[5]) * 1e3));
  const double seconds_per_byte = 8e-9 / std::atof(argv[6]);
  const sched_param first{.sched_priority = 10};
  if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) std::perror("SCHED_FIFO");
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  std::array<Direction, 2> ways = {Direction{a, b, {}, {}}, Direction{b, a, {}, {}}};
  std::puts("ready");
  std::fflush(stdout);
  for (;;) {
    std::array<pollfd, 2> ends = {pollfd{a, POLLIN, 0}, pollfd{b, POLLIN, 0}};
    auto next = Clock::time_point::max();
    for (const Direction& way : ways)
      if (!way.packets.empty()) next = std::min(next, way.packets.front().due);
    const timespec left = next == Clock::time_point::max() ? timespec{3600, 0} : until(next);
    ppoll(ends.data(), ends.size(), &left, nullptr);
    for (Direction& way : ways) {
      take(way, delay, seconds_per_byte);
      deliver(way);
    }
  }
}
