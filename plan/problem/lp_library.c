/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a library that solves linear programs with dlopen: CLP through its C interface, else GLPK.
 * The few functions of them that are used are declared here, as the libraries document them, so
 * nothing of either is needed to build or to start. A library that was opened stays so: it is one
 * for the whole process, and neither promises to end well before the process does.
 */
#include <dlfcn.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "plan/problem/lp.h"

/* Where CLP stops: far above what the largest programs of the tests take. GLPK's are slower. */
#define MOST_ITERATIONS      500000
#define MOST_GLPK_ITERATIONS 30000

/* POSIX gives functions through dlsym's object pointer; memcpy converts without a cast. */
static bool find_function(void *handle, const char *name, void *function_out, size_t bytes) {
  void *symbol = dlsym(handle, name);
  memcpy(function_out, &symbol, bytes);
  return symbol != NULL;
}

#define FIND(handle, name, variable) find_function(handle, name, &(variable), sizeof(variable))

/* CLP 1.17, Clp_C_Interface.h. */
struct clp {
  void *(*new_model)(void);
  void (*delete_model)(void *model);
  void (*set_log_level)(void *model, int level);
  void (*set_most_iterations)(void *model, int count);
  void (*load_problem)(void *model, int column_count, int row_count, const int *column_start,
                       const int *entry_row, const double *entry_value, const double *column_lower,
                       const double *column_upper, const double *column_cost,
                       const double *row_lower, const double *row_upper);
  int (*initial_solve)(void *model);
  double *(*row_duals)(void *model);
};

static bool clp_open(struct clp *clp) {
  void *handle = dlopen("libClp.so.1", RTLD_NOW | RTLD_LOCAL);
  return handle != NULL && FIND(handle, "Clp_newModel", clp->new_model) &&
         FIND(handle, "Clp_deleteModel", clp->delete_model) &&
         FIND(handle, "Clp_setLogLevel", clp->set_log_level) &&
         FIND(handle, "Clp_setMaximumIterations", clp->set_most_iterations) &&
         FIND(handle, "Clp_loadProblem", clp->load_problem) &&
         FIND(handle, "Clp_initialSolve", clp->initial_solve) &&
         FIND(handle, "Clp_dualRowSolution", clp->row_duals);
}

static mr_status clp_solve(const struct mr_lp_program *program, double *row_duals_out) {
  struct clp clp;
  bool is_here = clp_open(&clp);
  MR_ASSERT(is_here);
  void *model = clp.new_model();
  clp.set_log_level(model, 0);
  clp.set_most_iterations(model, MOST_ITERATIONS);
  clp.load_problem(model, program->column_count, program->row_count, program->column_start,
                   program->entry_row, program->entry_value, program->column_lower,
                   program->column_upper, program->column_cost, program->row_lower,
                   program->row_upper);
  clp.initial_solve(model);
  memcpy(row_duals_out, clp.row_duals(model), (size_t)program->row_count * sizeof *row_duals_out);
  clp.delete_model(model);
  return MR_OK;
}

/* GLPK 5.0, glpk.h. Rows and columns are counted from 1. */
enum { GLPK_FREE = 1, GLPK_LOWER = 2, GLPK_UPPER = 3, GLPK_DOUBLE = 4, GLPK_FIXED = 5 };

/* Its glp_smcp, with room for what later releases add. */
struct glpk_parameters {
  int choices[4];
  double tolerances[5];
  int most_iterations;
  int rest[7];
  double reserved[64];
};

struct glpk {
  int (*term_out)(int flag);
  void *(*create)(void);
  void (*destroy)(void *model);
  int (*add_rows)(void *model, int count);
  int (*add_columns)(void *model, int count);
  void (*set_row)(void *model, int row, int type, double lower, double upper);
  void (*set_column)(void *model, int column, int type, double lower, double upper);
  void (*set_cost)(void *model, int column, double cost);
  void (*set_entries)(void *model, int column, int count, const int *rows, const double *values);
  void (*set_parameters)(struct glpk_parameters *parameters);
  int (*simplex)(void *model, const struct glpk_parameters *parameters);
  double (*row_dual)(void *model, int row);
};

