#include "standin/load/options.hpp"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace aliquot::standin {
namespace {

// "2G", "512M", "64K" or bytes; nothing when it is none of them.
std::optional<std::uint64_t> size_of(const char* text) {
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  std::string_view unit = end;
  if (end == text || number < 0) return std::nullopt;
  if (unit.ends_with("iB"))
    unit.remove_suffix(2);
  else if (unit.ends_with("B"))
    unit.remove_suffix(1);
  double factor = 1;
  if (unit == "K")
    factor = 1024;
  else if (unit == "M")
    factor = 1024.0 * 1024;
  else if (unit == "G")
    factor = 1024.0 * 1024 * 1024;
  else if (!unit.empty())
    return std::nullopt;
  return static_cast<std::uint64_t>(number * factor);
}

bool is_kind(std::string_view kind) {
  for (const char* known : {"alloc", "async", "vmm", "managed", "array", "pitch"})
    if (kind == known) return true;
  return false;
}

std::nullopt_t complain(const char* option, const char* value, const char* expected) {
  std::fprintf(stderr, "aliquot-load: %s: '%s' is not %s\n", option, value, expected);
  return std::nullopt;
}

}  // namespace

const char* help_text() {
  return "usage: aliquot-load [options]\n"
         "Loads a GPU: allocates memory, computes, and faults on request. Works with any driver "
         "that the\n"
         "loader finds as libcuda.so.1, real or simulated.\n"
         "\n"
         "  --device N       which of the visible GPUs (0)\n"
         "  --mem SIZE       memory to allocate, e.g. 2G or 512M\n"
         "  --step SIZE      in pieces of this size (64M)\n"
         "  --kind KIND      alloc, async, vmm, managed, array or pitch (alloc)\n"
         "  --grow           allocate until the driver refuses, or --mem is reached; being refused "
         "is no error\n"
         "  --seconds S      keep the memory and compute for that long (0)\n"
         "  --busy P%        compute that part of the time; 0% only keeps the memory (100%)\n"
         "  --kernels N      compute N kernels, however long it takes: say their --iterations too\n"
         "  --pause MS       with --kernels: rest so many milliseconds behind each (0)\n"
         "  --iterations N   size of one kernel (as many as take about 2 ms)\n"
         "  --blocks N       blocks of one kernel (as many as fill the GPU)\n"
         "  --verify         write, compute on and read back a little of every piece\n"
         "  --fault          end with an illegal memory access\n"
         "  --json           one JSON object on standard output\n"
         "  --help           this text\n"
         "\n"
         "exit: 0 done, 2 usage, 3 no driver or device, 4 out of memory, 5 CUDA error, 6 wrong "
         "result\n";
}

std::optional<Options> parse_options(int argc, char** argv) {
  enum Name {
    device,
    mem,
    step,
    kind,
    grow,
    seconds,
    busy,
    kernels,
    pause,
    iterations,
    blocks,
    verify,
    fault,
    json,
    help
  };
  constexpr option kOptions[] = {{"device", required_argument, nullptr, device},
                                 {"mem", required_argument, nullptr, mem},
                                 {"step", required_argument, nullptr, step},
                                 {"kind", required_argument, nullptr, kind},
                                 {"grow", no_argument, nullptr, grow},
                                 {"seconds", required_argument, nullptr, seconds},
                                 {"busy", required_argument, nullptr, busy},
                                 {"kernels", required_argument, nullptr, kernels},
                                 {"pause", required_argument, nullptr, pause},
                                 {"iterations", required_argument, nullptr, iterations},
                                 {"blocks", required_argument, nullptr, blocks},
                                 {"verify", no_argument, nullptr, verify},
                                 {"fault", no_argument, nullptr, fault},
                                 {"json", no_argument, nullptr, json},
                                 {"help", no_argument, nullptr, help},
                                 {nullptr, 0, nullptr, 0}};
  Options o;
  for (int name = 0; (name = getopt_long(argc, argv, "h", kOptions, nullptr)) != -1;) {
    char* end = nullptr;
    switch (name) {
      case device:
        o.device = std::atoi(optarg);
        break;
      case mem:
      case step: {
        const auto size = size_of(optarg);
        if (!size || (name == step && *size == 0))
          return complain(name == mem ? "--mem" : "--step", optarg, "a size like 2G or 512M");
        (name == mem ? o.memory : o.step) = *size;
        break;
      }
      case kind:
        if (!is_kind(optarg))
          return complain("--kind", optarg, "one of alloc, async, vmm, managed, array, pitch");
        o.kind = optarg;
        break;
      case seconds:
        o.seconds = std::strtod(optarg, &end);
        if (end == optarg || *end != '\0' || o.seconds < 0)
          return complain("--seconds", optarg, "a number of seconds");
        break;
      case busy:
        o.busy = std::strtod(optarg, &end) / 100;
        if (end == optarg || (*end != '\0' && *end != '%') || o.busy < 0 || o.busy > 1)
          return complain("--busy", optarg, "a percentage from 0% to 100%");
        break;
      case kernels:
        o.kernels = std::strtoull(optarg, &end, 10);
        if (end == optarg || *end != '\0' || *optarg == '-' || o.kernels == 0)
          return complain("--kernels", optarg, "a number of kernels");
        break;
      case pause:
        o.pause = std::strtod(optarg, &end) / 1000;
        if (end == optarg || *end != '\0' || !(o.pause >= 0))
          return complain("--pause", optarg, "a number of milliseconds");
        break;
      case iterations:
        o.iterations = std::strtoull(optarg, nullptr, 10);
        break;
      case blocks:
        o.blocks = static_cast<unsigned>(std::strtoul(optarg, nullptr, 10));
        break;
      case grow:
        o.grow = true;
        break;
      case verify:
        o.verify = true;
        break;
      case fault:
        o.fault = true;
        break;
      case json:
        o.json = true;
        break;
      case help:
      case 'h':
        o.help = true;
        break;
      default:
        std::fprintf(stderr, "aliquot-load: try --help\n");
        return std::nullopt;
    }
  }
  if (optind < argc) {
    std::fprintf(stderr, "aliquot-load: '%s' is not an option; try --help\n", argv[optind]);
    return std::nullopt;
  }
  if (o.kernels != 0 && (o.iterations == 0 || o.seconds != 0 || o.busy != 1)) {
    std::fprintf(stderr,
                 "aliquot-load: --kernels is a fixed amount of work: say --iterations with it, and "
                 "neither --seconds nor --busy\n");
    return std::nullopt;
  }
  if (o.pause != 0 && o.kernels == 0) {
    std::fprintf(stderr, "aliquot-load: --pause goes with --kernels\n");
    return std::nullopt;
  }
  return o;
}

}  // namespace aliquot::standin
