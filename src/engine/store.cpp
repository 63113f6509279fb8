#include "engine/store.hpp"

#include <fmt/format.h>

#include <sqlite3.h>

#include <algorithm>
#include <utility>

#include "api/json.hpp"
#include "base/text.hpp"
#include "engine/job_info.hpp"
#include "engine/store_database.hpp"

namespace aliquot::engine {
namespace {

constexpr int kSchema = 2;

// Of each job: one that requeues itself for ever must not fill the disk.
constexpr std::int64_t kMostEarlier = 20;

// `info` and `spec` are JSON of the API's types, so that fields can be added without a new schema;
// what is searched for has a column beside it.
constexpr const char* kCreate = R"(
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY,
  array INTEGER,
  task INTEGER,
  uid INTEGER NOT NULL,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  over INTEGER NOT NULL,
  ok INTEGER NOT NULL,
  submit INTEGER NOT NULL,
  begun INTEGER,
  ended INTEGER,
  hold INTEGER NOT NULL,
  ending INTEGER NOT NULL,
  mark TEXT NOT NULL,
  payload INTEGER NOT NULL,
  info TEXT NOT NULL,
  spec TEXT NOT NULL
);
CREATE INDEX jobs_live ON jobs(uid, name) WHERE over = 0;
CREATE INDEX jobs_array ON jobs(array, task) WHERE array IS NOT NULL;
CREATE INDEX jobs_ended ON jobs(ended) WHERE over = 1;
CREATE INDEX jobs_uid ON jobs(uid);
CREATE INDEX jobs_payload ON jobs(payload);
CREATE TABLE steps(
  job INTEGER NOT NULL,
  id TEXT NOT NULL,
  info TEXT NOT NULL,
  PRIMARY KEY(job, id)
) WITHOUT ROWID;
CREATE TABLE payloads(
  id INTEGER PRIMARY KEY,
  script BLOB NOT NULL,
  environment BLOB NOT NULL
);
)";

// 1 to 2: whose they are and how large, and arguments, which were in `spec`.
constexpr const char* kToSecond = R"(
ALTER TABLE payloads ADD COLUMN arguments BLOB NOT NULL DEFAULT x'';
ALTER TABLE payloads ADD COLUMN uid INTEGER;
ALTER TABLE payloads ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
UPDATE payloads SET uid = (SELECT uid FROM jobs WHERE jobs.id = payloads.id),
  size = length(script) + length(environment);
CREATE INDEX payloads_uid ON payloads(uid, size);
)";

// The highest id there was, once rows are purged.
constexpr const char* kLastIdNote = "last id";

// K=V have no NUL in them.
std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    out += part;
    out += '\0';
  }
  return out;
}

std::vector<std::string> unjoin(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    parts.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return parts;
}

std::string blob(const SQLite::Column& column) {
  return {static_cast<const char*>(column.getBlob()), static_cast<std::size_t>(column.getBytes())};
}

Result<Job> read_job(SQLite::Statement& row) {
  const auto info = TRY(api::from_json<api::JobInfo>(row.getColumn(0).getString()));
  Job job = TRY(from_record(info, TRY(api::from_json<api::JobSpec>(row.getColumn(1).getString()))));
  job.hold = static_cast<Hold>(row.getColumn(2).getInt());
  job.ending = static_cast<Ending>(row.getColumn(3).getInt());
  job.mark = row.getColumn(4).getString();
  job.payload = row.getColumn(5).getInt64();
  if (job.id.value() != row.getColumn(6).getInt64()) {
    return fail(Error::Code::invalid_argument, "it says that it is job {}", job.id);
  }
  if (!row.getColumn(7).isNull()) {
    job.run_time = {row.getColumn(7).getString(), MonoTime(row.getColumn(8).getInt64()),
                    Millis(row.getColumn(9).getInt64())};
  }
  return job;
}

constexpr const char* kJobColumns =
    "SELECT info, spec, hold, ending, mark, payload, id, boot, since, before, uid, state "
    "FROM jobs LEFT JOIN runs ON runs.job = jobs.id";

}  // namespace

