#include "kube/api/api_client.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <optional>

#include "kube/api/testing.hpp"
#include "net/raw_server.hpp"
#include "net/server.hpp"
#include "net/test_certificates.hpp"
#include "sys/testing.hpp"

namespace aliquot::kube {
namespace {

using test::RawServer;

class ApiClientTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_.path() / name;
    EXPECT_TRUE(sys::write_whole(path, text, 0600, false));
    return path;
  }
  void connect(ClusterConfig config) {
    auto made = ApiClient::create(context_, std::move(config));
    ASSERT_TRUE(made) << made.error().message;
    api_ = std::move(*made);
  }
  Result<ApiResponse> ask(ApiRequest request) {
    std::optional<Result<ApiResponse>> answer;
    api_->send(std::move(request), [&](Result<ApiResponse> got) { answer = std::move(got); });
    EXPECT_TRUE(test::run_until(context_, [&] { return answer.has_value(); }));
    return *answer;
  }

  test::Folder folder_;
  boost::asio::io_context context_;
  std::unique_ptr<ApiClient> api_;
};

// What a request looks like on the wire, header and body.
std::string whole_request(int fd, std::size_t body) {
  std::string text = RawServer::read_header(fd);
  const std::size_t wanted = text.size() + body;
  char byte = 0;
  while (text.size() < wanted && ::recv(fd, &byte, 1, 0) == 1) text += byte;
  return text;
}

TEST_F(ApiClientTest, SaysWhoItIs) {
  std::vector<std::string> requests;
  const RawServer raw({[&](int fd) {
    const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    requests.push_back(whole_request(fd, 7));
    RawServer::say(fd, ok);
    requests.push_back(whole_request(fd, 0));
    RawServer::say(fd, ok);
    // A token that the server does not take although its file looks as it did.
    requests.push_back(whole_request(fd, 0));
    RawServer::say(fd, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}");
    requests.push_back(whole_request(fd, 0));
    RawServer::say(fd, ok);
    RawServer::wait_for_end(fd);
  }});
  const std::string token = write("token", "first\n");
  connect({.host = "127.0.0.1",
           .port = raw.port(),
           .use_tls = false,
           .path_prefix = "/prefix",
           .token_file = token});
  EXPECT_TRUE(ask({.method = "PATCH",
                   .target = "/api/v1/pods",
                   .body = "{\"a\":1}",
                   .content_type = std::string(kMergePatch)}));
  write("token", "second\n");
  EXPECT_TRUE(ask({.target = "/api"}));
  const auto before = std::filesystem::last_write_time(token);
  {
    // In place, of the same size and time.
    const sys::Fd fd(::open(token.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(sys::write_all(fd.get(), "third!\n"));
  }
  std::filesystem::last_write_time(token, before);
  const auto answer = ask({.target = "/api"});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  api_.reset();
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0].find("PATCH /prefix/api/v1/pods HTTP/1.1\r\n"), 0U);
  EXPECT_NE(requests[0].find("Content-Type: application/merge-patch+json\r\n"), std::string::npos);
  EXPECT_NE(requests[0].find("Authorization: Bearer first\r\n"), std::string::npos);
  EXPECT_NE(requests[0].find("User-Agent: aliquot\r\n"), std::string::npos);
  EXPECT_EQ(requests[0].substr(requests[0].size() - 7), "{\"a\":1}");
  EXPECT_NE(requests[1].find("Authorization: Bearer second\r\n"), std::string::npos);
  EXPECT_NE(requests[2].find("Authorization: Bearer second\r\n"), std::string::npos);
  EXPECT_NE(requests[3].find("Authorization: Bearer third!\r\n"), std::string::npos);
}

