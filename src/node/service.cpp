#include "node/service.hpp"

#include <fcntl.h>
#include <getopt.h>
#include <linux/close_range.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "node/file.hpp"
#include "node/process.hpp"

namespace aliquot::node {

namespace fs = std::filesystem;

fs::path find_part(const std::vector<fs::path>& places, const fs::path& fallback) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : places) {
    if (fs::exists(here / place, error)) return fs::weakly_canonical(here / place, error);
  }
  return fallback;
}

int complain(const std::string& name, std::string_view text) {
  fmt::print(stderr, "{}: {}\n", name, text);
  return 1;
}

namespace {

class Background {
 public:
  // The parent's exit status; nothing: we are the child.
  Result<std::optional<int>> enter() {
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
      return fail(Error::Code::unavailable, "cannot make a pipe");
    }
    const pid_t child = ::fork();
    if (child < 0) return fail(Error::Code::unavailable, "cannot fork");
    if (child == 0) {
      ::close(pipe[0]);
      ::setsid();
      pipe_ = pipe[1];
      return std::optional<int>();
    }
    ::close(pipe[1]);
    char byte = 0;
    if (::read(pipe[0], &byte, 1) == 1) return std::optional<int>(0);
    int status = 0;
    ::waitpid(child, &status, 0);
    return std::optional<int>(1);
  }

  // From here on nobody reads what the child would say.
  void ready() {
    if (pipe_ < 0) return;
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {0, 1, 2}) ::dup2(null, fd);
    ::close(null);
    [[maybe_unused]] const auto written = ::write(pipe_, "r", 1);
    ::close(std::exchange(pipe_, -1));
  }

 private:
  int pipe_ = -1;
};

// A file that can be opened anew while others write to it, and that no program of ours inherits.
class LogFile final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  Result<void> open() {
    Fd file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (!file) return system_error(errno, "cannot log to", path_);
    const std::lock_guard lock(mutex_);
    file_ = std::move(file);
    return {};
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    // On a full disk there is nobody to tell.
    [[maybe_unused]] const auto written = ::write(file_.get(), text.data(), text.size());
  }
  void flush_() override {}

  std::string path_;
  Fd file_;
};

Result<void> open_log(const std::string& name, const std::string& file, const std::string& level) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    auto opened = std::make_shared<LogFile>(file);
    TRY(opened->open());
    sink = std::move(opened);
  }
  auto logger = std::make_shared<spdlog::logger>(name, std::move(sink));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace

std::optional<int> read_service_options(int argc, char** argv, const Program& program,
                                        ServiceOptions& options) {
  enum : int { kConfig = 256, kForeground, kLog, kLevel, kHelp, kVersion };
  static constexpr std::array<option, 7> kOptions{{
      {"config", required_argument, nullptr, kConfig},
      {"foreground", no_argument, nullptr, kForeground},
      {"log", required_argument, nullptr, kLog},
      {"log-level", required_argument, nullptr, kLevel},
      {"help", no_argument, nullptr, kHelp},
      {"version", no_argument, nullptr, kVersion},
      {nullptr, 0, nullptr, 0},
  }};
  for (int choice = 0; (choice = ::getopt_long(argc, argv, "", kOptions.data(), nullptr)) != -1;) {
    switch (choice) {
      case kConfig:
        options.config = optarg;
        break;
      case kForeground:
        options.foreground = true;
        break;
      case kLog:
        options.log = optarg;
        break;
      case kLevel:
        options.level = optarg;
        break;
      case kHelp:
        std::fputs(program.help, stdout);
        return 0;
      case kVersion:
        fmt::print("{} {}\n", program.name, program.version);
        return 0;
      default:
        return complain(program.name, "try --help");
    }
  }
  if (optind < argc) {
    return complain(program.name, fmt::format("what is {}? Try --help", quote(argv[optind])));
  }
  return std::nullopt;
}

Result<void> reopen_log(const std::string& level) {
  const auto logger = spdlog::default_logger();
  logger->set_level(spdlog::level::from_str(level));
  for (const auto& sink : logger->sinks()) {
    if (auto* file = dynamic_cast<LogFile*>(sink.get())) TRY(file->open());
  }
  return {};
}

int run_service(const std::string& name, const ServiceOptions& options,
                const std::function<Result<void>(const std::function<void()>& ready)>& serve) {
  std::string log = options.log;
  Background background;
  if (!options.foreground) {
    const auto status = background.enter();
    if (!status) return complain(name, status.error().message);
    if (*status) return **status;
    if (log.empty()) log = "/var/log/" + name + ".log";
  }
  if (const auto opened = open_log(name, log, options.level); !opened) {
    return complain(name, opened.error().message);
  }
  // What we were started with, and the log: for nobody that we start.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  const auto done = serve([&] { background.ready(); });
  if (done) return 0;
  if (!log.empty()) spdlog::error("{}", done.error().message);
  return complain(name, done.error().message);
}

}  // namespace aliquot::node
