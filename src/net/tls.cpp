#include "net/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "sys/file.hpp"

namespace aliquot::net {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
using boost::system::error_code;

namespace {

constexpr std::size_t kPemLimit = 4UL << 20U;

class TlsStream final : public Stream, public std::enable_shared_from_this<TlsStream> {
 public:
  TlsStream(Socket socket, std::shared_ptr<ssl::context> context, bool server)
      : context_(std::move(context)), stream_(std::move(socket), *context_), server_(server) {}

  SSL* handle() { return stream_.native_handle(); }

  void open(Told done) override {
    stream_.async_handshake(
        server_ ? ssl::stream_base::server : ssl::stream_base::client,
        [self = shared_from_this(), done = std::move(done)](error_code error) { done(error); });
  }

  void read_some(asio::mutable_buffer into, Done done) override {
    if (begin_ < end_ || ahead_error_) return serve(into, std::move(done));
    if (const auto waiting = waiting_.lock()) {
      waiting->read.emplace(into, std::move(done));
    } else {
      stream_.async_read_some(into,
                              [self = shared_from_this(), done = std::move(done)](
                                  error_code error, std::size_t bytes) { done(error, bytes); });
    }
  }

  void write_some(const Gathered& from, Done done) override {
    stream_.async_write_some(from,
                             [self = shared_from_this(), done = std::move(done)](
                                 error_code error, std::size_t bytes) { done(error, bytes); });
  }

  // What lies in the socket says nothing of what is in it: only reading does.
  void ready(Told done) override {
    if (begin_ < end_ || ahead_error_) {
      return asio::post(stream_.get_executor(), [done = std::move(done)] { done({}); });
    }
    if (const auto waiting = waiting_.lock()) return waiting->told.push_back(std::move(done));
    // They hold the session, and the session holds us: only the operation may hold them.
    auto waiting = std::make_shared<Waiting>();
    waiting_ = waiting;
    waiting->told.push_back(std::move(done));
    stream_.async_read_some(asio::buffer(ahead_), [self = shared_from_this(), waiting](
                                                      error_code error, std::size_t bytes) {
      self->waiting_.reset();
      self->begin_ = 0;
      self->end_ = bytes;
      self->ahead_error_ = error;
      if (waiting->read) self->serve(waiting->read->first, std::move(waiting->read->second));
      const error_code aborted = error == asio::error::operation_aborted ? error : error_code();
      for (const auto& told : std::exchange(waiting->told, {})) told(aborted);
    });
  }

  Glance peek() override {
    if (begin_ < end_) return Glance::bytes;
    if (ahead_error_) return Glance::end;
    // Not looked into, but closed perhaps. Bytes may be news of the protocol's own.
    char byte = 0;
    const auto got =
        ::recv(stream_.lowest_layer().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) ? Glance::end
                                                                      : Glance::nothing;
  }

  bool hung_up() override { return is_hung_up(stream_.lowest_layer().native_handle()); }

  void send_now(std::string_view) override {}  // hands are not shaken yet

  void finish(std::function<void()> done) override {
    stream_.async_shutdown([self = shared_from_this(), done = std::move(done)](error_code) mutable {
      error_code ignored;
      self->stream_.lowest_layer().shutdown(Socket::shutdown_send, ignored);
      drain(self->stream_.next_layer(), [self, done = std::move(done)] { done(); });
    });
  }

  void close() override {
    error_code ignored;
    stream_.lowest_layer().shutdown(Socket::shutdown_both, ignored);
    stream_.lowest_layer().close(ignored);
  }

  [[nodiscard]] std::string peer_name() const override {
    SSL* const session = const_cast<ssl::stream<Socket>&>(stream_).native_handle();
    X509* const shown = SSL_get0_peer_certificate(session);
    if (shown == nullptr) return {};
    std::array<char, 256> text{};
    const int size = X509_NAME_get_text_by_NID(X509_get_subject_name(shown), NID_commonName,
                                               text.data(), static_cast<int>(text.size()));
    return size <= 0 ? std::string() : std::string(text.data(), std::strlen(text.data()));
  }

  [[nodiscard]] std::string explain(error_code error) const override {
    SSL* const session = const_cast<ssl::stream<Socket>&>(stream_).native_handle();
    const long verified = SSL_get_verify_result(session);
    if (error.category() != asio::error::get_ssl_category() || verified == X509_V_OK) {
      return error.message();
    }
    return fmt::format("its certificate is not believed: {}",
                       X509_verify_cert_error_string(verified));
  }

 private:
  struct Waiting {
    std::vector<Told> told;
    std::optional<std::pair<asio::mutable_buffer, Done>> read;
  };

  // From what was read ahead; later.
  void serve(asio::mutable_buffer into, Done done) {
    const std::size_t bytes = std::min(into.size(), end_ - begin_);
    std::memcpy(into.data(), ahead_.data() + begin_, bytes);
    begin_ += bytes;
    const error_code error = bytes == 0 && into.size() > 0 ? ahead_error_ : error_code();
    asio::post(stream_.get_executor(),
               [done = std::move(done), error, bytes] { done(error, bytes); });
  }

  std::shared_ptr<ssl::context> context_;
  ssl::stream<Socket> stream_;
  bool server_;
  std::weak_ptr<Waiting> waiting_;
  std::array<char, 1024> ahead_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  error_code ahead_error_;
};

// What tells one version of a file from the next. A mounted Secret is a link that is turned to
// another file.
struct Version {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = -1;
  timespec modified = {};

