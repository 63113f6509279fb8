#include "cli/view/top_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/slurm_time.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

using api::JobInfo;

constexpr std::size_t kWide = 104;  // from here on jobs have their minute, too
constexpr std::int64_t kNearlyFull = 95;

constexpr std::string_view kTopKeys =
    "  s  < >     the order of the jobs: busy, memory, time, job, user\n"
    "  r          the other way round\n"
    "  /          only jobs with these letters: in the id, user, name, partition,\n"
    "             state or GPUs\n"
    "  u          only my jobs, or all\n"
    "  p          with those that wait, or without\n"
    "  g          some GPUs, all, or none\n"
    "  ↑ ↓ j k    one job up or down; PgUp, PgDn, Home, End\n"
    "  space      look again\n"
    "  q          quit\n"
    "\n"
    "  LAST MINUTE is twenty times three seconds. A job's BUSY is its own use.\n";

struct ShownJob {
  const JobInfo* job;
  JobUse use;
};

std::int64_t memory_share(const JobInfo& job) {
  std::int64_t memory = 0;
  for (const auto& hold : job.gpus) memory += hold.memory;
  return memory;
}

bool is_wanted(const JobInfo& job, const TopView& view, const Looking& looking) {
  if (view.mine && job.uid != looking.uid) return false;
  if (view.filter.empty()) return true;
  const auto wanted = to_lower(view.filter);
  for (const auto& text : {job_id_text(job), job.user, job.name, job.partition, job.state,
                           gpu_share_text(job), job.gres}) {
    if (to_lower(text).find(wanted) != std::string::npos) return true;
  }
  return false;
}

class TopPage {
 public:
  TopPage(const api::Overview& overview, const Looking& looking, TopView& view,
          const TopHistory& history, const Paint& paint)
      : overview_(overview),
        cluster_(overview.cluster),
        looking_(looking),
        view_(view),
        history_(history),
        paint_(paint) {}

  std::string text() {
    std::string out = head();
    if (view_.help) {
      out += "\n" + std::string(kTopKeys);
      out += fmt::format(
          "\n  {}: used · {}: held, and idle for a minute\n"
          "  {}: broken, or a job whose memory is nearly full\n",
          paint_.green("green"), paint_.yellow("yellow"), paint_.red("red"));
    } else {
      out += gpus();
      out += "\n" + jobs(view_.lines == 0 ? 0 : lines_left(out));
      out += unseen(cluster_, paint_);
    }
    if (view_.lines == 0) return out;
    return clip(out, view_.lines - 1, view_.columns) + filling(out) + footer();
  }

 private:
  std::string head() {
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    for (const auto& job : overview_.jobs) {
      if (is_active(job)) ++running;
      if (is_pending(job)) waiting += job_count(job);
    }
    return fmt::format("{} · {} running, {} waiting · {}\n",
                       format_timestamp(looking_.now).substr(11), running, waiting,
                       usage_line(cluster_, paint_));
  }

  std::string gpus() {
    if (view_.gpus == TopGpus::none) return "";
    std::size_t total = 0;
    std::size_t width = 0;
    for (const auto* node : nodes_of(cluster_)) {
      total += node->gpus.size();
      if (!cluster_.nodes.empty())
        width = std::max<std::size_t>(width, std::max<std::size_t>(node->name.size(), 4) + 1);
    }
    if (total == 0) return "";
    std::size_t most = total;
    // Half of the screen, unless all are wanted.
    if (view_.lines > 0 && view_.gpus == TopGpus::some) {
      most = std::max<std::size_t>(view_.lines / 2, 6) - 3;
    }
    std::string out =
        paint_.dim(fmt::format("  {:<{}}GPU    BUSY  LAST MINUTE           GRANTED     USED  {}",
                               width == 0 ? "" : "NODE", width, title(jobs_word(cluster_)))) +
        "\n";
    const auto numbers = by_id(overview_.jobs);
    std::size_t shown = 0;
    for (const auto* node : nodes_of(cluster_)) {
      for (const auto& gpu : node->gpus) {
        if (shown == most && total > most + 1) {
          return out + paint_.dim(fmt::format("  … and {} more: g", total - shown)) + "\n";
        }
        out += gpu_line(*node, gpu, width, numbers);
        ++shown;
      }
    }
    return out;
  }

