/* SPDX-License-Identifier: Apache-2.0 */
/* A table of problems and their plans. */
#include "unit/plans_made.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/plans.h"

/* The linker chose these names. NOLINTBEGIN(bugprone-reserved-identifier) */
mr_status __real_mr_plan_place(const struct mr_plan_problem *problem, struct mr_program_plan *plan);
mr_status __wrap_mr_plan_place(const struct mr_plan_problem *problem, struct mr_program_plan *plan);
/* NOLINTEND(bugprone-reserved-identifier) */

struct made {
  struct mr_plan_problem problem; /* the crew: NULL */
  bool has_crew;
  struct mr_program_plan *plan;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct made *made;
static uint32_t count, room;

/* A plan that does not fit has numbers alone. */
static struct mr_program_plan *copy_of(const struct mr_program_plan *plan) {
  if (plan->fits) {
    return plan_copy(plan);
  }
  struct mr_program_plan *copy = mr_allocate(1, sizeof *copy);
  MR_ASSERT(copy != NULL && plan->instances == NULL && plan->first_operand == NULL);
  *copy = *plan;
  return copy;
}

/* What is compared byte by byte: problems are copies of each other, so bytes between fields are
 * those of the first; where they are not, a plan is made once more. */
static struct mr_plan_problem key_of(const struct mr_plan_problem *problem) {
  struct mr_plan_problem key;
  memcpy(&key, problem, sizeof key);
  key.crew = NULL;
  return key;
}

static bool find(const struct mr_plan_problem *problem, struct mr_program_plan *plan) {
  const struct mr_plan_problem key = key_of(problem);
  struct mr_program_plan *found = NULL;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < count && found == NULL; i++) {
    if (made[i].has_crew == (problem->crew != NULL) &&
        memcmp(&made[i].problem, &key, sizeof key) == 0) {
      found = copy_of(made[i].plan);
    }
  }
  pthread_mutex_unlock(&lock);
  if (found != NULL) {
    *plan = *found;
    free(found);
  }
  return found != NULL;
}

static void keep(const struct mr_plan_problem *problem, const struct mr_program_plan *plan) {
  pthread_mutex_lock(&lock);
  if (count == room) {
    room = 2 * room + 64;
    made = realloc(made, room * sizeof *made);
    MR_ASSERT(made != NULL);
  }
  struct made *next = &made[count++];
  const struct mr_plan_problem key = key_of(problem);
  memcpy(&next->problem, &key, sizeof key);
  next->has_crew = problem->crew != NULL;
  next->plan = copy_of(plan);
  pthread_mutex_unlock(&lock);
}

mr_status __wrap_mr_plan_place(const struct mr_plan_problem *problem,
                               struct mr_program_plan *plan) {
  MR_ASSERT(plan->instances == NULL);
  if (find(problem, plan)) {
    return MR_OK;
  }
  mr_status status = __real_mr_plan_place(problem, plan);
  if (status == MR_OK) {
    keep(problem, plan);
  }
  return status;
}

void plans_made_forget(void) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < count; i++) {
    plan_copy_free(made[i].plan);
  }
  free(made);
  made = NULL;
  count = room = 0;
  pthread_mutex_unlock(&lock);
}
