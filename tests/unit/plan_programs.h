/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and machines for the tests of plan/. */
#ifndef MEMRUN_TESTS_PLAN_PROGRAMS_H
#define MEMRUN_TESTS_PLAN_PROGRAMS_H

#include "base/base.h"
#include "plan/plan.h"

/* A tensor or an op that must be accepted. Operands are lists that end with MR_NO_TENSOR. */
mr_tensor_id plan_add_tensor(struct mr_graph *graph, mr_role role, uint64_t bytes);
mr_op_id plan_add_op(struct mr_graph *graph, const mr_tensor_id *inputs,
                     const mr_tensor_id *outputs, uint64_t scratch_bytes);

/* A random program: ops that read, write and change tensors of all roles and sizes; some can run on
 * the host. */
struct mr_graph *plan_random_graph(struct mr_random *random, uint32_t most_ops,
                                   uint64_t most_bytes);

/* A transformer's step: forward, backward and update of `layers` layers, with `per_layer`
 * parameters each; updates can run on the host. */
struct mr_graph *plan_training_graph(uint32_t layers, uint32_t per_layer, uint64_t weight_bytes,
                                     uint64_t activation_bytes);

/* The same with updates that wait for a norm, to which each gradient is added when it is made. */
struct mr_graph *plan_clipped_graph(uint32_t layers, uint32_t per_layer, uint64_t weight_bytes,
                                    uint64_t activation_bytes);

/* The same where other ops read copies of weights, which updates make anew. */
struct mr_graph *plan_copies_graph(uint32_t layers, uint32_t per_layer, uint64_t weight_bytes,
                                   uint64_t activation_bytes);

/* A step as the first with 8 parameters a layer: forward ops may run again, updates in the next
 * step, so that there are candidates of every kind. Ops pass one to three times so much memory. */
struct mr_graph *plan_layers_graph(uint32_t layers, uint64_t memory_bytes);
#define LINKS_TAKE_LONGER (MR_MIB / 2) /* than ops, on the machine of shed.profile */

/* Pages of 4 KiB, no budgets, links of 1 MB/s and 1 us; op_seconds are left to be set. */
void plan_problem_init(struct mr_plan_problem *problem, const struct mr_graph *graph);

/* The problem's plan, which the verifier has passed and no bound is above where it fits. */
struct mr_program_plan *plan_make_proven(const struct mr_plan_problem *problem);

/* The same time for every op; the caller frees it. */
double *plan_op_seconds(const struct mr_graph *graph, double seconds);

#endif
