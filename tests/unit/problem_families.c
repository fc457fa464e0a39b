/* SPDX-License-Identifier: Apache-2.0 */
/* Planning problems as text. */
#include "unit/problem_families.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#define MOST_FILE_BYTES ((size_t)1 << 20)

struct part {
  double bytes;
  double recompute_seconds; /* 0: cannot be */
};

/* What a layer of width 4096 keeps for its backward pass, with 16-bit numbers. */
static const struct part attention_parts[] = {{268435456, 0},
                                              {268435456, 0.000178956971},
                                              {268435456, 0.00274877907},
                                              {67108864, 0.000687194767},
                                              {67108864, 0.000687194767},
                                              {268435456, 0.00549755814}};
static const struct part mlp_parts[] = {{268435456, 0.00274877907},
                                        {268435456, 0.000178956971},
                                        {939524096, 0.00962072674},
                                        {939524096, 0.00962072674},
                                        {939524096, 0.000939524096}};

static const struct half {
  const struct part *parts;
  int part_count;
  double forward_seconds;
  double backward_seconds;
  double workset_bytes;
  double weight_bytes;
} halves[2] = {
    {attention_parts, MR_COUNT_OF(attention_parts), 0.0126379413, 0.0280246616, 1.34217728e9,
     83886080},
    {mlp_parts, MR_COUNT_OF(mlp_parts), 0.0300701398, 0.0601402796, 3.3554432e9, 352321536},
};

static FILE *open_text(char **text, size_t *length) {
  FILE *file = open_memstream(text, length);
  if (file == NULL) {
    abort();
  }
  return file;
}

static char *close_text(FILE *file, char **text) {
  if (fclose(file) != 0) {
    abort();
  }
  return *text;
}

/* Bytes across the middle of the step, where all activations are alive. */
static double need_bytes(const struct problem_shape *shape) {
  double bytes = halves[1].workset_bytes;
  for (int half = 0; half < 2; half++) {
    for (int i = 0; i < halves[half].part_count; i++) {
      bytes += shape->layers * halves[half].parts[i].bytes;
    }
  }
  return bytes;
}

static int tensor_count(const struct problem_shape *shape) {
  int per_layer = halves[0].part_count + halves[1].part_count;
  per_layer += shape->weight > 0 ? 4 : 0;
  per_layer += shape->gradients ? 2 : 0;
  return per_layer * shape->layers * shape->parts;
}

/* What segment p of a step, which begins with segment `base`, keeps, and the weights that it and
 * the segment that mirrors it need. */
static void print_tensors(FILE *file, const struct problem_shape *shape, int base, int p) {
  const struct half *half = &halves[p % 2];
  int mirror = base + 4 * shape->layers - 1 - p;
  int parts = shape->parts;
  double weight = half->weight_bytes * shape->weight / parts;
  for (int i = 0; i < half->part_count * parts; i++) {
    const struct part *part = &half->parts[i / parts];
    bool again = part->recompute_seconds > 0 && !shape->no_recompute;
    fprintf(file, "%.0f %d %d %.9g 0 0 %d\n", part->bytes / parts, base + p, mirror,
            again ? part->recompute_seconds * shape->cost / parts : 1e9, shape->clean);
  }
  for (int i = 0; i < parts && shape->weight > 0; i++) {
    fprintf(file, "%.0f -1 %d 1e9 1 0 0\n", weight, base + p);
    fprintf(file, "%.0f %d %d 1e9 %d 0 %d\n", weight, shape->weights_stay ? base + p : -1, mirror,
            !shape->weights_stay, shape->weights_stay);
  }
  for (int i = 0; i < parts && shape->gradients; i++) {
    fprintf(file, "%.0f %d -1 1e9 0 1 0\n", half->weight_bytes * fmax(1, shape->weight) / parts,
            mirror);
  }
}

/* Segment k of a step: which half of a layer, forward or backward. */
static const struct half *half_of(const struct problem_shape *shape, int k) {
  int count = 4 * shape->layers;
  return &halves[k < count / 2 ? k % 2 : (count - 1 - k) % 2];
}

char *problem_from_file(const char *path) {
  FILE *file = fopen(path, "re");
  char *text = calloc(1, MOST_FILE_BYTES);
  if (file == NULL || text == NULL || fread(text, 1, MOST_FILE_BYTES - 1, file) == 0) {
    perror(path);
    abort();
  }
  fclose(file);
  return text;
}