TEST_F(ApiClientTest, WatchesLineByLine) {
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const RawServer raw({[&](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, chunked + "5\r\none\nt\r\n");
                         RawServer::say(fd, "9\r\nwo\n\nthree\r\n6\r\n\nhalf!\r\n0\r\n\r\n");
                       },
                       [](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, "HTTP/1.1 410 Gone\r\nContent-Length: 4\r\n\r\ngone");
                       },
                       [&](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, chunked + "4\r\none\n\r\n");
                       },
                       [&](int fd) {
                         RawServer::read_header(fd);
                         RawServer::say(fd, chunked + "8\r\none\ntwo\n\r\n");
                         RawServer::wait_for_end(fd);
                       }});
  connect({.host = "127.0.0.1", .port = raw.port(), .use_tls = false});
  std::vector<std::string> lines;
  std::optional<Result<ApiResponse>> end;
  std::unique_ptr<Watch> watch;
  const auto begin = [&](std::size_t most) {
    lines.clear();
    end.reset();
    watch = api_->watch(
        "/api/v1/pods?watch=1&timeoutSeconds=60",
        [&, most](std::string_view line) {
          lines.emplace_back(line);
          if (lines.size() == most) watch.reset();
        },
        [&](Result<ApiResponse> last) {
          end = std::move(last);
          watch.reset();
        });
    EXPECT_TRUE(lines.empty() && !end);
    EXPECT_TRUE(test::run_until(context_, [&] { return watch == nullptr; }));
  };
  begin(100);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", "", "three"}));
  ASSERT_TRUE(end && *end);
  EXPECT_EQ((*end)->status, 200);
  EXPECT_EQ((*end)->body, "");
  begin(100);
  EXPECT_TRUE(lines.empty());
  ASSERT_TRUE(end && *end);
  EXPECT_EQ((*end)->status, 410);
  EXPECT_EQ((*end)->body, "gone");
  begin(100);
  EXPECT_EQ(lines, (std::vector<std::string>{"one"}));
  ASSERT_TRUE(end);
  EXPECT_FALSE(*end);
  begin(1);
  EXPECT_EQ(lines, (std::vector<std::string>{"one"}));
  EXPECT_FALSE(end);
}

