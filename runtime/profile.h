/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile is what a machine was measured to do, kept in one JSON file between runs. It belongs
 * to one machine (processor, cores, threads of the run); one of another machine or version is
 * measured again and replaced. NVMe rates are kept for each set of devices.
 *
 * An op's seconds come from ops of its kind and of like size that were run before, in a step or by
 * themselves before the first plan (rehearse.c); else from what the machine does with memory and
 * arithmetic alone.
 *
 * What links take from the ops beside them: a copy runs on a processor of its own for as long as it
 * takes, so ops have a pace beside copies; what NVMe takes goes by the byte, since the drive moves
 * it and a processor only sums and copies it, so that a faster drive costs ops more, for a shorter
 * time. Both are reckoned or measured beside loops of our own until a run shows them, which counts
 * alone: real ops lose two or three times as much to NVMe as loops that stay in a cache.
 */
#ifndef MEMRUN_RUNTIME_PROFILE_H
#define MEMRUN_RUNTIME_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memrun/run.h>

#include "graph/graph.h"
#include "offload/store.h"

#define MR_PROFILE_MAX_RATES  512u
#define MR_PROFILE_MAX_PATHS  16u
#define MR_PROFILE_MAX_BYTES  (1u << 20) /* of a file; a full one has about 100 KiB */
#define MR_PROFILE_KEY_BYTES  160u
#define MR_PROFILE_NAME_BYTES (MR_PROFILE_KEY_BYTES + 32u) /* "profile-", ".json" and a key */
#define MR_PROFILE_KIND_BYTES 64u

/* A rate of which a run shows so many times as much or as little was known wrong: what is held up
 * takes up to twice as long, and machines do not change like that. It does not count any more. */
#define MR_PROFILE_MOST_CHANGE 4.0

/* Of an NVMe request, where it was not measured. */
#define MR_NVME_LATENCY_SECONDS 150e-6

/* Ops of one kind whose work is alike: layers of other widths run at other speeds. */
struct mr_op_rate {
  char kind[MR_PROFILE_KIND_BYTES];
  bool by_flops;       /* the unit is an operation, else a byte of memory */
  uint32_t size_class; /* floor(8 * log2(units)): 9 % wide */
  double seconds_per_unit;
};

struct mr_path_rate {
  char devices[MR_PROFILE_KEY_BYTES]; /* engine and st_dev of each path */
  struct mr_store_rates rates;
};

struct mr_profile {
  char machine[MR_PROFILE_KEY_BYTES];
  double copy_bytes_per_second[2]; /* device to host, host to device */
  double flops_per_second;
  double bytes_per_second;
  double host_bytes_per_second; /* of ops on the host beside an accelerator; 0: none is here */
  double host_memory_bytes_per_second; /* of these and links together; 0: not known */
  /* What ops lose, as in struct mr_plan_problem. A file may leave them out. */
  double bind_seconds_per_move;
  double pace_beside_copy;
  bool copies_learned; /* a run has shown that pace and the rates of copies */
  struct mr_op_rate rates[MR_PROFILE_MAX_RATES];
  uint32_t rate_count;
  struct mr_path_rate paths[MR_PROFILE_MAX_PATHS];
  uint32_t path_count;
  char devices[MR_PROFILE_KEY_BYTES]; /* of the run's own paths, or empty; in no file */
};

/*
 * Reads a profile's text. Every number is checked: rates are finite and positive, counts within
 * their bounds. MR_UNSUPPORTED: a profile, but of another version of memrun, or something in it is
 * not as mr_profile_save writes it; MR_INVALID: no profile at all (nothing is logged either way);
 * MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_profile_parse(const char *text, size_t bytes,
                                           struct mr_profile *profile_out);

/* The profile as JSON; the caller frees it with free(). MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_profile_print(const struct mr_profile *profile, char **text_out);

/* Loads the file. MR_UNSUPPORTED: a profile that is of no use here, being of another machine (told
 * at info level) or another version (at warn level); MR_INVALID: something else; MR_IO: there is
 * none, or it cannot be read, as errno says; nothing is logged of these two. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_profile_load(const char *path, const char *machine,
                                          struct mr_profile *profile_out);
/* MR_INVALID with one line where the path is of a pipe or a device. */
MR_CHECK_RESULT mr_status mr_profile_check_file(const char *path);
/* Whether a file that somebody names may be a profile: MR_OK where it is not there, too.
 * MR_INVALID: it is none; MR_IO: it cannot be read; both are logged. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_profile_check(const char *path);
/* Writes beside the file and renames; a failure is one line at warn level and no more, because a
 * run does without. Directories on the way are made. */
