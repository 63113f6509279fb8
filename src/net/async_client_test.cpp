#include "net/async_client.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "net/listen.hpp"
#include "net/raw_server.hpp"
#include "net/server.hpp"
#include "sys/testing.hpp"
#if ALIQUOT_HAS_TLS
#include "net/test_certificates.hpp"
#endif

namespace aliquot::net {
namespace {

using test::RawServer;

// Server and client on one loop, which runs as far as the test needs it.
class TcpTest : public testing::Test {
 protected:
  ~TcpTest() override {
    client_.reset();
    server_.reset();
    context_.restart();
    context_.poll();
  }

  void until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!condition() && std::chrono::steady_clock::now() < end) {
      context_.restart();
      context_.run_one_for(std::chrono::milliseconds(50));
    }
    ASSERT_TRUE(condition());
  }

  void serve(Server::Handler handler, ServerOptions options = {}) {
    options.host = "127.0.0.1";
    auto server = Server::listen(context_, std::move(options), std::move(handler));
    ASSERT_TRUE(server) << server.error().message;
    server_.emplace(std::move(*server));
    ASSERT_NE(server_->port(), 0);
  }

  void connect(AsyncClientOptions options = {}) {
    if (options.host.empty()) options.host = "127.0.0.1";
    if (options.port == 0) options.port = server_->port();
    auto client = AsyncClient::create(context_, std::move(options));
    ASSERT_TRUE(client) << client.error().message;
    client_.emplace(std::move(*client));
  }

  Result<Response> ask(OutgoingRequest request) {
    std::optional<Result<Response>> answer;
    client_->send(std::move(request), [&](Result<Response> got) { answer = std::move(got); });
    until([&] { return answer.has_value(); });
    return *answer;
  }

  static void echo(const Request& request, const Responder& respond) {
    respond({200, request.method + " " + request.path + " " + request.body + " " +
                      request.peer.address + " " + request.peer.name});
  }

  boost::asio::io_context context_;
  std::optional<Server> server_;
  std::optional<AsyncClient> client_;
};

TEST_F(TcpTest, AsksAgainOnTheSameConnection) {
  serve(echo);
  connect();
  for (int i = 0; i < 3; ++i) {
    const auto answer = ask({.method = "POST", .target = "/a%20b?c=d", .body = "{}"});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "POST /a b {} 127.0.0.1 ");
    EXPECT_EQ(answer->content_type, "application/json");
    EXPECT_EQ(client_->connections(), 1U);
  }
  EXPECT_EQ(server_->connections(), 1U);
}

TEST_F(TcpTest, NobodyOnTheNetworkIsAUser) {
  std::optional<Peer> peer;
  serve([&](const Request& request, const Responder& respond) {
    peer = request.peer;
    respond({});
  });
  connect({.host = "localhost"});
  ASSERT_TRUE(ask({.target = "/"}));
  EXPECT_EQ(peer->uid, kNoUser);
  EXPECT_EQ(peer->gid, kNoUser);
}

TEST_F(TcpTest, ManyAtOnceTakeTurns) {
  std::vector<Responder> waiting;
  serve([&](const Request&, const Responder& respond) { waiting.push_back(respond); });
  connect({.connections = 3, .waiting = 20});
  int answered = 0;
  int refused = 0;
  for (int i = 0; i < 30; ++i) {
    client_->send({.target = "/"},
                  [&](const Result<Response>& answer) { answer ? ++answered : ++refused; });
  }
  EXPECT_EQ(refused, 0) << "not from within send()";
  until([&] { return waiting.size() == 3 && refused == 7; });
  EXPECT_EQ(client_->connections(), 3U);
  while (answered < 23) {
    until([&] { return !waiting.empty(); });
    const auto now = std::exchange(waiting, {});
    for (const auto& respond : now) respond({});
    const int before = answered;
    until([&] { return answered >= before + static_cast<int>(now.size()); });
  }
  EXPECT_EQ(client_->connections(), 3U);
}

TEST_F(TcpTest, LargeOnesComeWhole) {
  serve([](const Request& request, const Responder& respond) { respond({200, request.body}); });
  connect();
  const std::string body(5'000'000, 'x');
  const auto answer = ask({.method = "POST", .target = "/", .body = body});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, body);
}

