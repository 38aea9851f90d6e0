#include "train/saver.h"

#include "checkpoint/agree.h"
#include "checkpoint/training_state.h"
#include "config/resume_keys.h"
#include "runtime/loggers.h"

namespace keyseat::train {

namespace {

checkpoint::RunParts parts_of(Session& session) {
  return {session.chain(), session.strategy(),   session.optimizer(),
          session.comm(),  session.facts().rank, session.facts().world};
}

}  // namespace

Saver::Saver(Session& session, Update& update)
    : session_(session), update_(update), folder_(session.config().checkpoint.dir) {}

bool Saver::due(int64_t index) const {
  const int64_t every = session_.config().checkpoint.every;
  return every > 0 && ((index + 1) % every == 0 || index + 1 == session_.config().run.steps);
}

void Saver::save(int64_t next_step, int64_t cursor, const Failures& failures) {
  if (next_step == saved_) return;
  const checkpoint::RunParts parts = parts_of(session_);
  // What only the first rank does; all ranks learn how it went.
  const auto on_first_rank = [&](const auto& action) {
    Problems problems;
    if (parts.rank == 0) {
      try {
        action();
      } catch (const Error& error) {
        problems = error.problems();
      }
    }
    checkpoint::throw_where_any(problems, parts.comm, parts.world);
  };
  on_first_rank([&] { folder_.begin(next_step); });
  checkpoint::CheckpointInfo info;
  info.next_step = next_step;
  info.cursor = cursor;
  info.updates = update_.updates();
  info.keys = resume_keys(session_.config());
  info.failures = failures;
  info.files = checkpoint::write_state(parts, folder_.partial(next_step));
  on_first_rank([&] {
    folder_.publish(info);
    folder_.prune(session_.config().checkpoint.keep);
  });
  saved_ = next_step;
  logger("train")->info("checkpoint {}", folder_.complete(next_step));
}

ResumePoint Saver::restore() {
  const std::string path = folder_.newest();
  if (path.empty()) {
    logger("train")->warn("{} holds no checkpoint: the run begins at its first step",
                          folder_.path());
    return {};
  }
  const checkpoint::CheckpointInfo info = checkpoint::read_info(path).value_or_throw();
  Problems problems = resume_differences(info.keys, session_.config());
  if (info.next_step > session_.config().run.steps) {
    problems.push_back({Code::kC4Combination,
                        {},
                        fmt::format("run.steps is {}, but {} steps are done",
                                    session_.config().run.steps, info.next_step),
                        "",
                        "Give run.steps a larger value"});
  }
  for (Problem& problem : problems) problem.where.file = path;
  if (!problems.empty()) throw Error(std::move(problems));
  const auto stateless = checkpoint::read_state(parts_of(session_), path, info);
  std::map<std::string, int64_t> updates = info.updates;
  for (const std::string& block : stateless) {
    updates.erase(block);
    logger("train")->warn("{}: no optimizer state of block {}, which begins anew", path, block);
  }
  update_.set_updates(std::move(updates));
  session_.data().seek(info.cursor);
  saved_ = info.next_step;
  logger("train")->info("resumed from {}: {} of {} steps are done", path, info.next_step,
                        session_.config().run.steps);
  return {info.next_step, info.failures};
}

}  // namespace keyseat::train
