/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that add layers to a tape share. */
#ifndef MEMRUN_TRAIN_TAPE_RECORD_H
#define MEMRUN_TRAIN_TAPE_RECORD_H

#include "train/common.h"
#include "train/tape.h"

#define TAPE_NO_PARAMETER UINT32_MAX

enum record_kind { RECORD_EMBED, RECORD_LAYERNORM, RECORD_LINEAR, RECORD_GELU, RECORD_ATTENTION };

/* What a backward rule needs to know of its forward op. */
struct tape_record {
  enum record_kind kind;
  char name[TRAIN_NAME_BYTES];
  tape_value_id x, y, residual;
  tape_parameter_id first, second; /* second: or TAPE_NO_PARAMETER */
  mr_tensor_id extra[2];           /* tokens; mean and rstd; lse */
  uint64_t in, out;
  struct op_slice slice; /* of the vocabulary */
};

/* A new record named "<prefix><name>". */
struct tape_record *tape_record_add(struct tape *tape, enum record_kind kind, const char *name);

/* Counts the record as a use of its parameters. */
void tape_parameters_use(struct tape *tape, const struct tape_record *record);

/* "<record>.<direction>" in the buffer. */
const char *tape_op_name(const struct tape_record *record, const char *direction,
                         char buffer[static TRAIN_NAME_BYTES]);

/* Adds a tensor "<name><suffix>" of the builder's type and the shape (batch, seq, width); width 0:
 * a statistic of each row, fp32, (batch, seq). */
mr_tensor_id tape_tensor_add(struct tape *tape, const char *name, const char *suffix, mr_role role,
                             uint64_t width);

tape_value_id tape_value_add(struct tape *tape, mr_tensor_id tensor, mr_tensor_id preactivation);

/* The gradient of a value, made where no op has written it yet; *accumulate_out: one has. */
mr_tensor_id tape_value_gradient(struct tape *tape, tape_value_id id, const char *name,
                                 uint64_t width, bool *accumulate_out);

/* The gradient of a parameter; *accumulate_out: an op has written it before. */
mr_tensor_id tape_parameter_gradient(struct tape *tape, tape_parameter_id id, bool *accumulate_out);

/* tape_vocabulary.c: the backward rule of a slice's embedding. */
mr_status tape_embed_rule(struct tape *tape, const struct tape_record *record, const char *name);

#endif