TEST_F(TcpTest, RefusesWhatIsNoRequest) {
  serve(echo);
  connect();
  for (const auto& request :
       std::vector<OutgoingRequest>{{.target = "/ HTTP/1.1\r\nX: y"},
                                    {.target = ""},
                                    {.method = "", .target = "/"},
                                    {.target = "/", .headers = {{"X", "y\r\nAuthorization: z"}}},
                                    {.target = "/", .headers = {{"X:\r\n", "y"}}},
                                    {.target = "/", .content_type = "a\nb"}}) {
    const auto answer = ask(request);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Error::Code::invalid_argument);
  }
  EXPECT_EQ(server_->connections(), 0U);
}

TEST_F(TcpTest, SaysWhyThereIsNoAnswer) {
  std::uint16_t closed = 0;
  { closed = listen_tcp("127.0.0.1", 0)->port; }
  connect({.port = closed});
  auto answer = ask({.target = "/"});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Error::Code::unavailable);
  EXPECT_EQ(answer.error().message,
            fmt::format("cannot connect to 127.0.0.1:{}: Connection refused", closed));
  connect({.host = "no-such-host.invalid", .port = 1});
  answer = ask({.target = "/"});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message.find("cannot connect to no-such-host.invalid:1: "), 0U);

  const RawServer raw({[](int) {},
                       [](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, "garbage\r\n\r\n");
                       },
                       [](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
                       },
                       [](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd,
                                        "HTTP/1.1 200 OK\r\nContent-Length: "
                                        "99999999999999999999999999\r\n\r\n");
                       },
                       [](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n");
                       }});
  connect({.port = raw.port(), .body_limit = 1000});
  for (int i = 0; i < 5; ++i) {
    answer = ask({.method = "POST", .target = "/"});
    ASSERT_FALSE(answer) << i;
    EXPECT_EQ(answer.error().code, i == 4 ? Error::Code::out_of_range : Error::Code::unavailable)
        << answer.error().message;
  }
}

TEST_F(TcpTest, WaitsForNothingForever) {
  std::vector<Responder> waiting;
  serve([&](const Request&, const Responder& respond) { waiting.push_back(respond); });
  connect({.connections = 1, .first_byte_limit = Millis(50)});
  auto answer = ask({.target = "/"});
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("did not answer in time"), std::string::npos);

  connect({.connections = 1});
  answer = ask({.target = "/", .whole_limit = Millis(50)});
  ASSERT_FALSE(answer);
  std::optional<Result<Response>> first;
  client_->send({.target = "/"}, [&](Result<Response> got) { first = std::move(got); });
  answer = ask({.target = "/", .whole_limit = Millis(50)});
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("no connection came free"), std::string::npos);
  EXPECT_FALSE(first);
  client_.reset();
  waiting.clear();
}

TEST_F(TcpTest, AKeptConnectionThatHasEndedIsReplaced) {
  // The end of a kept one is seen; one that ends when it is used again is tried anew, if it may be.
  const RawServer raw({[](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
                       },
                       [](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
                         RawServer::read_header(fd);
                       },
                       [](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n3");
                         RawServer::wait_for_end(fd);
                       }});
  connect({.port = raw.port()});
  EXPECT_EQ(ask({.target = "/"})->body, "1");
  until([&] { return client_->connections() == 0; });
  EXPECT_EQ(ask({.target = "/"})->body, "2");
  EXPECT_EQ(client_->connections(), 1U);
  EXPECT_EQ(ask({.target = "/"})->body, "3");
  client_.reset();
}