Result<Store> Store::open(const std::filesystem::path& path) {
  return guarded([&]() -> Result<Store> {
    auto database = std::make_unique<Database>(path.empty() ? ":memory:" : path.string());
    SQLite::Database& db = database->db;
    db.setBusyTimeout(5'000);
    db.exec("PRAGMA journal_mode = WAL");
    db.exec("PRAGMA synchronous = FULL");
    db.exec("PRAGMA temp_store = MEMORY");
    db.exec("PRAGMA cache_size = -4096");
    db.exec("PRAGMA wal_autocheckpoint = 2000");
    const int version = db.execAndGet("PRAGMA user_version").getInt();
    if (version > kSchema) {
      return fail(Error::Code::unsupported,
                  "the state database is of version {}, this program knows {}: use a newer one",
                  version, kSchema);
    }
    if (version < kSchema) {
      SQLite::Transaction transaction(db);
      if (version == 0) db.exec(kCreate);
      db.exec(kToSecond);
      db.exec("PRAGMA user_version = " + std::to_string(kSchema));
      transaction.commit();
    }
    // Newer than the version: an older program does without.
    db.exec("CREATE TABLE IF NOT EXISTS notes(name TEXT PRIMARY KEY, text TEXT NOT NULL)");
    db.exec(
        "CREATE TABLE IF NOT EXISTS runs(job INTEGER PRIMARY KEY, boot TEXT NOT NULL, "
        "since INTEGER NOT NULL, before INTEGER NOT NULL)");
    db.exec(
        "CREATE TABLE IF NOT EXISTS earlier(job INTEGER NOT NULL, run INTEGER NOT NULL, "
        "info TEXT NOT NULL, PRIMARY KEY(job, run)) WITHOUT ROWID");
    db.exec(
        "CREATE TABLE IF NOT EXISTS usage(uid INTEGER PRIMARY KEY, amount REAL NOT NULL, "
        "at INTEGER NOT NULL)");
    db.exec("CREATE TABLE IF NOT EXISTS unreadable AS SELECT *, '' AS why FROM jobs WHERE 0");
    return Store(std::move(database));
  });
}

Store::Store(std::unique_ptr<Database> database) : database_(std::move(database)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<std::int64_t> Store::last_id() {
  const auto purged = TRY(note(kLastIdNote));
  return guarded([&]() -> Result<std::int64_t> {
    auto& query = database_->prepared(
        "SELECT max(ifnull((SELECT max(id) FROM jobs), 0), ifnull((SELECT max(id) FROM "
        "unreadable), "
        "0))");
    query.executeStep();
    return std::max(query.getColumn(0).getInt64(), parse_digits(purged.value_or("")).value_or(0));
  });
}

Result<void> Store::keep_last_id(std::int64_t id) {
  return save_note(kLastIdNote, std::to_string(id));
}

Result<void> Store::save_note(const std::string& name, const std::optional<std::string>& text) {
  return changing(*database_, [&] {
    auto& query = database_->prepared(text ? "INSERT OR REPLACE INTO notes VALUES(?,?)"
                                           : "DELETE FROM notes WHERE name = ?");
    query.bind(1, name);
    if (text) query.bind(2, *text);
    query.exec();
  });
}

Result<std::optional<std::string>> Store::note(const std::string& name) {
  return guarded([&]() -> Result<std::optional<std::string>> {
    auto& query = database_->prepared("SELECT text FROM notes WHERE name = ?");
    query.bind(1, name);
    if (!query.executeStep()) return std::nullopt;
    return query.getColumn(0).getString();
  });
}

Result<void> Store::save(const Job& job) {
  return changing(*database_, [&] {
    auto& query = database_->prepared(
        "INSERT OR REPLACE INTO jobs VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    const api::JobInfo info = to_info(job);
    const bool over = core::is_final(job.state);
    query.bind(1, info.id);
    if (info.array_job_id) query.bind(2, *info.array_job_id);
    if (info.array_task_id) query.bind(3, *info.array_task_id);
    query.bind(4, static_cast<std::int64_t>(info.uid));
    query.bind(5, info.name);
    query.bind(6, info.state);
    query.bind(7, over ? 1 : 0);
    query.bind(8, job.state == core::JobState::completed ? 1 : 0);
    query.bind(9, info.submit_ms);
    if (job.state != core::JobState::pending && info.start_ms) query.bind(10, *info.start_ms);
    if (over && info.end_ms) query.bind(11, *info.end_ms);
    query.bind(12, static_cast<int>(job.hold));
    query.bind(13, static_cast<int>(job.ending));
    query.bind(14, job.mark);
    query.bind(15, job.payload);
    query.bind(16, api::to_json(info));
    query.bind(17, api::to_json(job.spec));
    query.exec();
  });
}

Result<void> Store::save_payload(std::int64_t id, Uid uid, const Payload& payload, Bytes records) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("INSERT OR REPLACE INTO payloads VALUES(?,?,?,?,?,?)");
    const std::string environment = join(payload.environment);
    const std::string arguments = join(payload.arguments);
    const std::size_t size = payload.script.size() + environment.size() + arguments.size();
    query.bind(1, id);
    query.bind(2, payload.script.data(), static_cast<int>(payload.script.size()));
    query.bind(3, environment.data(), static_cast<int>(environment.size()));
    query.bind(4, arguments.data(), static_cast<int>(arguments.size()));
    query.bind(5, static_cast<std::int64_t>(uid.value()));
    query.bind(6, static_cast<std::int64_t>(size) + records.value());
    query.exec();
  });
}

Result<void> Store::charge(std::int64_t payload, Bytes more) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("UPDATE payloads SET size = size + ? WHERE id = ?");
    query.bind(1, more.value());
    query.bind(2, payload);
    query.exec();
  });
}

Result<void> Store::save_step(const api::StepInfo& step) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("INSERT OR REPLACE INTO steps VALUES(?,?,?)");
    query.bind(1, step.job_id);
    query.bind(2, step.id);
    query.bind(3, api::to_json(step));
    query.exec();
  });
}

