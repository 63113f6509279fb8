#include "net/server.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "net/client.hpp"
#include "net/encoding.hpp"

namespace aliquot::net {
namespace {

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    std::string pattern = testing::TempDir() + "aliquot-net-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/s";
  }
  ~ServerTest() override {
    if (thread_.joinable()) {
      boost::asio::post(context_, [this] {
        server_.reset();
        guard_.reset();
      });
      thread_.join();
    }
    std::filesystem::remove_all(folder_);
  }

  void serve(Server::Handler handler, ServerOptions options = {}) {
    options.path = path_;
    auto server = Server::listen(context_, std::move(options), std::move(handler));
    ASSERT_TRUE(server) << server.error().message;
    server_.emplace(std::move(*server));
    thread_ = std::thread([this] { context_.run(); });
  }

  std::string raw(const std::string& bytes) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    [[maybe_unused]] const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    std::string answer;
    char chunk[4096];
    for (ssize_t n = 0; (n = ::recv(fd, chunk, sizeof chunk, 0)) > 0;) {
      answer.append(chunk, static_cast<std::size_t>(n));
    }
    ::close(fd);
    return answer;
  }

  std::string folder_;
  std::string path_;
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      context_.get_executor()};
  std::optional<Server> server_;
  std::thread thread_;
};

TEST_F(ServerTest, TellsWhoAsksWhat) {
  serve([](const Request& request, const Responder& respond) {
    respond({201, request.method + " " + request.path + " " + request.query.at("user") + " " +
                      request.body + " " + std::to_string(request.peer.uid) + " " +
                      std::to_string(request.peer.pid)});
  });
  auto client = Client::connect(path_);
  ASSERT_TRUE(client);
  for (int i = 0; i < 3; ++i) {
    const auto answer = client->send("POST", "/v1/a%2Fb?user=" + percent_encode("a b&ü"), "{}");
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->status, 201);
    EXPECT_EQ(answer->body, "POST /v1/a/b a b&ü {} " + std::to_string(::getuid()) + " " +
                                std::to_string(::getpid()));
  }
}