char *problem_from_shape(const struct problem_shape *shape) {
  static const double usual_rates[4] = {25e9, 25e9, 3e9, 6e9};
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_text(&text, &length);
  const double *rates = shape->rates[0] > 0 ? shape->rates : usual_rates;
  double device =
      shape->device_bytes < 10 ? shape->device_bytes * need_bytes(shape) : shape->device_bytes;
  int steps = shape->steps > 1 ? shape->steps : 1;
  int count = 4 * shape->layers;
  fprintf(file, "%d %d %.0f %.0f %.0f %.0f %.0f %.0f\n", steps * count, steps * tensor_count(shape),
          device, shape->host_bytes, rates[0], rates[1], rates[2], rates[3]);
  for (int k = 0; k < steps * count; k++) {
    const struct half *half = half_of(shape, k % count);
    bool forward = k % count < count / 2;
    fprintf(file, "%.9g ",
            shape->cost * (forward ? half->forward_seconds : half->backward_seconds));
  }
  fprintf(file, "\n");
  for (int k = 0; k < steps * count; k++) {
    fprintf(file, "%.0f ", half_of(shape, k % count)->workset_bytes);
  }
  fprintf(file, "\n");
  for (int i = 0; i < steps * count / 2; i++) {
    print_tensors(file, shape, i / (count / 2) * count, i % (count / 2));
  }
  return close_text(file, &text);
}

char *problem_from_chain(const struct problem_chain *chain) {
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_text(&text, &length);
  fprintf(file, "%d %d %.0f 0 %.9g %.9g %.9g %.9g\n", chain->segments, chain->segments - 2,
          chain->device_bytes, chain->rate, chain->rate, chain->rate, chain->rate);
  for (int k = 0; k < chain->segments; k++) {
    fprintf(file, "%.9g ", chain->compute_seconds);
  }
  for (int k = 0; k < chain->segments; k++) {
    fprintf(file, "%.0f ", chain->workset_bytes);
  }
  fprintf(file, "\n");
  for (int k = 0; k < chain->segments - 2; k++) {
    fprintf(file, "%.0f %d %d 1e9 0 0 0\n", chain->bytes, k, k + 2);
  }
  return close_text(file, &text);
}

/* A random time or size with four digits, so that sums of them are exact. */
static double draw(struct mr_random *random, double most) {
  return most * (double)(1 + mr_random_below(random, 1000)) / 1000;
}

static void print_random_tensor(FILE *file, struct mr_random *random, int segments) {
  double bytes = draw(random, mr_random_below(random, 4) == 0 ? 4000 : 1000);
  int kind = (int)mr_random_below(random, 10);
  int p = (int)mr_random_below(random, (uint64_t)segments + 1) - 1;
  int g = p + 1 + (int)mr_random_below(random, (uint64_t)(segments - p));
  double recompute = mr_random_below(random, 2) == 0 ? 1e9 : draw(random, 2);
  int clean = mr_random_below(random, 6) == 0;
  if (mr_random_below(random, 20) == 0) { /* any numbers that can be read */
    int flags = (int)mr_random_below(random, 8);
    p = (int)mr_random_below(random, (uint64_t)segments + 1) - 1;
    g = (int)mr_random_below(random, (uint64_t)segments + 2) - 1;
    fprintf(file, "%.9g %d %d %.9g %d %d %d\n", flags == 0 ? 0 : bytes, p, g, recompute, flags & 1,
            flags / 2 & 1, flags / 4);
  } else if (kind == 0) {
    g = (int)mr_random_below(random, (uint64_t)segments);
    fprintf(file, "%.9g -1 %d 1e9 1 0 0\n", bytes, g);
  } else if (kind == 1) {
    fprintf(file, "%.9g %d %d 1e9 0 1 0\n", bytes, p, segments);
  } else {
    fprintf(file, "%.9g %d %d %.9g 0 0 %d\n", bytes, p, g, recompute, clean);
  }
}

char *problem_random(uint64_t seed, struct problem_limits limits) {
  struct mr_random random;
  mr_random_init(&random, seed);
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_text(&text, &length);
  int segments = 1 + (int)mr_random_below(&random, (uint64_t)limits.segments);
  int tensors = (int)mr_random_below(&random, (uint64_t)limits.tensors + 1);
  double device = draw(&random, 1000.0 * (2 + tensors));
  double host = mr_random_below(&random, 3) == 0 ? 0 : draw(&random, 1000.0 * (1 + tensors));
  fprintf(file, "%d %d %.9g %.9g", segments, tensors, device, host);
  for (int link = 0; link < 4; link++) {
    fprintf(file, " %.9g", draw(&random, 2000));
  }
  fprintf(file, "\n");
  for (int k = 0; k < segments; k++) {
    fprintf(file, "%.9g ", draw(&random, 2));
  }
  fprintf(file, "\n");
  for (int k = 0; k < segments; k++) {
    fprintf(file, "%.9g ", draw(&random, 1000));
  }
  fprintf(file, "\n");
  for (int v = 0; v < tensors; v++) {
    print_random_tensor(file, &random, segments);
  }
  return close_text(file, &text);
}