TEST_F(TcpTest, PiecesComeAsTheyAreSent) {
  const RawServer raw(
      {[](int fd) {
         const std::string header = RawServer::read_header(fd);
         if (header.find("Authorization: Bearer x\r\n") == std::string::npos) return;
         RawServer::say(fd,
                        "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n"
                        "Content-Type: text/x\r\n\r\n");
         RawServer::say(fd, "7\r\nabc\ndef\r\n");
         RawServer::say(fd, "2\r\n\n!\r\n0\r\n\r\n");
       },
       [](int fd) {
         RawServer::read_header(fd);
         RawServer::say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
       },
       [](int fd) {
         RawServer::read_header(fd);
         RawServer::say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
         RawServer::wait_for_end(fd);
       }});
  connect({.port = raw.port()});
  std::string text;
  int status = 0;
  std::optional<Result<void>> end;
  const auto pieces = [&] {
    text.clear();
    end.reset();
    return AsyncClient::Pieces{[&](const Response& header) { status = header.status; },
                               [&](std::string_view piece) { text += piece; },
                               [&](Result<void> last) { end = std::move(last); }};
  };
  auto whole =
      client_->stream({.target = "/", .headers = {{"Authorization", "Bearer x"}}}, pieces());
  until([&] { return end.has_value(); });
  EXPECT_TRUE(*end) << end->error().message;
  EXPECT_EQ(status, 201);
  EXPECT_EQ(text, "abc\ndef\n!");
  until([&] { return client_->connections() == 0; });

  auto cut = client_->stream({.target = "/"}, pieces());
  until([&] { return end.has_value(); });
  EXPECT_FALSE(*end);
  EXPECT_EQ(text, "abc");

  // Given up from within, and nothing is heard any more.
  std::optional<AsyncClient::Handle> endless;
  auto quits = pieces();
  quits.on_piece = [&](std::string_view piece) {
    text += piece;
    endless.reset();
  };
  endless = client_->stream({.target = "/"}, std::move(quits));
  until([&] { return client_->connections() == 0 && !text.empty(); });
  EXPECT_FALSE(end);
}

TEST_F(TcpTest, SilenceEndsAStream) {
  const RawServer raw({[](int fd) {
    RawServer::read_header(fd);
    RawServer::say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    RawServer::wait_for_end(fd);
  }});
  connect({.port = raw.port()});
  std::optional<Result<void>> end;
  const auto handle = client_->stream(
      {.target = "/", .silence_limit = Millis(50)},
      {{}, [](std::string_view) {}, [&](Result<void> last) { end = std::move(last); }});
  until([&] { return end.has_value(); });
  ASSERT_FALSE(*end);
  EXPECT_NE(end->error().message.find("silent"), std::string::npos);
}

TEST_F(TcpTest, TheClientGoesWhileItIsOwedAnAnswer) {
  std::vector<Responder> waiting;
  int closed = 0;
  serve([&](const Request&, const Responder& respond) {
    respond.on_close([&] { ++closed; });
    waiting.push_back(respond);
  });
  connect();
  client_->send({.target = "/"}, [](const Result<Response>&) { FAIL(); });
  until([&] { return !waiting.empty(); });
  client_.reset();
  until([&] { return closed == 1; });
  waiting.clear();
}

TEST_F(TcpTest, AnAddressHasSoManyConnections) {
  ServerOptions options;
  options.connections_per_user = 2;
  std::vector<Responder> waiting;
  serve([&](const Request&, const Responder& respond) { waiting.push_back(respond); }, options);
  connect({.connections = 3});
  std::vector<int> statuses;
  for (int i = 0; i < 3; ++i) {
    client_->send({.target = "/"}, [&](const Result<Response>& answer) {
      statuses.push_back(answer ? answer->status : 0);
    });
  }
  until([&] { return waiting.size() == 2 && statuses.size() == 1; });
  for (const auto& respond : waiting) respond({});
  until([&] { return statuses.size() == 3; });
  // Whom the kernel's reset reached first has no words to read.
  EXPECT_TRUE(statuses[0] == 503 || statuses[0] == 0) << statuses[0];
  EXPECT_EQ(statuses[1] + statuses[2], 400);
  // Once they have gone there is room again.
  client_.reset();
  waiting.clear();
  until([&] { return server_->connections() == 0; });
  connect();
  client_->send({.target = "/"}, [&](const Result<Response>& answer) {
    statuses.push_back(answer ? answer->status : 0);
  });
  until([&] { return waiting.size() == 1; });
  waiting.clear();
  until([&] { return statuses.size() == 4; });
}

TEST_F(TcpTest, ARefusalIsReadAlthoughNotAllWasTaken) {
  ServerOptions options;
  options.body_limit = 1000;
  serve(echo, options);
  connect();
  for (int i = 0; i < 5; ++i) {
    const auto answer = ask({.method = "POST", .target = "/", .body = std::string(3'000'000, 'x')});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->status, 413);
  }
}