  std::string gpu_line(const api::NodeInfo& node, const api::GpuInfo& gpu, std::size_t width,
                       const JobsById& numbers) const {
    const auto cells = history_.of_gpu(node.name, gpu.index, looking_.now);
    const auto busy = busy_text(cluster_, gpu);
    const bool unfit = !gpu.health.empty() && gpu.health != "ok" && gpu.health != node.state;
    auto used = fmt::format("{:>4}  {}", busy, sparkline(cells));
    if (unfit) {
      used = paint_.red(used);
    } else if (gpu.jobs.empty()) {
      used = paint_.dim(used);
    } else {
      used = was_idle(cells) ? paint_.yellow(used) : paint_.green(used);
    }
    return fmt::format("  {:<{}}gpu{:<2}  {}  {:>5}/{:<5} {:>5}  {}{}{}\n",
                       width == 0 ? "" : node.name, width, gpu.index, used,
                       gib_text(gpu.memory_granted), gib_text(gpu.memory),
                       busy == "?" ? "?" : gib_text(gpu.memory_used), jobs_on(gpu, numbers),
                       gpu.whole ? " (whole)" : "", unfit ? paint_.red("  " + gpu.health) : "");
  }

  std::string jobs(std::size_t room) {
    std::vector<ShownJob> running;
    std::vector<const JobInfo*> waiting;
    for (const auto& job : overview_.jobs) {
      if (!is_wanted(job, view_, looking_)) continue;
      if (is_active(job) && !job.gpus.empty()) {
        running.push_back({&job, use_of(job, cluster_)});
        if (const auto busy = history_.busy_of(job.id)) running.back().use.utilisation = busy;
      }
      if (is_pending(job) && view_.waiting) waiting.push_back(&job);
    }
    sort(running);
    std::ranges::stable_sort(waiting, {}, [](const JobInfo* job) {
      return std::pair(job->start_ms.value_or(INT64_MAX), -job->priority);
    });
    listed_ = running.size() + waiting.size();
    for (const auto& [job, use] : running) {
      longest_ = std::max(longest_, job_id_text(*job).size());
    }
    for (const auto* job : waiting) longest_ = std::max(longest_, job_id_text(*job).size());

    // One of the lines that are left is the title.
    rows_ = room == 0 ? listed_ : std::min(listed_, room > 1 ? room - 1 : 1);
    view_.first = std::min(view_.first, listed_ - rows_);
    const auto columns = job_columns();
    std::string out = render_table(columns, {}, {.prefix = "  "});
    out = paint_.dim(out.substr(0, out.size() - 1)) + "\n";
    for (std::size_t i = view_.first; i < view_.first + rows_; ++i) {
      out += i < running.size() ? running_line(columns, running[i])
                                : waiting_line(columns, *waiting[i - running.size()]);
    }
    return out;
  }

  void sort(std::vector<ShownJob>& running) const {
    const auto by = [&](auto key) {
      std::ranges::stable_sort(running, [&](const ShownJob& a, const ShownJob& b) {
        return view_.reversed ? key(b) < key(a) : key(a) < key(b);
      });
    };
    switch (view_.sort) {
      case TopSort::busy:
        return by([](const ShownJob& one) { return -one.use.utilisation.value_or(-1); });
      case TopSort::memory:
        return by([](const ShownJob& one) { return -one.use.memory.value_or(-1); });
      case TopSort::time:
        return by([&](const ShownJob& one) { return -time_used(*one.job, looking_.now).value(); });
      case TopSort::job:
        return by([](const ShownJob& one) { return one.job->id; });
      case TopSort::user:
        return by([](const ShownJob& one) { return std::pair(one.job->user, one.job->id); });
    }
  }

  [[nodiscard]] bool pods() const { return cluster_.engine == "kubernetes"; }
  [[nodiscard]] bool wide() const { return view_.columns >= kWide; }

  [[nodiscard]] std::vector<Column> job_columns() const {
    std::vector<Column> columns;
    if (pods()) {
      columns.push_back({"POD", std::max<std::size_t>(longest_, 3)});
    } else {
      columns.push_back({"JOB", std::clamp<std::size_t>(longest_, 6, 12)});
      columns.push_back({"USER", 9});
      columns.push_back({"NAME", 13});
    }
    columns.push_back({"ST", 2});
    columns.push_back({"TIME", 10, Align::right});
    columns.push_back({"BUSY", 4, Align::right, "  "});
    if (wide()) columns.push_back({"LAST MINUTE", TopHistory::kCells, Align::left, "  "});
    columns.push_back({"USED", 5, Align::right, "  "});
    columns.push_back({"SHARE", 0, Align::left, ""});
    return columns;
  }

  [[nodiscard]] Row first_cells(const JobInfo& job) const {
    Row row{job_id_text(job)};
    if (!pods()) {
      row.push_back(job.user);
      row.push_back(job.name);
    }
    row.emplace_back(compact_state(job.state));
    return row;
  }

