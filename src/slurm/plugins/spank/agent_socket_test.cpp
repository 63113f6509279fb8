#include "slurm/plugins/spank/agent_socket.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>
#include <tuple>
#include <vector>

#include "sys/testing.hpp"

namespace aliquot::spank {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string answer(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

// Answers one connection after the other with the next of these texts; with none of them it accepts
// and stays silent.
class FakeListener {
 public:
  FakeListener(const std::string& path, std::vector<std::string> replies)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    thread_ = std::thread([this, replies = std::move(replies)] { run(replies); });
  }
  ~FakeListener() {
    stop_ = true;
    thread_.join();
    ::close(socket_);
    for (const int fd : silent_) ::close(fd);
  }

  std::vector<std::string> requests;  // to read once this thread is done with them

 private:
  void run(const std::vector<std::string>& replies) {
    for (std::size_t i = 0; !stop_;) {
      pollfd ready{socket_, POLLIN, 0};
      if (::poll(&ready, 1, 5) <= 0) continue;
      const int peer = ::accept(socket_, nullptr, nullptr);
      if (peer < 0) continue;
      if (replies.empty()) {
        silent_.push_back(peer);
        continue;
      }
      std::string text;
      char buffer[4096];
      while (text.find("\n\n") == std::string::npos) {
        const ssize_t got = ::read(peer, buffer, sizeof buffer);
        if (got <= 0) break;
        text.append(buffer, static_cast<std::size_t>(got));
      }
      requests.push_back(text);
      const std::string& reply = replies[std::min(i++, replies.size() - 1)];
      // Who does not believe this listener has hung up by now: each test says what was read.
      std::ignore = ::send(peer, reply.data(), reply.size(), MSG_NOSIGNAL);
      ::close(peer);
    }
  }

  int socket_;
  std::atomic<bool> stop_ = false;
  std::vector<int> silent_;
  std::thread thread_;
};

class AgentSocketTest : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return (folder_.path() / "agent.sock").string(); }
  // Time passes only where somebody pauses.
  AgentSocket agent() {
    return {path(),
            {[this] { return now_; },
             [this](int ms) {
               pauses_.push_back(ms);
               now_ += ms;
             }}};
  }

  aliquot::test::Folder folder_;
  long now_ = 5'000;
  std::vector<int> pauses_;
};

TEST_F(AgentSocketTest, AsksAndReadsTheReply) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's agent is believed";
  FakeListener listener(path(), {"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 8\r\n\r\nset A=b\n"});
  const AgentReply reply = agent().ask("/v1/slurm/grant", "job=7\n\n", 1'000);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "set A=b\n");
  EXPECT_THAT(listener.requests,
              ElementsAre("POST /v1/slurm/grant HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n"
                          "Content-Length: 7\r\n\r\njob=7\n\n"));
}

TEST_F(AgentSocketTest, AsksInTwoParts) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's agent is believed";
  FakeListener listener(path(), {answer("409 Conflict", "no")});
  AgentSocket socket = agent();
  const int connection = socket.send("/v1/slurm/grant", "job=7\n\n");
  ASSERT_GE(connection, 0);
  const AgentReply reply = socket.take(connection, 60'000);
  EXPECT_EQ(reply.status, 409);
  EXPECT_EQ(reply.body, "no");
}

TEST_F(AgentSocketTest, TriesAgainWhileNobodyListens) {
  const AgentReply reply = agent().ask("/x", "", 100);
  EXPECT_EQ(reply.status, 0);
  EXPECT_THAT(reply.body, HasSubstr("No such file"));
  EXPECT_THAT(pauses_, ElementsAre(20, 20, 20, 20));
  EXPECT_EQ(agent().send("/x", ""), -1);
}

TEST_F(AgentSocketTest, WithoutTimeItAsksOnce) {
  EXPECT_EQ(agent().ask("/x", "", 0).status, 0);
  EXPECT_THAT(pauses_, ElementsAre());
}

TEST_F(AgentSocketTest, AnAgentThatCannotIsAskedAgainLessOften) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's agent is believed";
  const std::string unfit = answer("503 No", "no driver");
  {
    FakeListener listener(path(), {unfit, unfit, answer("200 OK", "yes")});
    EXPECT_EQ(agent().ask("/x", "\n\n", 15'000).body, "yes");
    EXPECT_THAT(pauses_, ElementsAre(500, 500));
  }
  std::filesystem::remove(path());
  FakeListener listener(path(), {unfit});
  const AgentReply reply = agent().ask("/x", "\n\n", 1'200);
  EXPECT_EQ(reply.status, AgentReply::kUnfit);
  EXPECT_EQ(reply.body, "no driver");
}

TEST_F(AgentSocketTest, RubbishIsNoReply) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's agent is believed";
  FakeListener listener(path(), {"SSH-2.0-x\r\n"});
  AgentSocket socket = agent();
  EXPECT_EQ(socket.take(socket.send("/x", "\n\n"), 60'000).body, "no HTTP");
}

// Limits without what enforces them, say.
TEST_F(AgentSocketTest, HalfOfAnAnswerIsNone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's agent is believed";
  const std::string whole = answer("200 OK", "set A=b\nprepend LD_PRELOAD=/lib\n");
  FakeListener listener(path(), {whole.substr(0, whole.find("prepend")), "HTTP/1.1 200 OK\r\n\r\n",
                                 whole + "set C=d\n", whole});
  AgentSocket socket = agent();
  for (int i = 0; i < 3; ++i) {
    const AgentReply reply = socket.take(socket.send("/x", "\n\n"), 60'000);
    EXPECT_EQ(reply.status, 0);
    EXPECT_EQ(reply.body, "its answer is not whole");
  }
  EXPECT_EQ(agent().ask("/x", "\n\n", 1'000).status, 200) << "it is asked again";
}

TEST_F(AgentSocketTest, ASilentAgentIsNotWaitedForLonger) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's agent is believed";
  FakeListener listener(path(), {});
  AgentSocket socket = agent();
  const int connection = socket.send("/x", "");
  ASSERT_GE(connection, 0);
  EXPECT_EQ(socket.take(connection, 20).body, "no answer in time");
}

TEST_F(AgentSocketTest, OnlyTheAdministratorsAgentIsBelieved) {
  if (::geteuid() != 0) GTEST_SKIP() << "somebody else must listen there";
  ASSERT_EQ(::seteuid(65'534), 0);
  std::string own = "/tmp/aliquot-agent-test.XXXXXX";
  ASSERT_NE(::mkdtemp(own.data()), nullptr);
  {
    FakeListener listener(own + "/sock", {answer("200 OK", "set LD_PRELOAD=/evil")});
    ASSERT_EQ(::seteuid(0), 0);
    AgentSocket socket(own + "/sock", {[] { return 0L; }, [](int) {}});
    EXPECT_EQ(socket.ask("/x", "\n\n", 0).body, "it is not the administrator's");
    EXPECT_EQ(socket.send("/x", ""), -1);
  }
  std::filesystem::remove_all(own);
}

}  // namespace
}  // namespace aliquot::spank
