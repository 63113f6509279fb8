// nvidia-smi for simulated GPUs: -L, the table, --query-gpu and --query-compute-apps with
// --format=csv. Asks the NVML beside it and nothing else. Fields it does not know are refused as
// the real one does.
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "standin/smi/device.hpp"

namespace aliquot::standin {
namespace {

struct Format {
  bool header = true;
  bool units = true;
};

struct Field {
  const char* unit;  // "" for none
  std::function<std::string(const SmiDevice&)> value;
};

std::string with_unit(const std::string& value, const char* unit, const Format& format) {
  return *unit == '\0' || !format.units ? value : value + " " + unit;
}

const std::map<std::string, Field>& gpu_fields() {
  static const std::map<std::string, Field> fields{
      {"index", {"", [](auto& d) { return std::to_string(d.index); }}},
      {"count", {"", [](auto& d) { return std::to_string(d.count); }}},
      {"name", {"", [](auto& d) { return d.name; }}},
      {"gpu_name", {"", [](auto& d) { return d.name; }}},
      {"uuid", {"", [](auto& d) { return d.uuid; }}},
      {"gpu_uuid", {"", [](auto& d) { return d.uuid; }}},
      {"pci.bus_id", {"", [](auto& d) { return d.bus_id; }}},
      {"gpu_bus_id", {"", [](auto& d) { return d.bus_id; }}},
      {"driver_version", {"", [](auto& d) { return d.driver; }}},
      {"memory.total", {"MiB", [](auto& d) { return std::to_string(d.total >> 20); }}},
      {"memory.used", {"MiB", [](auto& d) { return std::to_string(d.used >> 20); }}},
      {"memory.free", {"MiB", [](auto& d) { return std::to_string(d.free >> 20); }}},
      {"memory.reserved", {"MiB", [](auto& d) { return std::to_string(d.reserved >> 20); }}},
      {"utilization.gpu", {"%", [](auto& d) { return std::to_string(d.utilization); }}},
      {"utilization.memory", {"%", [](auto& d) { return std::to_string(d.utilization / 2); }}},
      {"temperature.gpu", {"", [](auto& d) { return std::to_string(d.temperature); }}},
      {"power.draw", {"W", [](auto& d) { return d.watts(d.power_mw); }}},
      {"power.limit", {"W", [](auto& d) { return d.watts(d.power_limit_mw); }}},
      {"clocks.sm", {"MHz", [](auto& d) { return std::to_string(d.clock_mhz); }}},
      {"compute_mode", {"", [](auto& d) { return d.compute_mode(); }}},
      {"compute_cap", {"", [](auto& d) { return d.capability; }}},
      {"mig.mode.current", {"", [](auto& d) { return d.mig; }}},
      {"pstate", {"", [](auto&) { return std::string("P0"); }}},
      {"ecc.errors.uncorrected.volatile.total",
       {"", [](auto& d) { return std::to_string(d.ecc_uncorrected); }}},
  };
  return fields;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    item.erase(0, item.find_first_not_of(' '));
    items.push_back(item);
  }
  return items;
}

int refuse(const std::string& field) {
  std::printf("Field \"%s\" is not a valid field to query.\n\n", field.c_str());
  return 2;
}

void print_row(const std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i)
    std::printf("%s%s", i == 0 ? "" : ", ", cells[i].c_str());
  std::printf("\n");
}

int query_gpus(const std::vector<SmiDevice>& devices, const std::string& query,
               const Format& format) {
  const auto names = split(query);
  std::vector<std::string> header;
  for (const auto& name : names) {
    const auto field = gpu_fields().find(name);
    if (field == gpu_fields().end()) return refuse(name);
    const std::string unit = field->second.unit;
    header.push_back(name);
    if (!unit.empty()) header.back().append(" [").append(unit).append("]");
  }
  if (format.header) print_row(header);
  for (const SmiDevice& device : devices) {
    std::vector<std::string> cells;
    for (const auto& name : names) {
      const Field& field = gpu_fields().at(name);
      cells.push_back(device.lost ? "[GPU is lost]"
                                  : with_unit(field.value(device), field.unit, format));
    }
    print_row(cells);
  }
  return 0;
}

int query_apps(const std::vector<SmiDevice>& devices, const std::string& query,
               const Format& format) {
  using Cell = std::function<std::string(const SmiDevice&, const SmiProcess&)>;
  const Cell memory = [&](auto&, auto& p) {
    return with_unit(std::to_string(p.bytes >> 20), "MiB", format);
  };
  const Cell name_of = [](auto&, auto& p) { return p.name; };
  const std::map<std::string, std::pair<std::string, Cell>> fields{
      {"pid", {"pid", [](auto&, auto& p) { return std::to_string(p.pid); }}},
      {"process_name", {"process_name", name_of}},
      {"name", {"process_name", name_of}},
      {"used_memory", {"used_gpu_memory [MiB]", memory}},
      {"used_gpu_memory", {"used_gpu_memory [MiB]", memory}},
      {"gpu_uuid", {"gpu_uuid", [](auto& d, auto&) { return d.uuid; }}},
      {"gpu_name", {"gpu_name", [](auto& d, auto&) { return d.name; }}},
      {"gpu_bus_id", {"gpu_bus_id", [](auto& d, auto&) { return d.bus_id; }}},
  };
  const auto names = split(query);
  std::vector<std::string> header;
  for (const auto& name : names) {
    if (!fields.contains(name)) return refuse(name);
    header.push_back(fields.at(name).first);
  }
  if (format.header) print_row(header);
  for (const SmiDevice& device : devices)
    for (const SmiProcess& process : device.processes) {
      std::vector<std::string> cells;
      cells.reserve(names.size());
      for (const auto& name : names) cells.push_back(fields.at(name).second(device, process));
      print_row(cells);
    }
  return 0;
}

