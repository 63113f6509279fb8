#include "slurm/samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "slurm/munge.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

NodeSample sample_of(std::string node, std::vector<GpuLoad> gpus) {
  return {NodeId(std::move(node)), std::move(gpus)};
}

TEST(Samples, AreWhatTheSpecSays) {
  const auto sample = sample_of("n1", {{0, Compute(3500), Bytes(123456), Bytes(150'000'000'000)}});
  EXPECT_EQ(encode_sample(sample),
            R"({"v":1,"node":"n1","gpus":[{"index":0,"utilisation":3500,"memory_used":123456,)"
            R"("memory":150000000000}]})");
  EXPECT_EQ(decode_sample(encode_sample(sample)).value(), sample);
}

TEST(Samples, NameWhoIsThereWithoutAJob) {
  const auto sample =
      sample_of("n1", {{0, Compute(1), Bytes(2), Bytes(3), {{4'711, "eve", Bytes(1)}}}});
  EXPECT_THAT(encode_sample(sample),
              HasSubstr(R"("foreign":[{"pid":4711,"user":"eve","memory":1}])"));
  EXPECT_EQ(decode_sample(encode_sample(sample)).value(), sample);
}

TEST(Samples, UnknownFieldsAreFromTheFuture) {
  EXPECT_EQ(decode_sample(R"({"v":1,"node":"n1","gpus":[],"power":[1,2]})").value(),
            sample_of("n1", {}));
}

TEST(Samples, RefuseWhatNoAgentSays) {
  const auto why = [](std::string_view text) {
    const auto sample = decode_sample(text);
    return sample ? std::string("taken") : sample.error().message;
  };
  EXPECT_THAT(why(""), HasSubstr("not JSON"));
  EXPECT_THAT(why("[]"), HasSubstr("no object"));
  EXPECT_THAT(why(R"({"node":"n1","gpus":[]})"), HasSubstr("no v"));
  EXPECT_THAT(why(R"({"v":2,"node":"n1","gpus":[]})"), HasSubstr("version 2"));
  EXPECT_THAT(why(R"({"v":1,"gpus":[]})"), HasSubstr("names no node"));
  EXPECT_THAT(why(R"({"v":1,"node":"","gpus":[]})"), HasSubstr("names no node"));
  EXPECT_THAT(why(R"({"v":1,"node":"a b","gpus":[]})"), HasSubstr("names no node"));
  EXPECT_THAT(why(R"({"v":1,"node":"n1","gpus":{}})"), HasSubstr("no list"));
  EXPECT_THAT(why(R"({"v":1,"node":"n1","gpus":[7]})"), HasSubstr("no object"));
  const std::string gpu = R"({"index":0,"utilisation":0,"memory_used":0,"memory":0})";
  EXPECT_THAT(why(R"({"v":1,"node":"n1","gpus":[)" + gpu + "," + gpu + "]}"), HasSubstr("twice"));
  for (const std::string_view utilisation : {"10001", "-1", "1.5", "\"1\"", "null", "1e99"}) {
    EXPECT_THAT(why(fmt::format(
                    R"({{"v":1,"node":"n1","gpus":[{{"index":0,"utilisation":{},"memory_used":0,)"
                    R"("memory":0}}]}})",
                    utilisation)),
                HasSubstr("utilisation"));
  }
  for (const std::string_view foreign :
       {"{}", R"([{"pid":1,"user":"a b","memory":0}])", R"([{"user":"a","memory":0}])", "[1]",
        R"([{"pid":-1,"user":"a","memory":0}])", "[1,2,3,4,5]"}) {
    EXPECT_NE(why(fmt::format(R"({{"v":1,"node":"n1","gpus":[{{"index":0,"utilisation":0,)"
                              R"("memory_used":0,"memory":0,"foreign":{}}}]}})",
                              foreign)),
              "taken")
        << foreign;
  }
  EXPECT_THAT(why(std::string(100'000, ' ')), HasSubstr("too long"));
}

TEST(Samples, SayWhatIsWrongAndWhatJobsDo) {
  NodeSample sample{NodeId("n1"),
                    {{.index = 1,
                      .memory = gib(1),
                      .foreign = {{7, "eve", gib(1)}, {8, "bob", mib(1)}},
                      .trouble = "xid79",
                      .jobs = {{4'711, Compute(1'200), gib(2)}}}}};
  EXPECT_EQ(decode_sample(encode_sample(sample)).value(), sample);
  EXPECT_EQ(foreign_memory(sample.gpus[0]), gib(1) + mib(1));
  const auto taken = [](const std::string& more) {
    return decode_sample(R"({"v":1,"node":"n1","gpus":[{"index":0,"utilisation":0,)"
                         R"("memory_used":0,"memory":0,)" +
                         more + "}]}")
        .has_value();
  };
  EXPECT_TRUE(taken(R"("trouble":"lost")"));
  EXPECT_FALSE(taken(R"("trouble":"Lost it")"));
  EXPECT_FALSE(taken(R"("trouble":7)"));
  EXPECT_FALSE(taken(R"("jobs":[7])"));
  EXPECT_FALSE(taken(R"("jobs":[{"job":-1,"utilisation":0,"memory":0}])"));
  // A machine with more than goes into a datagram.
  sample.gpus.clear();
  for (int i = 0; i < 64; ++i) {
    sample.gpus.push_back({.index = i, .jobs = std::vector<JobUse>(kMostJobs)});
  }
  EXPECT_EQ(decode_sample(encode_sample(sample))->gpus.size(), 64U);
}

RC_GTEST_PROP(Samples, ComeBackAsTheyWere, ()) {
  const auto gpus = *rc::gen::inRange<std::int64_t>(0, 65);
  NodeSample sample{NodeId("gpu-node_7.example"), {}};
  for (std::int64_t i = 0; i < gpus; ++i) {
    sample.gpus.push_back({i, Compute(*rc::gen::inRange<std::int64_t>(0, 10'001)),
                           Bytes(*rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40)),
                           Bytes(*rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40))});
  }
  RC_ASSERT(decode_sample(encode_sample(sample)).value() == sample);
}

// A munged of our own, under /run: it trusts no folder that others than root could have made.
class Munged : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "munged needs a folder below /run: root only";
    if (std::system("command -v munged >/dev/null") != 0) GTEST_SKIP() << "munged is not here";
    std::string name = "/run/aliquot-test-munge.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    fs::permissions(folder_, fs::perms(0711));
    std::ofstream(folder_ / "key") << std::string(128, 'k');
    fs::permissions(folder_ / "key", fs::perms(0600));
    const auto start = fmt::format(
        "munged --force --socket {0}/socket --key-file {0}/key --pid-file {0}/pid --log-file "
        "{0}/log --seed-file {0}/seed 2>/dev/null",
        folder_.string());
    ASSERT_EQ(std::system(start.c_str()), 0);
  }

  void TearDown() override {
    if (folder_.empty()) return;
    stop_munged();
    fs::remove_all(folder_);
  }

  void stop_munged() {
    std::ifstream file(folder_ / "pid");
    pid_t pid = 0;
    if (!(file >> pid) || pid <= 1) return;
    // One that has only just started looks for the order before it waits for its first caller, and
    // an order that comes in between is heard with the next.
    for (int i = 0; i < 6000 && fs::exists(folder_ / "pid"); ++i) {
      ::kill(pid, SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  [[nodiscard]] std::string socket() const { return folder_ / "socket"; }

  static Result<std::optional<SampleReceiver::Sample>> wait_for(SampleReceiver& receiver) {
    pollfd ready{receiver.descriptor(), POLLIN, 0};
    ::poll(&ready, 1, 60'000);
    return receiver.receive();
  }

  // As a stranger would: straight to the port.
  static void send_raw(std::uint16_t port, const std::string& text) {
    const int raw = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::sendto(raw, text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    ::close(raw);
  }

  fs::path folder_;
};

TEST_F(Munged, SamplesArrive) {
  auto receiver = SampleReceiver::create("127.0.0.1", 0, socket()).value();
  SampleSender sender({.hosts = {"127.0.0.1"}, .port = receiver.port(), .munge_socket = socket()});
  const auto sample = sample_of("n3", {{2, Compute(7), Bytes(8), Bytes(9)}});
  sender.send(sample);
  const auto got = wait_for(receiver);
  ASSERT_TRUE(got) << got.error().message;
  ASSERT_TRUE(got->has_value());
  EXPECT_EQ((*got)->sample, sample);
  EXPECT_GT((*got)->encoded_s, 1'600'000'000);
  EXPECT_FALSE(receiver.receive().value());
}

TEST_F(Munged, EveryControllerGetsThem) {
  auto one = SampleReceiver::create("127.0.0.1", 0, socket());
  auto two = SampleReceiver::create("127.0.0.2", one->port(), socket());
  // The port may be somebody else's at the other address.
  for (int i = 0; i < 100 && !two; ++i) {
    one = SampleReceiver::create("127.0.0.1", 0, socket());
    two = SampleReceiver::create("127.0.0.2", one->port(), socket());
  }
  ASSERT_TRUE(two) << two.error().message;
  SampleSender sender({.hosts = {"127.0.0.1", "no.such.host.invalid", "127.0.0.2"},
                       .port = one->port(),
                       .munge_socket = socket()});
  sender.send(sample_of("n1", {}));
  EXPECT_TRUE(wait_for(*one).value());
  // munged lets a credential through once; in a cluster each controller has a munged of its own.
  EXPECT_THAT(wait_for(*two).error().message, HasSubstr("Replayed"));
}

TEST_F(Munged, NoiseForgeriesReplaysAndStrangersAreDropped) {
  auto receiver = SampleReceiver::create("127.0.0.1", 0, socket()).value();
  const auto why = [&](const std::string& datagram) {
    send_raw(receiver.port(), datagram);
    const auto got = wait_for(receiver);
    return got ? std::string("taken") : got.error().message;
  };
  const auto text = encode_sample(sample_of("n1", {}));
  EXPECT_THAT(why("hello"), HasSubstr("no munge credential"));
  EXPECT_THAT(why(""), HasSubstr("no munge credential"));
  EXPECT_THAT(why(text), HasSubstr("no munge credential"));
  EXPECT_THAT(why("MUNGE:" + text + ":"), HasSubstr("munge: "));
  EXPECT_THAT(why(munge_text("not a sample", socket()).value()), HasSubstr("not JSON"));

  const auto credential = munge_text(text, socket()).value();
  EXPECT_EQ(why(credential), "taken");
  EXPECT_THAT(why(credential), HasSubstr("Replayed"));
  auto forged = munge_text(text, socket()).value();
  forged[forged.size() / 2] = forged[forged.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_THAT(why(forged), HasSubstr("munge: "));

  // nobody makes one.
  const auto file = folder_ / "foreign";
  const auto made = std::system(
      fmt::format("printf '%s' '{}' >{}.txt; chmod 644 {}.txt; setpriv --reuid 65534 --regid 65534 "
                  "--clear-groups munge --socket {} --input {}.txt >{}",
                  text, file.string(), file.string(), socket(), file.string(), file.string())
          .c_str());
  ASSERT_EQ(made, 0);
  std::string foreign;
  std::ifstream(file) >> foreign;
  EXPECT_THAT(why(foreign), HasSubstr("uid 65534, who is not root"));
}

TEST_F(Munged, SendingDoesNotWaitForMunged) {
  auto receiver = SampleReceiver::create("127.0.0.1", 0, socket()).value();
  SampleSender sender({.hosts = {"127.0.0.1"}, .port = receiver.port(), .munge_socket = socket()});
  stop_munged();
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) sender.send(sample_of("n1", {}));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(60));
  EXPECT_FALSE(receiver.receive().value());
}

TEST(SampleReceiver, SaysThatThePortIsTaken) {
  const auto one = SampleReceiver::create("127.0.0.1", 0, "").value();
  const auto two = SampleReceiver::create("127.0.0.1", one.port(), "");
  ASSERT_FALSE(two);
  EXPECT_THAT(two.error().message, HasSubstr("is a balancer running already?"));
}

}  // namespace
}  // namespace aliquot::slurm
