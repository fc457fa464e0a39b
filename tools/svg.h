/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a drawing as SVG text: the few shapes that a chart needs, coordinates in pixels from the
 * upper left corner. Looks are classes of one style sheet, which the caller gives at the start.
 * Where memory runs out, what follows is dropped and svg_finish says so. The locale is "C".
 */
#ifndef MEMRUN_TOOLS_SVG_H
#define MEMRUN_TOOLS_SVG_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

struct svg {
  char *text;
  uint32_t length;
  uint32_t capacity;
  bool failed;
};

struct svg_point {
  double x, y;
};

/* The white card on which everything stands, so that it reads on light and dark pages alike.
 * `title` is told to readers who do not see. */
void svg_begin(struct svg *svg, double width, double height, const char *title, const char *style);

void svg_line(struct svg *svg, const char *class_name, struct svg_point from, struct svg_point to);
void svg_box(struct svg *svg, const char *class_name, struct svg_point corner, double width,
             double height);
void svg_disc(struct svg *svg, const char *class_name, struct svg_point centre, double radius);
void svg_path(struct svg *svg, const char *class_name, const struct svg_point *points,
              uint32_t count, bool closed);

/* Text of any characters; `class_name` may turn and anchor it. */
void svg_text(struct svg *svg, const char *class_name, struct svg_point at, const char *text);

/* The same, turned to run upwards. */
void svg_text_upwards(struct svg *svg, const char *class_name, struct svg_point at,
                      const char *text);

/* The whole text, which the caller frees with free(). MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status svg_finish(struct svg *svg, char **text_out);

#endif