void mr_profile_save(const char *path, const struct mr_profile *profile);
/* NVMe is measured again by whoever gets the file next, where there is one. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_profile_forget_nvme(const char *path);
/* Ops take so many times as long by the file, where there is one. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_profile_slow_ops(const char *path, double times);

struct mr_settings;

/* The name of the file that keeps what these settings measure unless the user names another: each
 * machine, number of threads and accelerator has one, so that nodes that share a home folder, and
 * runs that take turns, keep what they have learned. */
void mr_profile_name_file(const struct mr_settings *settings, char name[MR_PROFILE_NAME_BYTES]);

/*
 * The profile of this machine for these settings and the ops of the graph, which may be NULL:
 * loaded where possible, measured where not, saved where it was measured. A file that the options
 * name is left alone where it is no profile (MR_INVALID) or cannot be read (MR_IO), which is
 * logged; one that is not there is told of at warn level. *nvme_out: the rates of the settings'
 * paths, where NVMe is used. MR_NO_MEMORY; what mr_store_probe and ops give.
 */
MR_CHECK_RESULT mr_status mr_profile_get(const struct mr_settings *settings,
                                         const struct mr_graph *graph,
                                         struct mr_profile **profile_out,
                                         struct mr_store_rates *nvme_out);

/* What the profile keeps of the NVMe paths that it was got for, to be changed there; NULL: nothing.
 * The folders may be gone by now. */
struct mr_store_rates *mr_profile_nvme(struct mr_profile *profile);

/* Measures copies, memory and arithmetic; about 0.1 s. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_profile_measure(uint32_t threads, struct mr_profile *profile);

/* The same for the accelerator of the settings, its link and the memory of its host; about 0.6 s.
 * MR_NO_MEMORY, MR_IO. */
MR_CHECK_RESULT mr_status mr_profile_measure_accelerator(const struct mr_settings *settings,
                                                         struct mr_profile *profile);
/* Memory as all threads together get through it. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_profile_measure_memory(uint32_t threads, double *bytes_per_second_out);

/* Fills in op_seconds_per_byte and latency_seconds of paths whose other rates are known; about
 * 1.6 s. MR_NO_MEMORY; what a store gives. */
struct mr_store_options;
MR_CHECK_RESULT mr_status mr_profile_measure_nvme(const struct mr_store_options *options,
                                                  uint32_t threads, struct mr_store_rates *rates);

/* Whether ops of its kind and size have been seen. */
bool mr_profile_knows(const struct mr_profile *profile, const struct mr_op *op);

/* What the op should take, in seconds. */
double mr_profile_op_seconds(const struct mr_profile *profile, const struct mr_op *op);

/* Whether a rate that is shown now is so far off the one that was known. */
static inline bool mr_profile_refutes(double known, double now) {
  return now > MR_PROFILE_MOST_CHANGE * known || known > MR_PROFILE_MOST_CHANGE * now;
}

/* Merges what the ops of a program took in a run; 0 seconds: not measured. The new counts `weight`
 * (0 to 1) of the whole, the old what is left. An op that took much longer than most of its kind
 * and size counts as if it had taken a little longer: it was held up. What is further off than
 * MR_PROFILE_MOST_CHANGE takes the place of the old. Where there is no room for
 * another kind or size, the one that was not used for longest is forgotten. */
void mr_profile_learn(struct mr_profile *profile, const struct mr_graph *program,
                      const double *seconds, double weight);

#endif