static bool glpk_open(struct glpk *glpk) {
  void *handle = dlopen("libglpk.so.40", RTLD_NOW | RTLD_LOCAL);
  return handle != NULL && FIND(handle, "glp_term_out", glpk->term_out) &&
         FIND(handle, "glp_create_prob", glpk->create) &&
         FIND(handle, "glp_delete_prob", glpk->destroy) &&
         FIND(handle, "glp_add_rows", glpk->add_rows) &&
         FIND(handle, "glp_add_cols", glpk->add_columns) &&
         FIND(handle, "glp_set_row_bnds", glpk->set_row) &&
         FIND(handle, "glp_set_col_bnds", glpk->set_column) &&
         FIND(handle, "glp_set_obj_coef", glpk->set_cost) &&
         FIND(handle, "glp_set_mat_col", glpk->set_entries) &&
         FIND(handle, "glp_init_smcp", glpk->set_parameters) &&
         FIND(handle, "glp_simplex", glpk->simplex) &&
         FIND(handle, "glp_get_row_dual", glpk->row_dual);
}

static int glpk_kind(double lower, double upper) {
  if (lower == upper) {
    return GLPK_FIXED;
  }
  if (lower == -DBL_MAX) {
    return upper == DBL_MAX ? GLPK_FREE : GLPK_UPPER;
  }
  return upper == DBL_MAX ? GLPK_LOWER : GLPK_DOUBLE;
}

/* `rows` and `values` have room for a column and the unused place 0. */
static void glpk_load(const struct glpk *glpk, void *model, const struct mr_lp_program *program,
                      int *rows, double *values) {
  glpk->add_rows(model, program->row_count);
  glpk->add_columns(model, program->column_count);
  for (int32_t i = 0; i < program->row_count; i++) {
    double lower = program->row_lower[i];
    double upper = program->row_upper[i];
    glpk->set_row(model, i + 1, glpk_kind(lower, upper), lower, upper);
  }
  for (int32_t i = 0; i < program->column_count; i++) {
    double lower = program->column_lower[i];
    double upper = program->column_upper[i];
    int count = 0;
    glpk->set_column(model, i + 1, glpk_kind(lower, upper), lower, upper);
    glpk->set_cost(model, i + 1, program->column_cost[i]);
    for (int32_t entry = program->column_start[i]; entry < program->column_start[i + 1]; entry++) {
      rows[++count] = program->entry_row[entry] + 1;
      values[count] = program->entry_value[entry];
    }
    glpk->set_entries(model, i + 1, count, rows, values);
  }
}

static mr_status glpk_solve(const struct mr_lp_program *program, double *row_duals_out) {
  struct glpk glpk;
  bool is_here = glpk_open(&glpk);
  MR_ASSERT(is_here);
  int *rows = mr_allocate((uint64_t)program->row_count + 1, sizeof *rows);
  double *values = mr_allocate((uint64_t)program->row_count + 1, sizeof *values);
  mr_status status = MR_NO_MEMORY;
  if (rows == NULL || values == NULL) {
    goto done;
  }
  glpk.term_out(0);
  void *model = glpk.create();
  glpk_load(&glpk, model, program, rows, values);
  /* What it says of its end does not matter: the duals are checked by what they give. */
  struct glpk_parameters parameters;
  glpk.set_parameters(&parameters);
  parameters.most_iterations = MOST_GLPK_ITERATIONS;
  (void)glpk.simplex(model, &parameters);
  for (int32_t i = 0; i < program->row_count; i++) {
    row_duals_out[i] = glpk.row_dual(model, i + 1);
  }
  glpk.destroy(model);
  status = MR_OK;
done:
  free(rows);
  free(values);
  return status;
}

static bool clp_is_here(void) {
  struct clp clp;
  return clp_open(&clp);
}

static bool glpk_is_here(void) {
  struct glpk glpk;
  return glpk_open(&glpk);
}

const struct mr_lp_library mr_lp_libraries[] = {
    {"CLP", 2048, clp_is_here, clp_solve},
    {"GLPK", 1024, glpk_is_here, glpk_solve},
    {NULL, 0, NULL, NULL},
};

const struct mr_lp_library *mr_lp_library_find(void) {
  for (const struct mr_lp_library *library = mr_lp_libraries; library->name != NULL; library++) {
    if (library->is_here()) {
      return library;
    }
  }
  return NULL;
}
