#include "core/request_words.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/size.hpp"
#include "base/text.hpp"
#include "core/request_parse.hpp"

namespace aliquot::core {
namespace {

using Code = Error::Code;

enum Key : std::size_t {
  gres,
  gpus,
  gpus_per_node,
  gpus_per_task,
  gpu_mem,
  gpu_share,
  constraint,
  ntasks,
  nodes,
  cpus_per_task,
  mem,
};
constexpr std::size_t kKeys = mem + 1;
using Written = std::array<std::optional<std::string>, kKeys>;

struct Option {
  std::string_view name;
  char letter;  // 0: none
};
constexpr std::array<Option, kKeys> kOptions{{{"gres", 0},
                                              {"gpus", 'G'},
                                              {"gpus-per-node", 0},
                                              {"gpus-per-task", 0},
                                              {"gpu-mem", 0},
                                              {"gpu-share", 0},
                                              {"constraint", 'C'},
                                              {"ntasks", 'n'},
                                              {"nodes", 'N'},
                                              {"cpus-per-task", 'c'},
                                              {"mem", 0}}};

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBlanks = " \t";
  while (true) {
    const auto start = text.find_first_not_of(kBlanks);
    if (start == text.npos) return words;
    text.remove_prefix(start);
    const auto word = text.substr(0, text.find_first_of(kBlanks));
    words.push_back(word);
    text.remove_prefix(word.size());
  }
}

struct Match {
  std::size_t key;
  std::optional<std::string_view> value;  // nothing: the next word
};

Result<Match> match_option(std::string_view word) {
  if (!word.starts_with('-')) return Match{gres, word};
  const auto equals = word.find('=');
  for (std::size_t key = 0; key < kKeys; ++key) {
    const auto& option = kOptions[key];
    if (option.letter != 0 && word.size() >= 2 && word[1] == option.letter) {
      if (word.size() == 2) return Match{key, std::nullopt};
      return Match{key, word.substr(2)};
    }
    if (word.starts_with("--") && word.substr(2, equals - 2) == option.name) {
      if (equals == word.npos) return Match{key, std::nullopt};
      return Match{key, word.substr(equals + 1)};
    }
  }
  return fail(Code::invalid_argument,
              "{} is no option of a request: write words such as gpu:1, --gpu-mem=8G or "
              "--cpus-per-task=2",
              quote(word));
}

Result<Written> read_words(std::string_view text) {
  Written written;
  const auto words = split_words(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto match = TRY(match_option(words[i]));
    if (!match.value) {
      if (++i == words.size()) {
        return fail(Code::invalid_argument, "--{} wants a value: write it after the option",
                    kOptions[match.key].name);
      }
      match.value = words[i];
    }
    auto& value = written[match.key];
    if (value) {
      return fail(Code::invalid_argument, "--{} is given as {} and as {}: write only one of them",
                  kOptions[match.key].name, quote(*value), quote(*match.value));
    }
    value = *match.value;
  }
  return written;
}

Result<std::int64_t> parse_natural(std::string_view option,
                                   const std::optional<std::string>& text) {
  if (!text) return 1;
  const auto number = parse_digits(*text);
  if (!number || *number == 0) {
    return fail(Code::invalid_argument, "{}={} is not a number we can use: write at least 1",
                option, quote(*text));
  }
  return *number;
}

Result<CpuMilli> parse_cpus(const Written& written, std::int64_t tasks, std::int64_t over) {
  if (!written[cpus_per_task]) return CpuMilli(0);
  const auto per_task = parse_decimal(*written[cpus_per_task], kOneCpu.value());
  if (!per_task || *per_task == 0) {
    return fail(Code::invalid_argument,
                "--cpus-per-task={} is not a number of CPUs: write one such as 2 or 0.5",
                quote(*written[cpus_per_task]));
  }
  if (tasks % over != 0) {
    return fail(Code::invalid_argument,
                "--ntasks={} do not spread evenly over {} nodes: write a multiple of {}", tasks,
                over, over);
  }
  const auto cpus = checked_mul(CpuMilli(*per_task), tasks / over);
  if (!cpus) {
    return fail(Code::out_of_range, "--cpus-per-task={} times {} tasks is more than we can count",
                quote(*written[cpus_per_task]), tasks);
  }
  return *cpus;
}

Result<Bytes> parse_memory(const Written& written) {
  if (!written[mem]) return Bytes(0);
  const auto memory = parse_size(*written[mem]);
  if (!memory) return fail(memory.error().code, "--mem: {}", memory.error().message);
  if (*memory == Bytes(0)) {
    return fail(Code::invalid_argument,
                "--mem={} says nothing here: write a size such as 8G, or leave it out",
                quote(*written[mem]));
  }
  return *memory;
}

}  // namespace

Result<Request> parse_request(std::string_view words) {
  auto written = TRY(read_words(words));
  const auto tasks = TRY(parse_natural("--ntasks", written[ntasks]));
  const auto over = TRY(parse_natural("--nodes", written[nodes]));
  const GpuOptions options{.gres = written[gres],
                           .gpus = written[gpus],
                           .gpus_per_node = written[gpus_per_node],
                           .gpus_per_task = written[gpus_per_task],
                           .gpu_mem = written[gpu_mem],
                           .gpu_share = written[gpu_share],
                           .constraint = written[constraint],
                           .tasks = tasks,
                           .nodes = over};
  Request request;
  request.gpus = TRY(parse_gpu_options(options));
  request.cpus = TRY(parse_cpus(written, tasks, over));
  request.memory = TRY(parse_memory(written));
  return request;
}

}  // namespace aliquot::core