void print_table(const std::vector<SmiDevice>& devices) {
  char when[64];
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  std::strftime(when, sizeof when, "%a %b %e %H:%M:%S %Y", &parts);
  const std::string driver = devices.empty() ? "" : devices[0].driver;
  constexpr char kRule[] =
      "+-----------------------------------------+------------------------+----------------------+";
  constexpr char kWide[] =
      "+-----------------------------------------------------------------------------------------+";
  std::printf("%s       \n%s\n", when, kWide);
  std::printf("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-9s|\n", "(simulated GPUs)",
              driver.c_str(), "13.0");
  std::printf("%s\n", kRule);
  std::printf(
      "| GPU  Name                               | Bus-Id                 | GPU-Util  Compute M. "
      "|\n");
  std::printf(
      "|      Temp            Pwr:Usage/Cap      |           Memory-Usage |                      "
      "|\n");
  std::printf(
      "|=========================================+========================+======================|"
      "\n");
  for (const SmiDevice& d : devices) {
    if (d.lost) {
      std::printf("| %3u  %-35.35s| %-23s| %-21s|\n%s\n", d.index, "GPU is lost", "", "ERR!",
                  kRule);
      continue;
    }
    std::printf("| %3u  %-35.35s| %-23s| %7u%%  %10s |\n", d.index, d.name.c_str(),
                d.bus_id.c_str(), d.utilization, d.compute_mode().c_str());
    std::printf("|      %3uC         %6uW / %4uW       | %7lluMiB /%7lluMiB  | %20s |\n%s\n",
                d.temperature, d.power_mw / 1000, d.power_limit_mw / 1000, d.used >> 20,
                d.total >> 20, "", kRule);
  }
  std::printf("\n%s\n| Processes:%78s|\n", kWide, "");
  std::printf(
      "|  GPU              PID   Type   Process name                                  GPU Memory "
      "|\n");
  std::printf(
      "|=========================================================================================|"
      "\n");
  bool any = false;
  for (const SmiDevice& d : devices)
    for (const SmiProcess& p : d.processes) {
      std::printf("| %4u %16u %6s   %-44.44s %8lluMiB |\n", d.index, p.pid, p.client ? "M+C" : "C",
                  p.name.c_str(), p.bytes >> 20);
      any = true;
    }
  if (!any) std::printf("|  No running processes found%62s|\n", "");
  std::printf("%s\n", kWide);
}

constexpr char kUsage[] =
    "usage: nvidia-smi [-L] [-i INDEX|UUID] [--query-gpu=FIELD,… | --query-compute-apps=FIELD,…]\n"
    "                  [--format=csv[,noheader][,nounits]]\n"
    "Shows the simulated GPUs of the stand-in driver.\n";

int run(int argc, char** argv) {
  std::string gpu_query;
  std::string app_query;
  std::string only;
  bool list = false;
  Format format;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&](const char* name) {
      const std::size_t length = std::strlen(name);
      return option.compare(0, length, name) == 0 ? option.substr(length) : std::string();
    };
    if (option == "-L" || option == "--list-gpus")
      list = true;
    else if (option == "-i" && i + 1 < argc)
      only = argv[++i];
    else if (!value("--id=").empty())
      only = value("--id=");
    else if (!value("--query-gpu=").empty())
      gpu_query = value("--query-gpu=");
    else if (!value("--query-compute-apps=").empty())
      app_query = value("--query-compute-apps=");
    else if (!value("--format=").empty()) {
      format.header = option.find("noheader") == std::string::npos;
      format.units = option.find("nounits") == std::string::npos;
    } else {
      const bool help = option == "-h" || option == "--help";
      std::fputs(kUsage, help ? stdout : stderr);
      return help ? 0 : 2;
    }
  }
  std::vector<SmiDevice> devices;
  if (const char* error = read_devices(only, &devices); error != nullptr) {
    std::printf("NVIDIA-SMI has failed: %s\n", error);
    return 9;
  }
  if (!gpu_query.empty()) return query_gpus(devices, gpu_query, format);
  if (!app_query.empty()) return query_apps(devices, app_query, format);
  if (list)
    for (const SmiDevice& d : devices)
      if (d.lost)
        std::printf("Unable to determine the device handle for gpu %u: GPU is lost\n", d.index);
      else
        std::printf("GPU %u: %s (UUID: %s)\n", d.index, d.name.c_str(), d.uuid.c_str());
  else
    print_table(devices);
  return 0;
}

}  // namespace
}  // namespace aliquot::standin

int main(int argc, char** argv) { return aliquot::standin::run(argc, argv); }