TEST_F(ApiClientTest, AnEventHasItsBounds) {
  const RawServer raw({[&](int fd) {
    RawServer::read_header(fd);
    RawServer::say(fd, "HTTP/1.1 200 OK\r\n\r\n" + std::string(5'000, 'x'));
    RawServer::wait_for_end(fd);
  }});
  auto made = ApiClient::create(
      context_, {.host = "127.0.0.1", .port = raw.port(), .use_tls = false}, {.line_limit = 1'000});
  ASSERT_TRUE(made);
  std::optional<Result<ApiResponse>> end;
  const auto watch = (*made)->watch(
      "/?watch=1", [](std::string_view) { FAIL(); },
      [&](Result<ApiResponse> last) { end = std::move(last); });
  ASSERT_TRUE(test::run_until(context_, [&] { return end.has_value(); }));
  ASSERT_FALSE(*end);
  EXPECT_EQ(end->error().code, Error::Code::out_of_range);
}

TEST_F(ApiClientTest, OverTlsWithACertificate) {
  const test::TestCa ca;
  const auto server = ca.issue("kube-apiserver", "DNS:kubernetes.default.svc");
  net::ServerOptions options;
  options.host = "127.0.0.1";
  options.tls = net::ServerTls{.certificate = write("c", server.certificate),
                               .key = write("k", server.key),
                               .client_ca = write("ca", ca.pem())};
  auto listening = net::Server::listen(
      context_, options, [](const net::Request& request, const net::Responder& respond) {
        respond({403, "{\"kind\":\"Status\",\"reason\":\"Forbidden\",\"message\":\"not " +
                          request.peer.name + "\"}"});
      });
  ASSERT_TRUE(listening);
  const auto own = ca.issue("aliquot", "");
  ClusterConfig config{.host = "127.0.0.1", .port = listening->port()};
  config.tls = {.ca_data = ca.pem(),
                .certificate_data = own.certificate,
                .key_data = own.key,
                .server_name = "kubernetes.default.svc"};
  connect(config);
  const auto refused = object_of(ask({.target = "/api/v1/pods"}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::Code::permission_denied);
  EXPECT_EQ(refused.error().message, "the API server refused (403 Forbidden): not aliquot");
  config.tls.server_name = "kubernetes";
  connect(config);
  EXPECT_FALSE(ask({.target = "/api/v1/pods"}));
}

TEST_F(ApiClientTest, NeedsItsFiles) {
  EXPECT_FALSE(ApiClient::create(context_, {.host = "x", .token_file = "/nowhere/token"}));
  EXPECT_FALSE(ApiClient::create(context_, {.host = "x", .tls = {.ca_file = "/nowhere/ca"}}));
}

TEST(ApiTest, AnswersAsValues) {
  const auto code = [](int status, const std::string& body) {
    const auto object = object_of(ApiResponse{status, body});
    return object ? std::optional<Error::Code>() : object.error().code;
  };
  EXPECT_EQ(code(200, "{}"), std::nullopt);
  EXPECT_EQ(code(201, "{\"a\":1}"), std::nullopt);
  EXPECT_EQ(code(200, "[]"), Error::Code::unavailable);
  EXPECT_EQ(code(200, ""), Error::Code::unavailable);
  EXPECT_EQ(code(404, "nonsense"), Error::Code::not_found);
  EXPECT_EQ(code(409, "{\"reason\":\"AlreadyExists\"}"), Error::Code::already_exists);
  EXPECT_EQ(code(409, "{\"reason\":\"Conflict\"}"), Error::Code::failed_state);
  EXPECT_EQ(code(410, ""), Error::Code::out_of_range);
  EXPECT_EQ(code(401, ""), Error::Code::permission_denied);
  EXPECT_EQ(code(422, "{\"message\":7}"), Error::Code::invalid_argument);
  EXPECT_EQ(code(429, ""), Error::Code::unavailable);
  EXPECT_EQ(code(500, "{\"message\":\"\\u001b[2J\"}"), Error::Code::unavailable);
  EXPECT_EQ(code(0, ""), Error::Code::unavailable);
  EXPECT_EQ(object_of(fail(Error::Code::internal, "x")).error().code, Error::Code::internal);

  EXPECT_FALSE(parse_object(std::string(100'000, '[')));
  EXPECT_FALSE(parse_object("{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}"));
  EXPECT_FALSE(parse_object("{\"a\":\"\xff\"}"));
  const auto numbers = parse_object(
      R"({"a":1,"b":-1,"c":9223372036854775807,"d":9223372036854775808,"e":1e400,"f":1.5,"g":"1"})");
  if (numbers) {
    EXPECT_EQ(find_number(*numbers, "a"), 1);
    EXPECT_EQ(find_number(*numbers, "c"), INT64_MAX);
    for (const std::string_view key : {"d", "e", "f", "g", "h"}) {
      EXPECT_EQ(find_number(*numbers, key), std::nullopt) << key;
    }
    EXPECT_EQ(find_text(*numbers, "a"), "");
    EXPECT_EQ(find_text(*numbers, "g"), "1");
    EXPECT_EQ(find_object(*numbers, "a"), nullptr);
    EXPECT_EQ(find_array(*numbers, "a"), nullptr);
    EXPECT_EQ(meta_text(*numbers, "name"), "");
  }
  EXPECT_EQ(object_path("api/v1", "n", "pods", "p", "binding"),
            "/api/v1/namespaces/n/pods/p/binding");
  EXPECT_EQ(object_path("apis/resource.k8s.io/v1", "", "resourceslices"),
            "/apis/resource.k8s.io/v1/resourceslices");
  EXPECT_EQ(object_path("api/v1", "a/b", "pods", "x y"), "/api/v1/namespaces/a%2Fb/pods/x%20y");
}

}  // namespace
}  // namespace aliquot::kube
