/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memrun bench pressure: one job under less and less device memory.
 *
 * Nouns. A *budget* is a point of the sweep. A *kind* is how the job runs there: as train would, or
 * with a part of the planner left out. A *row* is a kind under a budget. A *turn* is one run of a
 * row, in a process of its own: `memrun train --json` with the options of the command line, so that
 * anybody can repeat it, only one job is in memory at a time, and one that dies takes nothing with
 * it. Plans too are made by children, `memrun plan --json`: what this process had of a CUDA device,
 * its context and libraries, would be in use there beside a turn's own and count against its
 * budget. So it never opens the device. Each *round* gives every row that fits a turn, the first
 * row ahead, the others forwards and backwards in turns, so that whatever else the machine does
 * falls on all; a row is told by its medians over the rounds.
 *
 * The first row is the job with all the memory that it wants; the others' speeds are shares of its
 * speed, and what its ops took alone makes the bounds: in each round anew, since a machine changes
 * its pace, and right behind each row's turn, since a drive changes its own sooner. All rows must
 * end with the same losses.
 *
 * Files: bench_pressure.c runs the sweep, pressure_budgets.c reads a list of budgets,
 * pressure_rows.c makes rows, their command lines and their figures, pressure_turn.c runs one
 * child, pressure_profiles.c keeps what runs teach apart, pressure_tell.c and pressure_plot.c show
 * what came out.
 */
#ifndef MEMRUN_TOOLS_PRESSURE_H
#define MEMRUN_TOOLS_PRESSURE_H

#include <jansson.h>

#include "tools/cli.h"
#include "tools/output.h"

#define PRESSURE_MAX_BUDGETS 32u
#define PRESSURE_LEAST_BYTES 65536ull /* as --device-mem */
#define PRESSURE_WARM_STEPS  1u       /* of a turn: the first one maps pages and warms caches */
/* That a smallest budget has to spare where others than the job have a part of the device: drivers
 * and libraries take a little more or less of it in each process. */
#define PRESSURE_SLACK_BYTES (16ull << 20)

enum pressure_kind {
  PRESSURE_MEMRUN,
  PRESSURE_NO_RECOMPUTE,
  PRESSURE_NO_OFFLOAD,
  PRESSURE_NO_SEARCH,
  PRESSURE_LRU,
  PRESSURE_KIND_COUNT,
};

/* A point of the sweep as it stands in a list. */
struct pressure_point {
  double percent;      /* of the footprint; 0: not a share */
  uint64_t size_bytes; /* 0: not a size; neither: the smallest budget that would do */
};

/* Reads "50%,512MiB,min"; NULL gives the sweep that is made unless told otherwise. MR_INVALID logs
 * the part that is none of these. */
MR_CHECK_RESULT mr_status pressure_points_parse(const char *text, struct pressure_point *points,
                                                uint32_t *count_out);

/* What one run measured, or its plan promised. */
struct pressure_turn {
  double seconds; /* of a step, from the end of one to the end of the next */
  double predicted_seconds;
  double others_share; /* of the processors, that other processes took meanwhile */
  char bound_by[24];
  uint64_t moved_bytes[MR_LINK_COUNT];
  uint64_t peak_bytes[MR_TIER_COUNT];
  uint64_t budget_bytes[MR_TIER_COUNT];
  uint64_t resident_bytes;
  uint64_t kept_bytes, host_bytes, nvme_bytes, recomputed_bytes;
  double last_loss;
};

/* How a child ended. */
struct pressure_end {
  int exit_status;   /* of the process; meaningless where a signal ended it */
  int signal_number; /* 0: none */
  char line[400];    /* the last that it said on standard error */
};

/*
 * Runs memrun with `words`, which end with NULL, and reads the figures of the steps after
 * PRESSURE_WARM_STEPS. A child that did not end well is no error: *end_out says how it ended. When
 * *stop is set the child is told to end too. MR_INTERRUPTED; MR_IO where no child can be had or it
 * does not speak as expected; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status pressure_turn_run(char *const *words, const volatile int *stop,
                                            struct pressure_turn *turn_out,
                                            struct pressure_end *end_out);

/* What a plan tells of a budget. */
struct pressure_plan {
  bool made; /* false: nothing else is known */
  bool fits;
  uint64_t footprint_bytes;
  uint64_t smallest_bytes; /* the smallest device budget that would do */
  uint64_t outside_bytes;  /* of it, what the context, libraries and others have on the device */
  double predicted_seconds;
  double bound_seconds;
};

/*
 * Runs memrun plan with `words`. A child that made no plan is no error: *end_out says how it ended.
 * What is asked is wanted also where this process has been told to end: a child that a terminal
 * told the same is followed by another. MR_IO and MR_NO_MEMORY as above.
 */
MR_CHECK_RESULT mr_status pressure_plan_run(char *const *words, struct pressure_plan *plan_out,
                                            struct pressure_end *end_out);

enum pressure_state {
  PRESSURE_WAITING,
  PRESSURE_MEASURED,
  PRESSURE_DOES_NOT_FIT,
  PRESSURE_FAILED,
};

struct pressure_row {
  enum pressure_kind kind;
  uint64_t device_bytes; /* UINT64_MAX: whatever the job wants */
  enum pressure_state state;
  uint64_t smallest_bytes; /* the smallest budget of the kind that will do */
  uint32_t turns;          /* that ended well */
  double others_share;     /* of the processors, the most that others took during a turn */
  double *seconds;         /* of each turn */
  double *bounds;          /* memrun's own rows: behind each turn, by what ops took alone before */
  uint32_t bound_count;
  struct pressure_turn last;
  struct pressure_end end; /* where it failed */
};