  static Version of(const std::string& path) {
    struct stat status {};
    if (path.empty() || ::stat(path.c_str(), &status) != 0) return {};
    return {status.st_dev, status.st_ino, status.st_size, status.st_mtim};
  }
  friend bool operator==(const Version& a, const Version& b) {
    return a.device == b.device && a.inode == b.inode && a.size == b.size &&
           a.modified.tv_sec == b.modified.tv_sec && a.modified.tv_nsec == b.modified.tv_nsec;
  }
};

Result<std::string> pem_text(const Pem& pem) {
  if (!pem.data.empty()) return pem.data;
  std::error_code error;
  const auto real = std::filesystem::canonical(pem.file, error);
  if (error) {
    return fail(Error::Code::not_found, "cannot read {}: {}", quote(pem.file), error.message());
  }
  return sys::read_whole(real, kPemLimit);
}

std::string pem_name(const Pem& pem) { return pem.data.empty() ? quote(pem.file) : "the data"; }

class OpenSslTls final : public Tls {
 public:
  explicit OpenSslTls(TlsMaterial material) : material_(std::move(material)) {}

  Result<void> load() {
    const auto versions = look();
    auto context = TRY(make());
    versions_ = versions;
    context_ = std::move(context);
    return {};
  }

  Result<std::shared_ptr<Stream>> wrap(Socket socket, const std::string& name) override {
    refresh();
    auto stream = std::make_shared<TlsStream>(std::move(socket), context_, material_.server);
    if (!material_.server && !name.empty()) {
      error_code no_address;
      asio::ip::make_address(name, no_address);
      X509_VERIFY_PARAM* const wanted = SSL_get0_param(stream->handle());
      const bool named =
          no_address ? ask_for(stream->handle(), name) &&
                           X509_VERIFY_PARAM_set1_host(wanted, name.data(), name.size()) == 1
                     : X509_VERIFY_PARAM_set1_ip_asc(wanted, name.c_str()) == 1;
      if (!named) return fail(Error::Code::invalid_argument, "{} names no server", quote(name));
    }
    return stream;
  }

 private:
  using Versions = std::array<Version, 3>;

  // SSL_set_tlsext_host_name() without its casts; the name is copied.
  static bool ask_for(SSL* session, std::string name) {
    return SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                    name.data()) == 1;
  }

  [[nodiscard]] Versions look() const {
    return {Version::of(material_.certificate.file), Version::of(material_.key.file),
            Version::of(material_.ca.file)};
  }

  // Half-written or half-changed files are tried again when they change further.
  void refresh() {
    const auto versions = look();
    if (versions == versions_) return;
    auto context = make();
    versions_ = versions;
    if (context) {
      context_ = std::move(*context);
    } else if (material_.on_trouble) {
      material_.on_trouble(context.error());
    }
  }

  [[nodiscard]] Result<std::shared_ptr<ssl::context>> make() const {
    try {
      auto context = std::make_shared<ssl::context>(material_.server ? ssl::context::tls_server
                                                                     : ssl::context::tls_client);
      SSL_CTX* const raw = context->native_handle();
      SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
      SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION);
      TRY(show(*context));
      TRY(believe(*context));
      if (material_.server) {
        constexpr unsigned char kOurs[] = "aliquot";
        SSL_CTX_set_session_id_context(raw, kOurs, sizeof kOurs - 1);
      }
      return context;
    } catch (const std::exception& error) {
      return fail(Error::Code::internal, "cannot prepare TLS: {}", error.what());
    }
  }

  // Our own certificate.
  Result<void> show(ssl::context& context) const {
    if (material_.certificate.empty() && material_.key.empty() && !material_.server) return {};
    error_code error;
    context.use_certificate_chain(asio::buffer(TRY(pem_text(material_.certificate))), error);
    if (error) {
      return fail(Error::Code::invalid_argument, "{} is no certificate in PEM: {}",
                  pem_name(material_.certificate), error.message());
    }
    context.use_private_key(asio::buffer(TRY(pem_text(material_.key))), ssl::context::pem, error);
    if (error || SSL_CTX_check_private_key(context.native_handle()) != 1) {
      ERR_clear_error();
      return fail(Error::Code::invalid_argument, "{} is not the key of the certificate: {}",
                  pem_name(material_.key), error ? error.message() : "they do not match");
    }
    return {};
  }

  Result<void> believe(ssl::context& context) const {
    if (material_.server && material_.ca.empty()) return {};
    if (!material_.server && !material_.verify) {
      context.set_verify_mode(ssl::verify_none);
      return {};
    }
    context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
    error_code error;
    if (material_.ca.empty()) {
      context.set_default_verify_paths(error);
    } else {
      const std::string text = TRY(pem_text(material_.ca));
      context.add_certificate_authority(asio::buffer(text), error);
      // Text without a certificate is no error for Asio.
      if (!error && text.find("-----BEGIN ") == std::string::npos) {
        error = asio::error::invalid_argument;
      }
    }
    if (error) {
      return fail(Error::Code::invalid_argument, "{} has no certificates of a CA in PEM: {}",
                  pem_name(material_.ca), error.message());
    }
    return {};
  }

  TlsMaterial material_;
  Versions versions_;
  std::shared_ptr<ssl::context> context_;
};

}  // namespace

Result<std::unique_ptr<Tls>> Tls::create(TlsMaterial material) {
  auto made = std::make_unique<OpenSslTls>(std::move(material));
  TRY(made->load());
  return made;
}

}  // namespace aliquot::net