TEST(ListenTest, SaysWhyItCannot) {
  boost::asio::io_context context;
  const auto handler = [](const Request&, const Responder& respond) { respond({}); };
  const auto first = Server::listen(context, {.host = "127.0.0.1"}, handler);
  ASSERT_TRUE(first);
  const auto second =
      Server::listen(context, {.host = "127.0.0.1", .port = first->port()}, handler);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Error::Code::already_exists);
  EXPECT_FALSE(Server::listen(context, {.host = "no-such-host.invalid"}, handler));
  const auto everywhere = Server::listen(context, {}, handler);
  ASSERT_TRUE(everywhere) << everywhere.error().message;
  EXPECT_FALSE(Server::listen(
      context, {.tls = ServerTls{.certificate = "/nowhere/c", .key = "/nowhere/k"}}, handler));
}

#if ALIQUOT_HAS_TLS

class TlsTest : public TcpTest {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_.path() / name;
    EXPECT_TRUE(sys::write_whole(path, text, 0600, false));
    return path;
  }
  void write_certificate(const test::Certificate& made) {
    write("cert.pem", made.certificate);
    write("key.pem", made.key);
  }
  void serve_tls(Server::Handler handler, std::string client_ca = {}) {
    ServerOptions options;
    options.tls = ServerTls{.certificate = folder_.path() / "cert.pem",
                            .key = folder_.path() / "key.pem",
                            .client_ca = std::move(client_ca),
                            .on_trouble = [this](const Error&) { ++troubles_; }};
    serve(std::move(handler), std::move(options));
  }
  Result<Response> ask_as(ClientTls tls, std::string host = "127.0.0.1") {
    connect({.host = std::move(host), .use_tls = true, .tls = std::move(tls)});
    return ask({.target = "/"});
  }

  test::Folder folder_;
  test::TestCa ca_;
  int troubles_ = 0;
};

TEST_F(TlsTest, SpeaksTls) {
  write_certificate(ca_.issue("server", "DNS:localhost,IP:127.0.0.1"));
  serve_tls(echo);
  connect({.use_tls = true, .tls = {.ca_data = ca_.pem()}});
  for (int i = 0; i < 3; ++i) {
    const auto answer = ask({.method = "POST", .target = "/", .body = "{}"});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->body, "POST / {} 127.0.0.1 ");
  }
  EXPECT_EQ(server_->connections(), 1U);
  const std::string body(3'000'000, 'x');
  EXPECT_GT(ask({.method = "POST", .target = "/", .body = body})->body.size(), body.size());
}

TEST_F(TlsTest, BelievesOnlyWhomItShould) {
  write_certificate(ca_.issue("server", "DNS:localhost,IP:127.0.0.1"));
  serve_tls(echo);
  const std::string ca_file = write("ca.pem", ca_.pem());
  EXPECT_TRUE(ask_as({.ca_file = ca_file}));
  EXPECT_TRUE(ask_as({.ca_file = ca_file}, "localhost"));
  EXPECT_TRUE(ask_as({.verify = false}));
  EXPECT_TRUE(ask_as({.ca_file = ca_file, .server_name = "localhost"}));

  const auto other_name = ask_as({.ca_file = ca_file, .server_name = "kubernetes.default"});
  ASSERT_FALSE(other_name);
  EXPECT_NE(other_name.error().message.find("not believed: hostname mismatch"), std::string::npos)
      << other_name.error().message;
  EXPECT_FALSE(ask_as({.ca_file = ca_file, .server_name = "127.0.0.2"}));
  const auto other_ca = ask_as({.ca_data = test::TestCa("another").pem()});
  ASSERT_FALSE(other_ca);
  EXPECT_NE(other_ca.error().message.find("not believed"), std::string::npos);
  EXPECT_FALSE(ask_as({}));  // the system's do not know it

  EXPECT_FALSE(AsyncClient::create(context_, {.use_tls = true, .tls = {.ca_data = "nonsense"}}));
  EXPECT_FALSE(AsyncClient::create(context_, {.use_tls = true, .tls = {.ca_file = "/nowhere"}}));
  EXPECT_FALSE(AsyncClient::create(
      context_, {.use_tls = true, .tls = {.certificate_data = "x", .key_data = "y"}}));
}

TEST_F(TlsTest, ClientsShowTheirs) {
  write_certificate(ca_.issue("server", "IP:127.0.0.1"));
  const test::TestCa clients("clients' CA");
  serve_tls(echo, write("clients.pem", clients.pem()));
  const auto good = clients.issue("system:kube-scheduler", "");
  const auto answer =
      ask_as({.ca_data = ca_.pem(), .certificate_data = good.certificate, .key_data = good.key});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body, "GET /  127.0.0.1 system:kube-scheduler");
  EXPECT_FALSE(ask_as({.ca_data = ca_.pem()}));
  const auto bad = ca_.issue("system:kube-scheduler", "");
  EXPECT_FALSE(
      ask_as({.ca_data = ca_.pem(), .certificate_data = bad.certificate, .key_data = bad.key}));
  // The key of another.
  EXPECT_FALSE(AsyncClient::create(
      context_,
      {.use_tls = true, .tls = {.certificate_data = good.certificate, .key_data = bad.key}}));
}