TEST_F(ServerTest, AnAnswerMayGoOn) {
  std::optional<Responder> reader;
  serve([&](const Request& request, const Responder& respond) {
    if (request.path == "/go") {
      EXPECT_TRUE(reader->push(std::make_shared<const std::string>("two ")));
      EXPECT_TRUE(reader->push(std::make_shared<const std::string>(std::string(1 << 20, 'x'))));
      reader.reset();
      return respond({});
    }
    respond.stream({200, "", "text/event-stream", {{"Cache-Control", "no-store"}}});
    EXPECT_TRUE(respond.push(std::make_shared<const std::string>("one ")));
    respond({500, "too late"});
    reader = respond;
  });
  std::string text;
  std::thread other([&] { text = raw("GET /events HTTP/1.1\r\nHost: x\r\n\r\n"); });
  auto client = Client::connect(path_);
  for (;;) {
    std::atomic<bool> there = false;
    std::atomic<bool> looked = false;
    boost::asio::post(context_, [&] {
      there = reader.has_value();
      looked = true;
    });
    while (!looked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (there) break;
  }
  EXPECT_EQ(client->send("GET", "/go")->status, 200);
  other.join();
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"));
  EXPECT_NE(text.find("Cache-Control: no-store\r\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\n\r\none two " + std::string(1 << 20, 'x'))) << text.size();
}

TEST_F(ServerTest, WhoDoesNotReadWhatGoesOnIsHungUpOn) {
  std::atomic<int> closed = 0;
  std::atomic<bool> refused = false;
  ServerOptions options;
  options.stream_limit = 64 << 10;
  serve(
      [&](const Request&, const Responder& respond) {
        respond.on_close([&] { ++closed; });
        respond.stream({});
        const auto part = std::make_shared<const std::string>(std::string(1 << 20, 'x'));
        for (int i = 0; i < 64 && !refused; ++i) refused = !respond.push(part);
      },
      std::move(options));
  const auto text = raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_LT(text.size(), 64UL << 20U);
  for (int i = 0; i < 6000 && !refused; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(closed, 1);
}

TEST_F(ServerTest, AnswersLaterAndLearnsOfTheEnd) {
  std::atomic<int> closed = 0;
  std::atomic<int> asked = 0;
  std::vector<Responder> waiting;
  const auto until = [](const std::atomic<int>& count, int reached) {
    for (int i = 0; i < 6000 && count < reached; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  serve([&](const Request& request, const Responder& respond) {
    respond.on_close([&closed] { ++closed; });
    if (request.path == "/later") {
      waiting.push_back(respond);
      ++asked;
    } else if (request.path == "/go") {
      for (const auto& one : waiting) one({200, "late"});
      waiting.clear();
      respond({});
    }
  });
  {
    auto first = Client::connect(path_);
    std::thread other([&] {
      until(asked, 1);
      EXPECT_EQ(Client::connect(path_)->send("GET", "/go")->status, 200);
    });
    EXPECT_EQ(first->send("GET", "/later")->body, "late");
    other.join();
    EXPECT_EQ(first->send("GET", "/dropped")->status, 500);
  }
  {
    // Leaves while it is owed an answer.
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string request = "GET /later HTTP/1.1\r\nHost: x\r\n\r\n";
    ASSERT_GT(::send(fd, request.data(), request.size(), 0), 0);
    until(asked, 2);
    ::close(fd);
  }
  // Two requests of the first client, one of the other, one of the last.
  until(closed, 4);
  EXPECT_EQ(closed, 4);
  std::atomic<bool> cleared = false;
  boost::asio::post(context_, [&] {
    waiting.clear();
    cleared = true;
  });
  while (!cleared) std::this_thread::yield();
}

TEST_F(ServerTest, SurvivesGarbage) {
  ServerOptions options;
  options.body_limit = 1000;
  options.sender_patience = Millis(200);
  serve([](const Request&, const Responder& respond) { respond({}); }, options);
  EXPECT_EQ(raw("garbage\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(raw(std::string("\0\1\2\377\n\n\n", 7)).substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(raw("GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(raw("GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(raw("POST / HTTP/1.1\r\nContent-Length: 2000\r\n\r\n").substr(0, 12), "HTTP/1.1 413");
  EXPECT_EQ(raw("GET / HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n").substr(0, 12),
            "HTTP/1.1 431");
  EXPECT_EQ(raw("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nslow"), "");
  EXPECT_EQ(raw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(raw("GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(raw("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").substr(0, 12),
            "HTTP/1.1 200");
  EXPECT_EQ(raw("GET / HTTP/1.0\r\n\r\n").substr(0, 12), "HTTP/1.1 200");
  EXPECT_EQ(Client::connect(path_)->send("GET", "/")->status, 200);
}

TEST_F(ServerTest, ManyIdleConnections) {
  serve([](const Request&, const Responder& respond) { respond({}); });
  std::vector<Client> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(*Client::connect(path_));
  EXPECT_EQ(idle[150].send("GET", "/")->status, 200);
}

TEST_F(ServerTest, TakesThePlaceOfAStaleSocketOnly) {
  const auto handler = [](const Request&, const Responder& respond) { respond({}); };
  serve(handler);
  struct stat status {};
  ASSERT_EQ(::lstat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);

  boost::asio::io_context other;
  const auto second = Server::listen(other, {.path = path_}, handler);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Error::Code::already_exists);

  const std::string file = folder_ + "/file";
  std::ofstream(file) << "precious";
  EXPECT_FALSE(Server::listen(other, {.path = file}, handler));
  const std::string link = folder_ + "/link";
  std::filesystem::create_symlink(path_, link);
  EXPECT_FALSE(Server::listen(other, {.path = link}, handler));
  EXPECT_TRUE(std::filesystem::exists(file));

  const std::string stale = folder_ + "/stale";
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    stale.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
  }
  {
    const auto replaced = Server::listen(other, {.path = stale, .mode = 0666}, handler);
    ASSERT_TRUE(replaced) << replaced.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_FALSE(Server::listen(other, {.path = folder_ + "/" + std::string(200, 'x')}, handler));
  EXPECT_EQ(Client::connect(folder_ + "/none").error().code, Error::Code::unavailable);
}

// Whoever inherits a connection speaks as the one who made it.
TEST_F(ServerTest, NoProgramInheritsASocket) {
  serve([](const Request&, const Responder& respond) { respond({200, "{}"}); });
  auto client = Client::connect(path_);
  ASSERT_TRUE(client);
  ASSERT_TRUE(client->send("GET", "/"));
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    struct stat info {};
    if (fd <= 2 || ::fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) continue;
    ++sockets;
    EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC) << fd;
  }
  EXPECT_GE(sockets, 3) << "the listening one, and a connection's two ends";
}

// A client that asks and does not read.
class Unread {
 public:
  explicit Unread(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    EXPECT_GT(::send(fd_, request.data(), request.size(), MSG_NOSIGNAL), 0);
  }
  Unread(const Unread&) = delete;
  Unread& operator=(const Unread&) = delete;
  ~Unread() { ::close(fd_); }

  // Reads after all, until nothing more comes.
  std::size_t read_all(std::size_t most) const {
    std::size_t got = 0;
    std::vector<char> chunk(1U << 16U);
    while (got < most) {
      const auto n = ::recv(fd_, chunk.data(), chunk.size(), 0);
      if (n <= 0) break;
      got += static_cast<std::size_t>(n);
    }
    return got;
  }

 private:
  int fd_;
};

TEST_F(ServerTest, WhoDoesNotReadIsHungUpOn) {
  ServerOptions options;
  options.reader_patience = Millis(200);
  std::atomic<int> closed = 0;
  serve(
      [&](const Request&, const Responder& respond) {
        respond.on_close([&] { ++closed; });
        respond({200, std::string(8U << 20U, 'x')});
      },
      options);
  const Unread reader(path_);
  for (int i = 0; i < 3'000 && closed == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(closed, 1);
}

TEST_F(ServerTest, AnswersThatNobodyReadsAreFew) {
  ServerOptions options;
  options.bytes_per_user = 1U << 20U;
  std::atomic<int> handled = 0;
  serve(
      [&](const Request&, const Responder& respond) {
        ++handled;
        respond({200, std::string(4U << 20U, 'x')});
      },
      options);
  std::vector<std::unique_ptr<Unread>> readers;
  for (int i = 0; i < 20; ++i) readers.push_back(std::make_unique<Unread>(path_));
  while (handled == 0) std::this_thread::yield();
  // A slow machine proves less with this; it cannot fail of it.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(handled, 1);  // the second waits until the first is gone
  for (const auto& reader : readers) {
    EXPECT_GE(reader->read_all(4U << 20U), std::size_t{4} << 20U);
  }
  EXPECT_EQ(handled, 20);
}

TEST_F(ServerTest, RequestsThatAreAnnouncedWaitForRoom) {
  ServerOptions options;
  options.body_limit = options.bytes_per_user = 1U << 20U;
  std::atomic<int> handled = 0;
  serve(
      [&](const Request& request, const Responder& respond) {
        ++handled;
        respond({200, std::to_string(request.body.size())});
      },
      options);
  const std::string body(900'000, 'x');
  std::vector<std::thread> senders;
  for (int i = 0; i < 8; ++i) {
    senders.emplace_back([&] {
      auto client = Client::connect(path_);
      for (int turn = 0; turn < 5; ++turn) {
        const auto answer = client->send("POST", "/", body);
        EXPECT_TRUE(answer && answer->body == "900000");
      }
    });
  }
  for (auto& sender : senders) sender.join();
  EXPECT_EQ(handled, 40);
}

}  // namespace
}  // namespace aliquot::net