Result<void> Store::drop_steps(JobId id) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("DELETE FROM steps WHERE job = ?");
    query.bind(1, id.value());
    query.exec();
  });
}

Result<void> Store::save_earlier(const api::JobInfo& run) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("INSERT OR REPLACE INTO earlier VALUES(?,?,?)");
    query.bind(1, run.id);
    query.bind(2, run.restarts);
    query.bind(3, api::to_json(run));
    query.exec();
    auto& old = database_->prepared("DELETE FROM earlier WHERE job = ? AND run <= ?");
    old.bind(1, run.id);
    old.bind(2, run.restarts - kMostEarlier);
    old.exec();
  });
}

Result<void> Store::save_run(JobId id, const std::optional<RunTime>& run) {
  return changing(*database_, [&] {
    auto& query = database_->prepared(run ? "INSERT OR REPLACE INTO runs VALUES(?,?,?,?)"
                                          : "DELETE FROM runs WHERE job = ?");
    query.bind(1, id.value());
    if (run) {
      query.bind(2, run->boot);
      query.bind(3, run->since.ms());
      query.bind(4, run->before.value());
    }
    query.exec();
  });
}

Result<Store::Live> Store::load_live() {
  return guarded([&]() -> Result<Live> {
    Live live;
    {
      auto& query = database_->prepared(fmt::format("{} WHERE over = 0 ORDER BY id", kJobColumns));
      while (query.executeStep()) {
        auto job = read_job(query);
        if (job) {
          live.jobs.push_back(std::move(*job));
          continue;
        }
        const auto state = core::parse_job_state(query.getColumn(11).getString());
        live.unreadable.push_back({.id = JobId(query.getColumn(6).getInt64()),
                                   .uid = Uid(query.getColumn(10).getUInt()),
                                   .active = !state || core::is_active(*state),
                                   .mark = query.getColumn(4).getString(),
                                   .why = job.error().message});
      }
      query.reset();
    }
    if (!live.unreadable.empty()) {
      TRY(changing(*database_, [&] {
        for (const Unreadable& row : live.unreadable) database_->set_aside(row.id.value(), row.why);
      }));
    }
    return live;
  });
}

Result<Job> Store::load(JobId id) {
  return guarded([&]() -> Result<Job> {
    auto& query = database_->prepared(fmt::format("{} WHERE id = ?", kJobColumns));
    query.bind(1, id.value());
    if (!query.executeStep()) return fail(Error::Code::not_found, "there is no job {}", id);
    return read_job(query);
  });
}

Result<api::JobInfo> Store::info(JobId id) {
  return guarded([&]() -> Result<api::JobInfo> {
    auto& query = database_->prepared("SELECT info FROM jobs WHERE id = ?");
    query.bind(1, id.value());
    if (!query.executeStep()) return fail(Error::Code::not_found, "there is no job {}", id);
    return api::from_json<api::JobInfo>(query.getColumn(0).getString());
  });
}

Result<Payload> Store::payload(std::int64_t id) {
  return guarded([&]() -> Result<Payload> {
    auto& query =
        database_->prepared("SELECT script, environment, arguments FROM payloads WHERE id = ?");
    query.bind(1, id);
    if (!query.executeStep()) {
      return fail(Error::Code::not_found, "the script of job {} is no longer kept", id);
    }
    return Payload{blob(query.getColumn(0)), unjoin(blob(query.getColumn(1))),
                   unjoin(blob(query.getColumn(2)))};
  });
}

Result<std::vector<api::StepInfo>> Store::steps(JobId id) {
  return guarded([&]() -> Result<std::vector<api::StepInfo>> {
    // The batch step first, then by number.
    auto& query = database_->prepared(
        "SELECT info FROM steps WHERE job = ? ORDER BY id <> 'batch', CAST(id AS INTEGER)");
    query.bind(1, id.value());
    std::vector<api::StepInfo> steps;
    while (query.executeStep()) {
      // What cannot be read stays where it is.
      auto step = api::from_json<api::StepInfo>(query.getColumn(0).getString());
      if (step) steps.push_back(std::move(*step));
    }
    return steps;
  });
}

bool Store::dirty() const { return database_->dirty; }

Result<void> Store::commit() {
  if (database_->spoilt) return tl::make_unexpected(*database_->spoilt);
  if (!database_->dirty) return {};
  const Result<void> done = guarded([&]() -> Result<void> {
    // A reader left open would keep the log from being written back.
    for (auto& [sql, statement] : database_->statements) statement.tryReset();
    database_->prepared("COMMIT").exec();
    database_->dirty = false;
    return {};
  });
  if (!done) database_->spoilt = done.error();
  return done;
}

void Store::rollback() {
  for (auto& [sql, statement] : database_->statements) statement.tryReset();
  // Some errors have ended the transaction already.
  if (sqlite3_get_autocommit(database_->db.getHandle()) == 0) {
    (void)database_->db.tryExec("ROLLBACK");
  }
  database_->dirty = false;
  database_->spoilt.reset();
}

}  // namespace aliquot::engine
