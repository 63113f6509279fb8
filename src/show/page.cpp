#include "show/page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/percent.hpp"
#include "base/slurm_time.hpp"
#include "base/timestamp.hpp"
#include "base/units.hpp"
#include "show/files.hpp"
#include "show/gpu_metrics.hpp"

namespace aliquot::show {
namespace {

// Whatever gets into the page, nothing is loaded from elsewhere or sent there, and nothing is run
// that is not ours.
const std::vector<std::pair<std::string, std::string>> kGuards{
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"}};

constexpr std::string_view kPlaceForTables = "<!--tables-->";
// The page where no other was built.
constexpr std::string_view kBarePage =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\">"
    "<meta http-equiv=\"refresh\" content=\"10\"><title>Aliquot</title></head>"
    "<body><!--tables--></body></html>\n";

std::string cell(std::string_view text) { return "<td>" + escape_html(text) + "</td>"; }

std::string head(std::initializer_list<std::string_view> names) {
  std::string row = "<tr>";
  for (const std::string_view name : names) row += "<th>" + std::string(name) + "</th>";
  return row + "</tr>";
}

std::string job_name(const api::JobInfo& job) {
  if (!job.pod.empty()) return job.pod;
  if (job.array_task_id)
    return fmt::format("{}_{}", job.array_job_id.value_or(job.id), *job.array_task_id);
  return std::to_string(job.id) + (job.array_pending.empty() ? "" : "_[" + job.array_pending + "]");
}

// `139.8G`
std::string gigabytes(std::int64_t bytes) {
  return fmt::format("{:.1f}G", static_cast<double>(bytes) / static_cast<double>(gib(1).value()));
}

std::string holds_text(const api::JobInfo& job) {
  std::string text;
  for (const api::GpuHold& hold : job.gpus) {
    text += text.empty() ? "" : ", ";
    if (!hold.node.empty()) text += hold.node + ":";
    text += hold.whole ? fmt::format("GPU {}", hold.index)
                       : fmt::format("GPU {}: {}, {}", hold.index, gigabytes(hold.memory),
                                     format_percent(Compute(hold.compute)));
  }
  return text;
}

std::string moment(const std::optional<std::int64_t>& ms) {
  return ms ? format_timestamp(WallTime(*ms)) : "";
}

void add_gpus(std::string& out, const api::NodeInfo& node) {
  for (const api::GpuInfo& gpu : node.gpus) {
    std::string jobs;
    for (const std::int64_t job : gpu.jobs) jobs += (jobs.empty() ? "" : " ") + std::to_string(job);
    out += "<tr>" + cell(fmt::format("{} {}", node.name, gpu.index)) + cell(gpu.model) +
           cell(gigabytes(gpu.memory)) + cell(gigabytes(gpu.memory_granted)) +
           cell(gpu.stale ? "" : gigabytes(gpu.memory_used)) +
           cell(format_percent(Compute(gpu.compute_granted))) +
           cell(gpu.stale ? "" : format_percent(Compute(gpu.utilisation))) +
           cell(foreign_memory(gpu) > 0 ? gigabytes(foreign_memory(gpu)) : "") + cell(jobs) +
           cell(gpu.health == "ok" ? "" : gpu.health) + "</tr>\n";
  }
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string plain_tables(const Plain& plain) {
  const api::ClusterInfo& cluster = plain.cluster;
  std::string out =
      fmt::format("<h1>{}</h1>\n<p>{}</p>\n",
                  escape_html(cluster.nodes.empty() ? cluster.node.name : cluster.cluster),
                  escape_html(format_timestamp(plain.now)));
  out += "<h2>GPUs</h2>\n<table border=\"1\">" +
         head({"GPU", "Model", "Memory", "Granted", "Used", "Compute granted", "Busy", "Foreign",
               "Jobs", "State"}) +
         "\n";
  if (cluster.nodes.empty()) add_gpus(out, cluster.node);
  for (const api::NodeInfo& node : cluster.nodes) add_gpus(out, node);
  out += "</table>\n<h2>Running</h2>\n<table border=\"1\">" +
         head({"Job", "Name", "User", "State", "Since", "Time limit", "Holds"}) + "\n";
  for (const api::JobInfo& job : plain.jobs) {
    if (waits(job)) continue;
    out += "<tr>" + cell(job_name(job)) + cell(job.name) + cell(job.user) + cell(job.state) +
           cell(moment(job.start_ms)) +
           cell(job.time_limit_ms ? format_duration(Millis(*job.time_limit_ms), TimeStyle::squeue)
                                  : "UNLIMITED") +
           cell(holds_text(job)) + "</tr>\n";
  }
  out += fmt::format("</table>\n<h2>Waiting: {}</h2>\n<table border=\"1\">", plain.waiting) +
         head({"Job", "Name", "User", "Wants", "Why", "Expected start"}) + "\n";
  for (const api::JobInfo& job : plain.jobs) {
    if (!waits(job)) continue;
    out += "<tr>" + cell(job_name(job)) + cell(job.name) + cell(job.user) + cell(job.gres) +
           cell(job.reason_detail.empty() ? job.reason : job.reason_detail) +
           cell(moment(job.start_ms)) + "</tr>\n";
  }
  return out + "</table>\n";
}

bool has_page() { return !kPageFiles.empty(); }

net::Response front_page(const std::optional<Plain>& plain) {
  std::string text(kBarePage);
  for (const PageFile& file : kPageFiles) {
    if (file.path == "/") text = file.bytes();
  }
  if (const auto place = text.find(kPlaceForTables); place != std::string::npos) {
    text.replace(place, kPlaceForTables.size(),
                 plain ? plain_tables(*plain)
                       : "<p>This page is its owner's: 'aliquot token' prints the address that "
                         "opens it.</p>");
  }
  net::Response response{200, std::move(text), "text/html; charset=utf-8", kGuards};
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

std::optional<net::Response> page_file(const net::Request& request) {
  for (const PageFile& file : kPageFiles) {
    if (file.path != request.path || file.path == "/") continue;
    const std::string tag = '"' + std::string(file.tag) + '"';
    net::Response response{200, "", std::string(file.type), kGuards};
    response.headers.emplace_back("Cache-Control", "no-cache");
    response.headers.emplace_back("ETag", tag);
    const auto header = [&](std::string_view name) {
      const auto found = request.headers.find(name);
      return found == request.headers.end() ? std::string() : found->second;
    };
    if (header("if-none-match") == tag) {
      response.status = 304;
      return response;
    }
    response.body = file.bytes();
    response.headers.emplace_back("Content-Encoding", "gzip");
    // There is no browser without it, and whoever else asks is told what is the matter.
    if (header("accept-encoding").find("gzip") == std::string::npos) {
      return net::Response{406, "it is compressed: ask with Accept-Encoding: gzip\n", "text/plain"};
    }
    return response;
  }
  return std::nullopt;
}

}  // namespace aliquot::show