TEST_F(TlsTest, CertificatesAreReadAgain) {
  write_certificate(ca_.issue("old", "DNS:old"));
  serve_tls(echo);
  const auto named = [&](const std::string& name) {
    return ask_as({.ca_data = ca_.pem(), .server_name = name}).has_value();
  };
  EXPECT_TRUE(named("old"));
  write_certificate(ca_.issue("new", "DNS:new"));
  EXPECT_TRUE(named("new"));
  EXPECT_FALSE(named("old"));
  // While they are of no use the last ones are used.
  EXPECT_EQ(troubles_, 0);
  write("key.pem", "half of a k");
  EXPECT_TRUE(named("new"));
  EXPECT_TRUE(named("new"));
  EXPECT_EQ(troubles_, 1);
  std::filesystem::remove(folder_.path() / "cert.pem");
  EXPECT_TRUE(named("new"));
  write_certificate(ca_.issue("newest", "DNS:newest"));
  EXPECT_TRUE(named("newest"));

  // As the kubelet mounts a Secret: a link that is turned.
  for (const std::string version : {"first", "second"}) {
    const auto made = ca_.issue(version, "DNS:" + version);
    const auto folder = folder_.path() / version;
    std::filesystem::create_directory(folder);
    ASSERT_TRUE(sys::write_whole(folder / "cert.pem", made.certificate, 0600, false));
    ASSERT_TRUE(sys::write_whole(folder / "key.pem", made.key, 0600, false));
  }
  std::filesystem::create_directory_symlink("first", folder_.path() / "data");
  for (const std::string file : {"cert.pem", "key.pem"}) {
    std::filesystem::remove(folder_.path() / file);
    std::filesystem::create_symlink("data/" + file, folder_.path() / file);
  }
  EXPECT_TRUE(named("first"));
  std::filesystem::create_directory_symlink("second", folder_.path() / "next");
  std::filesystem::rename(folder_.path() / "next", folder_.path() / "data");
  EXPECT_TRUE(named("second"));
}

TEST_F(TlsTest, TheEndOfAPeerIsSeenWhileItIsOwedAnAnswer) {
  write_certificate(ca_.issue("server", "IP:127.0.0.1"));
  std::vector<Responder> waiting;
  int closed = 0;
  serve_tls([&](const Request&, const Responder& respond) {
    respond.on_close([&] { ++closed; });
    waiting.push_back(respond);
  });
  connect({.use_tls = true, .tls = {.ca_data = ca_.pem()}});
  client_->send({.target = "/"}, [](const Result<Response>&) { FAIL(); });
  until([&] { return !waiting.empty(); });
  client_.reset();
  until([&] { return closed == 1; });
  waiting.clear();
  until([&] { return server_->connections() == 0; });
}

// Not TLS, half of it, or nothing: gone after the server's patience.
TEST_F(TlsTest, SurvivesGarbage) {
  write_certificate(ca_.issue("server", "IP:127.0.0.1"));
  ServerOptions options;
  options.sender_patience = Millis(50);
  options.tls =
      ServerTls{.certificate = folder_.path() / "cert.pem", .key = folder_.path() / "key.pem"};
  serve(echo, std::move(options));
  std::vector<sys::Fd> peers;
  for (const std::string_view bytes :
       {std::string_view("GET / HTTP/1.1\r\n\r\n"), std::string_view("\x16\x03\x01\x02", 4),
        std::string_view("")}) {
    sys::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    RawServer::say(fd.get(), bytes);
    peers.push_back(std::move(fd));
  }
  const auto ended = [](const sys::Fd& fd) {
    char byte = 0;
    const auto got = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  };
  for (const auto& fd : peers) {
    // What it says first is an alert.
    until([&] { return ended(fd); });
  }
  until([&] { return server_->connections() == 0; });
  EXPECT_TRUE(ask_as({.ca_data = ca_.pem()}));
}

#endif

}  // namespace
}  // namespace aliquot::net
