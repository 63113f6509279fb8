// sdiag: what the daemon counts of its own work, in Slurm's layout, so that what reads the one
// reads the other. The requests are those of our API.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/query.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kSdiagPrefix = "slurm_get_statistics";

std::string date_and_epoch(std::int64_t ms) {
  const std::time_t second = ms / 1'000;
  std::tm local{};
  ::localtime_r(&second, &local);
  std::array<char, 64> text{};
  const auto size = std::strftime(text.data(), text.size(), "%a %b %d %H:%M:%S %Y", &local);
  return fmt::format("{} ({})", std::string_view(text.data(), size), second);
}

std::int64_t mean(std::int64_t total, std::int64_t count) { return count > 0 ? total / count : 0; }

std::int64_t clock_latency_us() {
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 1'000; ++i) (void)std::chrono::system_clock::now();
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                               begun)
      .count();
}

std::string summary(const api::Statistics& all) {
  const std::string stars(55, '*');
  std::string out = fmt::format("{0}\nsdiag output at {1}\nData since      {2}\n{0}\n", stars,
                                date_and_epoch(all.now_ms), date_and_epoch(all.since_ms));
  // One loop does it all, and sends nothing to other machines.
  out +=
      "Server thread count:  1\nAgent queue size:     0\nAgent count:          0\n"
      "Agent thread count:   0\nDBD Agent queue size: 0\n\n";
  out += fmt::format(
      "Jobs submitted: {}\nJobs started:   {}\nJobs completed: {}\nJobs canceled:  {}\n"
      "Jobs failed:    {}\n\n",
      all.submitted, all.started, all.completed, all.canceled, all.failed);
  out += fmt::format("Job states ts:  {}\nJobs pending:   {}\nJobs running:   {}\n\n",
                     date_and_epoch(all.now_ms), all.pending, all.running);
  out += fmt::format(
      "Main schedule statistics (microseconds):\n\tLast cycle:   {}\n\tMax cycle:    {}\n"
      "\tTotal cycles: {}\n",
      all.cycle_last_us, all.cycle_max_us, all.cycles);
  if (all.cycles > 0) {
    out += fmt::format("\tMean cycle:   {}\n\tMean depth cycle:  {}\n",
                       mean(all.cycle_total_us, all.cycles), mean(all.depth_total, all.cycles));
  }
  out += fmt::format("\tLast queue length: {}\n\n", all.queue_last);
  // Backfilling is part of every cycle.
  out += fmt::format(
      "Backfilling stats\n\tTotal backfilled jobs (since last slurm start): {0}\n"
      "\tTotal backfilled jobs (since last stats cycle start): {0}\n"
      "\tTotal backfilled heterogeneous job components: 0\n\tTotal cycles: {1}\n"
      "\tLast cycle when: N/A\n\tLast cycle: {2}\n\tMax cycle:  {3}\n\tLast depth cycle: {4}\n"
      "\tLast depth cycle (try sched): {4}\n\tLast queue length: {4}\n\tLast table size: 0\n\n",
      all.backfilled, all.cycles, all.cycle_last_us, all.cycle_max_us, all.queue_last);
  out += fmt::format("Latency for 1000 calls to gettimeofday(): {} microseconds\n\n",
                     clock_latency_us());
  return out;
}

// By count, unless asked otherwise.
template <class Counted>
void sort_counted(std::vector<Counted>& rows, const OptionSet& options) {
  if (options.has("sort-by-id")) return;
  std::ranges::stable_sort(rows, [&](const Counted& a, const Counted& b) {
    if (options.has("sort-by-time2")) return mean(a.total_us, a.count) > mean(b.total_us, b.count);
    if (options.has("sort-by-time")) return a.total_us > b.total_us;
    return a.count > b.count;
  });
}

std::string requests_text(api::Statistics all, const OptionSet& options) {
  std::string out = "Remote Procedure Call statistics by message type\n";
  const auto row = [&](std::string_view name, int width, std::int64_t number, int digits,
                       const auto& one) {
    out += fmt::format("\t{:<{}} ({:>{}}) count:{:<6} ave_time:{:<6} total_time:{}\n", name, width,
                       number, digits, one.count, mean(one.total_us, one.count), one.total_us);
  };
  std::int64_t number = 0;
  sort_counted(all.requests, options);
  for (const api::RequestCount& one : all.requests) row(one.name, 39, ++number, 5, one);
  out += "\nRemote Procedure Call statistics by user\n";
  sort_counted(all.users, options);
  for (const api::UserRequests& one : all.users) row(one.user, 15, one.uid, 8, one);
  return out + "\nPending RPC statistics\n\tNo pending RPCs\n";
}

}  // namespace

int run_sdiag(int argc, char** argv) {
  Voice voice("sdiag");
  const auto call = read_call(SlurmCommand::sdiag, argc, argv, voice);
  if (!call) return call.error();
  auto daemon = open_daemon(call->options, voice, kSdiagPrefix);
  if (!daemon) return daemon.error();
  if (call->options.has("reset")) {
    if (const auto done = daemon->send("POST", "/v1/statistics/reset"); !done) {
      load_failed("slurm_reset_statistics", done.error());
      return 255;  // what exit(-1) becomes
    }
    return print("Reset scheduling statistics\n");
  }
  const auto all = daemon->get<api::Statistics>("/v1/statistics");
  if (!all) return load_failed(kSdiagPrefix, all.error());
  return print(summary(*all) + requests_text(*all, call->options));
}

}  // namespace aliquot::cli