/* Medians of a row over the rounds; ratios are medians of the rounds' own. */
struct pressure_figures {
  double seconds;
  double predicted_seconds; /* by the last turn, which those before have taught */
  double bound_seconds;     /* of the budget, whatever the kind */
  double error;             /* of the forecast: |predicted - measured| / measured */
  double over_bound;        /* measured / bound */
  double speed;             /* share of the speed without budgets */
  double most_speed;        /* the share that the bound allows */
};

#define PRESSURE_FOLDER_BYTES 480u

struct pressure_path {
  char text[PRESSURE_FOLDER_BYTES + 32];
};

struct pressure {
  struct cli *cli;
  struct trainer_info info;
  char profiles[PRESSURE_FOLDER_BYTES]; /* a folder; "": none yet */
  uint64_t footprint_bytes;
  uint64_t smallest_bytes[PRESSURE_KIND_COUNT]; /* PRESSURE_SLACK_BYTES counted in */
  struct pressure_row *rows; /* the first: no budget; then each budget with its kinds */
  uint32_t row_count;
  uint32_t kind_count; /* 1, or all of them: rows of a budget */
  uint32_t rounds;     /* that were begun */
  uint32_t steps;      /* measured in a turn, after PRESSURE_WARM_STEPS */
  bool interrupted;
};

/* "memrun", "no recompute", ... for people, and words for programs. */
extern const char *const pressure_kind_titles[PRESSURE_KIND_COUNT];
extern const char *const pressure_kind_names[PRESSURE_KIND_COUNT];

/* MR_INVALID: an option that makes no sense in a sweep was given; logged. */
MR_CHECK_RESULT mr_status pressure_options_check(const struct cli *cli);

/* Whether turns can begin with the file of --profile, which may be NULL: children would speak of
 * its copy. MR_INVALID, MR_IO: not, as is logged. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status pressure_profile_check(const char *path);

/* The folder of profiles, with a copy of the one that the command line names; MR_IO. */
MR_CHECK_RESULT mr_status pressure_profiles_init(struct pressure *pressure);
void pressure_profiles_fini(struct pressure *pressure);
/* The profile of a row, by its number; the first is taught by ops that run alone, and the one
 * behind the last row's is what bounds are by. */
void pressure_profile_path(const struct pressure *pressure, uint32_t row,
                           struct pressure_path *path_out);
/* Copies a file where it is there; MR_IO. */
MR_CHECK_RESULT mr_status pressure_profile_copy(const char *from, const char *to);
/* Makes the profile that bounds are by of the first one: ops take so many times as long. MR_IO,
 * MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status pressure_profile_pace(const struct pressure *pressure, double times);

/* What a kind may use under a device budget; MR_BUDGET_AUTO: whatever the job wants. */
struct mr_options pressure_run_options(const struct pressure *pressure, enum pressure_kind kind,
                                       uint64_t device_bytes);

/* The command line of a row's turns; `profile` NULL: the one that a user would have. */
struct pressure_words {
  char **list; /* ends with NULL */
  uint32_t count;
  uint32_t capacity;
};
MR_CHECK_RESULT mr_status pressure_words_init(struct pressure_words *words,
                                              const struct pressure *pressure,
                                              const struct pressure_row *row, const char *profile);
/* The command line that plans a kind under a device budget. */
MR_CHECK_RESULT mr_status pressure_words_plan(struct pressure_words *words,
                                              const struct pressure *pressure,
                                              enum pressure_kind kind, uint64_t device_bytes,
                                              const char *profile);
void pressure_words_fini(struct pressure_words *words);

/* Makes the rows of the points, the largest budget first; budgets that leave the job what it wants
 * are the first row. Footprint and smallest budgets are known. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status pressure_rows_init(struct pressure *pressure,
                                             const struct pressure_point *points, uint32_t count,
                                             uint32_t rounds);
void pressure_rows_fini(struct pressure *pressure);

/* memrun's own row under the same budget. */
const struct pressure_row *pressure_own_row(const struct pressure_row *row);

/* False where the row was not measured. */
bool pressure_row_figures(const struct pressure *pressure, const struct pressure_row *row,
                          struct pressure_figures *figures_out);

/* The row's budget as a share of the footprint, "37.5 %", and its bytes. */
struct pressure_share {
  char text[24];
};
const char *pressure_row_share(const struct pressure *pressure, const struct pressure_row *row,
                               struct pressure_share *share);
uint64_t pressure_row_bytes(const struct pressure *pressure, const struct pressure_row *row);

/* The next row of memrun's own at or after *at, which is moved behind it; NULL: none. With
 * `measured` those that have figures alone. */
const struct pressure_row *pressure_next_row(const struct pressure *pressure, bool measured,
                                             uint32_t *at);

/* The rounds that medians are over: the most that a row has figures of, fewer than were begun where
 * an interruption or a failure ended the last. */
uint32_t pressure_rounds(const struct pressure *pressure);

/* The most of the processors that others took during a run; 0 where it does not show. */
double pressure_others_share(const struct pressure *pressure);

/* The least that a row's step took in a round, over its bound: less than 1 where the machine
 * changed its pace between the runs that it was made from; what does not show in three digits is
 * none. INFINITY: nothing was measured. */
double pressure_least_over_bound(const struct pressure *pressure);

/* Tables for people. */
void pressure_print(const struct pressure *pressure, struct output *output);

/* Everything as one object; NULL: out of memory. */
json_t *pressure_json(const struct pressure *pressure);

/* The plot as SVG text, to be freed with free(). MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status pressure_plot(const struct pressure *pressure, char **svg_out);

#endif