  [[nodiscard]] std::string running_line(const std::vector<Column>& columns,
                                         const ShownJob& one) const {
    const JobInfo& job = *one.job;
    const auto cells = history_.of_job(job.id, looking_.now);
    Row row = first_cells(job);
    row.push_back(format_duration(time_used(job, looking_.now), TimeStyle::squeue));
    row.push_back(one.use.utilisation ? fmt::format("{}%", *one.use.utilisation / 100) : "-");
    if (wide()) row.push_back(sparkline(cells));
    row.push_back(one.use.memory ? gib_text(*one.use.memory) : "-");
    row.push_back(gpu_share_text(job));
    const std::string line = line_of(columns, row);
    const std::int64_t share = memory_share(job);
    const bool full = one.use.memory && share > 0 && *one.use.memory * 100 >= share * kNearlyFull;
    if (full) return paint_.red(line) + "\n";
    if (was_idle(cells)) return paint_.yellow(line) + "\n";
    return (job.uid == looking_.uid ? paint_.bold(line) : line) + "\n";
  }

  [[nodiscard]] std::string waiting_line(const std::vector<Column>& columns,
                                         const JobInfo& job) const {
    Row row = first_cells(job);
    row.emplace_back("");
    row.emplace_back("");
    if (wide()) row.emplace_back("");
    row.emplace_back("");
    // When, where that is known; else why not.
    std::string when = job.reason;
    if (job.start_ms) {
      when = fmt::format(
          "in {}", format_duration(std::max(WallTime(*job.start_ms) - looking_.now, Millis(0)),
                                   TimeStyle::squeue));
    }
    row.push_back(fmt::format("{} {}", job.gres == "none" ? "no GPU," : job.gres + ",", when));
    return paint_.dim(line_of(columns, row)) + "\n";
  }

  static std::string line_of(const std::vector<Column>& columns, const Row& row) {
    std::string line = render_table(columns, {row}, {.header = false, .prefix = "  "});
    line.pop_back();
    return line;
  }

  [[nodiscard]] std::size_t lines_left(const std::string& above) const {
    const auto used = static_cast<std::size_t>(std::ranges::count(above, '\n')) + 2;
    return view_.lines > used ? view_.lines - used : 2;
  }

  // Down to the last line.
  [[nodiscard]] std::string filling(const std::string& text) const {
    const auto used = static_cast<std::size_t>(std::ranges::count(text, '\n'));
    return used + 1 < view_.lines ? std::string(view_.lines - 1 - used, '\n') : "";
  }

  [[nodiscard]] std::string footer() const {
    if (view_.typing) return fmt::format("filter: {}_", view_.filter);
    std::string text = fmt::format("by {}{}", to_string(view_.sort), view_.reversed ? " ↑" : "");
    if (!view_.help && rows_ < listed_) {
      text += fmt::format(" · {}-{} of {}", view_.first + 1, view_.first + rows_, listed_);
    }
    if (view_.mine) text += " · mine";
    if (!view_.waiting) text += " · none that wait";
    if (!view_.filter.empty()) text += fmt::format(" · /{}", make_plain(view_.filter));
    text += " · s order · / filter · u mine · p waiting · ? keys · q quit";
    return paint_.dim(clip(text, 1, view_.columns));
  }

  static std::string title(std::string_view word) {
    std::string text(word);
    for (char& c : text) c = static_cast<char>(c - ('a' - 'A'));
    return text;
  }

  const api::Overview& overview_;
  const api::ClusterInfo& cluster_;
  const Looking& looking_;
  TopView& view_;
  const TopHistory& history_;
  const Paint& paint_;
  std::size_t listed_ = 0;
  std::size_t rows_ = 0;
  std::size_t longest_ = 0;
};

}  // namespace

std::string format_top(const api::Overview& overview, const Looking& looking, TopView& view,
                       const TopHistory& history, const Paint& paint) {
  return TopPage(overview, looking, view, history, paint).text();
}

std::string clip(std::string_view text, std::size_t lines, std::size_t columns) {
  std::string out;
  std::size_t line = 0;
  std::size_t column = 0;
  for (std::size_t i = 0; i < text.size() && line < lines; ++i) {
    const char c = text[i];
    if (c == '\x1b') {  // a colour: up to its `m`, wherever it stands
      const auto end = text.find('m', i);
      if (end == text.npos) break;
      out += text.substr(i, end - i + 1);
      i = end;
    } else if (c == '\n') {
      ++line;
      column = 0;
      out += c;
    } else {
      const bool goes_on = (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;  // of a UTF-8 letter
      if (!goes_on) ++column;
      if (column <= columns) out += c;
    }
  }
  return out;
}

}  // namespace aliquot::cli
