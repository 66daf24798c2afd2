#include "engine/store/redis_socket.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system_certificates.h"
#include "engine/store/lone_thread.h"

namespace penstock {
namespace {

bool would_block(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

// --- How OpenSSL reaches the socket: never waiting, and without SIGPIPE

int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int put_bytes(BIO* bio, const char* bytes, int n) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      ::send(socket_of(bio), bytes, static_cast<size_t>(n), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && would_block(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int get_bytes(BIO* bio, char* bytes, int n) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(socket_of(bio), bytes, static_cast<size_t>(n), MSG_DONTWAIT);
  if (got < 0 && would_block(errno)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

// Returns null without memory.
BIO* bio_of(int socket) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "redis");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, put_bytes);
    BIO_meth_set_read(made, get_bytes);
    BIO_meth_set_ctrl(made, [](BIO*, int command, long, void*) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
    return made;
  }();
  BIO* const bio = method == nullptr ? nullptr : BIO_new(method);
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  return bio;
}

// Returns the reason of OpenSSL's last error, and forgets all of them.
std::string last_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

Status read_files(SSL_CTX& context, const RedisTls& files) {
  const auto refuse = [](const char* what, const std::string& file) {
    return errorf(ErrorCode::kInvalidArgument, "{}: {}: {}", file, what, last_reason());
  };
  // a key that has a password is refused and not asked for
  SSL_CTX_set_default_passwd_cb(&context, [](char*, int, int, void*) { return -1; });
  const std::string system = system_certificates();
  const std::string& trusted = files.authorities.empty() ? system : files.authorities;
  if (trusted.empty() ? SSL_CTX_set_default_verify_paths(&context) != 1
                      : SSL_CTX_load_verify_locations(&context, trusted.c_str(), nullptr) != 1)
    return refuse("no certificates that can be read", trusted);
  if (files.certificate.empty()) return {};
  if (SSL_CTX_use_certificate_chain_file(&context, files.certificate.c_str()) != 1)
    return refuse("no certificate that can be read", files.certificate);
  if (SSL_CTX_use_PrivateKey_file(&context, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return refuse("no key of the certificate that can be read", files.key);
  return {};
}

// Demands a certificate for this name or address.
bool demand_name(SSL& tls, const std::string& host) {
  X509_VERIFY_PARAM* const demands = SSL_get0_param(&tls);
  if (X509_VERIFY_PARAM_set1_ip_asc(demands, host.c_str()) == 1) return true;
  ERR_clear_error();
  X509_VERIFY_PARAM_set_hostflags(demands, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return X509_VERIFY_PARAM_set1_host(demands, host.c_str(), host.size()) == 1 &&
         SSL_set_tlsext_host_name(&tls, host.c_str()) == 1;
}

}  // namespace

void RedisSocket::Close::operator()(redisContext* context) const { redisFree(context); }
int RedisSocket::socket() const { return context_->fd; }
redisReader& RedisSocket::reader() const { return *context_->reader; }

Result<std::unique_ptr<RedisSocket>> RedisSocket::open(const RedisAddress& address,
                                                       Clock::time_point latest) {
  std::unique_ptr<RedisSocket> made(new RedisSocket);
  made->context_.reset(redisConnectNonBlock(address.host.c_str(), address.port));
  redisContext* const context = made->context_.get();
  if (context == nullptr) return make_error(ErrorCode::kResourceExhausted, "out of memory");
  if (context->err != 0) return make_error(ErrorCode::kIo, context->errstr);
  RETURN_IF_ERROR(made->wait_for(POLLOUT, latest));
  int code = 0;
  socklen_t size = sizeof(code);
  getsockopt(context->fd, SOL_SOCKET, SO_ERROR, &code, &size);
  if (code != 0) return make_error(ErrorCode::kIo, std::strerror(code));
  const int on = 1, idle_seconds = 60;
  setsockopt(context->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(context->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(context->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof(idle_seconds));
  if (address.encrypted) RETURN_IF_ERROR(made->encrypt(address, latest));
  return made;
}

Status RedisSocket::encrypt(const RedisAddress& address, Clock::time_point latest) {
  tls_context_.reset(SSL_CTX_new(TLS_client_method()));
  if (tls_context_ == nullptr) return make_error(ErrorCode::kResourceExhausted, last_reason());
  SSL_CTX_set_min_proto_version(tls_context_.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(tls_context_.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_options(tls_context_.get(), SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(tls_context_.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  RETURN_IF_ERROR(read_files(*tls_context_, address.tls));
  tls_.reset(SSL_new(tls_context_.get()));
  BIO* const bio = tls_ == nullptr ? nullptr : bio_of(socket());
  if (bio == nullptr) return make_error(ErrorCode::kResourceExhausted, last_reason());
  SSL_set_bio(tls_.get(), bio, bio);
  if (!demand_name(*tls_, address.host)) return make_error(ErrorCode::kIo, last_reason());
  for (;;) {
    const int code = SSL_connect(tls_.get());
    if (code == 1) return {};
    const long verified = SSL_get_verify_result(tls_.get());
    if (verified != X509_V_OK) {
      ERR_clear_error();
      return errorf(ErrorCode::kIo, "TLS: {}", X509_verify_cert_error_string(verified));
    }
    RETURN_IF_ERROR(go_on(code, "TLS", latest));
  }
}

Status RedisSocket::wait_for(short events, Clock::time_point latest) const {
  for (;;) {
    pollfd one{socket(), events, 0};
    const int n = poll(&one, 1, static_cast<int>(time_until(latest).count()));
    if (n > 0) return {};
    if (n == 0) return make_error(ErrorCode::kIo, "no answer in time");
    if (errno != EINTR) return make_error(ErrorCode::kIo, std::strerror(errno));
  }
}

Status RedisSocket::go_on(int code, const char* what, Clock::time_point latest) {
  const int system = errno;
  switch (SSL_get_error(tls_.get(), code)) {
    case SSL_ERROR_WANT_READ: return wait_for(POLLIN, latest);
    case SSL_ERROR_WANT_WRITE: return wait_for(POLLOUT, latest);
    case SSL_ERROR_ZERO_RETURN:
      closed_ = true;
      return make_error(ErrorCode::kIo, "the connection was closed");
    case SSL_ERROR_SYSCALL:
      closed_ = code == 0 || system == 0 || system == EPIPE || system == ECONNRESET;
      ERR_clear_error();
      return make_error(ErrorCode::kIo,
                        closed_ ? "the connection was closed" : std::strerror(system));
    default: return errorf(ErrorCode::kIo, "{}: {}", what, last_reason());
  }
}

Status RedisSocket::send(std::string_view bytes, Clock::time_point latest) {
  constexpr size_t kRecords = 1 << 20;
  closed_ = false;
  while (!bytes.empty()) {
    if (tls_ != nullptr) {
      errno = 0;
      const int n =
          SSL_write(tls_.get(), bytes.data(), static_cast<int>(std::min(bytes.size(), kRecords)));
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
      if (n <= 0) RETURN_IF_ERROR(go_on(n, "TLS", latest));
      continue;
    }
    const ssize_t n = ::send(socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (would_block(errno)) {
      RETURN_IF_ERROR(wait_for(POLLOUT, latest));
    } else {
      closed_ = errno == EPIPE || errno == ECONNRESET;
      return make_error(ErrorCode::kIo, std::strerror(errno));
    }
  }
  return {};
}

Result<size_t> RedisSocket::receive(std::span<char> to, Clock::time_point latest) {
  closed_ = false;
  for (;;) {
    if (tls_ != nullptr) {
      errno = 0;
      const int n = SSL_read(tls_.get(), to.data(), static_cast<int>(to.size()));
      if (n > 0) return static_cast<size_t>(n);
      const Status on = go_on(n, "TLS", latest);
      if (!on && closed_) return size_t{0};
      RETURN_IF_ERROR(on);
      continue;
    }
    const ssize_t n = recv(socket(), to.data(), to.size(), MSG_DONTWAIT);
    if (n >= 0) {
      closed_ = n == 0;
      return static_cast<size_t>(n);
    }
    if (!would_block(errno)) {
      closed_ = errno == ECONNRESET;
      return make_error(ErrorCode::kIo, std::strerror(errno));
    }
    RETURN_IF_ERROR(wait_for(POLLIN, latest));
  }
}

}  // namespace penstock
