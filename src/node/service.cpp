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

#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/program.hpp"

namespace aliquot::node {

namespace fs = std::filesystem;

fs::path find_part(const std::vector<fs::path>& places, const fs::path& fallback) {
  std::error_code error;
  const fs::path here = sys::own_program().parent_path();
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
    sys::Pipe pipe = sys::make_pipe();
    if (!pipe) return fail(Error::Code::unavailable, "cannot make a pipe");
    const pid_t child = ::fork();
    if (child < 0) return fail(Error::Code::unavailable, "cannot fork");
    if (child == 0) {
      ::setsid();
      parent_ = std::move(pipe.write);
      return std::optional<int>();
    }
    pipe.write.reset();
    char byte = 0;
    if (::read(pipe.read.get(), &byte, 1) == 1) return std::optional<int>(0);
    int status = 0;
    ::waitpid(child, &status, 0);
    return std::optional<int>(1);
  }

  // From here on nobody reads what the child would say.
  void ready() {
    if (!parent_) return;
    const sys::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int fd : {0, 1, 2}) ::dup2(null.get(), fd);
    sys::write_all(parent_.get(), "r");
    parent_.reset();
  }

 private:
  sys::Fd parent_;  // who waits until we serve
};

// A file that can be opened anew while others write to it, and that no program of ours inherits.
class LogFile final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  Result<void> open() {
    sys::Fd file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (!file) return sys::system_error(errno, "cannot log to", path_);
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
  sys::Fd file_;
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

std::optional<int> read_options(int argc, char** argv, const Program& program,
                                const std::vector<ProgramOption>& rows) {
  constexpr int kFirst = 256;
  const auto help = kFirst + static_cast<int>(rows.size());
  std::vector<option> known;
  std::string lines;
  for (const ProgramOption& row : rows) {
    const bool flag = std::holds_alternative<bool*>(row.into);
    known.push_back({row.name, flag ? no_argument : required_argument, nullptr,
                     kFirst + static_cast<int>(known.size())});
    lines += fmt::format("  {:<20}{}\n", fmt::format("--{} {}", row.name, row.value), row.help);
  }
  known.push_back({"help", no_argument, nullptr, help});
  known.push_back({"version", no_argument, nullptr, help + 1});
  known.push_back({nullptr, 0, nullptr, 0});
  for (int choice = 0; (choice = ::getopt_long(argc, argv, "", known.data(), nullptr)) != -1;) {
    if (choice == help) {
      fmt::print("{0} - {1}\n\nusage: {0} [option…]\n\n{2}  --help, --version\n\n{3}\n",
                 program.name, program.purpose, lines, program.remarks);
      return 0;
    }
    if (choice == help + 1) {
      fmt::print("{} {}\n", program.name, program.version);
      return 0;
    }
    if (choice < kFirst) return complain(program.name, "try --help");
    const auto& into = rows[static_cast<std::size_t>(choice - kFirst)].into;
    if (bool* const* flag = std::get_if<bool*>(&into)) {
      **flag = true;
    } else {
      *std::get<std::string*>(into) = optarg;
    }
  }
  if (optind < argc) {
    return complain(program.name, fmt::format("what is {}? Try --help", quote(argv[optind])));
  }
  return std::nullopt;
}

int service_main(int argc, char** argv, const Program& program,
                 const std::function<int(const ServiceOptions&)>& run) {
  try {
    ServiceOptions options;
    const std::string settings = fmt::format("read the settings from here ({})", program.config);
    const std::string log =
        fmt::format("log to this file (in the background: /var/log/{}.log)", program.name);
    const auto status = read_options(
        argc, argv, program,
        {{"config", "FILE", settings, &options.config},
         {"foreground", "", "stay in the foreground, log to stderr", &options.foreground},
         {"log", "FILE", log, &options.log},
         {"log-level", "LEVEL", "debug, info, warn or error (info)", &options.level}});
    return status ? *status : run(options);
  } catch (const std::exception& error) {
    return complain(program.name, error.what());
  }
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
