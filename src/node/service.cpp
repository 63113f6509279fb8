#include "node/service.hpp"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

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

Result<std::optional<int>> Background::enter() {
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

void Background::ready() {
  if (pipe_ < 0) return;
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {0, 1, 2}) ::dup2(null, fd);
  ::close(null);
  [[maybe_unused]] const auto written = ::write(pipe_, "r", 1);
  ::close(std::exchange(pipe_, -1));
}

Result<void> open_log(const std::string& name, const std::string& file, const std::string& level) {
  try {
    const mode_t mask = ::umask(0077);
    auto logger =
        file.empty() ? spdlog::stderr_logger_mt(name) : spdlog::basic_logger_mt(name, file);
    ::umask(mask);
    logger->set_level(spdlog::level::from_str(level));
    logger->flush_on(spdlog::level::info);
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    spdlog::set_default_logger(logger);
  } catch (const std::exception& error) {
    return fail(Error::Code::unavailable, "cannot log: {}", error.what());
  }
  return {};
}

}  // namespace aliquot::node
