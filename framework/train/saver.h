// Checkpoints of a run: when they are due, written, and gone on from.
#pragma once

#include <map>
#include <string>

#include "checkpoint/checkpoint_folder.h"
#include "train/metrics.h"
#include "train/session.h"
#include "train/update.h"

namespace keyseat::train {

// Where a run goes on.
struct ResumePoint {
  int64_t next_step = 0;
  Failures failures;  // of the data before it
};

class Saver {
 public:
  Saver(Session& session, Update& update);

  // A checkpoint is due behind step `index` (from 0), which may be the last one.
  bool due(int64_t index) const;
  // The state before step `next_step`, whose data begin at `cursor`; nothing where the newest
  // checkpoint is of this step already. All ranks call it. Throws the
  // problems of any rank; the checkpoints that were there before are then untouched.
  void save(int64_t next_step, int64_t cursor, const Failures& failures);
  // Loads the newest checkpoint into the session, where there is one. Throws: C4 for every key of
  // the configuration that differs, R6 and R7 for what is damaged or of another model.
  ResumePoint restore();

 private:
  Session& session_;
  Update& update_;
  checkpoint::CheckpointFolder folder_;
  int64_t saved_ = -1;  // next_step of the newest checkpoint that this run wrote or came from
};

}  // namespace keyseat::train
